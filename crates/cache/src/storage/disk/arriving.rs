//! Blocks in memory: those that have not come whole yet, and those that are not on the disk yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;

use super::record::{BlockId, FileId};
use super::slots::BLOCK;
use crate::model::ranges::RangeSet;

/// Blocks in memory at a time; 64 MiB. Beyond, the first to have come goes.
const MOST: usize = 1024;

/// Blocks that are not on the disk.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    blocks: BTreeMap<BlockId, Arrival>,
    /// In the order in which they began to come; some are no longer here.
    order: VecDeque<BlockId>,
    /// Files of which something was dropped, as it was too much.
    dropped: Vec<FileId>,
}

/// A block that is not on the disk.
#[derive(Debug)]
enum Arrival {
    /// Some of its bytes, by their place in the block.
    Part { data: Vec<u8>, there: RangeSet },
    /// All there are, from its beginning.
    Whole(Bytes),
}

impl Arriving {
    /// Adds bytes of a block, of which there are so many in all. Returns the block if it is whole
    /// now. The bytes are within it.
    pub(super) fn add(
        &mut self,
        id: BlockId,
        from: usize,
        bytes: &[u8],
        all: usize,
    ) -> Option<Bytes> {
        if from == 0 && bytes.len() >= all {
            let whole = Bytes::copy_from_slice(bytes);
            return Some(self.put(id, whole));
        }
        let arrival = self.blocks.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            Arrival::Part {
                data: Vec::new(),
                there: RangeSet::default(),
            }
        });
        let Arrival::Part { data, there } = arrival else {
            return None;
        };
        let end = from + bytes.len();
        debug_assert!(
            end <= all && end as u64 <= BLOCK,
            "{from} to {end} of {all}"
        );
        if data.len() < end {
            data.resize(end, 0);
        }
        data[from..end].copy_from_slice(bytes);
        there.insert(from as u64..end as u64);
        if there.gaps(0..all as u64).is_empty() {
            let whole = Bytes::from(std::mem::take(data));
            return Some(self.put(id, whole));
        }
        self.bound();
        None
    }

    /// Adds a whole block.
    fn put(&mut self, id: BlockId, whole: Bytes) -> Bytes {
        if self
            .blocks
            .insert(id, Arrival::Whole(whole.clone()))
            .is_none()
        {
            self.order.push_back(id);
        }
        self.bound();
        whole
    }

    /// Keeps no more than may be.
    fn bound(&mut self) {
        while self.blocks.len() > MOST
            && let Some(first) = self.order.pop_front()
        {
            if self.blocks.remove(&first).is_some() {
                self.dropped.push(first.file);
            }
        }
        if self.order.len() > 4 * MOST {
            let blocks = &self.blocks;
            // A block that came and went many times is here as often.
            let mut seen = BTreeSet::new();
            self.order
                .retain(|id| blocks.contains_key(id) && seen.insert(*id));
        }
        debug_assert!(
            self.blocks.len() <= self.order.len().min(MOST),
            "a block in no order"
        );
        debug_assert!(self.order.len() <= 4 * MOST, "{}", self.order.len());
    }

    /// Files of which something was dropped since this was asked last.
    pub(super) fn take_dropped(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.dropped)
    }

    /// Whether this is still the block that is to be put on the disk.
    pub(super) fn is(&self, id: BlockId, whole: &Bytes) -> bool {
        match self.blocks.get(&id) {
            Some(Arrival::Whole(data)) => {
                data.as_ptr() == whole.as_ptr() && data.len() == whole.len()
            }
            _ => false,
        }
    }

    /// Whether anything of a block is here.
    pub(super) fn has(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        self.blocks.remove(&id);
    }

    /// Drops all of a file.
    pub(super) fn remove_file(&mut self, file: FileId) {
        let ids: Vec<BlockId> = self.of_file(file).map(|(id, _)| *id).collect();
        for id in ids {
            self.blocks.remove(&id);
        }
    }

    /// Whether anything of a file is here.
    pub(super) fn has_file(&self, file: FileId) -> bool {
        self.of_file(file).next().is_some()
    }

    fn of_file(&self, file: FileId) -> impl Iterator<Item = (&BlockId, &Arrival)> {
        let id = |number| BlockId { file, number };
        self.blocks.range(id(0)..=id(u32::MAX))
    }

    /// The bytes here of a part of a file, with their places in it.
    pub(super) fn within(&self, file: FileId, range: &Range<u64>) -> Vec<(u64, Bytes)> {
        let mut pieces = Vec::new();
        if self.blocks.is_empty() {
            return pieces;
        }
        let numbers = super::index::blocks_of(range);
        let (Ok(first), Ok(end)) = (u32::try_from(numbers.start), u32::try_from(numbers.end))
        else {
            return pieces;
        };
        let id = |number| BlockId { file, number };
        for (id, arrival) in self.blocks.range(id(first)..id(end.max(first))) {
            let start = id.start();
            let inside = range.start.saturating_sub(start)..range.end.saturating_sub(start);
            let mut add = |part: Range<u64>, slice: &dyn Fn(Range<usize>) -> Bytes| {
                let place = usize::try_from(part.start)
                    .ok()
                    .zip(usize::try_from(part.end).ok());
                if let Some((from, to)) = place
                    && from < to
                {
                    pieces.push((start + part.start, slice(from..to)));
                }
            };
            match arrival {
                Arrival::Whole(data) => {
                    let end = inside.end.min(data.len() as u64);
                    add(inside.start..end, &|place| data.slice(place));
                }
                Arrival::Part { data, there } => {
                    for part in there.within(inside) {
                        add(part, &|place| Bytes::copy_from_slice(&data[place]));
                    }
                }
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_comes_over_and_over_takes_no_more_memory() {
        let (mut arriving, id) = (Arriving::default(), BlockId::default());
        for _ in 0..10 * MOST {
            assert!(arriving.add(id, 0, b"all", 3).is_some());
            arriving.remove(id);
        }
        assert!(arriving.order.len() <= 4 * MOST);
        assert!(arriving.add(id, 0, b"all", 3).is_some());
        assert!(arriving.has(id));
    }
}
