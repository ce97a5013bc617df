//! PCBC over whole packets, in place.

use std::cmp::Reverse;

use super::{BLOCK, Schedule};

type Block = [u8; BLOCK];

/// Packets sealed side by side, and blocks opened so: with four of either a core does a tenth less,
/// with more than eight no more.
const ABREAST: usize = 8;

/// A body on its way through the cipher: what is left of it, and what the next block is mixed with.
struct Lane<'a> {
    rest: &'a mut [Block],
    mixed: u64,
}

impl Schedule {
    /// Seals one body in place. Octets behind its last whole block stay as they are.
    pub fn seal(&self, body: &mut [u8]) {
        self.seal_all([body]);
    }

    /// Seals bodies in place, each on its own and several side by side: eight of about the same
    /// length take little longer than two. Octets behind a body's last whole block stay as they are.
    pub fn seal_all<'a>(&self, bodies: impl IntoIterator<Item = &'a mut [u8]>) {
        let lane = |body: &'a mut [u8]| Lane {
            rest: body.as_chunks_mut().0,
            mixed: self.iv,
        };
        let mut waiting = bodies.into_iter().map(lane);
        let mut lanes: [_; ABREAST] = std::array::from_fn(|_| lane(&mut []));
        loop {
            for lane in &mut lanes {
                while lane.rest.is_empty()
                    && let Some(next) = waiting.next()
                {
                    *lane = next;
                }
            }
            lanes.sort_by_key(|lane| Reverse(lane.rest.len()));
            match lanes.iter().filter(|lane| !lane.rest.is_empty()).count() {
                0 => return,
                1 => self.seal_abreast::<1>(&mut lanes),
                2 => self.seal_abreast::<2>(&mut lanes),
                3 => self.seal_abreast::<3>(&mut lanes),
                4 | 5 => self.seal_abreast::<4>(&mut lanes),
                6 | 7 => self.seal_abreast::<6>(&mut lanes),
                _ => self.seal_abreast::<ABREAST>(&mut lanes),
            }
        }
    }

    /// Goes on with the first `N` lanes, until one of them has come to its end.
    fn seal_abreast<const N: usize>(&self, lanes: &mut [Lane<'_>; ABREAST]) {
        let Some(lanes) = lanes.first_chunk_mut::<N>() else {
            return;
        };
        let run = lanes.iter().map(|lane| lane.rest.len()).min().unwrap_or(0);
        let mut mixed = lanes.each_ref().map(|lane| lane.mixed);
        let mut parts = lanes.each_mut().map(|lane| {
            let (part, rest) = std::mem::take(&mut lane.rest).split_at_mut(run);
            lane.rest = rest;
            part
        });
        for index in 0..run {
            let plain: [_; N] = std::array::from_fn(|n| u64::from_be_bytes(parts[n][index]));
            let sealed: [_; N] = self.encrypt(std::array::from_fn(|n| plain[n] ^ mixed[n]));
            for (n, part) in parts.iter_mut().enumerate() {
                part[index] = sealed[n].to_be_bytes();
                mixed[n] = plain[n] ^ sealed[n];
            }
        }
        for (lane, mixed) in lanes.iter_mut().zip(mixed) {
            lane.mixed = mixed;
        }
    }

    /// Opens one body in place. Octets behind its last whole block stay as they are.
    pub fn open(&self, body: &mut [u8]) {
        let (wide, rest) = body.as_chunks_mut().0.as_chunks_mut::<ABREAST>();
        let mut mixed = self.iv;
        for blocks in wide {
            self.open_abreast(&mut mixed, blocks);
        }
        for block in rest {
            self.open_abreast(&mut mixed, std::array::from_mut(block));
        }
    }

    #[inline(always)]
    fn open_abreast<const N: usize>(&self, mixed: &mut u64, blocks: &mut [Block; N]) {
        let sealed = blocks.map(u64::from_be_bytes);
        let opened = self.decrypt(sealed);
        for ((block, sealed), opened) in blocks.iter_mut().zip(sealed).zip(opened) {
            let plain = opened ^ *mixed;
            *mixed = plain ^ sealed;
            *block = plain.to_be_bytes();
        }
    }
}
