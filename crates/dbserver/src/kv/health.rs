//! How long ago a replica heard of the others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::DbError;

/// Whether a replica may still be read.
#[derive(Debug)]
pub(super) struct Health {
    start: Instant,
    /// Whether the replica was ever whole.
    filled: AtomicBool,
    /// Milliseconds from `start` to when the others were heard of last.
    heard: AtomicU64,
    stale: Duration,
}

impl Health {
    pub(super) fn new(filled: bool, stale: Duration) -> Self {
        Self {
            start: Instant::now(),
            filled: AtomicBool::new(filled),
            heard: AtomicU64::new(0),
            stale,
        }
    }

    /// The others were heard of, and what they know was applied.
    pub(super) fn heard(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Whether all rows are there.
    pub(super) fn set_filled(&self, filled: bool) {
        self.filled.store(filled, Ordering::Release);
    }

    /// Refuses to read from a replica that is not whole, or has been alone for too long.
    pub(super) fn check(&self) -> Result<(), DbError> {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        let alone = self.start.elapsed().saturating_sub(heard);
        if self.filled.load(Ordering::Acquire) && alone <= self.stale {
            Ok(())
        } else {
            Err(DbError::NoQuorum)
        }
    }
}
