//! PCBC over whole packets, in place.

use std::cmp::Reverse;

use super::wide::{LANES, Wide};
use super::{BLOCK, Schedule};

type Block = [u8; BLOCK];

/// Packets sealed side by side, and blocks opened so, with tables: with four of either a core does a
/// tenth less, with more than eight no more.
const ABREAST: usize = 8;
/// With fewer blocks, tables are faster than wide registers that are not full.
const WIDE_FROM: usize = 12;

/// A body on its way through the cipher: what is left of it, and what the next block is mixed with.
struct Lane<'a> {
    rest: &'a mut [Block],
    mixed: u64,
}

impl Schedule {
    /// Seals one body in place. Bytes behind its last whole block stay as they are.
    pub fn seal(&self, body: &mut [u8]) {
        self.seal_all([body]);
    }

    /// Seals bodies in place, each on its own and several side by side: eight of about the same
    /// length take little longer than two, and 64 where the processor has wide registers.
    /// Bytes behind a body's last whole block stay as they are.
    pub fn seal_all<'a>(&self, bodies: impl IntoIterator<Item = &'a mut [u8]>) {
        self.seal_with(Wide::detect(), bodies);
    }

    pub(super) fn seal_with<'a>(
        &self,
        wide: Option<Wide>,
        bodies: impl IntoIterator<Item = &'a mut [u8]>,
    ) {
        let lane = |body: &'a mut [u8]| Lane {
            rest: body.as_chunks_mut().0,
            mixed: self.iv,
        };
        let mut waiting = bodies.into_iter().map(lane);
        let mut lanes: [_; LANES] = std::array::from_fn(|_| lane(&mut []));
        let lanes = &mut lanes[..wide.map_or(ABREAST, |_| LANES)];
        loop {
            for lane in &mut *lanes {
                while lane.rest.is_empty()
                    && let Some(next) = waiting.next()
                {
                    *lane = next;
                }
            }
            lanes.sort_by_key(|lane| Reverse(lane.rest.len()));
            match lanes.iter().filter(|lane| !lane.rest.is_empty()).count() {
                0 => return,
                count if count >= WIDE_FROM && wide.is_some() => {
                    self.seal_abreast::<LANES>(wide, lanes);
                }
                1 => self.seal_abreast::<1>(wide, lanes),
                2 => self.seal_abreast::<2>(wide, lanes),
                3 => self.seal_abreast::<3>(wide, lanes),
                4 | 5 => self.seal_abreast::<4>(wide, lanes),
                6 | 7 => self.seal_abreast::<6>(wide, lanes),
                _ => self.seal_abreast::<ABREAST>(wide, lanes),
            }
        }
    }

    /// Goes on with the first `N` lanes, until one of them has come to its end. Those that have
    /// already are carried along.
    fn seal_abreast<const N: usize>(&self, wide: Option<Wide>, lanes: &mut [Lane<'_>]) {
        let Some(lanes) = lanes.first_chunk_mut::<N>() else {
            return;
        };
        let lengths = lanes.iter().map(|lane| lane.rest.len());
        let run = lengths.filter(|&blocks| blocks > 0).min().unwrap_or(0);
        let mut mixed = lanes.each_ref().map(|lane| lane.mixed);
        let mut parts = lanes.each_mut().map(|lane| {
            let rest = std::mem::take(&mut lane.rest);
            let (part, rest) = rest.split_at_mut(run.min(rest.len()));
            lane.rest = rest;
            part
        });
        for index in 0..run {
            let plain: [_; N] = std::array::from_fn(|n| {
                let block = parts[n].get(index);
                block.map_or(0, |block| u64::from_be_bytes(*block))
            });
            let sealed: [_; N] = self.encrypt(wide, std::array::from_fn(|n| plain[n] ^ mixed[n]));
            for (n, part) in parts.iter_mut().enumerate() {
                if let Some(block) = part.get_mut(index) {
                    *block = sealed[n].to_be_bytes();
                }
                mixed[n] = plain[n] ^ sealed[n];
            }
        }
        for (lane, mixed) in lanes.iter_mut().zip(mixed) {
            lane.mixed = mixed;
        }
    }

    /// Opens one body in place. Bytes behind its last whole block stay as they are.
    pub fn open(&self, body: &mut [u8]) {
        self.open_with(Wide::detect(), body);
    }

    pub(super) fn open_with(&self, wide: Option<Wide>, body: &mut [u8]) {
        let mut blocks = body.as_chunks_mut().0;
        let mut mixed = self.iv;
        if wide.is_some() {
            let (many, rest) = blocks.as_chunks_mut::<LANES>();
            for blocks in many {
                self.open_abreast(wide, &mut mixed, blocks);
            }
            blocks = rest;
            if blocks.len() >= WIDE_FROM {
                let mut padded = [[0; BLOCK]; LANES];
                padded[..blocks.len()].copy_from_slice(blocks);
                self.open_abreast(wide, &mut mixed, &mut padded);
                blocks.copy_from_slice(&padded[..blocks.len()]);
                return;
            }
        }
        let (many, rest) = blocks.as_chunks_mut::<ABREAST>();
        for blocks in many {
            self.open_abreast(wide, &mut mixed, blocks);
        }
        for block in rest {
            self.open_abreast(wide, &mut mixed, std::array::from_mut(block));
        }
    }

    #[inline(always)]
    fn open_abreast<const N: usize>(
        &self,
        wide: Option<Wide>,
        mixed: &mut u64,
        blocks: &mut [Block; N],
    ) {
        let sealed = blocks.map(u64::from_be_bytes);
        let opened = self.decrypt(wide, sealed);
        for ((block, sealed), opened) in blocks.iter_mut().zip(sealed).zip(opened) {
            let plain = opened ^ *mixed;
            *mixed = plain ^ sealed;
            *block = plain.to_be_bytes();
        }
    }
}
