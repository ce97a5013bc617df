//! What `--json` prints of a copy.

use std::time::Duration;

use afar_cell::Client;
use afar_transfer::Totals;
use serde::Serialize;

use super::Failures;

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
pub(super) struct Traffic {
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
    pub(super) async fn of(client: &Client) -> Self {
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
