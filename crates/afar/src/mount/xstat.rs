//! A mount's counters in the form of OpenAFS's cache manager, which `xstat_cm_test` and afsmonitor ask for.
//!
//! The collections are structures of its memory, word by word (`src/afs/afs_stats.h`). What has no counterpart here is 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use afar_cache::{Cache, Collection, Seen, ServersSeen};
use afar_rpc::asked::{Asked, asked};
use afar_rpc::xstat::{FETCHES, OPERATIONS, STORES, low, times};
use afar_rpc::{Calls, rxafs, rxafscb};
use afar_telemetry::{Distribution, Family, Registry, Value};
use afar_types::UnixTime;
use parking_lot::Mutex;

/// Words of collection 0, and the places of the kernel's requests and of calls by servers and tools.
// spec: afs-rpc#counters
const CALLS: usize = 564;
const REQUESTS: [(&str, usize); 20] = [
    ("statfs", 440),
    ("open", 453),
    ("release", 455),
    ("write", 458),
    ("read", 463),
    ("getattr", 465),
    ("setattr", 467),
    ("access", 469),
    ("lookup", 474),
    ("create", 475),
    ("unlink", 478),
    ("link", 479),
    ("rename", 480),
    ("mkdir", 482),
    ("rmdir", 484),
    ("readdir", 492),
    ("symlink", 493),
    ("readlink", 497),
    ("fsync", 498),
    ("setlk", 532),
];
const SERVED: [(&str, usize); 14] = [
    ("get_ce", 106),
    ("get_lock", 108),
    ("call_back", 109),
    ("init_call_back_state", 110),
    ("init_call_back_state3", 110),
    ("probe", 111),
    ("probe_uuid", 111),
    ("who_are_you", 543),
    ("get_server_prefs", 548),
    ("get_cell_serv_db", 549),
    ("get_local_cell", 550),
    ("get_cache_config", 552),
    ("get_ce64", 553),
    ("get_cell_by_num", 554),
];
/// Words of collection 1, and where it has the servers of a kind: file servers of the mount's cell and of others,
/// location servers.
const PERFORMANCE: usize = 159;
const SERVERS: [usize; 4] = [43, 68, 93, 118];
/// What a cache manager has behind [`OPERATIONS`]. The second is not OpenAFS's own.
const BEHIND: [&[&str]; 2] = [&["lookup"], &[]];
/// The cache manager's own.
const OWN: [&[&str]; 7] = [
    &["call_back"],
    &[
        "init_call_back_state",
        "init_call_back_state2",
        "init_call_back_state3",
    ],
    &["probe", "probe_uuid"],
    &["get_lock"],
    &["get_ce", "get_ce64"],
    &["x_stats_version"],
    &["get_x_stats"],
];
/// Transfers are counted by whether they have more bytes than two to these powers.
const SIZES: [u32; 8] = [7, 10, 13, 14, 15, 17, 19, 20];
/// Words of the last groups: users with and without tokens, replicas, and who wrote what.
const REST: usize = 12 + 5 + 4;

/// For how long what was collected answers all that ask.
const FRESH: Duration = Duration::from_secs(1);

/// Has a cache's callback service answer with what this registry counts.
pub(super) fn answer(cache: &Cache, registry: &Registry) {
    let calls = Calls::new(rxafscb::INTERFACE, registry);
    cache.callbacks().set_calls(calls);
    let (registry, asked) = (registry.clone(), AtomicU32::new(0));
    let kept: Mutex<Option<(Instant, Arc<Counters>)>> = Mutex::default();
    let started = UnixTime::from(SystemTime::now()).0;
    cache.answer(Box::new(move |collection, seen| {
        let counters = {
            // Everybody may ask, as often as they like.
            let mut kept = kept.lock();
            kept.take_if(|(made, _)| made.elapsed() >= FRESH);
            let make = || (Instant::now(), Arc::new(Counters(registry.collect())));
            Arc::clone(&kept.get_or_insert_with(make).1)
        };
        let times = match collection {
            Collection::Calls => return counters.calls(),
            _ => asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
        };
        let mut words = counters.performance(seen, times, started);
        if collection == Collection::Full {
            words.insert(0, times);
            words.extend(counters.detailed());
        }
        words
    }));
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The metrics of a mount.
struct Counters(Vec<Family>);

impl Counters {
    /// The series of a metric that have this label.
    fn values<'a>(
        &'a self,
        metric: &'a str,
        label: Option<(&'a str, &'a str)>,
    ) -> impl Iterator<Item = &'a Value> {
        let family = self.0.iter().find(|family| family.desc.name() == metric);
        let series = family.into_iter().flat_map(|family| &family.series);
        let has = move |labels: &[(&str, String)]| {
            label.is_none_or(|(name, value)| {
                labels
                    .iter()
                    .any(|(own, text)| *own == name && text == value)
            })
        };
        series
            .filter(move |series| has(&series.labels))
            .map(|series| &series.value)
    }

    fn sum(&self, metric: &str, label: Option<(&str, &str)>) -> u64 {
        let values = self.values(metric, label).map(|value| match value {
            Value::Count(count) => *count,
            Value::Distribution(distribution) => distribution.count(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it saturates"
            )]
            Value::Level(level) => *level as u64,
        });
        values.fold(0, u64::wrapping_add)
    }

    fn calls(&self) -> Vec<u32> {
        let mut words = vec![0_u32; CALLS];
        let requests = REQUESTS.map(|row| {
            (
                "afar_mount_operation_seconds",
                "afar_mount_errors_total",
                row,
            )
        });
        let served = SERVED.map(|row| ("afar_rpc_duration_seconds", "afar_rpc_errors_total", row));
        for (done, failed, (operation, place)) in requests.into_iter().chain(served) {
            let label = Some(("operation", operation));
            let all = self.sum(done, label).wrapping_add(self.sum(failed, label));
            words[place] = words[place].wrapping_add(low(all));
        }
        words
    }

    fn performance(&self, seen: &Seen, times: u32, started: u32) -> Vec<u32> {
        let mut words = vec![0; PERFORMANCE];
        let of = |metric, operations: &[&str]| -> u64 {
            let operations = operations.iter();
            operations
                .map(|operation| self.sum(metric, Some(("operation", operation))))
                .sum()
        };
        let (data, status) = (&["read", "readdir"], &["lookup", "getattr"]);
        let (hits, misses) = ("afar_mount_hits_total", "afar_mount_misses_total");
        let kib = |metric| low(self.sum(metric, None) / 1024);
        let servers: usize = (seen.servers.iter())
            .map(|servers| servers.up + servers.down + servers.locations)
            .sum();
        let places = [
            (0, times),
            (1, started),
            (2, count(seen.cells)),
            (3, count(seen.used_cells)),
            (8, count(seen.files)),
            (9, kib("afar_cache_limit_bytes")),
            (10, kib("afar_cache_used_bytes")),
            (11, kib("afar_cache_limit_bytes")),
            (14, low(of(hits, data))),
            (15, low(of(hits, status))),
            (16, low(of(misses, data))),
            (17, low(of(misses, status))),
            (37, count(servers)),
        ];
        for (place, word) in places {
            words[place] = word;
        }
        let [own, others] = seen.servers;
        let locations = [own, others].map(|servers| ServersSeen {
            up: servers.locations,
            down: 0,
            locations: 0,
        });
        let all = [own, others].into_iter().chain(locations);
        for (place, servers) in SERVERS.into_iter().zip(all) {
            words[place] = count(servers.up + servers.down);
            words[place + 1] = count(servers.up);
            words[place + 2] = count(servers.down);
        }
        words
    }

    /// What follows the words of performance in collection 2.
    fn detailed(&self) -> Vec<u32> {
        let mut words = Vec::new();
        let operations = OPERATIONS.into_iter().chain(BEHIND);
        let rows: Vec<Asked> = operations.map(row).collect();
        for row in &rows {
            words.extend(times(&row.served, row.failed.iter().sum()));
        }
        for row in &rows {
            words.extend(row.failed.map(low));
        }
        for row in [row(&FETCHES), row(&STORES)] {
            words.extend(transfers(&row));
        }
        for names in OWN {
            let mut served = Distribution::default();
            let mut failed = 0_u64;
            for name in names {
                let label = Some(("operation", *name));
                for value in self.values("afar_rpc_duration_seconds", label) {
                    if let Value::Distribution(more) = value {
                        served.merge(more);
                    }
                }
                failed = failed.wrapping_add(self.sum("afar_rpc_errors_total", label));
            }
            words.extend(times(&served, failed));
        }
        words.extend([0; REST]);
        words
    }
}

/// What these operations were asked for in all.
fn row(names: &[&str]) -> Asked {
    let mut whole = Asked::default();
    for name in names {
        let more = asked(rxafs::NAME, name);
        whole.served.merge(&more.served);
        whole.sizes.merge(&more.sizes);
        whole.bytes = whole.bytes.wrapping_add(more.bytes);
        for (own, more) in whole.failed.iter_mut().zip(more.failed) {
            *own = own.wrapping_add(more);
        }
    }
    whole
}

/// Calls and times of transfers, and their sizes.
fn transfers(row: &Asked) -> Vec<u32> {
    let mut words = times(&row.served, row.failed.iter().sum()).to_vec();
    let sizes = &row.sizes;
    // They are counted less one, so that a power of two is not above it.
    let whole = u64::from(sizes.count() != 0);
    words.extend([row.bytes / 1024, sizes.min() + whole, sizes.max() + whole].map(low));
    let mut before = 0;
    let up_to = SIZES.iter().map(|power| sizes.below(*power));
    for below in up_to.chain([sizes.count()]) {
        words.push(low(below.saturating_sub(before)));
        before = below;
    }
    words
}

#[cfg(test)]
mod tests {
    use afar_telemetry::{Desc, Unit};

    use super::*;

    fn counters() -> Counters {
        let registry = Registry::default();
        let desc = |name| Desc::counter(name, Unit::None, "Some.");
        for (name, operation, count) in [
            ("afar_mount_errors_total", "lookup", 3),
            ("afar_mount_hits_total", "lookup", 7),
            ("afar_mount_hits_total", "getattr", 1),
            ("afar_mount_misses_total", "read", 2),
            ("afar_rpc_errors_total", "get_ce64", 1),
        ] {
            let labels = [("operation", operation)];
            registry.counter(&desc(name), &labels).add(count);
        }
        let spent = |name| Desc::histogram(name, Unit::Seconds, "Time.");
        for (name, operation) in [
            ("afar_mount_operation_seconds", "lookup"),
            ("afar_rpc_duration_seconds", "probe"),
            ("afar_rpc_duration_seconds", "probe_uuid"),
        ] {
            let histogram = registry.histogram(&spent(name), &[("operation", operation)]);
            histogram.record_duration(Duration::from_millis(1500));
        }
        Counters(registry.collect())
    }

    #[test]
    fn collections_have_the_lengths_and_places_tools_expect() {
        let counters = counters();
        let calls = counters.calls();
        assert_eq!(calls.len(), 564);
        assert_eq!((calls[474], calls[111], calls[553]), (4, 2, 1));
        let seen = Seen {
            cells: 200,
            used_cells: 2,
            files: 9,
            servers: [
                ServersSeen {
                    up: 2,
                    down: 1,
                    locations: 3,
                },
                ServersSeen::default(),
            ],
        };
        let performance = counters.performance(&seen, 5, 1_700_000_000);
        assert_eq!(performance.len(), 159);
        assert_eq!(performance[..4], [5, 1_700_000_000, 200, 2]);
        assert_eq!(performance[14..18], [0, 8, 2, 0]);
        assert_eq!(performance[37], 6);
        assert_eq!(performance[43..46], [3, 2, 1]);
        assert_eq!(performance[93..96], [3, 3, 0]);
        let detailed = counters.detailed();
        assert_eq!(1 + performance.len() + detailed.len(), 775);
        // The third of the cache manager's own: two probes of 1.5 s.
        let place = 300 + 180 + 44 + 2 * 10;
        assert_eq!(detailed[place..place + 4], [2, 2, 3, 0]);
        assert_eq!(detailed[place + 8..place + 10], [1, 500_000]);
    }

    #[test]
    fn transfers_of_a_power_of_two_are_not_above_it() {
        let mut row = Asked::default();
        for bytes in [128_u64, 129, 1 << 20, (1 << 20) + 1, 0] {
            row.sizes.record(bytes.saturating_sub(1));
            row.bytes += bytes;
        }
        let words = transfers(&row);
        assert_eq!(words.len(), 22);
        assert_eq!(words[10..13], [2048, 1, (1 << 20) + 1]);
        assert_eq!(words[13..], [2, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(transfers(&Asked::default()), [0; 22]);
    }
}
