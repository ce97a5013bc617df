//! Blocks that were put on the disk a moment ago: who waited for them reads them from memory.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use super::index::Block;
use super::slots::Slot;

/// Blocks kept at a time; 16 MiB. So much comes before what a reader waits for when it comes last.
const MOST: usize = 256;

/// What the last blocks put on the disk hold. It is only looked for by way of the index: what is no longer
/// in that, or is something else now, is not found here either.
#[derive(Debug, Default)]
pub(super) struct Recent {
    blocks: HashMap<Slot, (Block, Bytes)>,
    /// In the order in which they came; some are no longer here.
    order: VecDeque<Slot>,
}

impl Recent {
    /// Adds a block, which holds this.
    pub(super) fn add(&mut self, block: Block, data: Bytes) {
        if self.blocks.insert(block.slot, (block, data)).is_none() {
            self.order.push_back(block.slot);
        }
        while self.order.len() > MOST
            && let Some(first) = self.order.pop_front()
        {
            self.blocks.remove(&first);
        }
        debug_assert!(self.blocks.len() <= self.order.len(), "a block in no order");
    }

    /// What a block holds.
    pub(super) fn get(&self, block: &Block) -> Option<&Bytes> {
        let (known, data) = self.blocks.get(&block.slot)?;
        known.is(block).then_some(data)
    }

    /// A block was read to its end, and will not be soon again: the kernel has it now.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.blocks.remove(&slot);
    }
}
