//! Makes a location database of many entries and measures look-ups: in process, and over Rx on
//! loopback. Prints one line of JSON.
//!
//! `cargo run --release -p afar-dbserver --example vldb_scale [ENTRIES [SECONDS [DIRECTORY]]]`

#![expect(clippy::unwrap_used, reason = "an example stops at the first failure")]
#![expect(clippy::print_stdout, reason = "its result is a line of output")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use afar_dbserver::kv::{Database, Options};
use afar_dbserver::vl::{Entry, LocationConfig, LocationServer, Server, SiteBytes, Vldb};
use afar_net::{Config, Endpoint, RxNull};
use afar_rpc::vl;
use afar_types::{VolumeId, VolumeName};

const FIRST_ID: u32 = 536_870_912;

fn name(n: u32) -> String {
    format!("user.home.{n:07}")
}

fn contents(entries: u32) -> Vldb {
    let servers = (0..50u8).map(|n| {
        let addresses = vec![0x0a00_0001 + u32::from(n)];
        let identity = None;
        (
            n,
            Server {
                identity,
                addresses,
            },
        )
    });
    let entry = |n: u32| Entry {
        name: name(n).into_bytes(),
        ids: [0, 1, 2].map(|kind| FIRST_ID + 3 * n + kind),
        flags: 0x7000,
        places: (0..3u8)
            .map(|copy| SiteBytes {
                server: u8::try_from((n + u32::from(copy)) % 50).unwrap(),
                partition: copy,
                flags: if copy == 0 { 4 } else { 2 },
            })
            .collect(),
        ..Entry::default()
    };
    Vldb {
        max_volume_id: FIRST_ID + 3 * entries,
        servers: servers.collect(),
        entries: (0..entries).map(entry).collect(),
    }
}

/// Look-ups a second on this many threads.
fn measure(threads: u32, time: Duration, look_up: impl Fn(u32) + Sync) -> f64 {
    let total = AtomicU32::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut done = 0;
                while start.elapsed() < time {
                    for _ in 0..256 {
                        look_up(fastrand::u32(..));
                    }
                    done += 256;
                }
                total.fetch_add(done, Ordering::Relaxed);
            });
        }
    });
    f64::from(total.into_inner()) / start.elapsed().as_secs_f64()
}

async fn over_rx(server: LocationServer, entries: u32, time: Duration) -> f64 {
    let bind = || Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let (client, endpoint) = (bind(), bind());
    endpoint.serve(vl::SERVICE, "locations", vl::Server::new(server));
    endpoint.stats().await;
    let total = Arc::new(AtomicU32::new(0));
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let connection = client.connect(endpoint.local_addr(), vl::SERVICE, Arc::new(RxNull));
        let calls = vl::Client::new(connection);
        for _ in 0..4 {
            let (calls, total) = (calls.clone(), Arc::clone(&total));
            tasks.push(tokio::spawn(async move {
                while start.elapsed() < time {
                    let wanted = VolumeName::new(name(fastrand::u32(..entries))).unwrap();
                    calls.get_entry_by_name_u(wanted).await.unwrap();
                    total.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    f64::from(total.load(Ordering::Relaxed)) / start.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u32| {
        arguments
            .next()
            .map_or(default, |text| text.parse().unwrap())
    };
    let (entries, seconds) = (number(1_500_000), number(5));
    let temporary = tempfile::tempdir().unwrap();
    let dir = arguments
        .next()
        .map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let database = Database::open(&dir, &Options::default()).unwrap();
    let server = LocationServer::open(database, LocationConfig::default()).unwrap();
    let contents = contents(entries);
    let start = Instant::now();
    server.load(contents).await.unwrap();
    let load = start.elapsed();
    let time = Duration::from_secs(seconds.into());
    let by_id = |random: u32| {
        let id = VolumeId(FIRST_ID + random % (3 * entries));
        server.entry_by_id(id, None).unwrap();
    };
    let by_name = |random: u32| {
        server
            .entry_by_name(name(random % entries).as_bytes())
            .unwrap();
    };
    let rates = [
        measure(1, time, by_id),
        measure(2, time, by_id),
        measure(1, time, by_name),
        measure(2, time, by_name),
    ];
    let file = std::fs::metadata(dir.join("data.mdb")).unwrap().len();
    let rx = over_rx(server.clone(), entries, time).await;
    let result = serde_json::json!({
        "entries": entries,
        "load_s": load.as_secs_f64(),
        "file_bytes": file,
        "by_id_per_s": rates[0].round(),
        "by_id_2_threads_per_s": rates[1].round(),
        "by_name_per_s": rates[2].round(),
        "by_name_2_threads_per_s": rates[3].round(),
        "rx_by_name_per_s": rx.round(),
    });
    println!("{result}");
}
