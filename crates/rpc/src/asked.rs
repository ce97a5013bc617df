//! What a program counts of the calls it makes: how long servers took to answer, why calls failed, and how much data
//! went with them.
//!
//! It is counted in one place, whatever clients and connections the program has. An operation's row begins with its
//! first call, so that their number is that of the rows of the tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use afar_net::CallError;
use afar_telemetry::{Cells, Collect, Counter, Desc, Distribution, Histogram, Registry, Unit};
use afar_types::error::errno::{EACCES, EPERM};
use afar_types::error::{
    Code, VBUSY, VMOVED, VNOSERVICE, VNOVOL, VOFFLINE, VRESTARTING, VSALVAGE, VSALVAGING,
    uae_to_errno,
};
use parking_lot::RwLock;

use crate::{Operation, RpcCause, RpcError};

const DURATION: Desc = Desc::histogram(
    "afar_mount_call_seconds",
    Unit::Seconds,
    "Time until a server had answered a call, for calls that succeeded.",
);
const ERRORS: Desc = Desc::counter(
    "afar_mount_call_errors_total",
    Unit::None,
    "Calls to servers that failed, by what failed.",
);
const DATA: Desc = Desc::counter(
    "afar_mount_call_data_bytes_total",
    Unit::Bytes,
    "Bytes of files that calls to servers brought or took, for calls that succeeded.",
);

/// Why calls fail, in the words and the order of OpenAFS's statistics.
pub const FAILURES: [&str; 6] = ["server", "network", "protection", "volume", "busy", "other"];

/// The row of [`FAILURES`] that an error is counted in.
fn failure(error: &RpcError) -> usize {
    let code = error.code().0;
    if Code(code).is_token_refused() {
        return 2;
    }
    match &error.cause {
        RpcCause::Call(CallError::Aborted(_)) => {}
        RpcCause::Call(CallError::Dead | CallError::TimedOut) => return 0,
        RpcCause::Call(CallError::Unreachable(_) | CallError::TooLarge) => return 1,
        _ => return 5,
    }
    match code {
        VBUSY | VRESTARTING => 4,
        VNOVOL | VMOVED | VOFFLINE | VSALVAGE | VSALVAGING | VNOSERVICE => 3,
        code if matches!(uae_to_errno(code).unwrap_or(code), EPERM | EACCES) => 2,
        _ => 5,
    }
}

/// What was counted of an operation's calls.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// How long those took that succeeded, in nanoseconds.
    pub served: Distribution,
    /// How many failed, in the order of [`FAILURES`].
    pub failed: [u64; FAILURES.len()],
    /// Bytes less one of those that had data and succeeded: powers of two are a bucket's last value so.
    pub sizes: Distribution,
    /// Bytes of data in all.
    pub bytes: u64,
}

#[derive(Default)]
struct Row {
    duration: Histogram,
    failed: [AtomicU64; FAILURES.len()],
    sizes: Histogram,
    bytes: Counter,
}

/// An operation by its interface and its name.
type Key = (&'static str, &'static str);

static ROWS: RwLock<BTreeMap<Key, Arc<Row>>> = RwLock::new(BTreeMap::new());

fn row(operation: &'static Operation) -> Arc<Row> {
    let key = (operation.interface, operation.name);
    let known = ROWS.read().get(&key).cloned();
    known.unwrap_or_else(|| Arc::clone(ROWS.write().entry(key).or_default()))
}

/// A call succeeded, with so many bytes of data if it is of a kind that has some.
pub(crate) fn succeeded(operation: &'static Operation, took: Duration, data: Option<u64>) {
    let row = row(operation);
    row.duration.record_duration(took);
    if let Some(bytes) = data {
        row.bytes.add(bytes);
        row.sizes.record(bytes.saturating_sub(1));
    }
}

/// A call failed.
pub(crate) fn failed(error: &RpcError) {
    if let Some(count) = row(error.operation).failed.get(failure(error)) {
        count.fetch_add(1, Relaxed);
    }
}

/// What was counted of an operation by its interface and its name, such as `RXAFS` and `fetch_status`.
#[must_use]
pub fn asked(interface: &str, name: &str) -> Asked {
    let row = ROWS.read().get(&(interface, name)).cloned();
    row.map(|row| row.read()).unwrap_or_default()
}

impl Row {
    fn read(&self) -> Asked {
        Asked {
            served: self.duration.read(),
            failed: self.failed.each_ref().map(|count| count.load(Relaxed)),
            sizes: self.sizes.read(),
            bytes: self.bytes.get(),
        }
    }
}

/// Has a registry show it.
pub fn tell(registry: &Registry) {
    registry.collector(Told);
}

struct Told;

impl Collect for Told {
    fn describe(&self) -> Vec<Desc> {
        vec![DURATION, ERRORS, DATA]
    }

    fn collect(&self, cells: &mut Cells) {
        let rows = ROWS.read().clone();
        for ((interface, operation), row) in rows {
            let labels = [("interface", interface), ("operation", operation)];
            let asked = row.read();
            cells.distribution(&DURATION, &labels, asked.served);
            for (cause, count) in FAILURES.into_iter().zip(asked.failed) {
                if count != 0 {
                    let labels = [labels[0], labels[1], ("cause", cause)];
                    cells.count(&ERRORS, &labels, count);
                }
            }
            if asked.bytes != 0 {
                cells.count(&DATA, &labels, asked.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use afar_net::AbortCode;
    use afar_telemetry::render_prometheus;
    use afar_types::error::{RXKADEXPIRED, VNOVNODE};

    use super::*;
    use crate::bozo;

    #[test]
    fn failures_have_their_places() {
        let error = |cause| RpcError {
            operation: bozo::get_status::OPERATION,
            peer: ([192, 0, 2, 1], 7007).into(),
            cause: RpcCause::Call(cause),
        };
        let aborted = |code| error(CallError::Aborted(AbortCode(code)));
        for (error, word) in [
            (error(CallError::Dead), "server"),
            (
                error(CallError::Unreachable(ErrorKind::HostUnreachable)),
                "network",
            ),
            (aborted(EACCES), "protection"),
            (aborted(RXKADEXPIRED), "protection"),
            (aborted(VNOVOL), "volume"),
            (aborted(VBUSY), "busy"),
            (aborted(VNOVNODE), "other"),
            (error(CallError::Closed), "other"),
        ] {
            assert_eq!(FAILURES[failure(&error)], word, "{error:?}");
        }
    }

    #[test]
    fn calls_are_counted_by_operation() {
        // No other test of this crate asks for it.
        let operation = bozo::get_dates::OPERATION;
        succeeded(operation, Duration::from_millis(3), None);
        succeeded(operation, Duration::from_millis(1), Some(8192));
        failed(&RpcError {
            operation,
            peer: ([192, 0, 2, 1], 7007).into(),
            cause: RpcCause::Call(CallError::Dead),
        });
        let counted = asked("BOZO", "get_dates");
        assert_eq!((counted.served.count(), counted.bytes), (2, 8192));
        assert_eq!(counted.failed, [1, 0, 0, 0, 0, 0]);
        // Exactly a power of two is not above it.
        assert_eq!(counted.sizes.below(13), 1);
        assert_eq!(asked("BOZO", "restart").served.count(), 0);
        let registry = Registry::default();
        tell(&registry);
        let text = render_prometheus(&registry);
        for line in [
            "afar_mount_call_seconds_count{interface=\"BOZO\",operation=\"get_dates\"} 2\n",
            "afar_mount_call_errors_total{interface=\"BOZO\",operation=\"get_dates\",cause=\"server\"} 1\n",
            "afar_mount_call_data_bytes_total{interface=\"BOZO\",operation=\"get_dates\"} 8192\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
