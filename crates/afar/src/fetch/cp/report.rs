//! What `afar cp --json` prints.

use std::time::Duration;

use afar_cell::Client;
use serde::Serialize;

use crate::fetch::Failures;

/// Counts of a whole copy.
#[derive(Debug, Default, Clone)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) symlinks: u64,
    pub(super) skipped: u64,
    pub(super) bytes: u64,
    pub(super) calls: u64,
    pub(super) restarts: u64,
    /// From the start of the first file to the end of the last.
    pub(super) transfer: Duration,
    pub(super) whole: Duration,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.skipped += other.skipped;
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.restarts += other.restarts;
    }
}

/// A whole copy.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    files: u64,
    directories: u64,
    symlinks: u64,
    /// Files that existed (-n).
    skipped: u64,
    failed: u64,
    bytes: u64,
    /// From when the paths are known to the last rename.
    seconds: f64,
    /// From the start of the first file to the end of the last.
    transfer_seconds: f64,
    /// Octets a second, by `transfer_seconds`.
    rate: f64,
    /// Calls that fetched or stored data.
    calls: u64,
    /// Files begun anew, as they had changed.
    restarts: u64,
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
    pub(super) async fn new(client: &Client, totals: &Totals, failures: &Failures) -> Self {
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
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            skipped: totals.skipped,
            failed: failures.count,
            bytes: totals.bytes,
            seconds: totals.whole.as_secs_f64(),
            transfer_seconds: totals.transfer.as_secs_f64(),
            rate: rate(totals.bytes, totals.transfer),
            calls: totals.calls,
            restarts: totals.restarts,
            servers,
            duplicates: engine.duplicates,
            retransmissions: engine.data_resent,
            datagrams_received: engine.datagrams_received,
            datagrams_sent: engine.datagrams_sent,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn rate(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        bytes as f64 / time.as_secs_f64()
    }
}
