//! Records that the log makes durable.
//!
//! A few bytes are cheaper written twice than waited for twice: a commit of little data has its
//! records in its frame of the log, and that frame's sync is the only one. The next checkpoint syncs
//! the segments, and until then [`restore`] finds in the log what power loss took from them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::format;
use super::pending::Deferred;
use super::reaper::stretch_before;
use crate::error::{Result, StoreError};
use crate::meta::{
    Base, Env, Kept, LOGGED_RECORD, Log, Replay, Rows, Table, View, dead_key, logged_rows,
    split_dead_key,
};
use crate::segment::{Segments, file_name};

/// Bytes of records from which a commit syncs their segments instead: two of the longest records
/// of ordinary files.
pub(super) const MOST: u64 = 256 << 10;

/// Whether the log can make durable all that a commit wrote to segments.
pub(super) fn fits(kept: &Kept) -> bool {
    let octets: u64 = kept.records.iter().map(|r| u64::from(r.stored)).sum();
    // What it discarded at a segment's end is in no record, and its length must not be lost.
    let reaches = |segment: u32, end: u32| {
        let mut records = kept.records.iter();
        records.any(|r| r.segment == segment && r.offset.saturating_add(r.stored) == end)
    };
    octets <= MOST
        && kept
            .segments
            .iter()
            .all(|(&segment, delta)| delta.end == 0 || reaches(segment, delta.end))
}

/// Adds the records of a commit to its frame, some of which may not be written yet.
pub(super) fn add(
    log: &mut Log,
    kept: &Kept,
    segments: &Segments,
    deferred: &[Arc<Deferred>],
) -> std::io::Result<()> {
    for record in &kept.records {
        let place = (record.segment, record.offset);
        let octets = log.record(&dead_key(record.segment, record.offset), record.stored);
        if let Some(deferred) = deferred.iter().find(|deferred| deferred.place() == place) {
            octets.copy_from_slice(deferred.octets());
        } else {
            let file = segments.file(record.segment)?;
            file.read_exact_at(octets, record.offset.into())?;
        }
    }
    Ok(())
}

/// Puts the records that the log has where they belong, once its rows are replayed and before the
/// segments are opened.
pub(super) fn restore(partition: &Path, env: &Env, base: &Base) -> Result<()> {
    if base.clean {
        return Ok(());
    }
    let dir = partition.join("seg");
    let failed = |e| StoreError::io(format!("restoring records in {}", dir.display()), e);
    let view = env.view()?;
    let mut log = Replay::open(env.dir(), base.log).map_err(failed)?;
    let mut files: BTreeMap<u32, File> = BTreeMap::new();
    while let Some(payload) = log.next().map_err(failed)? {
        for row in logged_rows(&payload).flatten() {
            let (LOGGED_RECORD, key, Some(octets)) = row else {
                continue;
            };
            let place = split_dead_key(key).ok_or_else(|| env.corrupt("a record in the log"))?;
            let (segment, offset) = place;
            // Since removed, with all that was in it.
            if view.get(Table::Segments, &segment.to_be_bytes())?.is_none() {
                continue;
            }
            let file = match files.entry(segment) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(open(&dir.join(file_name(segment))).map_err(failed)?)
                }
            };
            if is_dead(&view, segment, offset)? {
                lengthen(file, u64::from(offset) + octets.len() as u64).map_err(failed)?;
                continue;
            }
            // Also where they can be read already: after a sync that failed, the system may have
            // them in memory and take them for written.
            file.write_all_at(octets, offset.into()).map_err(failed)?;
        }
    }
    for file in files.values() {
        file.sync_data().map_err(failed)?;
    }
    if files.is_empty() {
        return Ok(());
    }
    format::sync_dir(&dir)
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// Whether a record's bytes belong to nobody any more. If they were given back, there may be no
/// room for them.
fn is_dead(view: &View, segment: u32, offset: u32) -> Result<bool> {
    let dead = view.get(Table::Dead, &dead_key(segment, offset))?;
    let offset = u64::from(offset);
    let free = stretch_before(view, Table::Free, segment, offset + 1)?;
    Ok(dead.is_some() || free.is_some_and(|free| free.contains(&offset)))
}

/// Has a file reach so far at least, as one that is shorter than its segment is taken for damaged.
fn lengthen(file: &File, end: u64) -> std::io::Result<()> {
    if file.metadata()?.len() < end {
        file.set_len(end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::meta::{Change, SegmentRow};

    #[test]
    fn what_is_alive_is_there_again_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let meta = dir.path().join("meta");
        fs::create_dir(&meta).unwrap();
        fs::create_dir(dir.path().join("seg")).unwrap();
        let env = Env::open(dir.path(), &meta, 1 << 26).unwrap();
        let mut batch = env.begin().unwrap();
        let mut change = Change::new(&mut batch, 0);
        change.put_segment(1, SegmentRow { end: 34, live: 4 });
        let length = |len: u32| len.to_be_bytes().to_vec();
        change.put(Table::Dead, &dead_key(1, 10), length(4));
        change.put(Table::Free, &dead_key(1, 18), length(16));
        drop(change);
        env.publish(batch);
        let mut log = Log::open(&meta, 1).unwrap();
        let begin = log.start();
        log.begin();
        for (segment, offset) in [(1, 0), (1, 10), (1, 18), (1, 30), (2, 0)] {
            log.record(&dead_key(segment, offset), 4)
                .copy_from_slice(b"data");
        }
        log.reserve().unwrap();
        log.append().unwrap();
        let base = |clean| Base {
            number: 1,
            log: begin,
            clean,
            head: Vec::new(),
        };
        let segment = |number| dir.path().join("seg").join(file_name(number));
        restore(dir.path(), &env, &base(true)).unwrap();
        assert!(!segment(1).exists());
        restore(dir.path(), &env, &base(false)).unwrap();
        let mut expected = [0; 34];
        expected[..4].copy_from_slice(b"data");
        assert_eq!(fs::read(segment(1)).unwrap(), expected);
        assert!(!segment(2).exists());
    }
}
