//! The reaper: what is removed goes from the disk here, in small steps, and nobody waits for it.
//!
//! Removing a volume takes its row away and notes its tree, or its shade among the tree's members,
//! in the table of the doomed. The reaper deletes the rows in batches through the committer, like
//! anybody else, and pauses between them. Bytes that records leave behind are joined with free
//! neighbours and punched out of their segment, once no reader can refer to them.
//!
//! Removing or copying a volume wakes it. Changing a file does not: a round for each change would
//! cost as much as the change.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::commit::Queue;
use super::{Core, usage};
use crate::config::Durability;
use crate::error::{Result, StoreError};
use crate::meta::{
    At, Change, DoomedKey, Kind, MemberState, Rows, SegmentRow, Table, View, change_start,
    dead_key, split_change_key, split_dead_key, split_row_key, tree_range,
};

use crate::segment::BLOCK;

/// Rows deleted in one operation: few enough for others to get in between.
const ROWS: usize = 1_000;
/// Dead stretches taken up at once.
const STRETCHES: usize = 2_000;
/// Between two rounds when nobody wakes it.
const ROUND: Duration = Duration::from_secs(1);
/// Between two writes of the volumes' use.
const USAGE: Duration = Duration::from_secs(30);
/// Between two syncs where commits do not sync.
const SYNC: Duration = Duration::from_secs(5);

pub(super) struct Reaper {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    wanted: u64,
    /// The round in which the last doomed row was cleared away.
    cleared: u64,
    done: u64,
    stop: bool,
}

#[derive(Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

/// Waits for a round that began after it was made.
pub(super) struct Waiter {
    signal: Arc<Signal>,
    round: u64,
    /// Until rows are gone; not until bytes are given back, which has to wait for readers.
    rows_only: bool,
}

impl Waiter {
    pub(super) fn wait(&self, core: &Core) -> Result<()> {
        let mut state = self.signal.state.lock();
        let left = |state: &State| {
            let reached = if self.rows_only {
                state.cleared
            } else {
                state.done
            };
            reached < self.round && !state.stop
        };
        while left(&state) {
            self.signal.changed.wait_for(&mut state, ROUND);
            core.stopped()?;
        }
        Ok(())
    }
}

impl Reaper {
    pub(super) fn start(core: Arc<Core>, queue: Queue) -> Result<Self> {
        let signal = Arc::new(Signal::default());
        let theirs = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name("afar-reap".to_owned())
            .spawn(move || {
                Work {
                    core: &core,
                    queue: &queue,
                    signal: &theirs,
                }
                .rounds();
            })
            .map_err(|e| StoreError::io("starting the reaper", e))?;
        Ok(Self {
            signal,
            thread: Some(thread),
        })
    }

    pub(super) fn wake(&self) {
        self.signal.state.lock().wanted += 1;
        self.signal.changed.notify_all();
    }

    pub(super) fn waiter(&self, rows_only: bool) -> Waiter {
        let mut state = self.signal.state.lock();
        state.wanted += 1;
        self.signal.changed.notify_all();
        Waiter {
            signal: Arc::clone(&self.signal),
            round: state.wanted,
            rows_only,
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.signal.state.lock().stop = true;
        self.signal.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the reaper panicked");
        }
    }
}

struct Work<'a> {
    core: &'a Core,
    queue: &'a Queue,
    signal: &'a Signal,
}

impl Work<'_> {
    fn rounds(&self) {
        let mut used = Instant::now();
        let mut synced = Instant::now();
        let mut failed = false;
        while let Some(round) = self.next_round(failed) {
            let mut result = self.round(round);
            if used.elapsed() >= USAGE {
                used = Instant::now();
                result = result.and_then(|()| self.write_usage());
            }
            if self.core.options.durable() != Durability::Full && synced.elapsed() >= SYNC {
                synced = Instant::now();
                result = result.and_then(|()| self.sync());
            }
            failed = result.is_err();
            match result {
                Ok(()) => {
                    let mut state = self.signal.state.lock();
                    state.done = state.done.max(round);
                    self.signal.changed.notify_all();
                }
                Err(StoreError::Stopped { .. }) => {}
                Err(error) => {
                    let partition = self.core.path.display();
                    tracing::warn!(%partition, %error, "removed data is not yet freed");
                }
            }
        }
        if let Err(error) = self.write_usage() {
            tracing::debug!(%error, "cannot write the usage of volumes");
        }
    }

    /// Waits for something to do; `None` at the end. After a round that failed there is something, but a
    /// disk that is full, or a partition that has stopped, is the same a moment later.
    fn next_round(&self, failed: bool) -> Option<u64> {
        let mut state = self.signal.state.lock();
        if (failed || state.wanted == state.done) && !state.stop {
            self.signal.changed.wait_for(&mut state, ROUND);
        }
        (!state.stop).then_some(state.wanted)
    }

    fn stopping(&self) -> bool {
        self.signal.state.lock().stop
    }

    fn round(&self, round: u64) -> Result<()> {
        while let Some(doomed) = self.next_doomed()? {
            match doomed.generation {
                None => self.drop_tree(doomed.tree)?,
                Some(generation) => self.drop_shade(At {
                    tree: doomed.tree,
                    generation,
                })?,
            }
            if self.stopping() {
                return Ok(());
            }
        }
        self.signal.state.lock().cleared = round;
        self.signal.changed.notify_all();
        let mut from = Some(Vec::new());
        while let Some(key) = from
            && !self.stopping()
        {
            from = self.punch_some(&key)?;
        }
        Ok(())
    }

    fn commit<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Change<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue.commit(self.core, operation)
    }

    fn next_doomed(&self) -> Result<Option<DoomedKey>> {
        first_doomed(self.core, &self.core.env.view()?)
    }

    /// Deletes all rows of a tree.
    fn drop_tree(&self, tree: u64) -> Result<()> {
        for table in [
            Table::Rows,
            Table::Changes,
            Table::VnodeSlots,
            Table::Members,
        ] {
            let mut from = tree_range(tree).0.to_vec();
            loop {
                let start = from;
                match self.commit(move |change| drop_some(change, table, tree, &start))? {
                    Some(key) => from = key,
                    None => break,
                }
                if self.stopping() {
                    return Ok(());
                }
                std::thread::yield_now();
            }
        }
        self.commit(move |change| change.spare(DoomedKey::tree(tree)))
    }

    /// Deletes what only a removed member of a tree saw.
    ///
    /// What became of it after its generation hides it from the members that follow, so only items
    /// changed up to the next live member need a look; if no member follows, those changed since
    /// the one before.
    fn drop_shade(&self, shade: At) -> Result<()> {
        let tree = shade.tree;
        self.commit(move |change| settle(change, shade))?;
        let mut from: Option<Vec<u8>> = None;
        loop {
            let start = from.clone();
            let next = self.commit(move |change| prune_some(change, shade, start.as_deref()))?;
            match next {
                Some(key) => from = Some(key),
                None => break,
            }
            if self.stopping() {
                return Ok(());
            }
            std::thread::yield_now();
        }
        self.commit(move |change| {
            change.spare(DoomedKey::shade(shade))?;
            change.delete_member(shade, 0)?;
            let gone = change.members(tree)?.is_empty();
            if gone {
                change.doom(DoomedKey::tree(tree));
            }
            Ok(())
        })
    }

    /// Gives dead bytes back to the file system, from a key on; the key to go on from, if there
    /// are more.
    fn punch_some(&self, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stretches: Vec<(u32, Range<u64>)> = Vec::new();
        let mut taken = Vec::new();
        let mut next = None;
        {
            let view = self.core.env.view()?;
            let wanted = self.core.wanted.lock();
            for row in view.scan(Table::Dead, from)? {
                let (key, value) = row?;
                if taken.len() == STRETCHES {
                    next = Some(key.to_vec());
                    break;
                }
                let (Some((segment, offset)), Ok(len)) = (split_dead_key(key), value.try_into())
                else {
                    return Err(self.core.env.corrupt("a row of the dead"));
                };
                // Somebody is about to revive it.
                if wanted.contains_key(&(segment, offset)) {
                    continue;
                }
                let range =
                    u64::from(offset)..u64::from(offset) + u64::from(u32::from_be_bytes(len));
                taken.push((segment, offset));
                match stretches.last_mut() {
                    Some((same, last)) if *same == segment && last.end == range.start => {
                        last.end = range.end;
                    }
                    _ => stretches.push((segment, range)),
                }
            }
        }
        if taken.is_empty() {
            return Ok(None);
        }
        self.wait_for_readers()?;
        let joined = self.commit(move |change| join_free(change, &taken, stretches))?;
        self.sync_commits()?;
        for (segment, range) in joined {
            self.punch(segment, range)?;
        }
        Ok(next)
    }

    /// Punches a free stretch, or removes its segment if nothing lives in it.
    fn punch(&self, segment: u32, range: Range<u64>) -> Result<()> {
        if self.remove(segment)? {
            return Ok(());
        }
        let offset = u32::try_from(range.start).unwrap_or(u32::MAX);
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        self.core.segments.punch(segment, offset, len)?;
        Ok(())
    }

    /// Removes a segment if nothing lives in it and nothing is about to.
    fn remove(&self, segment: u32) -> Result<bool> {
        let empty = |row: SegmentRow| row.live == 0 && row.end > 0;
        if !empty(self.core.env.view()?.segment(segment)?)
            || segment == self.core.segments.current()
        {
            return Ok(false);
        }
        // A writer that wrote to it while it was the current one has pinned it once this is over.
        self.wait_for_readers()?;
        let wanted = self.core.wanted.lock().keys().any(|(of, _)| *of == segment);
        if wanted || self.core.pinned.lock().contains_key(&segment) {
            return Ok(false);
        }
        let gone = self.commit(move |change| {
            if !empty(change.segment(segment)?) {
                return Ok(false);
            }
            let (from, to) = (dead_key(segment, 0), dead_key(segment, u32::MAX));
            for table in [Table::Dead, Table::Free] {
                for key in keys_between(change, table, &from, &to)? {
                    change.delete(table, &key)?;
                }
            }
            change.delete(Table::Segments, &segment.to_be_bytes())?;
            Ok(true)
        })?;
        if gone {
            self.sync_commits()?;
            self.core.segments.remove(segment)?;
        }
        Ok(gone)
    }

    /// Sees to it that commits so far are durable: what is punched must not come back to life with
    /// a lost one.
    fn sync_commits(&self) -> Result<()> {
        match self.core.options.durable() {
            Durability::Async => self.queue.sync(self.core),
            Durability::Full | Durability::Metadata => Ok(()),
        }
    }

    fn wait_for_readers(&self) -> Result<()> {
        let epoch = self.core.epochs.advance();
        while !self.core.epochs.passed(epoch) {
            if self.stopping() {
                return Err(StoreError::Stopped {
                    path: self.core.path.clone(),
                    why: "closing".into(),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn write_usage(&self) -> Result<()> {
        let counts = self.core.usage.take();
        if counts.is_empty() {
            return Ok(());
        }
        self.commit(move |change| usage::write(change, &counts))
    }

    fn sync(&self) -> Result<()> {
        self.core.segments.sync()?;
        self.queue.sync(self.core)
    }
}

/// The first doomed tree or shade in a view that nobody holds or is filling right now.
fn first_doomed(core: &Core, view: &View) -> Result<Option<DoomedKey>> {
    for row in view.scan(Table::Doomed, &[])? {
        let key =
            DoomedKey::from_bytes(row?.0).ok_or_else(|| core.env.corrupt("a row of the doomed"))?;
        let held = !core.env.holds().generations(key.tree).is_empty();
        if held || core.building.lock().contains(&key.tree) {
            continue;
        }
        // The writer that filled it may have finished since the view was opened, and a volume shows it now.
        if (core.env.view()?.get(Table::Doomed, &key.to_bytes())?).is_some() {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Deletes some rows of a tree from a table, from a key on; the key to go on from, if there are
/// more.
fn drop_some(
    change: &mut Change<'_>,
    table: Table,
    tree: u64,
    from: &[u8],
) -> Result<Option<Vec<u8>>> {
    let (_, to) = tree_range(tree);
    let mut keys = Vec::new();
    let mut next = None;
    for row in change.scan(table, from)? {
        let (key, _) = row?;
        if key > to.as_slice() {
            break;
        }
        if keys.len() == ROWS {
            next = Some(key.to_vec());
            break;
        }
        keys.push(key.to_vec());
    }
    for key in &keys {
        match (table, split_row_key(key)) {
            (Table::Rows, Some((at, item))) if item.kind == Kind::Record => {
                change.drop_row(at, item)?;
            }
            _ => change.delete(table, key)?,
        }
    }
    Ok(next)
}

/// Makes a member whose filling was given up a shade.
fn settle(change: &mut Change<'_>, at: At) -> Result<()> {
    for (generation, volume, state) in change.members(at.tree)? {
        if generation == at.generation && state == MemberState::Filling {
            change.delete_member(at, volume)?;
            change.put_member(at, 0, MemberState::Shade);
        }
    }
    Ok(())
}

/// Prunes some items a shade may be the last to see; the key to go on from, if there are more.
fn prune_some(change: &mut Change<'_>, shade: At, from: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    let live = change.live(shade.tree)?;
    let Some((first, last)) = shade_range(&live, shade.generation) else {
        return Ok(None);
    };
    let start = At {
        tree: shade.tree,
        generation: first,
    };
    let start_key = from.map_or_else(|| change_start(start).to_vec(), <[u8]>::to_vec);
    let mut items = Vec::new();
    let mut next = None;
    for row in change.scan(Table::Changes, &start_key)? {
        let (key, _) = row?;
        let Some((at, item)) = split_change_key(key) else {
            return Err(change.env().corrupt("a row of the changes"));
        };
        if at.tree != shade.tree || at.generation > last {
            break;
        }
        if items.len() == ROWS {
            next = Some(key.to_vec());
            break;
        }
        items.push(item);
    }
    for item in items {
        change.prune(shade.tree, item)?;
    }
    Ok(next)
}

/// The generations whose changes say what a shade was the last to see: after it up to the next
/// live member or, if there is none, after the one before up to it. `None` without any member.
fn shade_range(live: &[u32], shade: u32) -> Option<(u32, u32)> {
    let next = live.partition_point(|member| *member < shade);
    match (live.get(next), next.checked_sub(1)) {
        (Some(same), _) if *same == shade => None,
        (Some(next), _) => Some((shade + 1, *next)),
        (None, Some(previous)) => Some((live[previous] + 1, u32::MAX)),
        (None, None) => None,
    }
}

/// Moves dead stretches to the map of the free, joined with their neighbours there. Returns what is
/// to be punched.
fn join_free(
    change: &mut Change<'_>,
    taken: &[(u32, u32)],
    stretches: Vec<(u32, Range<u64>)>,
) -> Result<Vec<(u32, Range<u64>)>> {
    for &(segment, offset) in taken {
        change.delete(Table::Dead, &dead_key(segment, offset))?;
    }
    let mut punchable = Vec::with_capacity(stretches.len());
    for (segment, fresh) in stretches {
        let mut range = fresh.clone();
        let before = stretch_before(change, Table::Free, segment, range.start)?;
        if let Some(before) = before.filter(|before| before.end == range.start) {
            let start = u32::try_from(before.start).unwrap_or(u32::MAX);
            change.delete(Table::Free, &dead_key(segment, start))?;
            range.start = before.start;
        }
        let after = dead_key(segment, u32::try_from(range.end).unwrap_or(u32::MAX));
        if let Some(len) = change
            .get(Table::Free, &after)?
            .and_then(|len| len.try_into().ok())
        {
            change.delete(Table::Free, &after)?;
            range.end += u64::from(u32::from_be_bytes(len));
        }
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        change.put(
            Table::Free,
            &dead_key(segment, start),
            len.to_be_bytes().to_vec(),
        );
        // Of the neighbours, only blocks they share with it are not punched yet.
        let block = u64::from(BLOCK);
        let from = range.start.max(fresh.start.saturating_sub(block));
        let to = range.end.min(fresh.end + block);
        punchable.push((segment, from..to));
    }
    Ok(punchable)
}

/// The last stretch of a segment in [`Table::Dead`] or [`Table::Free`] that begins before a place.
pub(crate) fn stretch_before(
    rows: &impl Rows,
    table: Table,
    segment: u32,
    place: u64,
) -> Result<Option<Range<u64>>> {
    let place = dead_key(segment, u32::try_from(place).unwrap_or(u32::MAX));
    let first = dead_key(segment, 0);
    let Some((key, value)) = rows.last_between(table, &first, &place)? else {
        return Ok(None);
    };
    let (Some((_, offset)), Ok(len)) = (split_dead_key(key), value.try_into()) else {
        return Err(rows.env().corrupt(format!("a row of {table:?}")));
    };
    let start = u64::from(offset);
    Ok(Some(start..start + u64::from(u32::from_be_bytes(len))))
}

fn keys_between(change: &Change<'_>, table: Table, from: &[u8], to: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    for row in change.scan(table, from)? {
        let (key, _) = row?;
        if key > to {
            break;
        }
        keys.push(key.to_vec());
    }
    Ok(keys)
}

/// Turns a live member into a shade, for the reaper to finish.
pub(crate) fn doom_member(change: &mut Change<'_>, at: At, volume: u32) -> Result<()> {
    change.delete_member(at, volume)?;
    let members = change.members(at.tree)?;
    let live = members
        .iter()
        .any(|(_, _, state)| *state == MemberState::Live);
    if !live {
        for (generation, _, _) in members {
            let shade = At {
                tree: at.tree,
                generation,
            };
            change.delete_member(shade, 0)?;
            change.spare(DoomedKey::shade(shade))?;
        }
        change.doom(DoomedKey::tree(at.tree));
        return Ok(());
    }
    let twin = members
        .iter()
        .any(|(generation, _, state)| *generation == at.generation && *state == MemberState::Live);
    if twin {
        return Ok(());
    }
    change.put_member(at, 0, MemberState::Shade);
    change.doom(DoomedKey::shade(at));
    Ok(())
}

#[cfg(test)]
mod tests {
    use afar_types::VolumeId;

    use super::*;
    use crate::config::PartitionOptions;
    use crate::partition::Partition;
    use crate::volume::{Filling, NewVolume};

    /// What cannot be done is tried again after a while, and not in a loop that takes a processor.
    #[test]
    fn a_round_that_failed_is_not_tried_again_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let options = PartitionOptions::default().map_size(1 << 28).unwrap();
        let partition = Partition::init(dir.path(), &options).unwrap();
        let signal = Signal::default();
        let work = Work {
            core: &partition.core,
            queue: &partition.committer.queue(),
            signal: &signal,
        };
        signal.state.lock().wanted = 1;
        let began = Instant::now();
        assert_eq!(work.next_round(false), Some(1));
        assert_eq!(work.next_round(true), Some(1));
        assert!(began.elapsed() >= ROUND, "{:?}", began.elapsed());
        signal.state.lock().stop = true;
        assert_eq!(work.next_round(true), None);
    }

    #[test]
    fn what_was_doomed_when_it_was_looked_for_may_be_a_volume_by_now() {
        let dir = tempfile::tempdir().unwrap();
        let options = PartitionOptions::default().map_size(1 << 28).unwrap();
        let partition = Arc::new(Partition::init(dir.path(), &options).unwrap());
        let id = VolumeId(7);
        let volume = partition.create_volume(&NewVolume::new(id, "v")).unwrap();
        for next in [false, true] {
            partition.wait_reaped().unwrap();
            let filling = if next {
                Filling::next(&partition, id).unwrap()
            } else {
                Filling::fresh(&partition, id).unwrap()
            };
            let (core, view) = (&partition.core, partition.core.env.view().unwrap());
            assert!(view.scan(Table::Doomed, &[]).unwrap().next().is_some());
            assert_eq!(
                first_doomed(core, &view).unwrap(),
                None,
                "it is being filled"
            );
            let reader = partition.reader().unwrap();
            let row = reader.volume(id.0).unwrap().unwrap();
            let info = reader.info(id.0).unwrap().unwrap();
            drop(reader);
            filling.finish(row, info, |_| Ok(())).unwrap();
            assert_eq!(first_doomed(core, &view).unwrap(), None, "it is shown");
        }
        drop(volume);
    }
}
