//! A long file into AFS, in segments, so that an interrupted copy goes on where it was.
//!
//! Until it is complete, its time is no time: it says how many MiB were there for certain when the segment under way
//! was begun. A server sets a file's length with its first bytes, so length and time do not tell
//! that the rest is missing; it has a name of its own till then, which tells which version of which file it is of.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use afar_cell::Stored;
use afar_types::{FetchStatus, StoreStatus, UnixTime};

use crate::error::Result;
use crate::facts::{Facts, Kind};
use crate::store::Storing;

/// The unit in which is said how much is there.
const MIB: u64 = 1 << 20;
/// Bytes of the first segment, and of the shortest.
pub(crate) const SEGMENT: u64 = 32 * MIB;
const SEGMENT_MOST: u64 = 4096 * MIB;
/// What a segment is to take: between two, nothing is under way for a round trip or two.
const SEGMENT_TIME: Duration = Duration::from_secs(20);

/// Tells this version of a local file from all others.
pub(crate) fn version_of(metadata: &Metadata) -> String {
    format!(
        "{} {}.{:09} {}",
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ino()
    )
}

/// Stores a long file.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    pub(crate) storing: Storing<'a>,
    pub(crate) file: File,
    pub(crate) length: u64,
}

impl Segments<'_> {
    /// Stores it from `at` on, and gives it these attributes at last.
    pub(crate) async fn store(self, mut at: u64, attributes: StoreStatus) -> Result<Stored> {
        let Self {
            storing,
            file,
            length: whole,
        } = self;
        storing.progress.expect(whole);
        storing.progress.advance(at);
        let source = storing.source(file, whole);
        let mut all = Stored::default();
        let mut length = SEGMENT;
        while at < whole {
            let end = whole.min(at.saturating_add(length));
            let attributes = StoreStatus {
                mask: StoreStatus::SET_MOD_TIME | attributes.mask & StoreStatus::FSYNC,
                ..mark(at)
            };
            let begin = Instant::now();
            let stored = storing.part(&source, at..end, attributes).await?;
            all.bytes += stored.bytes;
            all.calls += stored.calls;
            length = segment_after(end - at, begin.elapsed());
            at = end;
            // The next call says the same, but not before it is done.
            if at < whole {
                let client = storing.client;
                let set = client.set_attributes(storing.volume, storing.fid, mark(at));
                set.await?;
            }
        }
        let attributes = StoreStatus {
            mask: attributes.mask & !StoreStatus::FSYNC,
            ..attributes
        };
        let set = storing
            .client
            .set_attributes(storing.volume, storing.fid, attributes);
        all.status = set.await?;
        Ok(all)
    }
}

/// The time that records that so many bytes are there.
fn mark(there: u64) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MOD_TIME,
        client_mod_time: UnixTime(u32::try_from(there / MIB).unwrap_or(u32::MAX)),
        ..StoreStatus::default()
    }
}

/// How much of a file in the making, as long as this one when it is complete, was there when an
/// interrupted run began its last segment; all of it, if it has the time of this one already.
pub(crate) fn stored_before(status: &FetchStatus, facts: &Facts) -> u64 {
    let Kind::File(length @ SEGMENT..) = facts.kind else {
        return 0;
    };
    let there = u64::from(status.client_mod_time.0) * MIB;
    if there <= length {
        return if there <= status.length { there } else { 0 };
    }
    // It is a true time, which long files get last.
    let complete = status.client_mod_time == facts.modified && status.length == length;
    if complete { length } else { 0 }
}

/// How long the next segment is to be, if one of this length took so long.
fn segment_after(length: u64, took: Duration) -> u64 {
    let took = took.as_millis().max(1);
    let next = u128::from(length) * SEGMENT_TIME.as_millis() / took;
    let next = u64::try_from(next).unwrap_or(SEGMENT_MOST);
    (next / MIB * MIB).clamp(SEGMENT, SEGMENT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_before_is_believed_only_if_it_can_be() {
        let status = |seconds, length| FetchStatus {
            client_mod_time: UnixTime(seconds),
            length,
            ..FetchStatus::default()
        };
        let facts = |length| Facts {
            kind: Kind::File(length),
            mode: 0o644,
            modified: UnixTime(1_795_267_507),
        };
        let (short, long) = (SEGMENT - 1, 100 * MIB);
        for (left, of, there) in [
            (status(32, 64 * MIB), long, 32 * MIB),
            (status(0, 64 * MIB), long, 0),
            // Not as long as it says.
            (status(64, 32 * MIB), long, 0),
            (status(1_795_267_507, long), long, long),
            (status(1_795_267_506, long), long, 0),
            (status(1_795_267_507, 64 * MIB), long, 0),
            (status(1_795_267_507, short), short, 0),
        ] {
            assert_eq!(stored_before(&left, &facts(of)), there, "{left:?}");
        }
    }

    #[test]
    fn segments_take_some_seconds() {
        let seconds = Duration::from_secs;
        assert_eq!(segment_after(SEGMENT, seconds(40)), SEGMENT);
        assert_eq!(segment_after(SEGMENT, seconds(5)), 4 * SEGMENT);
        assert_eq!(segment_after(SEGMENT, Duration::ZERO), SEGMENT_MOST);
        assert_eq!(segment_after(100 * MIB, seconds(7)) % MIB, 0);
    }
}
