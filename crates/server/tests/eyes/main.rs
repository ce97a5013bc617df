//! The metrics of a whole server, as Prometheus reads them, and what is made of them: docs/admin/eyes.md,
//! which lists them, the dashboard and the alerts.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![expect(
    clippy::print_stdout,
    reason = "a test that leaves something out says so"
)]

mod browser;
mod load;
mod page;
mod prometheus;
mod queries;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use afar_net::{Endpoint, RxNull};
use afar_rpc::{pr, rxafs, vl};
use afar_server::config::Config;
use afar_server::view::{Snapshot, View};
use afar_server::{Process, local_cell};
use afar_types::{Fid, VolumeId, VolumeName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// AFS's ports are fixed, so the server has a loopback address of its own.
const ADDRESS: &str = "127.93.0.9";
const METRICS: &str = "127.93.0.9:9109";

fn config(dir: &Path, address: &str) -> Config {
    std::fs::create_dir_all(dir.join("a")).unwrap();
    let text = format!(
        "cell = \"test.example\"\ndata = {data:?}\nrun = {run:?}\nlisten = \"{address}\"\n\
         [metrics]\nlisten = \"{address}:9109\"\n[oob]\nenabled = true\n[partition.a]\npath = {a:?}\n",
        data = dir.join("data"),
        run = dir.join("run"),
        a = dir.join("a"),
    );
    Config::parse(&text).unwrap()
}

/// The metrics in the answer of an HTTP server.
async fn scrape(stream: impl AsyncReadExt + AsyncWriteExt + Unpin) -> String {
    get(stream, "/metrics").await
}

/// A page of an HTTP server.
async fn get(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// A new client's calls of each server at an address.
async fn use_it(run: &Path, address: &str) {
    let endpoint = local_cell::endpoint(run, afar_net::Config::default()).unwrap();
    call(&endpoint, address).await;
    endpoint.shutdown().await;
}

/// Calls of each server at an address.
async fn call(endpoint: &Endpoint, address: &str) {
    let connect = |port, service| {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        endpoint.connect(address, service, Arc::new(RxNull))
    };
    let volumes = vl::Client::new(connect(7003, vl::SERVICE));
    let name = VolumeName::new("root.cell").unwrap();
    let entry = volumes.get_entry_by_name_n(name).await.unwrap().entry;
    let files = rxafs::Client::new(connect(7000, rxafs::SERVICE));
    let root = Fid::root(entry.volume_id[0]);
    for _ in 0..3 {
        files.fetch_status(root).await.unwrap();
    }
    let data = files.fetch_data64(root, 0, 2048).await.unwrap();
    data.finish().await.unwrap();
    files
        .fetch_status(Fid::root(VolumeId(1)))
        .await
        .unwrap_err();
    let users = pr::Client::new(connect(7002, pr::SERVICE));
    users.list_max().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_counts_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let process = Process::start(config(dir.path(), ADDRESS)).await.unwrap();
    process.found_cell().await.unwrap();
    use_it(&run, ADDRESS).await;

    let over_tcp = scrape(TcpStream::connect(METRICS).await.unwrap()).await;
    let rows: Vec<&str> = over_tcp.lines().collect();
    let value = |metric: &str, labels: &[&str]| -> f64 {
        let is_it =
            |row: &&&str| row.starts_with(metric) && labels.iter().all(|label| row.contains(label));
        let row = rows.iter().find(is_it);
        let row = row.unwrap_or_else(|| panic!("no {metric} with {labels:?} in\n{over_tcp}"));
        row.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let status = ["interface=\"RXAFS\"", "operation=\"fetch_status\""];
    assert!(value("afar_rpc_duration_seconds_count{", &status) >= 3.0);
    assert!(value("afar_rpc_errors_total{", &status) >= 1.0);
    let fetch = ["interface=\"RXAFS\"", "operation=\"fetch_data64\""];
    assert!(value("afar_rpc_sent_bytes_total{", &fetch) >= 2048.0);
    for interface in ["VL", "PR"] {
        let label = format!("interface=\"{interface}\"");
        value("afar_rpc_duration_seconds_count{", &[&label]);
    }
    let volume = ["name=\"root.cell\"", "partition=\"/vicepa\""];
    assert!(value("afar_volume_read_seconds_count{", &volume) >= 4.0);
    assert!(value("afar_volume_read_bytes_total{", &volume) >= 2048.0);
    let client = ["user=\"superuser\"", "operation=\"fetch_status\""];
    assert!(value("afar_client_calls_total{", &client) >= 4.0);
    assert!(value("afar_partition_free_bytes{", &["partition=\"/vicepa\""]) > 0.0);
    assert!(value("afar_start_time_seconds", &[]) > 1e9);

    let socket = run.join("metrics.sock");
    let local = scrape(UnixStream::connect(&socket).await.unwrap()).await;
    let names = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(names(&over_tcp), names(&local));
    prometheus::check_metrics(&local);
    check_page(&process);
    check_views(&socket, &run).await;
    queries::check(&local);
    process.stop().await.unwrap();
    assert!(!socket.exists());
    assert!(TcpStream::connect(METRICS).await.is_err());
}

/// What viewers are shown.
async fn check_views(socket: &Path, run: &Path) {
    let look = async |view: View| -> Snapshot {
        let path = format!("{}?lease=30", view.path());
        let text = get(UnixStream::connect(socket).await.unwrap(), &path).await;
        serde_json::from_str(&text).unwrap()
    };
    let volumes = look(View::Volumes).await;
    assert_eq!(volumes.cell, "test.example");
    let mut rows = volumes.rows.iter();
    let root = rows.find(|row| row.label("name") == "root.cell").unwrap();
    assert_eq!(root.label("partition"), "/vicepa");
    assert!(root.times("afar_volume_read_seconds").count() >= 4);
    let clients = look(View::Clients).await;
    let mut rows = clients.rows.iter();
    let own = rows.find(|row| row.label("user") == "superuser").unwrap();
    assert!(own.count_by("afar_client_calls_total", "fetch_status") >= 4);
    // Files are counted from the first look on.
    let fetches = |snapshot: &Snapshot| -> u64 {
        let rows = snapshot.rows.iter();
        rows.map(|row| row.times("afar_file_read_seconds").count())
            .sum()
    };
    assert_eq!(fetches(&look(View::Files).await), 0);
    use_it(run, ADDRESS).await;
    // The same snapshot is good for half a second.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let files = look(View::Files).await;
    assert!(fetches(&files) >= 1, "{files:?}");
    let mut rows = files.rows.iter();
    assert!(rows.any(|row| row.label("name") == "root.cell"));
    assert_eq!(look(View::Calls).await.beyond, 0);
}

/// How the names of a mount's metrics begin, which are on the page too; crates/afar/tests/mount looks at these.
const OF_MOUNTS: [&str; 3] = ["afar_mount_", "afar_cache_", "afar_process_"];

/// The page has a row for each metric, with its kind, and no others.
fn check_page(process: &Process) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin/eyes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let listed: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `afar_"))
        .map(|row| {
            let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`'));
            let name = format!("afar_{}", cells.next().unwrap());
            (name, cells.next().unwrap().to_owned())
        })
        .filter(|(name, _)| !OF_MOUNTS.iter().any(|begin| name.starts_with(begin)))
        .collect();
    let counted = process.registry().describe().into_iter();
    let counted = counted.map(|desc| {
        let kind = format!("{:?}", desc.kind()).to_lowercase();
        (desc.name().to_owned(), kind)
    });
    assert_eq!(listed, counted.collect());
}
