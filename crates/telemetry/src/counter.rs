//! Single numbers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::shard::{Apart, SHARDS, add, shard};

/// A number that only grows. Its clones are the same counter.
#[derive(Clone, Default)]
pub struct Counter(Arc<[Apart<AtomicU64>; SHARDS]>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds to it; a counter of seconds takes nanoseconds.
    pub fn add(&self, by: u64) {
        if cfg!(feature = "off") {
            return;
        }
        let shard = shard();
        if let Some(cell) = self.0.get(shard) {
            add(shard, cell, by);
        }
    }

    /// The sum of what was added. What is added meanwhile is in it or not.
    #[must_use]
    pub fn get(&self) -> u64 {
        let cells = self.0.iter().map(|cell| cell.load(Relaxed));
        cells.fold(0, u64::wrapping_add)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

/// A number that rises and falls. Its clones are the same gauge.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, to: i64) {
        self.0.store(to, Relaxed);
    }

    /// Adds to it, or takes from it.
    pub fn add(&self, by: i64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// What it is now.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_are_counted() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let counter = counter.clone();
                scope.spawn(move || (0..10_000).for_each(|_| counter.inc()));
            }
        });
        assert_eq!(counter.get(), 80_000);
    }

    #[test]
    fn a_gauge_rises_and_falls() {
        let gauge = Gauge::default();
        gauge.set(5);
        gauge.clone().add(-7);
        assert_eq!(gauge.get(), -2);
    }
}
