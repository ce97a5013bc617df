//! The rounds of 64 blocks at once, where the processor can look up bytes in its registers.
//!
//! Blocks are cut into planes: a register of AVX-512 has the first bytes of all of them, the next
//! one their second bytes, and so on. An S-box is 256 bytes in four registers, and two look-ups in
//! them (`vpermi2b`, of the extension VBMI) serve all blocks. Nothing depends on what a core's cache
//! holds: neither the speed nor what others could learn.

use std::arch::x86_64::{
    __m512i, _mm512_mask_blend_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8,
    _mm512_permutex2var_epi64, _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_ternarylogic_epi32, _mm512_xor_si512,
};

use super::ROUNDS;
use super::tables::{PLACES, SBOXES, SHIFT};

/// Blocks that take their rounds together.
pub(super) const LANES: usize = 64;

/// Half of each block, a byte to a register.
type Half = [__m512i; 4];

/// Says that the processor has what this needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide(());

impl Wide {
    /// Looks whether it does.
    pub(super) fn detect() -> Option<Self> {
        let able = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi");
        able.then_some(Self(()))
    }

    pub(super) fn encrypt(self, blocks: &mut [u64; LANES], keys: &[u32; ROUNDS]) {
        #[expect(unsafe_code, reason = "processors without these instructions exist")]
        // SAFETY: whoever has a `Wide` has asked the processor for all that is enabled there.
        unsafe {
            encrypt(blocks, keys);
        }
    }

    /// The keys are those of encryption, the last one first.
    pub(super) fn decrypt(self, blocks: &mut [u64; LANES], keys: &[u32; ROUNDS]) {
        #[expect(unsafe_code, reason = "processors without these instructions exist")]
        // SAFETY: as above.
        unsafe {
            decrypt(blocks, keys);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn encrypt(blocks: &mut [u64; LANES], keys: &[u32; ROUNDS]) {
    let (mut left, mut right) = planes(blocks);
    rounds(&mut left, &mut right, keys);
    *blocks = whole(left, right);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn decrypt(blocks: &mut [u64; LANES], keys: &[u32; ROUNDS]) {
    let (mut left, mut right) = planes(blocks);
    rounds(&mut right, &mut left, keys);
    *blocks = whole(left, right);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn rounds(a: &mut Half, b: &mut Half, keys: &[u32; ROUNDS]) {
    for [even, odd] in keys.as_chunks().0 {
        round(a, b, *even);
        round(b, a, *odd);
    }
}

/// One round: `a` is mixed with what the round function makes of `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn round(a: &mut Half, b: &Half, key: u32) {
    let key = key.to_be_bytes();
    // The bytes of the word, the least significant first, each rotated.
    let mut word = [b[0]; 4];
    for (which, place) in PLACES.into_iter().enumerate() {
        // Broadcasts of words cost nothing in an operation with memory.
        let octets = u32::from_ne_bytes([key[which]; 4]).cast_signed();
        word[place] = look_up(which, _mm512_xor_si512(b[which], _mm512_set1_epi32(octets)));
    }
    let low = _mm512_set1_epi8(0xff_u8.wrapping_shr(SHIFT).cast_signed());
    for place in 0..4 {
        // What is shifted out of a byte goes into the one below it.
        const SELECT: i32 = 0xca;
        let (own, above) = (word[place], word[(place + 1) % 4]);
        let shifted = _mm512_ternarylogic_epi32::<SELECT>(low, own, above);
        let octet = &mut a[3 - place];
        *octet = _mm512_xor_si512(*octet, shifted);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up(which: usize, octets: __m512i) -> __m512i {
    let [a, b, c, d] = IN_REGISTERS[which];
    // A look-up takes seven bits of a byte; the eighth says in which half of the S-box it is.
    let lower = _mm512_permutex2var_epi8(a, octets, b);
    let upper = _mm512_permutex2var_epi8(c, octets, d);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(octets), lower, upper)
}

/// Left and right halves of blocks, the most significant bytes first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn planes(blocks: &[u64; LANES]) -> (Half, Half) {
    let mut rows = eights(blocks);
    for row in &mut rows {
        *row = _mm512_permutexvar_epi8(TURN, *row);
    }
    let [a, b, c, d, e, f, g, h] = exchange(rows);
    ([a, b, c, d], [e, f, g, h])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn whole([a, b, c, d]: Half, [e, f, g, h]: Half) -> [u64; LANES] {
    let mut rows = exchange([a, b, c, d, e, f, g, h]);
    for row in &mut rows {
        *row = _mm512_permutexvar_epi8(TURN_BACK, *row);
    }
    #[expect(unsafe_code, reason = "there is no safe way out of a register")]
    // SAFETY: eight registers are 64 words of 64 bits, whatever they are.
    unsafe {
        std::mem::transmute::<[__m512i; 8], [u64; LANES]>(rows)
    }
}

/// Exchanges rows and columns of 8 by 8 words of 64 bits: in steps of one, two and four.
#[inline]
#[target_feature(enable = "avx512f")]
fn exchange(mut rows: [__m512i; 8]) -> [__m512i; 8] {
    for (step, [first, second]) in STEPS.iter().enumerate() {
        let distance = 1 << step;
        let mut next = rows;
        for row in (0..8).filter(|row| row & distance == 0) {
            let (upper, lower) = (rows[row], rows[row + distance]);
            next[row] = _mm512_permutex2var_epi64(upper, *first, lower);
            next[row + distance] = _mm512_permutex2var_epi64(upper, *second, lower);
        }
        rows = next;
    }
    rows
}

/// For each step which words, of a row's and then of its partner's, make the row and the partner.
static STEPS: [[__m512i; 2]; 3] = {
    let mut steps = [[words([0; 8]); 2]; 3];
    let mut step = 0;
    while step < 3 {
        let distance = 1 << step;
        let mut sources = [[0; 8]; 2];
        let mut column = 0;
        while column < 8 {
            let of_partner = column & distance != 0;
            sources[0][column] = if of_partner {
                8 + column - distance
            } else {
                column
            } as u64;
            sources[1][column] = if of_partner {
                8 + column
            } else {
                column + distance
            } as u64;
            column += 1;
        }
        steps[step] = [words(sources[0]), words(sources[1])];
        step += 1;
    }
    steps
};

/// Turns eight blocks into the first bytes of all, the most significant ones, the second ones, ….
static TURN: __m512i = turn(true);
static TURN_BACK: __m512i = turn(false);

const fn turn(forth: bool) -> __m512i {
    let mut sources = [0; 64];
    let mut at = 0_u8;
    while at < 64 {
        let (block, octet) = (at / 8, at % 8);
        // Blocks are words of this processor, with the least significant byte first.
        let turned = (7 - octet) * 8 + block;
        if forth {
            sources[turned as usize] = at;
        } else {
            sources[at as usize] = turned;
        }
        at += 1;
    }
    register(sources)
}

/// The S-boxes, each in four registers, and its bytes rotated as the word is going to be.
static IN_REGISTERS: [[__m512i; 4]; 4] = {
    let mut registers = [[register([0; 64]); 4]; 4];
    let mut at = 0;
    while at < 16 {
        let mut quarter = [0; 64];
        let mut octet = 0;
        while octet < 64 {
            quarter[octet] = SBOXES[at / 4][at % 4 * 64 + octet].rotate_right(SHIFT);
            octet += 1;
        }
        registers[at / 4][at % 4] = register(quarter);
        at += 1;
    }
    registers
};

const fn register(octets: [u8; 64]) -> __m512i {
    #[expect(unsafe_code, reason = "there is no safe way into a register")]
    // SAFETY: any 64 bytes are a register's.
    unsafe {
        std::mem::transmute::<[u8; 64], __m512i>(octets)
    }
}

const fn words(words: [u64; 8]) -> __m512i {
    #[expect(unsafe_code, reason = "there is no safe way into a register")]
    // SAFETY: any 8 words of 64 bits are a register's.
    unsafe {
        std::mem::transmute::<[u64; 8], __m512i>(words)
    }
}

#[inline(always)]
fn eights(blocks: &[u64; LANES]) -> [__m512i; 8] {
    #[expect(unsafe_code, reason = "there is no safe way into a register")]
    // SAFETY: any 64 words of 64 bits are eight registers'.
    unsafe {
        std::mem::transmute::<[u64; LANES], [__m512i; 8]>(*blocks)
    }
}
