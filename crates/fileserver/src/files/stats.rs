//! Counters of a file server, and the forms in which AFS's tools ask for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use afar_net::{AbortCode, Endpoint};
use afar_rpc::xstat::{FETCHES, OPERATIONS, STORES, low, times};
use afar_rpc::{Calls, Served, rxafs};
use afar_telemetry::{Counter, Desc, Distribution, Registry, Unit};
use afar_types::{UnixTime, ViceDisk, ViceStatistics, ViceStatistics64};
use afar_xdr::{FixedOpaque, List};

use super::visit::blocking;
use super::volume::disk_space;
use crate::abort::errno;
use crate::server::FileServer;

/// The version of the collections of counters.
pub(super) const X_STATS: i32 = 2;

const FETCHED: Desc = Desc::counter(
    "afar_fetched_bytes_total",
    Unit::Bytes,
    "Bytes of files sent to clients.",
);
const STORED: Desc = Desc::counter(
    "afar_stored_bytes_total",
    Unit::Bytes,
    "Bytes of files received from clients.",
);

/// Counters of a file server since its start.
#[derive(Debug)]
pub struct Stats {
    started: SystemTime,
    calls: Calls,
    fetched: Counter,
    stored: Counter,
}

impl Stats {
    /// From now on, shown by this registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            started: SystemTime::now(),
            calls: Calls::new(rxafs::INTERFACE, registry),
            fetched: registry.counter(&FETCHED, &[]),
            stored: registry.counter(&STORED, &[]),
        }
    }

    pub(super) fn table(&self) -> &Calls {
        &self.calls
    }

    pub(super) fn count(&self, served: &Served<'_>) {
        self.calls.count(served);
    }

    pub(super) fn add_fetched(&self, bytes: u64) {
        self.fetched.add(bytes);
    }

    pub(super) fn add_stored(&self, bytes: u64) {
        self.stored.add(bytes);
    }

    /// By operation, in the order of [`rxafs::OPERATIONS`]: its name, calls served, calls refused.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        let operations = self.calls.operations();
        operations.map(|(name, served, refused)| (name, served.count(), refused))
    }

    /// Bytes of data sent.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched.get()
    }

    /// Bytes of data received.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored.get()
    }

    /// Calls of operations by name, served or not.
    fn calls(&self, names: &[&str]) -> u64 {
        let rows = self.operations().filter(|(name, ..)| names.contains(name));
        rows.map(|(_, served, refused)| served + refused).sum()
    }

    fn all_calls(&self) -> u64 {
        self.operations()
            .map(|(_, served, refused)| served + refused)
            .sum()
    }

    /// Bytes in a second of calls of these operations.
    fn rate(&self, names: &[&str], bytes: u64) -> u64 {
        let own = self
            .calls
            .operations()
            .filter(|(name, ..)| names.contains(name));
        let nanos: u64 = own.map(|(_, served, _)| served.sum()).sum();
        bytes / (nanos / 1_000_000_000).max(1)
    }

    fn summary(&self) -> Summary {
        let (fetched, stored) = (self.fetched_bytes(), self.stored_bytes());
        Summary {
            calls: self.all_calls(),
            fetches: self.calls(&["fetch_data", "fetch_data64", "fetch_acl", "fetch_status"]),
            fetch_datas: self.calls(&FETCHES),
            fetched,
            fetch_rate: self.rate(&FETCHES, fetched),
            stores: self.calls(&[
                "store_data",
                "store_data64",
                "store_acl",
                "old_store_acl",
                "store_status",
            ]),
            store_datas: self.calls(&STORES),
            stored,
            store_rate: self.rate(&STORES, stored),
        }
    }
}

/// What both forms of statistics have in common.
struct Summary {
    calls: u64,
    fetches: u64,
    fetch_datas: u64,
    fetched: u64,
    fetch_rate: u64,
    stores: u64,
    store_datas: u64,
    stored: u64,
    store_rate: u64,
}

fn now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}

fn signed(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Counters in 32 bits, and the disks (AFS-3 RXAFS GetStatistics).
pub(super) async fn statistics(
    server: Arc<FileServer>,
) -> Result<rxafs::get_statistics::Reply, AbortCode> {
    let hosts = server.hosts.stats().hosts;
    let summary = server.stats.summary();
    let started = UnixTime::from(server.stats.started);
    let paths: Vec<(String, PathBuf)> = {
        let all = server.volumes.partitions().take(10);
        all.map(|(id, partition)| (id.to_string(), partition.path().to_owned()))
            .collect()
    };
    let disks = blocking(move || paths.iter().map(|(name, path)| disk(name, path)).collect());
    let mut statistics = ViceStatistics {
        current_time: now(),
        boot_time: started,
        start_time: started,
        current_connections: signed(hosts),
        total_vice_calls: low(summary.calls),
        total_fetches: low(summary.fetches),
        fetch_datas: low(summary.fetch_datas),
        fetched_bytes: low(summary.fetched),
        fetch_data_rate: signed(summary.fetch_rate),
        total_stores: low(summary.stores),
        store_datas: low(summary.store_datas),
        stored_bytes: low(summary.stored),
        store_data_rate: signed(summary.store_rate),
        workstations: signed(hosts),
        active_workstations: signed(hosts),
        ..ViceStatistics::default()
    };
    let disks: Vec<ViceDisk> = disks.await?;
    for (slot, disk) in statistics.disks.iter_mut().zip(disks) {
        *slot = disk;
    }
    Ok(rxafs::get_statistics::Reply { statistics })
}

fn disk(name: &str, path: &std::path::Path) -> Result<ViceDisk, AbortCode> {
    let space = disk_space(path)?;
    let mut letters = [0; 32];
    for (slot, letter) in letters.iter_mut().zip(name.bytes().take(31)) {
        *slot = letter;
    }
    Ok(ViceDisk {
        blocks_available: signed(space.free),
        total_blocks: signed(space.total),
        name: FixedOpaque(letters),
    })
}

/// Sixteen counters in 64 bits, by their place (AFS-3 RXAFS GetStatistics64).
pub(super) fn statistics64(
    server: &FileServer,
    count: i32,
) -> Result<rxafs::get_statistics64::Reply, AbortCode> {
    if count != 16 {
        return Err(AbortCode(errno::EINVAL));
    }
    let hosts = server.hosts.stats().hosts;
    let summary = server.stats.summary();
    let started = u64::from(UnixTime::from(server.stats.started).0);
    let counters = [
        now().0.into(),
        started,
        started,
        hosts,
        summary.fetches,
        summary.fetch_datas,
        summary.fetched,
        summary.fetch_rate,
        summary.stores,
        summary.store_datas,
        summary.stored,
        summary.store_rate,
        summary.calls,
        hosts,
        hosts,
        0,
    ];
    let statistics = ViceStatistics64::new(counters).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
    Ok(rxafs::get_statistics64::Reply { statistics })
}

/// A collection of counters in the form of OpenAFS's `xstat` (AFS-3 RXAFS GetXStats): 0 nothing,
/// 1 performance, 2 the same with times by operation, 3 callbacks. What has no counterpart here
/// is 0.
pub(super) async fn x_stats(
    server: &FileServer,
    endpoint: &Endpoint,
    collection: i32,
) -> Result<rxafs::get_x_stats::Reply, AbortCode> {
    let data = match collection {
        0 => Vec::new(),
        1 => performance(server, endpoint).await,
        2 => {
            let mut words = performance(server, endpoint).await;
            words.extend(detailed(&server.stats));
            words
        }
        3 => callbacks(server),
        _ => return Err(AbortCode(errno::EPERM)),
    };
    let data = List::new(data.into_iter().map(u32::cast_signed).collect::<Vec<_>>());
    Ok(rxafs::get_x_stats::Reply {
        server_version: X_STATS,
        time: now().0.cast_signed(),
        data: data.map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?,
    })
}

/// Words of the collection of performance.
const PERFORMANCE: usize = 98;

async fn performance(server: &FileServer, endpoint: &Endpoint) -> Vec<u32> {
    let mut words = vec![0; PERFORMANCE];
    let engine = endpoint.stats().await.engine;
    let sum = |packets: &[u64; 13]| packets.iter().sum();
    // Packets by their types: data, ack, busy, abort.
    let (received, sent) = (engine.packets_received, engine.packets_sent);
    let hosts = server.hosts.stats().hosts;
    let places = [
        (0, server.stats.calls(&["get_x_stats"])),
        (22, engine.malformed),
        (28, sum(&received)),
        (31, received[0]),
        (32, received[1]),
        (33, engine.duplicates),
        (34, engine.unmatched),
        (35, sum(&sent)),
        (38, sent[1]),
        (40, sent[3]),
        (41, sent[2]),
        (42, sent[0]),
        (43, engine.data_resent),
        (52, engine.rtt_samples),
        (58, hosts),
        (60, hosts),
        (64, hosts),
        (69, server.stats.calls(&["get_capabilities"])),
    ];
    for (place, number) in places {
        words[place] = low(number);
    }
    words
}

fn detailed(stats: &Stats) -> Vec<u32> {
    let mut words = vec![UnixTime::from(stats.started).0, 0];
    // Time of calls served in all, and how many were refused.
    let rows = |names: &[&str]| {
        let own = stats
            .calls
            .operations()
            .filter(|(name, ..)| names.contains(name));
        own.fold(
            (Distribution::default(), 0),
            |(mut served, refused), (_, more, others)| {
                served.merge(&more);
                (served, refused + others)
            },
        )
    };
    for names in OPERATIONS {
        let (served, refused) = rows(names);
        words.extend(times(&served, refused));
    }
    // Transfers: the same, then bytes in KiB, and twelve figures by size that are not kept.
    for (names, bytes) in [
        (FETCHES, stats.fetched_bytes()),
        (STORES, stats.stored_bytes()),
    ] {
        let (served, refused) = rows(&names);
        words.extend(times(&served, refused));
        words.push(low(bytes / 1024));
        words.extend([0; 11]);
    }
    words
}

/// Counters of callbacks, in the places of OpenAFS's.
fn callbacks(server: &FileServer) -> Vec<u32> {
    let stats = server.hosts.stats();
    let mut words = vec![0; 16];
    let places = [
        (1, stats.given_up),
        (2, stats.broken),
        (3, stats.promised),
        (4, stats.evicted),
        (6, stats.files),
        (7, stats.promises),
        (9, stats.expired),
        (10, stats.break_calls),
    ];
    for (place, number) in places {
        words[place] = low(number);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use afar_rpc::{Caller, Identity};
    use std::time::Duration;

    #[test]
    fn detailed_figures_have_the_length_tools_expect() {
        let stats = Stats::new(&Registry::default());
        let caller = Caller {
            peer: ([127, 0, 0, 1], 7001).into(),
            service: rxafs::SERVICE,
            identity: Identity::Anonymous,
        };
        let serve = |millis, result| {
            let took = Duration::from_millis(millis);
            stats.count(&Served::new(Some(0), &caller, took, result));
        };
        serve(2500, Ok(()));
        serve(500, Ok(()));
        serve(0, Err(AbortCode(13)));
        let words = detailed(&stats);
        // xstat_fs_test takes 424 words for figures of a server with 32-bit times.
        assert_eq!(PERFORMANCE + words.len(), 424);
        // Squares of seconds: 6.5, to seven percent.
        let squares = f64::from(words[6]) + f64::from(words[7]) / 1e6;
        assert!((squares - 6.5).abs() < 0.46, "{squares}");
        assert_eq!(words[2..6], [3, 2, 3, 0]);
        assert_eq!(words[8..12], [0, 500_000, 2, 500_000]);
        assert_eq!(stats.all_calls(), 3);
    }
}
