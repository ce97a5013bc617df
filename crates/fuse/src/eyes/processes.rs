//! Requests by process, counted only while somebody looks, and the requests that are under way.
//!
//! The kernel names the thread that asks. Which process that is, and what it runs, the system tells when a row
//! begins; rows of threads of one process are shown as one.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cache::{Waits, Who};
use afar_telemetry::{
    Activity, Cells, Collect, Desc, Going, Live, Lookup, Registry, Row, Table, TableConfig, Unit,
};

use super::operation::Operation;

/// Threads that have a row of their own.
const ROWS: usize = 512;

const OPERATIONS: Desc = Desc::counter(
    "afar_process_operations_total",
    Unit::None,
    "Requests by process; counted while somebody looks.",
);
const ERRORS: Desc = Desc::counter(
    "afar_process_errors_total",
    Unit::None,
    "Requests by process that ended with an error.",
);
const SERVED: Desc = Desc::counter(
    "afar_process_seconds_total",
    Unit::Seconds,
    "Time to answer requests by process.",
);
const HITS: Desc = Desc::counter(
    "afar_process_hits_total",
    Unit::None,
    "Requests by process that read something, and needed no server.",
);
const MISSES: Desc = Desc::counter(
    "afar_process_misses_total",
    Unit::None,
    "Requests by process that read something, and needed a server.",
);
const READ: Desc = Desc::counter(
    "afar_process_read_bytes_total",
    Unit::Bytes,
    "Bytes of files read by process.",
);
const WRITTEN: Desc = Desc::counter(
    "afar_process_written_bytes_total",
    Unit::Bytes,
    "Bytes of files written by process.",
);

/// A thread of a process, which is found by its number.
#[derive(Debug, Clone)]
struct Thread {
    number: Number,
    /// The number of its process.
    pid: u32,
    /// What that runs.
    name: String,
}

/// The number of a thread, and its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Number {
    tid: u32,
    uid: u32,
}

impl Hash for Thread {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl PartialEq for Thread {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Thread {}

impl Lookup<Thread> for Number {
    fn is(&self, key: &Thread) -> bool {
        *self == key.number
    }

    fn to_key(&self) -> Thread {
        let (pid, name) = process(self.tid);
        Thread {
            number: *self,
            pid,
            name,
        }
    }
}

/// The process of a thread, and what it runs. The kernel makes both up in memory. Of one that is gone only its
/// number is known.
fn process(tid: u32) -> (u32, String) {
    let read = |pid: u32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
    let status = read(tid, "status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let pid = pid.and_then(|pid| pid.trim().parse().ok()).unwrap_or(tid);
    let name = read(pid, "comm").unwrap_or_default();
    let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
    (
        pid,
        if name.is_empty() {
            "?".to_owned()
        } else {
            name
        },
    )
}

/// What a thread has asked for.
#[derive(Debug, Clone, Default)]
struct Asked {
    operations: [u64; Operation::ALL.len()],
    errors: u64,
    nanos: u64,
    hits: u64,
    misses: u64,
    read: u64,
    written: u64,
}

impl Row for Asked {
    const DESCS: &'static [Desc] = &[OPERATIONS, ERRORS, SERVED, HITS, MISSES, READ, WRITTEN];

    fn merge(&mut self, other: &Self) {
        for (own, more) in self.operations.iter_mut().zip(other.operations) {
            *own = own.wrapping_add(more);
        }
        for (own, more) in [
            (&mut self.errors, other.errors),
            (&mut self.nanos, other.nanos),
            (&mut self.hits, other.hits),
            (&mut self.misses, other.misses),
            (&mut self.read, other.read),
            (&mut self.written, other.written),
        ] {
            *own = own.wrapping_add(more);
        }
    }

    fn tell(&self, cells: &mut Cells) {
        if self.operations.iter().all(|count| *count == 0) {
            return;
        }
        for (operation, count) in Operation::ALL.iter().zip(self.operations) {
            if count != 0 {
                cells.count(&OPERATIONS, &[("operation", operation.name())], count);
            }
        }
        for (desc, count) in [
            (&ERRORS, self.errors),
            (&SERVED, self.nanos),
            (&HITS, self.hits),
            (&MISSES, self.misses),
            (&READ, self.read),
            (&WRITTEN, self.written),
        ] {
            cells.count(desc, &[], count);
        }
    }
}

/// A request that is under way.
#[derive(Debug, Clone)]
pub(super) struct UnderWay {
    operation: Operation,
    who: Who,
    waits: Arc<Waits>,
}

/// Requests by process.
#[derive(Debug)]
pub(super) struct Processes {
    table: Table<Thread, Asked>,
    live: Live<UnderWay>,
}

/// Tells of the requests under way.
struct Told(Live<UnderWay>);

impl Processes {
    pub(super) fn new(registry: &Registry) -> Self {
        let config = TableConfig {
            labels: &["pid", "name", "user"],
            rows: ROWS,
            watched_only: true,
        };
        let table = registry.table(config, |thread: &Thread| {
            vec![
                thread.pid.to_string(),
                thread.name.clone(),
                thread.number.uid.to_string(),
            ]
        });
        let live = Live::default();
        registry.collector(Told(live.clone()));
        Self { table, live }
    }

    /// A request is under way until the guard is dropped.
    pub(super) fn begin(
        &self,
        operation: Operation,
        who: Who,
        began: Instant,
        waits: &Arc<Waits>,
    ) -> Going<UnderWay> {
        let waits = Arc::clone(waits);
        let under_way = UnderWay {
            operation,
            who,
            waits,
        };
        self.live.begin(began, under_way)
    }

    /// Counts a request, by which so many bytes were read or written with so many calls to servers, if somebody
    /// looks.
    pub(super) fn count(
        &self,
        (operation, who): (Operation, Who),
        took: Duration,
        bytes: Option<u64>,
        calls: u32,
    ) {
        if !self.table.is_counting() {
            return;
        }
        let number = Number {
            tid: who.pid,
            uid: who.uid,
        };
        self.table.update(&number, 1, |row| {
            if let Some(count) = row.operations.get_mut(operation as usize) {
                *count += 1;
            }
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            row.nanos = row.nanos.wrapping_add(nanos);
            let Some(bytes) = bytes else {
                row.errors += 1;
                return;
            };
            if operation.is_reading() {
                match calls {
                    0 => row.hits += 1,
                    _ => row.misses += 1,
                }
            }
            match operation {
                Operation::Read => row.read = row.read.wrapping_add(bytes),
                Operation::Write => row.written = row.written.wrapping_add(bytes),
                _ => {}
            }
        });
    }
}

impl Collect for Told {
    fn describe(&self) -> Vec<Desc> {
        Vec::new()
    }

    fn collect(&self, _: &mut Cells) {}

    fn activities(&self, list: &mut Vec<Activity>) -> usize {
        let (all, beyond) = self.0.snapshot();
        for one in all {
            let UnderWay {
                operation,
                who,
                waits,
            } = &one.what;
            let (pid, name) = process(who.pid);
            let server = waits.server();
            let text = server.map(|server| server.to_string()).unwrap_or_default();
            let labels = [
                ("operation", operation.name()),
                ("pid", &pid.to_string()),
                ("name", &name),
                ("user", &who.uid.to_string()),
                ("server", &text),
            ];
            let waits = server.is_some().then_some("server");
            list.push(Activity::new(&labels, one.began, waits));
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use afar_telemetry::render_prometheus;

    use super::*;

    fn who() -> Who {
        Who {
            uid: 1000,
            gid: 100,
            pid: std::process::id(),
        }
    }

    #[test]
    fn threads_of_a_process_are_one_row_while_somebody_looks() {
        let registry = Registry::default();
        let processes = Processes::new(&registry);
        let took = Duration::from_micros(5);
        let count = |who, operation, bytes| {
            processes.count((operation, who), took, bytes, 0);
        };
        count(who(), Operation::Read, Some(1));
        let watch = registry.watch("afar_process_hits_total");
        count(who(), Operation::Read, Some(10));
        count(who(), Operation::Write, Some(7));
        count(who(), Operation::Lookup, None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tid = std::fs::read_link("/proc/thread-self").unwrap();
                let tid = tid.file_name().unwrap().to_str().unwrap().parse();
                let who = Who {
                    pid: tid.unwrap(),
                    ..who()
                };
                count(who, Operation::Read, Some(20));
            });
        });
        let own = std::process::id();
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        let labels = format!("pid=\"{own}\",name=\"{}\",user=\"1000\"", name.trim());
        let text = render_prometheus(&registry);
        for line in [
            format!("afar_process_operations_total{{{labels},operation=\"read\"}} 2\n"),
            format!("afar_process_read_bytes_total{{{labels}}} 30\n"),
            format!("afar_process_written_bytes_total{{{labels}}} 7\n"),
            format!("afar_process_hits_total{{{labels}}} 2\n"),
            format!("afar_process_errors_total{{{labels}}} 1\n"),
        ] {
            assert!(text.contains(&line), "{line} in\n{text}");
        }
        drop(watch);
        assert!(!render_prometheus(&registry).contains("afar_process"));
    }

    #[test]
    fn processes_are_bounded_in_number() {
        let registry = Registry::default();
        let processes = Processes::new(&registry);
        let _watch = registry.watch("afar_process_hits_total");
        for pid in 0..5000 {
            // No process has such a number: Linux ends at 2^22.
            let who = Who {
                pid: (1 << 30) + pid,
                ..who()
            };
            processes.count((Operation::Read, who), Duration::ZERO, None, 0);
        }
        let snapshot = processes.table.snapshot();
        assert!(snapshot.rows.len() <= ROWS);
        let sum = snapshot.rows.iter().map(|(_, row)| row.errors).sum::<u64>();
        assert_eq!(sum + snapshot.rest.errors, 5000);
    }

    #[test]
    fn what_is_under_way_is_told_whether_or_not_somebody_looked_before() {
        let registry = Registry::default();
        let processes = Processes::new(&registry);
        let waits = Arc::new(Waits::default());
        let going = processes.begin(Operation::Read, who(), Instant::now(), &waits);
        let found = registry.activities().list;
        let own = std::process::id().to_string();
        assert_eq!(found.len(), 1);
        assert!(found[0].labels.contains(&("operation", "read".to_owned())));
        assert!(found[0].labels.contains(&("pid", own)));
        assert_eq!(found[0].waits, None);
        drop(going);
        assert!(registry.activities().list.is_empty());
    }
}
