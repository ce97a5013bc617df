//! Counts of a transfer.

use std::time::Duration;

use afar_cell::Fetched;

/// Counts of a whole copy.
#[derive(Debug, Default, Clone)]
pub struct Totals {
    /// Files copied.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Symlinks made.
    pub symlinks: u64,
    /// Names left alone, because they were there or by a pattern.
    pub skipped: u64,
    /// Bytes fetched or stored.
    pub bytes: u64,
    /// Bytes of these that a mount of this machine had in its cache.
    pub cached: u64,
    /// Calls that fetched or stored data.
    pub calls: u64,
    /// Files restarted, because they had changed.
    pub restarts: u64,
    /// Names that were the same already.
    pub unchanged: u64,
    /// Files of which only mode or time was set.
    pub attributes: u64,
    /// Names removed.
    pub deleted: u64,
    /// Bytes that an interrupted copy left behind and this run did not copy again.
    pub kept: u64,
    /// From the start of the first file to the end of the last.
    pub transfer: Duration,
    /// From when the paths are known to the last change.
    pub whole: Duration,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.skipped += other.skipped;
        self.bytes += other.bytes;
        self.cached += other.cached;
        self.calls += other.calls;
        self.restarts += other.restarts;
        self.unchanged += other.unchanged;
        self.attributes += other.attributes;
        self.deleted += other.deleted;
        self.kept += other.kept;
    }

    /// Counts what was fetched of a file.
    pub(crate) fn fetched(&mut self, fetched: &Fetched) {
        self.bytes += fetched.bytes;
        self.cached += fetched.near;
        self.calls += fetched.calls;
        self.restarts += u64::from(fetched.restarts);
    }

    /// Bytes a second, while files were copied.
    #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.transfer.is_zero() {
            0.0
        } else {
            self.bytes as f64 / self.transfer.as_secs_f64()
        }
    }
}
