//! Reading: whatever is there of a part of a file, wherever it is.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use afar_types::DataVersion;
use bytes::{Bytes, BytesMut};

use super::index::{Block, blocks_of};
use super::record::FileId;
use super::{Shared, State};
use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;
use crate::storage::{Pieces, Wait};

/// Number of further look-ups when what was found has gone meanwhile.
const TRIES: u32 = 4;

/// Bytes, and where they are.
#[derive(Debug)]
struct Part {
    range: Range<u64>,
    from: From,
}

#[derive(Debug)]
enum From {
    Memory(Bytes),
    /// A file of what was written, at the same place.
    Written(Arc<File>),
    Slot(Block),
}

impl Shared {
    pub(super) fn read(
        &self,
        key: &FileKey,
        version: DataVersion,
        range: Range<u64>,
        wait: Wait,
    ) -> io::Result<Pieces> {
        for _ in 0..TRIES {
            let (file, parts) = {
                let mut state = self.lock();
                match state.id(key) {
                    Some(file) => (file, plan(&mut state, key, file, version, &range)?),
                    None => return Ok(Vec::new()),
                }
            };
            let runs = parts.chunk_by(|one, next| one.range.end == next.range.start);
            let pieces = runs
                .map(|run| self.run(run, wait))
                .collect::<io::Result<Option<_>>>();
            let pieces = match pieces {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => {
                    // It was clean: a server has it.
                    let mut state = self.lock();
                    self.failing(&mut state, &error);
                    self.uncover(&mut state, key, &range);
                    None
                }
                Ok(pieces) => pieces,
            };
            if let Some(pieces) = pieces
                && self.held(key, file, version, &parts)
            {
                return Ok(pieces);
            }
        }
        Ok(Vec::new())
    }

    /// Whether what was read from what was written was not written over meanwhile.
    fn held(&self, key: &FileKey, file: FileId, version: DataVersion, parts: &[Part]) -> bool {
        let mut written = parts
            .iter()
            .filter(|part| matches!(part.from, From::Written(_)));
        let Some(first) = written.next() else {
            return true;
        };
        let state = self.lock();
        if state.index.file(file).map(|file| file.version) != Some(version) {
            return false;
        }
        let Some(entry) = state.written.find_entry(key) else {
            return false;
        };
        let there = |part: &Part| entry.settled().gaps(part.range.clone()).is_empty();
        there(first) && written.all(there)
    }

    /// Bytes that follow each other, as one. Nothing if they are not there any more.
    fn run(&self, parts: &[Part], wait: Wait) -> io::Result<Option<(u64, Bytes)>> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(None);
        };
        let start = first.range.start;
        let length = usize::try_from(last.range.end - start).map_err(io::Error::other)?;
        let in_memory = parts.iter().map(|part| match &part.from {
            From::Memory(data) => Some(data),
            _ => None,
        });
        if let Some(pieces) = in_memory.collect::<Option<Vec<_>>>() {
            return Ok(Some((start, joined(&pieces, length))));
        }
        let mut data = BytesMut::zeroed(length);
        let mut rest = &mut data[..];
        for part in parts {
            let length = usize::try_from(part.range.end - part.range.start);
            let (target, behind) = rest.split_at_mut(length.map_err(io::Error::other)?);
            rest = behind;
            match &part.from {
                From::Memory(data) => target.copy_from_slice(data),
                From::Written(file) => file.read_exact_at(target, part.range.start)?,
                From::Slot(block) => {
                    if !self.read_block(block, &part.range, target, wait)? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some((start, data.freeze())))
    }

    /// Reads a part of a block. Returns false if it is not there any more: it may have gone, or be
    /// damaged, and goes then. The only error is that it would have to wait.
    pub(super) fn read_block(
        &self,
        block: &Block,
        range: &Range<u64>,
        target: &mut [u8],
        wait: Wait,
    ) -> io::Result<bool> {
        let all = block.range();
        let read = if all == *range {
            self.checked(block, target, wait)
        } else {
            let mut data = vec![0; block.length as usize];
            let read = self.checked(block, &mut data, wait);
            let from = usize::try_from(range.start - all.start).unwrap_or(usize::MAX);
            let part = data.get(from..).and_then(|data| data.get(..target.len()));
            part.map_or(Ok(false), |part| {
                target.copy_from_slice(part);
                read
            })
        };
        match read {
            Ok(true) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let mut state = self.lock();
        if state.index.block(block.id).is_some_and(|now| now.is(block)) {
            // It has not merely been replaced while it was read.
            self.damaged(block.slot, block.id.file);
            if let Err(error) = &read {
                self.failing(&mut state, error);
            }
            let removed = state.index.remove(block.id);
            self.release(&mut state, removed.into_iter().collect());
        }
        Ok(false)
    }

    /// Reads a block. Returns whether it is what it should be.
    fn checked(&self, block: &Block, data: &mut [u8], wait: Wait) -> io::Result<bool> {
        match self.slots.read(block.slot, data, wait) {
            Ok(()) => Ok(block.id.sum(block.from, data) == block.sum),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Which bytes of this version are there.
    pub(super) fn present(
        &self,
        key: &FileKey,
        version: DataVersion,
        range: &Range<u64>,
    ) -> RangeSet {
        let mut there = RangeSet::default();
        let state = self.lock();
        let Some(file) = state.id(key) else {
            return there;
        };
        if state.index.file(file).map(|file| file.version) != Some(version) {
            return there;
        }
        if let Some(entry) = state.written.find_entry(key) {
            let settled = entry.settled().within(range.clone());
            settled.for_each(|part| there.insert(part));
        }
        for (start, data) in state.arriving.within(file, range) {
            there.insert(start..start + data.len() as u64);
        }
        for (_, block) in state.index.within(file, blocks_of(range)) {
            let has = block.range();
            there.insert(has.start.max(range.start)..has.end.min(range.end));
        }
        there
    }

    /// The dirty bytes of a part of a file.
    pub(super) fn read_dirty(&self, key: &FileKey, range: Range<u64>) -> io::Result<Pieces> {
        let (parts, file) = {
            let mut state = self.lock();
            let Some(entry) = state.written.find_entry(key) else {
                return Ok(Vec::new());
            };
            let parts: Vec<_> = entry.dirty().within(range).collect();
            match state.written.file(key)? {
                Some(file) if !parts.is_empty() => (parts, file),
                _ => return Ok(Vec::new()),
            }
        };
        let read = |part: Range<u64>| {
            let length = usize::try_from(part.end - part.start).map_err(io::Error::other)?;
            let mut data = BytesMut::zeroed(length);
            file.read_exact_at(&mut data, part.start)?;
            Ok((part.start, data.freeze()))
        };
        parts.into_iter().map(read).collect()
    }
}

/// Pieces that are so long together as one, without copying if it is one.
fn joined(pieces: &[&Bytes], length: usize) -> Bytes {
    if let [piece] = pieces {
        return Bytes::clone(piece);
    }
    let mut all = BytesMut::with_capacity(length);
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

/// Where the clean bytes of this version are, in order. What is read from the disk counts as used.
fn plan(
    state: &mut State,
    key: &FileKey,
    file: FileId,
    version: DataVersion,
    range: &Range<u64>,
) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    if state.index.file(file).map(|file| file.version) != Some(version) {
        return Ok(parts);
    }
    let mut covered = RangeSet::default();
    // From the top: what was stored lies over what arrives, and that over blocks, which may be covered.
    let settled = state.written.find_entry(key).map(|entry| {
        let settled = entry.settled().within(range.clone());
        settled.collect::<Vec<_>>()
    });
    if let Some(settled) = settled.filter(|settled| !settled.is_empty())
        && let Some(written) = state.written.file(key)?
    {
        for range in settled {
            covered.insert(range.clone());
            let from = From::Written(Arc::clone(&written));
            parts.push(Part { range, from });
        }
    }
    for (start, data) in state.arriving.within(file, range) {
        for range in covered.gaps(start..start + data.len() as u64) {
            if let Some(data) = slice(&data, &range, start) {
                let from = From::Memory(data);
                parts.push(Part { range, from });
            }
        }
        covered.insert(start..start + data.len() as u64);
    }
    let mut used = Vec::new();
    for (place, block) in state.index.within(file, blocks_of(range)) {
        let has = block.range();
        let inside = has.start.max(range.start)..has.end.min(range.end);
        let recent = state.recent.get(block);
        for range in covered.gaps(inside.clone()) {
            let from = match recent.and_then(|data| slice(data, &range, has.start)) {
                Some(data) => From::Memory(data),
                None => From::Slot(*block),
            };
            parts.push(Part { range, from });
        }
        if inside.end == has.end {
            state.recent.remove(block.slot);
        }
        used.push(place);
    }
    for place in used {
        state.index.used(place);
    }
    parts.sort_unstable_by_key(|part| part.range.start);
    let overlap = |pair: &[Part]| pair[0].range.end > pair[1].range.start;
    debug_assert!(!parts.windows(2).any(overlap), "{parts:?}");
    Ok(parts)
}

/// A part of a file out of data that begins at a place of it.
fn slice(data: &Bytes, part: &Range<u64>, start: u64) -> Option<Bytes> {
    let place = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
    let (from, to) = (place(part.start)?, place(part.end)?);
    (from <= to && to <= data.len()).then(|| data.slice(from..to))
}
