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
    /// Fids that were taken, and of which the server has not said what came of them.
    open: u32,
    /// Bytes of quota that are left.
    quota: u64,
}

impl Part {
    /// Whether a kind is used up. The rest is of little use, and takes the place of a whole block.
    fn is_used_up(&self) -> bool {
        self.next.iter().any(|next| *next >= self.block.count)
    }
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
            self.parts.push(Part {
                block,
                next: [1 - odd, odd],
                open: 0,
                quota: block.quota,
            });
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
            part.open += 1;
            Some(fid)
        })
    }

    /// The server has said what came of a fid that was taken. Returns its block if nothing more is to come of that.
    pub(super) fn settle(&mut self, fid: Fid) -> Option<Block> {
        let place = self
            .parts
            .iter()
            .position(|part| part.block.volume == fid.volume && part.block.place(fid).is_some())?;
        let part = &mut self.parts[place];
        part.open = part.open.saturating_sub(1);
        (part.open == 0 && part.is_used_up()).then(|| self.parts.swap_remove(place).block)
    }

    /// Takes so much of a volume's quota, unless less is left.
    pub(super) fn spend(&mut self, volume: VolumeId, bytes: u64) -> bool {
        let its = |part: &&Part| part.block.volume == volume;
        let all: u64 = self.parts.iter().filter(its).map(|part| part.quota).sum();
        if all < bytes {
            return false;
        }
        let mut left = bytes;
        for part in &mut self.parts {
            if part.block.volume == volume {
                let taken = left.min(part.quota);
                part.quota -= taken;
                left -= taken;
            }
        }
        true
    }

    /// Whether a fid of this kind is left of a volume.
    pub(super) fn has(&self, volume: VolumeId, directory: bool) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| {
            let next = part.next[usize::from(!directory)];
            part.block.volume == volume && part.block.fid(next).is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(7);

    fn block(vnode: u32, count: u32, quota: u64) -> Block {
        Block {
            volume: VOLUME,
            vnode,
            uniquifier: 100 + vnode,
            count,
            quota,
            number: u64::from(vnode),
        }
    }

    #[test]
    fn a_block_goes_back_when_a_kind_is_used_up_and_all_is_settled() {
        let mut reserves = Reserves::default();
        assert!(reserves.add(block(10, 8, 0)));
        let files: Vec<Fid> = (0..4)
            .filter_map(|_| reserves.take(VOLUME, false))
            .collect();
        assert_eq!(files.len(), 4, "half of them are for files");
        assert!(!reserves.has(VOLUME, false) && reserves.has(VOLUME, true));
        let directory = reserves.take(VOLUME, true);
        let mut all = files.into_iter().chain(directory);
        let last = all.next_back();
        for fid in all {
            assert_eq!(reserves.settle(fid), None, "{fid} is not the last");
        }
        let given = last.and_then(|last| reserves.settle(last));
        assert_eq!(given, Some(block(10, 8, 0)));
        assert_eq!(reserves.blocks().count(), 0);
    }

    #[test]
    fn quota_is_taken_from_all_blocks_of_a_volume_or_not_at_all() {
        let mut reserves = Reserves::default();
        assert!(!reserves.spend(VOLUME, 1));
        assert!(reserves.add(block(10, 8, 500)) && reserves.add(block(20, 8, 300)));
        assert!(!reserves.spend(VolumeId(8), 1));
        assert!(!reserves.spend(VOLUME, 801));
        assert!(reserves.spend(VOLUME, 600));
        assert!(!reserves.spend(VOLUME, 201));
        assert!(reserves.spend(VOLUME, 200));
    }
}
