//! fcrypt, the cipher of rxkad, and its mode.
//!
//! A block is 64 bits: here a `u64` whose most significant byte is the first on the wire. The key
//! has 56 bits. That protects nothing against anyone with a little hardware; the cipher is here
//! because every cell speaks it.
//!
//! The mode is PCBC: `C[i] = E(P[i] ^ X[i])`, `X[i + 1] = P[i] ^ C[i]`, and `X[0]` is always the
//! session key itself. It is ours and not that of the crate `pcbc`, since that one takes the blocks
//! of one message in turn. Encryption in this mode is serial within a packet, and a block takes 16
//! rounds that each wait for the one before, so that a core is mostly idle; [`Schedule::seal_all`]
//! takes a block of each of several packets instead. Decryption is parallel within a packet, as
//! only the chaining is serial.
//!
//! The look-ups in tables depend on key and data, so that whoever shares a core's cache can learn from
//! their timing. Implementations of this cipher have that, and 56 bits are the weaker point. With wide
//! registers it is not so.

mod pcbc;
mod tables;
#[cfg(target_arch = "x86_64")]
mod wide;
#[cfg(not(target_arch = "x86_64"))]
#[path = "narrow.rs"]
mod wide;

use std::fmt;

use zeroize::Zeroize;

use crate::token::SessionKey;
use tables::TABLES;
use wide::Wide;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 8;
const ROUNDS: usize = 16;

/// A session key, ready for use. Wiped when dropped, and never printed.
// spec: rxkad#fcrypt
#[derive(Clone)]
pub struct Schedule {
    rounds: [u32; ROUNDS],
    /// What the first block of a chain is mixed with.
    iv: u64,
}

impl Schedule {
    /// This key. Its parity bits do not matter to the rounds, and any key will do.
    #[must_use]
    pub fn new(key: &SessionKey) -> Self {
        let joined = |bits, octet: &u8| bits << 7 | u64::from(octet >> 1);
        let mut bits = key.octets().iter().fold(0, joined);
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            *round = low(bits);
            bits = (bits >> 11 | bits << (56 - 11)) & ((1 << 56) - 1);
        }
        bits.zeroize();
        Self {
            rounds,
            iv: u64::from_be_bytes(*key.octets()),
        }
    }

    /// One block, encrypted.
    #[must_use]
    pub fn encrypt_block(&self, block: u64) -> u64 {
        let [sealed] = self.encrypt(None, [block]);
        sealed
    }

    /// One block, decrypted.
    #[must_use]
    pub fn decrypt_block(&self, block: u64) -> u64 {
        let [plain] = self.decrypt(None, [block]);
        plain
    }

    /// Blocks that have nothing to do with each other, encrypted side by side.
    #[inline(always)]
    fn encrypt<const N: usize>(&self, wide: Option<Wide>, mut blocks: [u64; N]) -> [u64; N] {
        if let (Some(wide), Some(all)) = (wide, blocks.first_chunk_mut()) {
            wide.encrypt(all, &self.rounds);
            return blocks;
        }
        let (mut left, mut right) = (blocks.map(high), blocks.map(low));
        rounds(&mut left, &mut right, self.rounds);
        std::array::from_fn(|n| join(left[n], right[n]))
    }

    /// Blocks that have nothing to do with each other, decrypted side by side: the same rounds, with
    /// the halves and the order of the keys exchanged.
    #[inline(always)]
    fn decrypt<const N: usize>(&self, wide: Option<Wide>, mut blocks: [u64; N]) -> [u64; N] {
        let mut keys = self.rounds;
        keys.reverse();
        if let (Some(wide), Some(all)) = (wide, blocks.first_chunk_mut()) {
            wide.decrypt(all, &keys);
            return blocks;
        }
        let (mut left, mut right) = (blocks.map(high), blocks.map(low));
        rounds(&mut right, &mut left, keys);
        std::array::from_fn(|n| join(left[n], right[n]))
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schedule(..)")
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.rounds.zeroize();
        self.iv.zeroize();
    }
}

/// All rounds on blocks side by side. Written out they are so much code that a core cannot keep it
/// decoded, and sometimes a quarter slower.
#[inline(always)]
fn rounds<const N: usize>(a: &mut [u32; N], b: &mut [u32; N], keys: [u32; ROUNDS]) {
    for [even, odd] in keys.as_chunks().0 {
        two_rounds(a, b, *even, *odd);
    }
}

#[inline(always)]
fn two_rounds<const N: usize>(a: &mut [u32; N], b: &mut [u32; N], even: u32, odd: u32) {
    for (a, b) in a.iter_mut().zip(&*b) {
        *a ^= scramble(b ^ even);
    }
    for (b, a) in b.iter_mut().zip(&*a) {
        *b ^= scramble(a ^ odd);
    }
}

/// The round function. Bytes by shifts: through `to_be_bytes` each round would swap them first.
#[inline(always)]
fn scramble(input: u32) -> u32 {
    let octet = |shift: u32| (input >> shift & 0xff) as usize;
    TABLES[0][octet(24)] ^ TABLES[1][octet(16)] ^ TABLES[2][octet(8)] ^ TABLES[3][octet(0)]
}

#[inline(always)]
const fn high(block: u64) -> u32 {
    low(block >> 32)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn low(block: u64) -> u32 {
    block as u32
}

#[inline(always)]
const fn join(left: u32, right: u32) -> u64 {
    (left as u64) << 32 | right as u64
}

#[cfg(test)]
mod tests;
