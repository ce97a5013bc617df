//! Clean bytes: from memory to the disk, and dropping them.

use std::io;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use afar_types::{CellName, DataVersion, UnixTime, VolumeId};
use bytes::Bytes;

use super::index::{Block, blocks_of};
use super::record::{BlockId, FileId, Record};
use super::slots::{BLOCK, Slot};
use super::{Shared, State};
use crate::model::key::FileKey;
use crate::storage::Usage;

/// Blocks that go at a time, while others wait.
const STEP: usize = 64;

/// Bytes to be put into a slot.
#[derive(Debug)]
pub(super) struct Landing {
    pub(super) id: BlockId,
    pub(super) version: DataVersion,
    /// Where in the block they begin.
    pub(super) from: u32,
    pub(super) data: Bytes,
}

impl Shared {
    /// Takes bytes of a version. Those of whole blocks go to the disk.
    pub(super) fn write_clean(
        &self,
        key: &FileKey,
        version: DataVersion,
        offset: u64,
        data: &[u8],
        length: u64,
    ) {
        let mut landings = Vec::new();
        let mut state = self.lock();
        let file = state.id_or_new(key);
        self.be_of(&mut state, file, key, version);
        let range = offset..offset.saturating_add(data.len() as u64).min(length);
        for number in blocks_of(&range) {
            let Ok(number) = u32::try_from(number) else {
                break;
            };
            let id = BlockId { file, number };
            let (start, end) = (id.start(), id.start() + BLOCK);
            let part = range.start.max(start)..range.end.min(end);
            let (Some(bytes), Ok(from), Ok(all)) = (
                slice(data, part.start - offset, part.end.saturating_sub(offset)),
                usize::try_from(part.start - start),
                usize::try_from(end.min(length) - start),
            ) else {
                continue;
            };
            let there = state.index.block(id).is_some_and(|block| {
                let has = block.range();
                !block.covered && has.start <= part.start && part.end <= has.end
            });
            if bytes.is_empty() || there && !state.arriving.has(id) {
                continue;
            }
            if let Some(data) = state.arriving.add(id, from, bytes, all) {
                landings.push(Landing {
                    id,
                    version,
                    from: 0,
                    data,
                });
            }
        }
        for file in state.arriving.take_dropped() {
            tidy(&mut state, file);
        }
        drop(state);
        for landing in landings {
            self.land(&landing);
        }
    }

    /// Puts a whole block on the disk. If that fails it stays in memory for a while.
    fn land(&self, landing: &Landing) {
        let still = |state: &State| state.arriving.is(landing.id, &landing.data);
        let landed = |state: &mut State| {
            state.arriving.remove(landing.id);
            if let Some(block) = state.index.block(landing.id) {
                state.recent.add(*block, landing.data.clone());
            }
        };
        if let Err(error) = self.put(landing, still, landed) {
            let mut state = self.lock();
            self.failing(&mut state, &error);
        }
    }

    /// Writes bytes into a slot, unless they are no longer wanted then. Returns whether that was
    /// done; if so, `landed` is told before anybody else sees it.
    pub(super) fn put(
        &self,
        landing: &Landing,
        wanted: impl Fn(&State) -> bool,
        landed: impl FnOnce(&mut State),
    ) -> io::Result<bool> {
        let slot = {
            let mut state = self.lock();
            if !wanted(&state) {
                return Ok(false);
            }
            self.allocate(&mut state, landing.data.len())
        };
        let Some(slot) = slot else {
            return Ok(false);
        };
        let record = Record {
            block: landing.id,
            version: landing.version,
            from: landing.from,
            length: u32::try_from(landing.data.len()).unwrap_or(u32::MAX),
            sum: landing.id.sum(landing.from, &landing.data),
            time: UnixTime::from(SystemTime::now()).0,
        };
        let written = self.slots.write(slot, &landing.data);
        let mut state = self.lock();
        // The slot was written without the lock: the file may have another version by now.
        let version = state.index.file(landing.id.file).map(|file| file.version);
        let right = version == Some(landing.version) && wanted(&state);
        let recorded = match written {
            Ok(()) if right => self.slots.write_record(slot, &record),
            Ok(()) => {
                state.space.free(slot);
                return Ok(false);
            }
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            state.space.free(slot);
            // Where the disk is full, what is taken and not used is of use to others.
            self.empty_one(&mut state);
            return Err(error);
        }
        let replaced = state.index.insert(Block::new(&record, slot));
        landed(&mut state);
        self.release(&mut state, replaced.into_iter().collect());
        while state.index.files() > self.files && self.evict(&mut state) {}
        Ok(true)
    }

    /// Bytes that all may take.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn usage(&self) -> Usage {
        let state = self.lock();
        let written = state.written.bytes();
        Usage {
            taken: state.space.taken() + written,
            written,
            limit: self.limit(),
        }
    }

    /// Changes what all may take. What does not fit goes, a little at a time: others wait for the state.
    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        while !self.shrink_by(&mut self.lock(), STEP) {}
    }

    /// Bytes of slots that clean blocks may take.
    fn room(&self, state: &State) -> u64 {
        self.limit().saturating_sub(state.written.bytes())
    }

    /// A slot for so many bytes; others go for it.
    fn allocate(&self, state: &mut State, length: usize) -> Option<Slot> {
        loop {
            let room = self.room(state);
            if let Some(slot) = state.space.take(length, room) {
                return Some(slot);
            }
            if !self.empty_one(state) && !self.evict(state) {
                return None;
            }
        }
    }

    /// Evicts until all fits with what was written.
    pub(super) fn shrink(&self, state: &mut State) {
        self.shrink_by(state, usize::MAX);
    }

    /// Evicts so many blocks at most; returns whether no more are to go.
    fn shrink_by(&self, state: &mut State, blocks: usize) -> bool {
        for _ in 0..blocks {
            let fits = state.space.taken() <= self.room(state);
            if fits || !self.empty_one(state) && !self.evict(state) {
                return true;
            }
        }
        false
    }

    /// Gives back what a free slot takes of the disk. Returns false if there is none, or it cannot.
    pub(super) fn empty_one(&self, state: &mut State) -> bool {
        let Some(slot) = state.space.take_full() else {
            return false;
        };
        match self.slots.punch(slot) {
            Ok(()) => {
                state.space.emptied(slot);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the cache cannot free unused space");
                state.space.free(slot);
                false
            }
        }
    }

    /// Drops the block that was longest not used.
    pub(super) fn evict(&self, state: &mut State) -> bool {
        let Some(block) = state.index.remove_oldest() else {
            return false;
        };
        // What lies over a part of it may stay: it is whole in itself.
        let file = block.id.file;
        self.release(state, vec![block]);
        tidy(state, file);
        true
    }

    /// The slots of blocks that were taken out of the index are free.
    pub(super) fn release(&self, state: &mut State, blocks: Vec<Block>) {
        let slots: Vec<Slot> = blocks.iter().map(|block| block.slot).collect();
        for slot in &slots {
            state.space.free(*slot);
        }
        // Under the same lock as above: in a slot that another took in between, its new record would be cleared.
        if !slots.is_empty()
            && let Err(error) = self.slots.clear_records(slots)
        {
            // Found after a restart, they tell of blocks that are no longer there.
            self.failing(state, &error);
        }
    }

    /// What is clean of a file is of this version from now on; what is of another goes.
    fn be_of(&self, state: &mut State, file: FileId, key: &FileKey, version: DataVersion) {
        match state.index.file(file) {
            Some(known) if known.version == version => return,
            Some(_) => self.drop_clean(state, file, key),
            None => {}
        }
        debug_assert!(state.index.within(file, 0..u64::MAX).next().is_none());
        state.index.set_version(file, version);
    }

    /// Drops what is clean of a file.
    pub(super) fn drop_clean(&self, state: &mut State, file: FileId, key: &FileKey) {
        state.written.drop_settled(key, 0..u64::MAX);
        state.index.set_over(file, false);
        self.drop_blocks(state, file);
    }

    fn drop_blocks(&self, state: &mut State, file: FileId) {
        let all = state.index.within(file, 0..u64::MAX);
        let ids: Vec<BlockId> = all.map(|(_, block)| block.id).collect();
        let blocks = ids.into_iter().filter_map(|id| state.index.remove(id));
        let blocks = blocks.collect();
        self.release(state, blocks);
        state.arriving.remove_file(file);
        state.index.forget_file(file);
    }

    /// Drops all of a file.
    pub(super) fn forget(&self, key: &FileKey) {
        let mut state = self.lock();
        state.written.remove(key);
        if let Some(file) = state.id(key) {
            self.drop_clean(&mut state, file, key);
        }
    }

    /// Notes which instance of a volume there is; what is clean of another goes.
    pub(super) fn instance(&self, cell: &CellName, volume: VolumeId, made: UnixTime) {
        let mut state = self.lock();
        let Some(before) = state.instances.made(cell, volume, made) else {
            return;
        };
        tracing::info!(%cell, %volume, "restored in the meantime; dropping what is cached of it");
        for file in state.index.of_instance(before) {
            state.index.set_over(file, false);
            self.drop_blocks(&mut state, file);
        }
        for key in state.written.keys() {
            if key.fid.volume == volume && key.cell == *cell {
                state.written.drop_settled(&key, 0..u64::MAX);
            }
        }
    }
}

/// Forgets a file of which nothing is left.
pub(super) fn tidy(state: &mut State, file: FileId) {
    if !state.arriving.has_file(file) {
        state.index.forget_file(file);
    }
}

fn slice(data: &[u8], from: u64, to: u64) -> Option<&[u8]> {
    data.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
}
