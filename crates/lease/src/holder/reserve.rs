//! Fids that a holder may use for what it makes.
// spec: leases#reserves

use afar_types::{Fid, VolumeId};

use crate::wire::Block;

/// A block, and the next fids of it: directories have odd vnodes, everything else even ones.
#[derive(Debug)]
struct Part {
    block: Block,
    /// The next places, for directories and for everything else.
    next: [u32; 2],
}

/// The blocks of all volumes.
#[derive(Debug, Default)]
pub(super) struct Reserves {
    parts: Vec<Part>,
}

/// Blocks at most, as many as a claim takes.
const BLOCKS: usize = 64;

impl Reserves {
    /// Whether there was room for it.
    pub(super) fn add(&mut self, block: Block) -> bool {
        let fits = block.is_sound() && self.parts.len() < BLOCKS;
        if fits {
            let odd = block.vnode % 2;
            let next = [1 - odd, odd];
            self.parts.push(Part { block, next });
        }
        fits
    }

    /// The next fid of a volume.
    pub(super) fn take(&mut self, volume: VolumeId, directory: bool) -> Option<Fid> {
        let parts = self.parts.iter_mut();
        let mut parts = parts.filter(|part| part.block.volume == volume);
        parts.find_map(|part| {
            let next = &mut part.next[usize::from(!directory)];
            let fid = part.block.fid(*next)?;
            *next += 2;
            Some(fid)
        })
    }

    /// Fids left of a volume, of the kind of which there are fewer.
    pub(super) fn left(&self, volume: VolumeId) -> u32 {
        let parts = self.parts.iter();
        let parts = parts.filter(|part| part.block.volume == volume);
        let left = |part: &Part| {
            let used = part.next[0].max(part.next[1]);
            part.block.count.saturating_sub(used).div_ceil(2)
        };
        parts.map(left).sum()
    }

    /// Nothing more is taken from these blocks. What was taken may yet be made, so a claim has them.
    pub(super) fn close(&mut self, which: impl Fn(&Block) -> bool) {
        for part in self.parts.iter_mut().filter(|part| which(&part.block)) {
            part.next = [part.block.count; 2];
        }
    }

    /// Forgets blocks, and returns them.
    pub(super) fn remove(&mut self, which: impl Fn(&Block) -> bool) -> Vec<Block> {
        let removed = self.parts.extract_if(.., |part| which(&part.block));
        removed.map(|part| part.block).collect()
    }

    /// All blocks are named by this number from now on.
    pub(super) fn renumber(&mut self, number: u64) {
        for part in &mut self.parts {
            part.block.number = number;
        }
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.parts.iter().map(|part| part.block)
    }
}
