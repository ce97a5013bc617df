//! A server that is killed while clients work, and started again: what was acknowledged is there,
//! and nobody goes on believing what is old.
//!
//! `AFAR_TEST_KILLS` tells how often (3), `AFAR_TEST_SEED` what is done.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cache;
mod check;
mod history;
mod model;
mod server;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use afar_types::Fid;
use bytes::Bytes;
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use cache::{CacheManager, mode, name};
use history::History;
use server::Server;
use writer::{Writer, is_gone};

const WRITERS: usize = 6;
const READERS: usize = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Whether there is still something to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Not,
    /// After the call at hand.
    Soon,
    /// The server is dead: what has no answer will have none.
    Now,
}

/// Everybody at work in a cell.
struct Load {
    server: Server,
    root: Fid,
    history: Arc<History>,
    writers: Vec<Writer>,
    readers: Vec<CacheManager>,
}

impl Load {
    async fn new(seed: u64) -> Self {
        let mut server = Server::new(&[]);
        server.start();
        let root = server.open_to_all().await;
        let history = Arc::new(History::default());
        let first = CacheManager::new(server.files()).await;
        let directory = async |file: &str| {
            let made = first.files.make_dir(root, name(file), mode(0o755));
            made.await.unwrap().fid
        };
        let shared = directory("shared").await;
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for number in 0..WRITERS {
            writers.push(Writer {
                cache: CacheManager::new(server.files()).await,
                number,
                home: directory(&format!("home{number}")).await,
                shared,
                tree: model::Tree::default(),
                doubt: None,
                acknowledged: 0,
                rng: Rng::with_seed(seed.wrapping_mul(100).wrapping_add(number as u64)),
                history: Arc::clone(&history),
            });
        }
        for _ in 0..READERS {
            readers.push(CacheManager::new(server.files()).await);
        }
        Self {
            server,
            root,
            history,
            writers,
            readers,
        }
    }

    /// Has everybody work for so long, then kills the server or has it stop.
    async fn work(&mut self, time: Duration, kill: bool) {
        let (over, is_over) = watch::channel(Over::Not);
        let fids = self.known_fids();
        let mut working = JoinSet::new();
        for mut writer in std::mem::take(&mut self.writers) {
            let is_over = is_over.clone();
            working.spawn(async move {
                writer.work(is_over).await;
                writer
            });
        }
        let mut reading = JoinSet::new();
        for reader in std::mem::take(&mut self.readers) {
            let (is_over, fids) = (is_over.clone(), fids.clone());
            let history = Arc::clone(&self.history);
            reading.spawn(async move {
                read(&reader, &fids, &history, is_over).await;
                reader
            });
        }
        tokio::time::sleep(time).await;
        if kill {
            self.server.kill();
        }
        over.send_replace(if kill { Over::Now } else { Over::Soon });
        self.writers = working.join_all().await;
        self.writers.sort_by_key(|writer| writer.number);
        self.readers = reading.join_all().await;
    }

    /// What readers are to look at: it is not known before what comes later.
    fn known_fids(&self) -> Vec<Fid> {
        let all = self.writers.iter().flat_map(|w| w.tree.objects.keys());
        all.copied().collect()
    }

    /// Everybody's first call after a restart ends their promises, and what they read then is the
    /// newest. A client that is new finds all that was acknowledged.
    async fn check(&mut self) {
        let server = self.server.files();
        let writers = self.writers.iter_mut().map(|writer| &mut writer.cache);
        for client in writers.chain(&mut self.readers) {
            let known = client.resets();
            client.reconnect(server);
            client.files.fetch_status(self.root).await.unwrap();
            client.reset_after(known).await;
            assert_eq!(client.resets(), known + 1, "told once");
            let kept = client.all_promised();
            assert!(kept.len() <= 1, "only what was just read: {kept:?}");
        }
        let reader = CacheManager::new(server).await;
        for writer in &mut self.writers {
            check::check(&reader, writer).await;
        }
        for reader in &self.readers {
            for fid in self.known_fids() {
                let (data, status) = reader.fetch(fid).await.unwrap();
                if fid.vnode.0.is_multiple_of(2) {
                    self.history.saw(fid, status.data_version, &data);
                    assert!(self.history.newest(fid) <= Some(status.data_version));
                }
            }
        }
    }

    /// Nobody has a promise about a version that is not the newest, once all is quiet.
    async fn check_promises(&self) {
        let fresh = CacheManager::new(self.server.files()).await;
        for client in self
            .readers
            .iter()
            .chain(self.writers.iter().map(|w| &w.cache))
        {
            for (fid, version) in client.all_promised() {
                match fresh.files.fetch_status(fid).await {
                    Ok(reply) => assert_eq!(reply.status.data_version, version, "{fid:?}"),
                    // What is removed is gone without a word: its directory has changed.
                    Err(error) => assert!(is_gone(&error), "{fid:?}: {error:?}"),
                }
            }
        }
    }
}

/// Reads files over and over while they change; what is promised is not asked for again.
async fn read(
    reader: &CacheManager,
    fids: &[Fid],
    history: &History,
    mut over: watch::Receiver<Over>,
) {
    let mut rng = Rng::new();
    while !fids.is_empty() && *over.borrow() == Over::Not {
        let fid = fids[rng.usize(..fids.len())];
        if reader.promised(fid).is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let fetched = tokio::select! {
            biased;
            fetched = reader.fetch(fid) => fetched,
            _ = over.wait_for(|over| *over == Over::Now) => return,
        };
        match fetched {
            Ok((data, status)) if fid.vnode.0.is_multiple_of(2) => {
                history.saw(fid, status.data_version, &data);
            }
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                assert_eq!(error.aborted(), None, "{fid:?}: {error:?}");
                return;
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_stale_is_read() {
    let (kills, seed) = (setting("AFAR_TEST_KILLS", 3), setting("AFAR_TEST_SEED", 1));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        eprintln!("again: AFAR_TEST_SEED={seed} AFAR_TEST_KILLS={kills}");
        let mut rng = Rng::with_seed(seed);
        let mut load = Load::new(seed).await;
        let mut slowest = Duration::ZERO;
        for kill in 0..kills {
            // Some live until they have done something about their space.
            let longest = if kill % 5 == 4 { 6000 } else { 2000 };
            let time = Duration::from_millis(rng.u64(50..longest));
            load.work(time, true).await;
            if kill % 5 == 0 {
                load.server.check_store();
            }
            slowest = slowest.max(load.server.start());
            load.check().await;
        }
        load.work(Duration::from_secs(1), false).await;
        load.check_promises().await;
        for writer in &mut load.writers {
            let reader = CacheManager::new(load.server.files()).await;
            check::check(&reader, writer).await;
        }
        let memory = load.server.memory() >> 20;
        load.server.stop();
        load.server.check_store();
        let acknowledged: u64 = load.writers.iter().map(|writer| writer.acknowledged).sum();
        assert!(acknowledged > 10 * kills, "{acknowledged} changes only");
        eprintln!(
            "{kills} kills, {acknowledged} changes, slowest start {slowest:.1?}, {memory} MiB"
        );
    });
}

#[test]
fn promises_survive_a_graceful_restart() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut server = Server::new(&[]);
        server.start();
        let root = server.open_to_all().await;
        let one = CacheManager::new(server.files()).await;
        let mut other = CacheManager::new(server.files()).await;
        let made = one.files.create_file(root, name("a"), mode(0o644));
        let fid = made.await.unwrap().fid;
        let made = one.files.create_file(root, name("b"), mode(0o644));
        let quiet = made.await.unwrap().fid;
        let data = Bytes::from_static(b"old");
        other.store(fid, 0, data, 3).await.unwrap();
        let (_, status) = one.fetch(fid).await.unwrap();
        one.fetch(quiet).await.unwrap();
        let version = status.data_version;
        assert_eq!(one.promised(fid), Some(version));
        let resets = (one.resets(), other.resets());

        server.stop();
        server.start();

        assert_eq!(one.promised(fid), Some(version));
        other.reconnect(server.files());
        let data = Bytes::from_static(b"new");
        let stored = other.store(fid, 0, data, 3).await.unwrap();
        assert_eq!(stored.data_version.0, version.0 + 1);
        // The break was answered before the change was.
        assert_eq!(one.promised(fid), None, "an old promise is broken");
        assert!(one.promised(quiet).is_some(), "and no other one");
        let (data, _) = one.fetch(fid).await.unwrap();
        assert_eq!(data, b"new");
        assert_eq!(
            (one.resets(), other.resets()),
            resets,
            "nobody was told to drop promises"
        );
        server.stop();
        server.check_store();
    });
}
