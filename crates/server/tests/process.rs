//! A server in this process, from its configuration to its end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use afar_net::RxNull;
use afar_rpc::vl;
use afar_server::config::Config;
use afar_server::{Process, local_cell};
use afar_types::{CellName, VolumeName};

/// AFS's ports are fixed, so each test has a loopback address of its own.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 93, 0, 1);
const VL_PORT: u16 = 7003;

fn config(dir: &Path) -> Config {
    let text = format!(
        "cell = \"test.example\"\ndata = {data:?}\nrun = {run:?}\nlisten = \"{ADDRESS}\"\n\
         [partition.a]\npath = {a:?}\n",
        data = dir.join("data"),
        run = dir.join("run"),
        a = dir.join("a"),
    );
    std::fs::create_dir_all(dir.join("a")).unwrap();
    let config = Config::parse(&text).unwrap();
    config.check().unwrap();
    config
}

/// The number of a volume, as the administrator of this machine is told it.
async fn volume(run: &Path, name: &str) -> u32 {
    let endpoint = local_cell::endpoint(run, afar_net::Config::default()).unwrap();
    let address = SocketAddr::from((ADDRESS, VL_PORT));
    let connection = endpoint.connect(address, vl::SERVICE, Arc::new(RxNull));
    let client = vl::Client::new(connection);
    let found = client.get_entry_by_name_n(VolumeName::new(name).unwrap());
    let entry = found.await.unwrap().entry;
    endpoint.shutdown().await;
    entry.volume_id[0].0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_starts_in_a_program_and_is_the_same_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let cell: CellName = "test.example".parse().unwrap();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let process = Process::start(config.clone()).await.unwrap();
        process.found_cell().await.unwrap();
        assert_eq!(process.listen(), ADDRESS);
        assert_eq!(config.cell().unwrap(), cell);
        let run = dir.path().join("run");
        ids.push([
            volume(&run, "root.afs").await,
            volume(&run, "root.cell").await,
        ]);
        // Two servers with one directory would write over each other.
        let second = Process::start(config.clone()).await;
        assert!(second.is_err());
        process.stop().await.unwrap();
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0][0], ids[0][1]);
}
