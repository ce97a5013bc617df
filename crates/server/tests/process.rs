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
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 93, 0, 2);
const VL_PORT: u16 = 7003;

fn config(dir: &Path, address: Ipv4Addr) -> Config {
    let text = format!(
        "cell = \"test.example\"\ndata = {data:?}\nrun = {run:?}\nlisten = \"{address}\"\n\
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
async fn volume(run: &Path, address: Ipv4Addr, name: &str) -> u32 {
    let endpoint = local_cell::endpoint(run, afar_net::Config::default()).unwrap();
    let address = SocketAddr::from((address, VL_PORT));
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
    let cell: CellName = "test.example".parse().unwrap();
    let mut ids = Vec::new();
    // The other address is that of the same machine, moved: it starts again at once.
    for address in [ADDRESS, ADDRESS, OTHER] {
        let config = config(dir.path(), address);
        let process = Process::start(config.clone()).await.unwrap();
        process.found_cell().await.unwrap();
        assert_eq!(process.listen(), address);
        assert_eq!(config.cell().unwrap(), cell);
        let run = dir.path().join("run");
        ids.push([
            volume(&run, address, "root.afs").await,
            volume(&run, address, "root.cell").await,
        ]);
        // Two servers with one directory would write over each other.
        let second = Process::start(config.clone()).await;
        assert!(second.is_err());
        process.stop().await.unwrap();
    }
    assert!(ids.iter().all(|other| *other == ids[0]), "{ids:?}");
    assert_ne!(ids[0][0], ids[0][1]);
}
