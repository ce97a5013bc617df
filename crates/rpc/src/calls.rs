//! What servers count of their calls, by operation, and which ones they serve just now.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use afar_telemetry::{
    Activity, Cells, Collect, Counter, Desc, Distribution, Going, Histogram, Live, Registry, Unit,
};

use crate::wait::Wait;
use crate::{Interface, Served, Serving, Subject};

/// How long calls took that succeeded.
pub const DURATION: Desc = Desc::histogram(
    "afar_rpc_duration_seconds",
    Unit::Seconds,
    "Time to serve a call that succeeded, from its opcode to its reply.",
);
/// Calls that failed.
pub const ERRORS: Desc = Desc::counter(
    "afar_rpc_errors_total",
    Unit::None,
    "Calls that ended with an abort code.",
);
/// Bytes from clients.
pub const RECEIVED: Desc = Desc::counter(
    "afar_rpc_received_bytes_total",
    Unit::Bytes,
    "Bytes of requests, with their data.",
);
/// Bytes to clients.
pub const SENT: Desc = Desc::counter(
    "afar_rpc_sent_bytes_total",
    Unit::Bytes,
    "Bytes of replies, with their data.",
);

/// The label of calls with an opcode that is in no row.
const UNKNOWN: &str = "(unknown)";

/// The counters of an interface's operations, and the calls that are being served, for a service's `calls`.
/// Its clones are the same.
#[derive(Clone)]
pub struct Calls(Arc<Inner>);

struct Inner {
    interface: &'static Interface,
    /// In the order of the table, and then what is in no row. Each is made when it is called first.
    rows: Box<[OnceLock<Operation>]>,
    live: Live<Serving>,
}

#[derive(Default)]
struct Operation {
    duration: Histogram,
    errors: Counter,
    received: Counter,
    sent: Counter,
}

impl Calls {
    /// Of an interface. The registry shows them, with those of other interfaces.
    #[must_use]
    pub fn new(interface: &'static Interface, registry: &Registry) -> Self {
        let rows = 0..=interface.operations.len();
        let calls = Self(Arc::new(Inner {
            interface,
            rows: rows.map(|_| OnceLock::new()).collect(),
            live: Live::default(),
        }));
        registry.collector(calls.clone());
        calls
    }

    /// Counts a call.
    pub fn count(&self, served: &Served<'_>) {
        let rows = &self.0.rows;
        let Some(row) = rows.get(served.row.unwrap_or(rows.len() - 1)) else {
            return;
        };
        let operation = row.get_or_init(Operation::default);
        match served.result {
            Ok(()) => operation.duration.record_duration(served.took),
            Err(_) => operation.errors.inc(),
        }
        operation.received.add(served.received_bytes);
        operation.sent.add(served.sent_bytes);
    }

    /// A call is being served until the guard is dropped.
    pub(crate) fn begin(&self, began: Instant, call: Serving) -> Going<Serving> {
        self.0.live.begin(began, call)
    }

    /// By operation, in the order of the table: its name, how long calls took that succeeded, and how
    /// many failed.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, Distribution, u64)> + '_ {
        let rows = self.0.interface.operations.iter().zip(&self.0.rows);
        rows.map(|(operation, row)| {
            let row = row.get();
            let duration = row.map(|row| row.duration.read()).unwrap_or_default();
            (
                operation.name,
                duration,
                row.map_or(0, |row| row.errors.get()),
            )
        })
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Calls")
            .field(&self.0.interface.name)
            .finish()
    }
}

impl Collect for Calls {
    fn describe(&self) -> Vec<Desc> {
        vec![DURATION, ERRORS, RECEIVED, SENT]
    }

    fn collect(&self, cells: &mut Cells) {
        let names = self.0.interface.operations.iter().map(|row| row.name);
        for (name, row) in names.chain([UNKNOWN]).zip(&self.0.rows) {
            // What was never called has no lines.
            let Some(operation) = row.get() else {
                continue;
            };
            let labels = [("interface", self.0.interface.name), ("operation", name)];
            cells.distribution(&DURATION, &labels, operation.duration.read());
            cells.count(&ERRORS, &labels, operation.errors.get());
            cells.count(&RECEIVED, &labels, operation.received.get());
            cells.count(&SENT, &labels, operation.sent.get());
        }
    }

    fn activities(&self, list: &mut Vec<Activity>) -> usize {
        let (calls, beyond) = self.0.live.snapshot();
        list.extend(calls.into_iter().map(|call| {
            let waits = Wait::of(call.waits).map(Wait::name);
            let Serving {
                operation,
                caller,
                subject,
            } = &call.what;
            let (kind, number) = match subject {
                Subject::None => ("", String::new()),
                Subject::Fid(fid) => ("fid", fid.to_string()),
                Subject::Volume(volume) => ("volume", volume.to_string()),
                Subject::Transaction(number) => ("transaction", number.to_string()),
            };
            let labels = [
                ("interface", operation.interface),
                ("operation", operation.name),
                ("peer", &caller.peer.to_string()),
                ("user", &caller.identity.to_string()),
                ("kind", kind),
                ("subject", &number),
            ];
            Activity::new(&labels, call.began, waits)
        }));
        beyond
    }
}
