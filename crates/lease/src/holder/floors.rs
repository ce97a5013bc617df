//! The highest recalled numbers: a grant that comes behind its recall is void.
//!
//! Numbers only grow, over all fids, so fids can share an entry: what is granted after a recall has a higher number
//! than that, and a shared entry refuses only grants that were under way with it.

use afar_types::{Fid, VolumeId};

const FIDS: usize = 4096;
const VOLUMES: usize = 256;

/// Recalled numbers by fid and by volume.
#[derive(Debug)]
pub(super) struct Floors {
    fids: Box<[u64]>,
    volumes: Box<[u64]>,
}

impl Floors {
    pub(super) fn new() -> Self {
        Self {
            fids: vec![0; FIDS].into(),
            volumes: vec![0; VOLUMES].into(),
        }
    }

    /// Grants of `fid` up to `number` are void; vnode 0 stands for all of the volume.
    pub(super) fn raise(&mut self, fid: Fid, number: u64) {
        let floor = if fid.vnode.0 == 0 {
            &mut self.volumes[place_of_volume(fid.volume)]
        } else {
            &mut self.fids[place(fid)]
        };
        *floor = number.max(*floor);
    }

    /// Whether a grant with this number still counts.
    pub(super) fn lets(&self, fid: Fid, number: u64) -> bool {
        number > self.fids[place(fid)] && number > self.volumes[place_of_volume(fid.volume)]
    }
}

fn place(fid: Fid) -> usize {
    let mixed = [fid.volume.0, fid.vnode.0, fid.uniquifier.0]
        .iter()
        .fold(0_u32, |mixed, part| {
            (mixed ^ part).wrapping_mul(0x9e37_79b1).rotate_left(15)
        });
    mixed as usize % FIDS
}

fn place_of_volume(volume: VolumeId) -> usize {
    volume.0 as usize % VOLUMES
}
