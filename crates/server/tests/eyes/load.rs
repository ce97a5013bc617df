//! A load of known numbers, and what the metrics, `afar top`'s tables and the page's events say of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use afar_cell::CallbackService;
use afar_net::{Endpoint, RxNull};
use afar_rpc::{afsvol, rxafs};
use afar_server::view::{Row, Snapshot, View};
use afar_server::{Process, local_cell};
use afar_types::{
    AclText, Fid, FileName, PartitionId, Rights, StoreStatus, TransactionFlags, VolintNameText,
    VolumeId,
};
use bytes::Bytes;
use tokio::net::UnixStream;

use crate::{config, get};

const ADDRESS: &str = "127.93.0.13";
/// Each client has an address of its own.
const CLIENTS: [&str; 3] = ["127.93.0.31", "127.93.0.32", "127.93.0.33"];
const VOLUMES: u64 = 4;
/// Files of each volume.
const FILES: u64 = 10;

/// What a client does with a file, by the numbers of client, volume and file from 0.
struct Work {
    statuses: u64,
    fetches: u64,
    stores: u64,
    /// Of each fetch and store.
    bytes: u64,
}

fn work(client: u64, volume: u64, file: u64) -> Work {
    Work {
        statuses: 2 + client + 3 * volume,
        // No two files have the same number in all.
        fetches: if client == 0 {
            1 + volume * FILES + file
        } else {
            1
        },
        stores: client + volume,
        bytes: 500 + 1000 * volume + 70 * file,
    }
}

/// The sum of something of the work.
fn sum(of: impl Fn(u64, u64, u64) -> u64) -> u64 {
    let clients = 0..CLIENTS.len() as u64;
    let places = clients.flat_map(|client| (0..VOLUMES).map(move |volume| (client, volume)));
    places
        .flat_map(|(client, volume)| (0..FILES).map(move |file| (client, volume, file)))
        .map(|(client, volume, file)| of(client, volume, file))
        .sum()
}

fn volume_number(volume: u64) -> VolumeId {
    VolumeId(536_900_000 + 10 * u32::try_from(volume).unwrap())
}

struct Client {
    endpoint: Endpoint,
    files: rxafs::Client,
    _callbacks: CallbackService,
}

impl Client {
    fn new(address: &str) -> Self {
        let own = SocketAddr::new(address.parse().unwrap(), 0);
        Self::at(Endpoint::bind(own, afar_net::Config::default()).unwrap())
    }

    fn at(endpoint: Endpoint) -> Self {
        let server = SocketAddr::new(ADDRESS.parse().unwrap(), 7000);
        let connection = endpoint.connect(server, rxafs::SERVICE, Arc::new(RxNull));
        Self {
            _callbacks: CallbackService::start(&endpoint),
            files: rxafs::Client::new(connection),
            endpoint,
        }
    }

    /// Makes a volume with its files.
    async fn make(&self, volume: u64) -> Vec<Fid> {
        let server = SocketAddr::new(ADDRESS.parse().unwrap(), 7005);
        let connection = self
            .endpoint
            .connect(server, afsvol::SERVICE, Arc::new(RxNull));
        let volumes = afsvol::Client::new(connection);
        let (id, none) = (volume_number(volume), VolumeId(0));
        let name = VolintNameText::new(format!("load.{volume}")).unwrap();
        let made = volumes.create_volume(PartitionId::default(), name, 0, none, id);
        let transaction = made.await.unwrap().transaction;
        let flags = TransactionFlags::default();
        volumes.set_flags(transaction, flags).await.unwrap();
        volumes.end_trans(transaction).await.unwrap();
        let all = AclText::new(format!("1\n0\nsystem:anyuser\t{}\n\0", Rights::ALL.0)).unwrap();
        self.files.store_acl(Fid::root(id), all).await.unwrap();
        let mut made = Vec::new();
        for file in 0..FILES {
            let name = FileName::new(format!("file-{file}")).unwrap();
            let (root, plain) = (Fid::root(id), StoreStatus::default());
            let created = self.files.create_file(root, name, plain).await.unwrap();
            made.push(created.fid);
            self.store(created.fid, work(0, volume, file).bytes).await;
        }
        made
    }

    async fn store(&self, fid: Fid, bytes: u64) {
        let plain = StoreStatus::default();
        let store = self.files.store_data64(fid, plain, 0, bytes, bytes);
        let mut store = store.await.unwrap();
        let data = vec![7; usize::try_from(bytes).unwrap()];
        store.send(Bytes::from(data)).await.unwrap();
        store.finish().await.unwrap();
    }

    async fn work(&self, client: u64, made: &[Vec<Fid>]) {
        for (volume, files) in (0..).zip(made) {
            for (file, fid) in (0..).zip(files) {
                let work = work(client, volume, file);
                for _ in 0..work.statuses {
                    self.files.fetch_status(*fid).await.unwrap();
                }
                for _ in 0..work.fetches {
                    let fetch = self.files.fetch_data64(*fid, 0, 1 << 20);
                    let mut fetch = fetch.await.unwrap();
                    let mut got = 0;
                    while let Some(chunk) = fetch.chunk().await.unwrap() {
                        got += chunk.len() as u64;
                    }
                    fetch.finish().await.unwrap();
                    assert_eq!(got, work.bytes);
                }
                for _ in 0..work.stores {
                    self.store(*fid, work.bytes).await;
                }
            }
        }
    }
}

/// What is shown at a moment.
struct Looks {
    volumes: Snapshot,
    clients: Snapshot,
    files: Snapshot,
    /// The lines of the metrics: their values by names with labels.
    metrics: BTreeMap<String, f64>,
}

impl Looks {
    async fn take(run: &Path) -> Self {
        // A snapshot is good for half a second, the metrics for a whole one.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let at = async |path: &str| {
            let stream = UnixStream::connect(run.join("metrics.sock")).await;
            get(stream.unwrap(), path).await
        };
        let view = async |view: View| -> Snapshot {
            let path = format!("{}?lease=60", view.path());
            serde_json::from_str(&at(&path).await).unwrap()
        };
        let metrics = at("/metrics").await;
        let lines = metrics.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Self {
            volumes: view(View::Volumes).await,
            clients: view(View::Clients).await,
            files: view(View::Files).await,
            metrics: lines.collect(),
        }
    }

    /// The sum of the lines of a metric with these labels.
    fn metric(&self, name: &str, labels: &[String]) -> f64 {
        let of = self.metrics.iter().filter(|(line, _)| {
            line.split('{').next() == Some(name) && labels.iter().all(|label| line.contains(label))
        });
        of.map(|(_, value)| value).sum()
    }
}

/// A number of the row that has this label.
fn number(snapshot: &Snapshot, label: (&str, &str), number: impl Fn(&Row) -> u64) -> u64 {
    let mut rows = snapshot.rows.iter();
    rows.find(|row| row.label(label.0) == label.1)
        .map_or(0, number)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_shown_agrees_with_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let process = Process::start(config(dir.path(), ADDRESS)).await.unwrap();
    process.found_cell().await.unwrap();
    let admin = local_cell::endpoint(&run, afar_net::Config::default()).unwrap();
    let admin = Client::at(admin);
    let mut made = Vec::new();
    for volume in 0..VOLUMES {
        made.push(admin.make(volume).await);
    }
    let clients = CLIENTS.map(Client::new);
    let before = Looks::take(&run).await;
    let (one, two, three) = (&clients[0], &clients[1], &clients[2]);
    tokio::join!(one.work(0, &made), two.work(1, &made), three.work(2, &made));
    let after = Looks::take(&run).await;

    volumes_agree(&before, &after);
    clients_agree(&before, &after);
    files_agree(&after, &made);
    let fetches = sum(|client, volume, file| work(client, volume, file).fetches);
    let grew =
        |name: &str, labels: &[String]| after.metric(name, labels) - before.metric(name, labels);
    let fetch = ["interface=\"RXAFS\"", "operation=\"fetch_data64\""].map(str::to_owned);
    let counted = grew("afar_rpc_duration_seconds_count", &fetch);
    assert!(
        (counted - fetches as f64).abs() < 0.5,
        "{counted} {fetches}"
    );
    let bytes = sum(|client, volume, file| {
        let work = work(client, volume, file);
        work.fetches * work.bytes
    });
    let counted = grew("afar_fetched_bytes_total", &[]);
    assert!((counted - bytes as f64).abs() < 0.5, "{counted} {bytes}");
    for client in clients.iter().chain([&admin]) {
        client.endpoint.shutdown().await;
    }
    process.stop().await.unwrap();
}

fn volumes_agree(before: &Looks, after: &Looks) {
    for volume in 0..VOLUMES {
        let name = format!("load.{volume}");
        let of = |part: fn(&Work) -> u64| {
            sum(|client, of, file| {
                if of == volume {
                    part(&work(client, of, file))
                } else {
                    0
                }
            })
        };
        let label = [format!("name=\"{name}\"")];
        let check = |metric: &str, shown: &dyn Fn(&Row) -> u64, done: u64| {
            let row = |looks: &Looks| number(&looks.volumes, ("name", &name), shown);
            assert_eq!(row(after) - row(before), done, "{name}: {metric}");
            let counted = after.metric(metric, &label) - before.metric(metric, &label);
            assert!(
                (counted - done as f64).abs() < 0.5,
                "{name}: {metric} {counted} {done}"
            );
        };
        check(
            "afar_volume_read_seconds_count",
            &|row| row.times("afar_volume_read_seconds").count(),
            of(|work| work.statuses + work.fetches),
        );
        check(
            "afar_volume_write_seconds_count",
            &|row| row.times("afar_volume_write_seconds").count(),
            of(|work| work.stores),
        );
        for (metric, done) in [
            (
                "afar_volume_read_bytes_total",
                of(|work| work.fetches * work.bytes),
            ),
            (
                "afar_volume_written_bytes_total",
                of(|work| work.stores * work.bytes),
            ),
            ("afar_volume_errors_total", 0),
        ] {
            check(metric, &|row| row.count(metric), done);
        }
    }
}

fn clients_agree(before: &Looks, after: &Looks) {
    for (client, address) in (0..).zip(CLIENTS) {
        let of = |part: fn(&Work) -> u64| {
            sum(|of, volume, file| {
                if of == client {
                    part(&work(of, volume, file))
                } else {
                    0
                }
            })
        };
        for (operation, done) in [
            ("fetch_status", of(|work| work.statuses)),
            ("fetch_data64", of(|work| work.fetches)),
            ("store_data64", of(|work| work.stores)),
        ] {
            let metric = "afar_client_calls_total";
            let row = |looks: &Looks| {
                let shown = |row: &Row| row.count_by(metric, operation);
                number(&looks.clients, ("address", address), shown)
            };
            assert_eq!(row(after) - row(before), done, "{address}: {operation}");
            let labels = [
                format!("address=\"{address}\""),
                format!("operation=\"{operation}\""),
            ];
            let counted = after.metric(metric, &labels) - before.metric(metric, &labels);
            assert!(
                (counted - done as f64).abs() < 0.5,
                "{address}: {operation} {counted}"
            );
        }
    }
}

/// Files are counted from the first look on. The twenty that are read most are those, in this order.
fn files_agree(after: &Looks, made: &[Vec<Fid>]) {
    let reads = |row: &Row| row.times("afar_file_read_seconds").count();
    let mut shown: Vec<_> = after.files.rows.iter().collect();
    shown.sort_by_key(|row| std::cmp::Reverse(reads(row)));
    let mut done = Vec::new();
    for (volume, files) in (0..).zip(made) {
        for (file, fid) in (0..).zip(files) {
            let all = 0..CLIENTS.len() as u64;
            let fetches: u64 = all.map(|client| work(client, volume, file).fetches).sum();
            done.push((fetches, fetches * work(0, volume, file).bytes, *fid));
        }
    }
    done.sort_by_key(|(fetches, ..)| std::cmp::Reverse(*fetches));
    for (row, (fetches, bytes, fid)) in shown.into_iter().zip(done).take(20) {
        assert_eq!(row.label("volume"), fid.volume.0.to_string());
        assert_eq!(row.label("vnode"), fid.vnode.0.to_string());
        assert_eq!(reads(row), fetches);
        assert_eq!(row.count("afar_file_read_bytes_total"), bytes);
    }
}
