//! Fids and quota that hosts have in reserve, as the store knows them.
//!
//! What comes back unused is given out again: otherwise a client that asks and gives back used up a volume's vnode
//! numbers.

use std::collections::{BTreeMap, HashMap};

use afar_lease::wire::Block;
use afar_store::{Volume, VolumeState};
use afar_types::{AfsUuid, Fid, VolumeId};

use super::{Leases, State};
use crate::space::DiskSpace;
use crate::volumes::Volumes;

/// Bytes of quota that go with a block at most.
const QUOTA: u64 = 64 << 20;
/// The part of what is left in a volume, and of the disk, that one block takes.
const PART: u64 = 24;
/// Blocks of a volume that are kept to be given out again.
const KEPT: usize = 16;
/// Fids in a row that are worth that.
const WORTH: u32 = 16;

/// The blocks of a server.
#[derive(Debug, Default)]
pub(super) struct Reserves {
    /// By number: the block, and which of its fids were used.
    given: HashMap<u64, (Block, [u64; 4])>,
    kept: BTreeMap<VolumeId, Vec<Block>>,
}

impl Reserves {
    pub(super) fn gave(&mut self, block: Block) {
        self.given.insert(block.number, (block, [0; 4]));
    }

    /// A fid was used, or was not after all.
    pub(super) fn use_fid(&mut self, fid: Fid, used: bool) {
        let of_volume = self.given.values_mut();
        for (block, marks) in of_volume.filter(|(block, _)| block.volume == fid.volume) {
            let Some(place) = block.place(fid) else {
                continue;
            };
            if let Some(word) = marks.get_mut(place as usize / 64) {
                let bit = 1 << (place % 64);
                *word = if used { *word | bit } else { *word & !bit };
            }
        }
    }

    /// A block has ended. What was given by an earlier life, nobody knows how much of was used.
    pub(super) fn returned(&mut self, block: Block) {
        if let Some((block, used)) = self.given.remove(&block.number) {
            self.keep(block, used);
        }
    }

    pub(super) fn keep(&mut self, block: Block, used: [u64; 4]) {
        let is_used = |place: u32| {
            let word = used.get(place as usize / 64).copied().unwrap_or(u64::MAX);
            word & 1 << (place % 64) != 0
        };
        // The longest run.
        let (mut best, mut start) = ((0, 0), 0);
        for place in 0..=block.count {
            if place == block.count || is_used(place) {
                best = best.max((place - start, start));
                start = place + 1;
            }
        }
        let (count, start) = best;
        let kept = self.kept.entry(block.volume).or_default();
        if count >= WORTH && kept.len() < KEPT {
            kept.push(Block {
                vnode: block.vnode + start,
                uniquifier: block.uniquifier + start,
                count,
                quota: 0,
                ..block
            });
        }
    }

    pub(super) fn again(&mut self, volume: VolumeId) -> Option<Block> {
        self.kept.get_mut(&volume)?.pop()
    }

    /// The volume may be another one with the same number soon.
    pub(super) fn forget(&mut self, volume: VolumeId) {
        self.kept.remove(&volume);
    }
}

impl Leases {
    /// Sets fids and quota of a volume aside. Blocks.
    pub(super) fn set_aside(&self, volume: &Volume, wanted: u32) -> Option<Block> {
        let kept = self.with(|state, _| state.reserves.again(volume.id()));
        let block = kept.or_else(|| {
            let count = wanted.min(Block::FIDS);
            let first = volume.reserve(count).ok()?;
            Some(Block {
                volume: volume.id(),
                vnode: first.vnode.0,
                uniquifier: first.uniquifier.0,
                count,
                quota: 0,
                number: 0,
            })
        })?;
        let reserved = self.with(|state, _| state.server.reserved_quota(volume.id()));
        let quota = quota(volume, reserved)?;
        Some(Block { quota, ..block })
    }

    /// A block has ended. Blocks.
    pub(super) fn take_back(&self, volumes: &Volumes, host: AfsUuid, block: Block) {
        let volume = volumes.find(block.volume);
        self.rows.remove_block(host, &block);
        self.with(|state, _| {
            state.reserves.returned(block);
            if let Ok(volume) = &volume {
                state.promise(volume);
            }
        });
    }
}

impl State {
    /// Tells the store how much of a volume's quota is promised.
    pub(super) fn promise(&self, volume: &Volume) {
        let bytes = self.server.reserved_quota(volume.id());
        volume.promise_quota(bytes / 1024);
    }
}

/// How much quota a block of a volume gets, of which so many bytes are promised already.
pub(super) fn quota(volume: &Volume, reserved: u64) -> Option<u64> {
    let VolumeState {
        max_quota,
        disk_used,
        ..
    } = volume.state().ok()?;
    let left = match max_quota {
        0 => u64::MAX,
        quota => quota.saturating_sub(disk_used).saturating_mul(1024),
    };
    let disk = DiskSpace::of(volume.partition().path()).ok()?;
    let left = left
        .min(disk.free.saturating_mul(1024))
        .saturating_sub(reserved);
    Some((left / PART).min(QUOTA))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Block = Block {
        volume: VolumeId(7),
        vnode: 100,
        uniquifier: 1000,
        count: 256,
        quota: 5,
        number: 9,
    };

    #[test]
    fn what_comes_back_unused_is_given_again() {
        let mut reserves = Reserves::default();
        reserves.gave(BLOCK);
        for place in [0, 40] {
            reserves.use_fid(BLOCK.fid(place).unwrap(), true);
        }
        reserves.use_fid(BLOCK.fid(200).unwrap(), true);
        reserves.use_fid(BLOCK.fid(200).unwrap(), false);
        reserves.returned(BLOCK);
        let again = reserves.again(BLOCK.volume).unwrap();
        assert_eq!(
            (again.vnode, again.uniquifier, again.count),
            (141, 1041, 215)
        );
        assert_eq!(reserves.again(BLOCK.volume), None);
        // Of an earlier life.
        reserves.returned(Block {
            number: 10,
            ..BLOCK
        });
        assert_eq!(reserves.again(BLOCK.volume), None);
    }
}
