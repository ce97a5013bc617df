//! How long the disk of a partition takes.

use std::io;
use std::time::Instant;

use afar_telemetry::{Distribution, Histogram};

/// Times of the system calls that read and write a partition's data and its log, since it was opened. The clones are
/// the same. What is read through a mapping of the database is not among them, nor what the system sends to a socket itself.
#[derive(Debug, Clone, Default)]
pub struct DiskTimes {
    reads: Histogram,
    writes: Histogram,
    syncs: Histogram,
}

impl DiskTimes {
    /// Reads from segments. What the system has in memory takes microseconds.
    #[must_use]
    pub fn reads(&self) -> Distribution {
        self.reads.read()
    }

    /// Writes to segments and to the log, which most often end when the system has the data in memory.
    #[must_use]
    pub fn writes(&self) -> Distribution {
        self.writes.read()
    }

    /// Waiting until what was written is on the disk.
    #[must_use]
    pub fn syncs(&self) -> Distribution {
        self.syncs.read()
    }

    pub(crate) fn read<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        timed(&self.reads, work)
    }

    pub(crate) fn write<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        timed(&self.writes, work)
    }

    pub(crate) fn sync<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        timed(&self.syncs, work)
    }
}

/// Times what succeeds: that which fails is counted as a failure.
fn timed<T>(histogram: &Histogram, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    let done = work()?;
    histogram.record_duration(began.elapsed());
    Ok(done)
}
