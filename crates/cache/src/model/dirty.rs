//! What was written to a file and is not stored yet.

use afar_types::{DataVersion, FetchStatus, UnixTime};

use crate::model::error::Errno;
use crate::model::ranges::RangeSet;

/// What was written to a file and is not stored yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dirty {
    /// The bytes written.
    pub(crate) ranges: RangeSet,
    /// Those written while others are being stored, if so.
    pub(crate) since: Option<Since>,
    /// The file's length.
    pub(crate) length: u64,
    /// The least length it was cut to; behind it nothing is left of what the server has.
    pub(crate) limit: u64,
    /// Whether the length was set, and is no longer the server's if that changes.
    pub(crate) resized: bool,
    /// Whether that is to be stored even if nothing was written.
    pub(crate) unstored: bool,
    /// When it was changed.
    pub(crate) mtime: UnixTime,
    /// The time with which it was tried to be stored last.
    pub(crate) tried: UnixTime,
    /// Whether all of it survives a crash.
    pub(crate) kept: bool,
    /// The user of this machine who wrote it last, and as whom it is stored when nobody asks for it.
    pub(crate) writer: u32,
    /// How storing it failed last, if it did.
    pub(crate) failed: Option<Failed>,
    /// The mode that was set since, which is stored with the bytes.
    pub(crate) mode: Option<u32>,
}

/// What was done to a file while what was written before is being stored.
#[derive(Debug, Clone)]
pub(crate) struct Since {
    /// The bytes written.
    pub(crate) ranges: RangeSet,
    /// The least length it was cut to.
    pub(crate) limit: u64,
}

impl Default for Since {
    fn default() -> Self {
        Self {
            ranges: RangeSet::default(),
            limit: u64::MAX,
        }
    }
}

impl Dirty {
    /// What was written is within the file, and what was since is a part of it.
    pub(crate) fn check(&self) {
        debug_assert!(self.ranges.end() <= self.length, "{self:?}");
        if let Some(since) = &self.since {
            debug_assert!(since.ranges.end() <= self.ranges.end(), "{self:?}");
            let cut = since.limit != u64::MAX;
            debug_assert!(!cut || since.limit <= self.length, "{self:?}");
        }
    }

    /// Leaves only the first `most` bytes written, and makes the file no longer than those reach.
    /// Returns false if that is all, as it was.
    pub(crate) fn trim(&mut self, most: u64, base: &FetchStatus) -> bool {
        let Some(end) = self.ranges.first(most) else {
            return false;
        };
        self.ranges.remove(end..u64::MAX);
        // What is cut off is cut off first.
        let before = base.length.min(self.limit);
        self.length = self.length.min(before.max(end));
        self.mode = None;
        true
    }
}

/// How storing what was written failed last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    /// Whether it would fail again.
    pub(crate) for_good: bool,
    /// The file's version at that time.
    version: DataVersion,
}

impl Dirty {
    /// Storing this failed.
    pub(crate) fn note_failure(&mut self, error: Errno, status: Option<FetchStatus>) {
        let version = status.map(|status| status.data_version);
        self.failed = Some(Failed {
            for_good: error.is_for_good(),
            version: version.unwrap_or_default(),
        });
    }

    /// Whether somebody else has changed the file since storing this failed. What the server did of
    /// ours without telling has our time.
    pub(crate) fn is_overtaken(&self, status: &FetchStatus) -> bool {
        self.failed.is_some_and(|failed| {
            status.data_version != failed.version && status.client_mod_time != self.mtime
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_first_makes_the_file_no_longer_than_it_reaches() {
        let base = FetchStatus {
            length: 1000,
            ..FetchStatus::default()
        };
        let mut dirty = Dirty {
            length: 5000,
            limit: 100,
            mode: Some(0o600),
            ..Dirty::default()
        };
        dirty.ranges.insert(0..50);
        dirty.ranges.insert(200..300);
        let mut whole = dirty.clone();
        assert!(!whole.trim(150, &base));
        assert_eq!((whole.length, whole.mode), (5000, Some(0o600)));
        let mut some = dirty.clone();
        assert!(some.trim(120, &base));
        assert_eq!((some.length, some.ranges.bytes()), (270, 120));
        assert_eq!(some.mode, None, "it comes with the last");
        let mut little = dirty;
        assert!(little.trim(30, &base));
        assert_eq!((little.length, little.ranges.end()), (100, 30));
    }
}
