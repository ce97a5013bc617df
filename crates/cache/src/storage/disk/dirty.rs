//! Dirty bytes: written, kept, and made clean ones when a server has them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use afar_types::DataVersion;
use bytes::Bytes;
use rustix::io::Errno;

use super::clean::{Landing, tidy};
use super::index::{Block, blocks_of};
use super::record::{BlockId, FileId};
use super::slots::BLOCK;
use super::worker::Job;
use super::{Shared, State};
use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;
use crate::storage::{Kept, Wait};

/// Blocks that are evicted at once where the disk is full.
const MAKE_ROOM: usize = 64;
/// What was written may take this part of the cache before what is stored of it is moved.
const SETTLED_PART: u64 = 2;
/// Times room is made for one write.
const ROOM_TRIES: u32 = 64;

/// A block some of which is where it was written.
#[derive(Debug)]
struct Layers {
    id: BlockId,
    version: DataVersion,
    over: Vec<Range<u64>>,
    written: Arc<File>,
    below: Option<Block>,
}

impl Shared {
    pub(super) fn write_dirty(&self, key: &FileKey, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let range = offset..end.ok_or(io::ErrorKind::FileTooLarge)?;
        loop {
            let file = self.file_to_write(key, &range)?;
            self.write_or_make_room(&file, offset, data)?;
            let mut state = self.lock();
            // Otherwise it was forgotten meanwhile, and what was written with it.
            if state.written.note(key, range.clone()) {
                self.shrink(&mut state);
                return Ok(());
            }
        }
    }

    /// The file to write into at this place, where nothing is that must stay.
    fn file_to_write(&self, key: &FileKey, range: &Range<u64>) -> io::Result<Arc<File>> {
        let clean = {
            let state = self.lock();
            let entry = state.written.find_entry(key);
            let within = entry.map(|entry| entry.settled().within(range.clone()));
            let clean: Option<Vec<_>> = within.map(Iterator::collect);
            clean.unwrap_or_default()
        };
        // What programs write over and over is worth keeping whole.
        for number in clean.iter().flat_map(blocks_of) {
            self.move_block(key, number);
        }
        let mut state = self.lock();
        // Before anything is written: a reader of clean bytes checks after it has read that they are still here.
        self.uncover(&mut state, key, range);
        match state.written.file_or_new(key) {
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                self.make_room(&mut state);
                state.written.file_or_new(key)
            }
            made => made,
        }
    }

    /// Drops clean bytes that lie where they were written, and what they hide.
    pub(super) fn uncover(&self, state: &mut State, key: &FileKey, range: &Range<u64>) {
        let Some(entry) = state.written.find_entry(key) else {
            return;
        };
        let parts: Vec<_> = entry.settled().within(range.clone()).collect();
        if parts.is_empty() {
            return;
        }
        state.written.drop_settled(key, range.clone());
        let Some(file) = state.id(key) else {
            return;
        };
        self.drop_covered(state, file, &parts);
        self.note_over(state, key, file);
    }

    /// Drops blocks that are not right where something lay over them.
    fn drop_covered(&self, state: &mut State, file: FileId, parts: &[Range<u64>]) {
        let numbers = parts.iter().map(blocks_of);
        let covered: Vec<BlockId> = numbers
            .flat_map(|numbers| state.index.within(file, numbers))
            .filter(|(_, block)| block.covered)
            .map(|(_, block)| block.id)
            .collect();
        let removed = covered.into_iter().filter_map(|id| state.index.remove(id));
        let removed = removed.collect();
        self.release(state, removed);
    }

    fn note_over(&self, state: &mut State, key: &FileKey, file: FileId) {
        let entry = state.written.find_entry(key);
        let over = entry.is_some_and(|entry| !entry.settled().is_empty());
        state.index.set_over(file, over);
        tidy(state, file);
    }

    /// Writes; if the disk is full, what is clean goes for it.
    fn write_or_make_room(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut tries = 0;
        loop {
            match file.write_all_at(data, offset) {
                Err(error)
                    if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
                        && tries < ROOM_TRIES =>
                {
                    tries += 1;
                    if !self.make_room(&mut self.lock()) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Gives back some of what clean bytes take of the disk. Returns false if there is nothing.
    fn make_room(&self, state: &mut State) -> bool {
        let before = state.space.taken();
        for _ in 0..MAKE_ROOM {
            if !self.evict(state) {
                break;
            }
        }
        while self.empty_one(state) {}
        state.space.taken() < before
    }

    /// Puts what was written to a file, and what is to be known of it, on the disk.
    pub(super) fn keep(&self, key: &FileKey, kept: &Kept) -> io::Result<()> {
        let (file, recording) = {
            let mut state = self.lock();
            // A file that was only cut or made longer has nothing written, but a record.
            let file = state.written.file_or_new(key)?;
            (file, state.written.recording(key))
        };
        if let Some(recording) = recording {
            // Without the lock: to sync takes as long as the disk likes.
            recording.write(&file, key, kept)?;
            self.lock().written.recorded(key, &recording);
        }
        Ok(())
    }

    /// A server has dirty bytes.
    pub(super) fn stored(
        &self,
        key: &FileKey,
        ranges: &RangeSet,
        from: Option<(DataVersion, u64)>,
        to: DataVersion,
    ) {
        let mut state = self.lock();
        state.written.drop_record(key);
        let file = state.id_or_new(key);
        let Some((from, limit)) = from else {
            self.drop_clean(&mut state, file, key);
            for range in ranges.iter() {
                state.written.cut(key, range);
            }
            state.written.tidy(key);
            return;
        };
        match state.index.file(file) {
            Some(known) if known.version == from => {
                self.cut_clean(&mut state, file, key, limit);
                self.cover(&mut state, file, ranges);
            }
            Some(_) => self.drop_clean(&mut state, file, key),
            None => {}
        }
        state.index.set_version(file, to);
        state.written.settle(key, ranges);
        state.written.tidy(key);
        self.note_over(&mut state, key, file);
        self.tidy_up_later(&mut state, key, file);
    }

    /// Has what was stored be moved into blocks, and recorded, when all of the file is stored: done after
    /// each part of a large one, it would be done over and over. Only what takes much of the cache's room
    /// does not wait.
    fn tidy_up_later(&self, state: &mut State, key: &FileKey, file: FileId) {
        let entry = state.written.find_entry(key);
        let more = entry.is_some_and(|entry| !entry.dirty().is_empty());
        if more && state.written.bytes() < self.limit() / SETTLED_PART {
            return;
        }
        self.give(state, Job::Move(key.clone()));
        if !more {
            self.give(state, Job::Record(file));
        }
    }

    /// Drops what is clean behind a place.
    fn cut_clean(&self, state: &mut State, file: FileId, key: &FileKey, limit: u64) {
        // Whether a block is whole was decided by the old length.
        state.arriving.remove_file(file);
        state.written.drop_settled(key, limit..u64::MAX);
        let behind = state.index.within(file, limit / BLOCK..u64::MAX);
        let ids = behind.filter(|(_, block)| block.range().end > limit);
        let ids: Vec<BlockId> = ids.map(|(_, block)| block.id).collect();
        let removed = ids.into_iter().filter_map(|id| state.index.remove(id));
        let removed = removed.collect();
        self.release(state, removed);
    }

    /// Something newer lies over blocks; those of which nothing is to be seen go.
    fn cover(&self, state: &mut State, file: FileId, ranges: &RangeSet) {
        let (mut hidden, mut covered) = (Vec::new(), Vec::new());
        for range in ranges.iter() {
            for (_, block) in state.index.within(file, blocks_of(&range)) {
                let has = block.range();
                if range.start <= has.start && has.end <= range.end {
                    hidden.push(block.id);
                } else if range.start < has.end && has.start < range.end {
                    covered.push(block.id);
                }
            }
        }
        let removed = hidden.into_iter().filter_map(|id| state.index.remove(id));
        let removed = removed.collect();
        self.release(state, removed);
        for id in covered {
            state.index.cover(id);
        }
    }

    /// Moves the clean bytes of a file from where they were written into blocks.
    pub(super) fn move_file(&self, key: &FileKey) {
        loop {
            let next = {
                let state = self.lock();
                let entry = state.written.find_entry(key);
                entry.and_then(|entry| entry.settled().iter().next())
            };
            let Some(next) = next else {
                return;
            };
            for number in blocks_of(&next) {
                self.move_block(key, number);
            }
        }
    }

    /// Moves those of one block. What cannot be moved is dropped; what was written over meanwhile is looked
    /// at again.
    fn move_block(&self, key: &FileKey, number: u64) {
        let start = number.saturating_mul(BLOCK);
        let all = start..start.saturating_add(BLOCK);
        let Some(layers) = self.layers(key, number) else {
            return self.uncover(&mut self.lock(), key, &all);
        };
        let still = |state: &State| {
            let file = state.index.file(layers.id.file);
            let entry = state.written.find_entry(key);
            file.is_some_and(|file| file.version == layers.version)
                && entry.is_some_and(|entry| {
                    let mut over = layers.over.iter();
                    over.all(|part| entry.settled().gaps(part.clone()).is_empty())
                })
        };
        let landed = |state: &mut State| {
            state.written.drop_settled(key, all.clone());
            self.note_over(state, key, layers.id.file);
        };
        let mut moved = false;
        if let Some(landing) = self.merge(&layers) {
            moved = match self.put(&landing, still, landed) {
                Ok(moved) => moved,
                Err(error) => {
                    self.failing(&mut self.lock(), &error);
                    false
                }
            };
        }
        let mut state = self.lock();
        if !moved && still(&state) {
            self.uncover(&mut state, key, &all);
        }
    }

    /// What a block consists of, if a part of it lies where it was written.
    fn layers(&self, key: &FileKey, number: u64) -> Option<Layers> {
        let number = u32::try_from(number).ok()?;
        let mut state = self.lock();
        let id = BlockId {
            file: state.id(key)?,
            number,
        };
        let version = state.index.file(id.file)?.version;
        let all = id.start()..id.start() + BLOCK;
        let over: Vec<_> = state
            .written
            .find_entry(key)?
            .settled()
            .within(all)
            .collect();
        if over.is_empty() {
            return None;
        }
        Some(Layers {
            id,
            version,
            over,
            written: state.written.file(key).ok()??,
            below: state.index.block(id).copied(),
        })
    }

    /// The bytes of a block; of several parts the longest.
    fn merge(&self, layers: &Layers) -> Option<Landing> {
        let start = layers.id.start();
        let mut data = vec![0; usize::try_from(BLOCK).ok()?];
        let place = |range: &Range<u64>| {
            let from = usize::try_from(range.start - start).ok()?;
            Some(from..usize::try_from(range.end - start).ok()?)
        };
        let mut there = RangeSet::default();
        if let Some(below) = &layers.below {
            let range = below.range();
            let target = data.get_mut(place(&range)?)?;
            if self.read_block(below, &range, target, Wait::Yes).ok()? {
                there.insert(range);
            }
        }
        for range in &layers.over {
            let target = data.get_mut(place(range)?)?;
            layers.written.read_exact_at(target, range.start).ok()?;
            there.insert(range.clone());
        }
        let longest = there.iter().max_by_key(|range| range.end - range.start)?;
        Some(Landing {
            id: layers.id,
            version: layers.version,
            from: u32::try_from(longest.start - start).ok()?,
            data: Bytes::copy_from_slice(data.get(place(&longest)?)?),
        })
    }
}
