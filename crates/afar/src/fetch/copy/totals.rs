//! Counts of a copy, and what `--json` prints of it.

use std::time::Duration;

use afar_cell::{Client, Fetched};
use serde::Serialize;

use crate::fetch::Failures;

/// Counts of a whole copy.
#[derive(Debug, Default, Clone)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) symlinks: u64,
    pub(crate) skipped: u64,
    pub(crate) bytes: u64,
    /// Bytes of these that a mount of this machine had in its cache.
    pub(crate) cached: u64,
    pub(crate) calls: u64,
    pub(crate) restarts: u64,
    /// Names that were the same already.
    pub(crate) unchanged: u64,
    /// Files of which only mode or time was set.
    pub(crate) attributes: u64,
    pub(crate) deleted: u64,
    /// Bytes that an interrupted copy left behind and this run did not copy again.
    pub(crate) kept: u64,
    /// From the start of the first file to the end of the last.
    pub(crate) transfer: Duration,
    pub(crate) whole: Duration,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.skipped += other.skipped;
        self.bytes += other.bytes;
        self.cached += other.cached;
        self.calls += other.calls;
        self.restarts += other.restarts;
        self.unchanged += other.unchanged;
        self.attributes += other.attributes;
        self.deleted += other.deleted;
        self.kept += other.kept;
    }

    /// Counts what was fetched of a file.
    pub(crate) fn fetched(&mut self, fetched: &Fetched) {
        self.bytes += fetched.bytes;
        self.cached += fetched.near;
        self.calls += fetched.calls;
        self.restarts += u64::from(fetched.restarts);
    }

    /// Bytes a second, while files were copied.
    #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub(crate) fn rate(&self) -> f64 {
        if self.transfer.is_zero() {
            0.0
        } else {
            self.bytes as f64 / self.transfer.as_secs_f64()
        }
    }
}

/// A whole copy.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    files: u64,
    directories: u64,
    symlinks: u64,
    /// Files that existed (-n).
    skipped: u64,
    failed: u64,
    bytes: u64,
    /// Bytes of these that a mount of this machine had in its cache.
    cached: u64,
    /// Bytes that an interrupted copy left behind and this run did not copy again.
    kept: u64,
    /// From when the paths are known to the last rename.
    seconds: f64,
    /// From the start of the first file to the end of the last.
    transfer_seconds: f64,
    /// Bytes a second, by `transfer_seconds`.
    rate: f64,
    /// Calls that fetched or stored data.
    calls: u64,
    /// Files restarted, as they had changed.
    restarts: u64,
    #[serde(flatten)]
    traffic: Traffic,
}

/// What went over the network.
#[derive(Debug, Serialize)]
pub(crate) struct Traffic {
    servers: Vec<Server>,
    /// DATA packets that came twice: sent again by servers without need.
    duplicates: u64,
    /// DATA packets sent again by this side.
    retransmissions: u64,
    datagrams_received: u64,
    datagrams_sent: u64,
}

#[derive(Debug, Serialize)]
struct Server {
    address: String,
    calls: u64,
    /// The most fetch calls at a time.
    parallel: usize,
    afar: bool,
    rtt_min_ms: Option<f64>,
    rtt_smoothed_ms: Option<f64>,
}

impl Report {
    pub(crate) async fn new(client: &Client, totals: &Totals, failures: &Failures) -> Self {
        Self {
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            skipped: totals.skipped,
            failed: failures.count,
            bytes: totals.bytes,
            cached: totals.cached,
            kept: totals.kept,
            seconds: totals.whole.as_secs_f64(),
            transfer_seconds: totals.transfer.as_secs_f64(),
            rate: totals.rate(),
            calls: totals.calls,
            restarts: totals.restarts,
            traffic: Traffic::of(client).await,
        }
    }
}

impl Traffic {
    /// All that this client has sent and received.
    pub(crate) async fn of(client: &Client) -> Self {
        let mut servers = Vec::new();
        for server in client.servers() {
            let path = server.path().await;
            let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
            servers.push(Server {
                address: server.address().to_string(),
                calls: server.calls(),
                parallel: server.parallel_max(),
                afar: path.is_some_and(|path| path.afar),
                rtt_min_ms: path.and_then(|path| path.rtt_min).map(milliseconds),
                rtt_smoothed_ms: path.and_then(|path| path.rtt_smoothed).map(milliseconds),
            });
        }
        let engine = client.endpoint().stats().await.engine;
        Self {
            servers,
            duplicates: engine.duplicates,
            retransmissions: engine.data_resent,
            datagrams_received: engine.datagrams_received,
            datagrams_sent: engine.datagrams_sent,
        }
    }
}
