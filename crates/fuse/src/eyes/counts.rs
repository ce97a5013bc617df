//! How many requests there were, how long they took, and how much was read and written.

use std::time::Duration;

use afar_telemetry::{Counter, Desc, Histogram, Registry, Unit};

use super::operation::Operation;

const DURATION: Desc = Desc::histogram(
    "afar_mount_operation_seconds",
    Unit::Seconds,
    "Time to answer a request of the kernel that succeeded.",
);
const ERRORS: Desc = Desc::counter(
    "afar_mount_errors_total",
    Unit::None,
    "Requests of the kernel that ended with an error, such as that a file does not exist.",
);
const HITS: Desc = Desc::counter(
    "afar_mount_hits_total",
    Unit::None,
    "Requests of the kernel that read something, and needed no server.",
);
const MISSES: Desc = Desc::counter(
    "afar_mount_misses_total",
    Unit::None,
    "Requests of the kernel that read something, and needed a server.",
);
const READ: Desc = Desc::counter(
    "afar_mount_read_bytes_total",
    Unit::Bytes,
    "Bytes of files read by programs, without what the kernel had already.",
);
const WRITTEN: Desc = Desc::counter(
    "afar_mount_written_bytes_total",
    Unit::Bytes,
    "Bytes of files written by programs.",
);

/// Counters of all kinds of requests.
#[derive(Debug)]
pub(super) struct Counts {
    /// In the order of [`Operation::ALL`]: times, and errors.
    operations: Vec<(Histogram, Counter)>,
    /// In the same order, those of operations that read something: without a server, and with one.
    reading: Vec<Option<[Counter; 2]>>,
    read: Counter,
    written: Counter,
}

impl Counts {
    pub(super) fn new(registry: &Registry) -> Self {
        let operations = Operation::ALL.map(|operation| {
            let labels = [("operation", operation.name())];
            (
                registry.histogram(&DURATION, &labels),
                registry.counter(&ERRORS, &labels),
            )
        });
        let reading = Operation::ALL.map(|operation| {
            let labels = [("operation", operation.name())];
            let counters = || [&HITS, &MISSES].map(|desc| registry.counter(desc, &labels));
            operation.is_reading().then(counters)
        });
        Self {
            operations: operations.into(),
            reading: reading.into(),
            read: registry.counter(&READ, &[]),
            written: registry.counter(&WRITTEN, &[]),
        }
    }

    /// Counts a request, by which so many bytes were read or written, with so many calls to servers.
    pub(super) fn count(
        &self,
        operation: Operation,
        took: Duration,
        bytes: Option<u64>,
        calls: u32,
    ) {
        let Some((duration, errors)) = self.operations.get(operation as usize) else {
            return;
        };
        let Some(bytes) = bytes else {
            errors.inc();
            return;
        };
        duration.record_duration(took);
        if let Some(Some([hits, misses])) = self.reading.get(operation as usize) {
            match calls {
                0 => hits.inc(),
                _ => misses.inc(),
            }
        }
        match operation {
            Operation::Read => self.read.add(bytes),
            Operation::Write => self.written.add(bytes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use afar_telemetry::render_prometheus;

    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_are() {
        let registry = Registry::default();
        let counts = Counts::new(&registry);
        let took = Duration::from_micros(20);
        counts.count(Operation::Read, took, Some(4096), 0);
        counts.count(Operation::Setlk, took, None, 0);
        counts.count(Operation::Lookup, took, Some(7), 2);
        let text = render_prometheus(&registry);
        for line in [
            "afar_mount_operation_seconds_count{operation=\"read\"} 1\n",
            "afar_mount_operation_seconds_count{operation=\"lookup\"} 1\n",
            "afar_mount_operation_seconds_count{operation=\"setlk\"} 0\n",
            "afar_mount_errors_total{operation=\"setlk\"} 1\n",
            "afar_mount_hits_total{operation=\"read\"} 1\n",
            "afar_mount_misses_total{operation=\"read\"} 0\n",
            "afar_mount_misses_total{operation=\"lookup\"} 1\n",
            "afar_mount_read_bytes_total 4096\n",
            "afar_mount_written_bytes_total 0\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("afar_mount_hits_total{operation=\"write\"}"));
    }
}
