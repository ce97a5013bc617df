//! How often operations are called and fail.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use afar_net::AbortCode;
use afar_types::{UnixTime, VldStats};

/// The first operation's number.
const FIRST: u32 = 501;

/// Counters of each operation, as GetStats tells them.
#[derive(Debug)]
pub(super) struct Stats {
    start: u32,
    requests: [AtomicU32; 50],
    aborts: [AtomicU32; 50],
}

/// Seconds since 1970.
pub(super) fn now() -> u32 {
    UnixTime::from(SystemTime::now()).0
}

impl Stats {
    pub(super) fn new() -> Self {
        Self {
            start: now(),
            requests: [const { AtomicU32::new(0) }; 50],
            aborts: [const { AtomicU32::new(0) }; 50],
        }
    }

    /// Counts an operation with its outcome.
    pub(super) async fn count<T>(
        &self,
        opcode: u32,
        operation: impl Future<Output = Result<T, AbortCode>>,
    ) -> Result<T, AbortCode> {
        let place = usize::try_from(opcode.wrapping_sub(FIRST)).unwrap_or(usize::MAX);
        let add = |counters: &[AtomicU32]| {
            if let Some(counter) = counters.get(place) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        add(&self.requests);
        let result = operation.await;
        if result.is_err() {
            add(&self.aborts);
        }
        result
    }

    pub(super) fn read(&self) -> VldStats {
        let read = |counter: &AtomicU32| counter.load(Ordering::Relaxed).cast_signed();
        VldStats {
            start_time: UnixTime(self.start),
            requests: self.requests.each_ref().map(read),
            aborts: self.aborts.each_ref().map(read),
            reserved: [0; 5],
        }
    }
}
