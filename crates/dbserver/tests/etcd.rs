//! Databases that agree through three members of etcd, one of which goes and comes back.

#![cfg(feature = "etcd")]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use afar_dbserver::kv::{Change, Database, DbError, EtcdOptions, Options};

const PATIENCE: Duration = Duration::from_secs(3);

/// A member of etcd, with its own directory and ports.
struct Member {
    process: Option<Child>,
    arguments: Vec<String>,
}

impl Member {
    fn start(&mut self) {
        let process = Command::new("etcd")
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Cluster {
    members: Vec<Member>,
    endpoints: Vec<String>,
    dir: tempfile::TempDir,
}

fn free_ports(count: usize) -> Vec<u16> {
    let bound: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports = bound
        .iter()
        .map(|socket| socket.local_addr().unwrap().port());
    ports.collect()
}

impl Cluster {
    /// Three members; `None`, and a message, where etcd is not available.
    fn start() -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            #[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
            {
                eprintln!("skipped: etcd (package etcd-server) is missing");
            }
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(6);
        let peer = |n: usize| format!("http://127.0.0.1:{}", ports[n]);
        let client = |n: usize| format!("http://127.0.0.1:{}", ports[3 + n]);
        let all: Vec<String> = (0..3).map(|n| format!("m{n}={}", peer(n))).collect();
        let member = |n: usize| {
            let data: PathBuf = dir.path().join(format!("m{n}"));
            let arguments = [
                ["--name", &format!("m{n}")],
                ["--data-dir", data.to_str().unwrap()],
                ["--listen-peer-urls", &peer(n)],
                ["--initial-advertise-peer-urls", &peer(n)],
                ["--listen-client-urls", &client(n)],
                ["--advertise-client-urls", &client(n)],
                ["--initial-cluster", &all.join(",")],
            ];
            let arguments = arguments.as_flattened().iter();
            Member {
                process: None,
                arguments: arguments.map(ToString::to_string).collect(),
            }
        };
        let mut cluster = Self {
            members: (0..3).map(member).collect(),
            endpoints: (0..3).map(client).collect(),
            dir,
        };
        cluster.members.iter_mut().for_each(Member::start);
        Some(cluster)
    }

    fn options(&self) -> Options {
        let mut etcd = EtcdOptions::new(self.endpoints.clone());
        etcd.patience = PATIENCE;
        etcd.reads_alone = Duration::from_secs(4);
        let mut options = Options::default();
        options.etcd = Some(etcd);
        options
    }

    fn open(&self, name: &str) -> Database {
        Database::open(&self.path(name), &self.options()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Adds one to a number; its new value.
fn increment(change: &mut Change<'_>) -> Result<u32, DbError> {
    let number = number(change.get(b"Vnumber")?) + 1;
    change.put(b"Vnumber", &number.to_be_bytes())?;
    change.put(&[b"Vat/", &number.to_be_bytes()[..]].concat(), b"")?;
    Ok(number)
}

fn number(row: Option<&[u8]>) -> u32 {
    row.map_or(0, |row| u32::from_be_bytes(row.try_into().unwrap()))
}

/// Waits until etcd takes a change.
async fn ready(database: &Database) -> u32 {
    let start = Instant::now();
    loop {
        match database.write(increment).await {
            Ok(number) => return number,
            Err(DbError::NoQuorum) if start.elapsed() < Duration::from_secs(60) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows(database: &Database) -> Result<Rows, DbError> {
    database.read(|view| {
        view.range(b"", b"")
            .map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect()
    })
}

/// Waits until a database has the rows of another one.
async fn agree(one: &Database, other: &Database) -> Rows {
    let start = Instant::now();
    loop {
        let (rows, others) = (rows(one), rows(other));
        match (rows, others) {
            (Ok(rows), Ok(others)) if rows == others => return rows,
            (rows, _) if start.elapsed() > Duration::from_secs(30) => {
                panic!(
                    "they do not agree; one has {:?} rows",
                    rows.map(|rows| rows.len())
                );
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn many(databases: &[Database], each: usize) -> usize {
    let tasks: Vec<_> = databases
        .iter()
        .map(|database| {
            let database = database.clone();
            tokio::spawn(async move {
                let mut done = 0;
                for _ in 0..each {
                    match database.write(increment).await {
                        Ok(_) => done += 1,
                        Err(DbError::NoQuorum) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_agree_while_a_member_goes_and_comes_back() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let databases = ["a", "b", "c"].map(|name| cluster.open(name));
    ready(&databases[0]).await;
    let mut done = 1 + many(&databases, 40).await;
    assert_eq!(done, 121, "nothing is lost without need");
    for gone in 0..3 {
        cluster.members[gone].kill();
        done += many(&databases, 20).await;
        cluster.members[gone].start();
        done += many(&databases, 20).await;
    }
    agree(&databases[0], &databases[1]).await;
    let rows = agree(&databases[1], &databases[2]).await;
    // Each change was made once, one after the other; one of unknown outcome may be there.
    let last = number(rows.last().map(|(_, value)| &value[..]));
    assert_eq!(usize::try_from(last).unwrap(), rows.len() - 1);
    assert!(rows.len() > done, "{} rows, {done} changes", rows.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_changes_and_reads_end() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let database = cluster.open("a");
    ready(&database).await;
    cluster.members[0].kill();
    cluster.members[1].kill();
    let refused = Instant::now();
    let write = database.write(increment).await;
    assert!(matches!(write, Err(DbError::NoQuorum)), "{write:?}");
    assert!(refused.elapsed() < 3 * PATIENCE, "{:?}", refused.elapsed());
    let start = Instant::now();
    while rows(&database).is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "reads go on for ever"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        rows(&database).unwrap_err().code(),
        afar_dbserver::kv::UNOQUORUM
    );
    cluster.members[0].start();
    ready(&database).await;
    rows(&database).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_catches_up_even_after_a_compaction() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (a, b) = (cluster.open("a"), cluster.open("b"));
    ready(&a).await;
    agree(&a, &b).await;
    drop(b);
    many(std::slice::from_ref(&a), 10).await;
    let b = cluster.open("b");
    agree(&a, &b).await;
    drop(b);
    many(std::slice::from_ref(&a), 10).await;
    let delete = |change: &mut Change<'_>| change.delete(b"Vat/\0\0\0\x01");
    a.write(delete).await.unwrap();
    let mut etcd = etcd_client::Client::connect(&cluster.endpoints, None)
        .await
        .unwrap();
    let revision = etcd
        .get("x", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    etcd.compact(revision, None).await.unwrap();
    let b = cluster.open("b");
    let rows = agree(&a, &b).await;
    assert!(!rows.iter().any(|(key, _)| key == b"Vat/\0\0\0\x01"));
    // A server that comes new gets everything too.
    agree(&a, &cluster.open("c")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_changes_go_as_one_and_too_large_ones_are_refused() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (a, b) = (cluster.open("a"), cluster.open("b"));
    ready(&a).await;
    let fill = |count: u32, size: usize| {
        move |change: &mut Change<'_>| {
            (0..count).try_for_each(|n| {
                change.put(&[b"P", &n.to_be_bytes()[..]].concat(), &vec![7; size])
            })
        }
    };
    let count = u32::try_from(a.rows_per_change()).unwrap();
    a.write(fill(count, 16)).await.unwrap();
    assert_eq!(agree(&a, &b).await.len(), 2 + a.rows_per_change());
    for (count, size) in [(count + 1, 1), (1, 2_000_000)] {
        let refused = a.write(fill(count, size)).await;
        assert!(
            matches!(refused, Err(DbError::TooLarge { .. })),
            "{refused:?}"
        );
    }
    ready(&b).await;
}

#[test]
fn rows_that_are_not_from_etcd_are_not_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let local = Database::open(dir.path(), &Options::default()).unwrap();
    runtime
        .block_on(local.write(|change| change.put(b"Vx", b"")))
        .unwrap();
    drop(local);
    let mut options = Options::default();
    options.etcd = Some(EtcdOptions::new(vec!["http://127.0.0.1:1".to_owned()]));
    let open = |dir: &Path| Database::open(dir, &options);
    assert!(matches!(open(dir.path()), Err(DbError::NotReplica(_))));
}
