//! Numbers that nobody can guess who has seen others: epochs, connection ids, serials.

/// Words of a block of ChaCha.
const BLOCK: usize = 16;
/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The key stream of ChaCha20 (RFC 8439) under a key made of the seed.
///
/// Peers see many of its numbers. From those of a generator for statistics they could compute the next ones.
pub(crate) struct Random {
    key: [u32; 8],
    counter: u32,
    block: [u32; BLOCK],
    /// Words of the block that were given out.
    used: usize,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut key = [0; 8];
        let bytes = seed.to_be_bytes();
        for (word, half) in key.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*half);
        }
        Self {
            key,
            counter: 0,
            block: [0; BLOCK],
            used: BLOCK,
        }
    }

    pub(crate) fn u32(&mut self) -> u32 {
        if self.used == BLOCK {
            self.block = block(&self.key, self.counter, [0; 3]);
            // After 256 GiB it would begin again.
            self.counter = self.counter.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

/// RFC 8439 §2.3.
fn block(key: &[u32; 8], counter: u32, nonce: [u32; 3]) -> [u32; BLOCK] {
    let mut begin = [0; BLOCK];
    begin[..4].copy_from_slice(&CONSTANTS);
    begin[4..12].copy_from_slice(key);
    begin[12] = counter;
    begin[13..].copy_from_slice(&nonce);
    let mut state = begin;
    for _ in 0..10 {
        for [a, b, c, d] in [
            [0, 4, 8, 12],
            [1, 5, 9, 13],
            [2, 6, 10, 14],
            [3, 7, 11, 15],
            [0, 5, 10, 15],
            [1, 6, 11, 12],
            [2, 7, 8, 13],
            [3, 4, 9, 14],
        ] {
            for (to, from, mixed, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]
            {
                state[to] = state[to].wrapping_add(state[from]);
                state[mixed] = (state[mixed] ^ state[to]).rotate_left(by);
            }
        }
    }
    for (word, first) in state.iter_mut().zip(begin) {
        *word = word.wrapping_add(first);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439 §2.3.2.
    #[test]
    fn a_block_is_chacha20s() {
        let bytes: Vec<u8> = (0..32).collect();
        let mut key = [0; 8];
        for (word, four) in key.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*four);
        }
        let nonce = [0x0900_0000, 0x4a00_0000, 0];
        let expected = [
            0xe4e7_f110,
            0x1559_3bd1,
            0x1fdd_0f50,
            0xc471_20a3,
            0xc7f4_d1c7,
            0x0368_c033,
            0x9aaa_2204,
            0x4e6c_d4c3,
            0x4664_82d2,
            0x09aa_9f07,
            0x05d7_c214,
            0xa202_8bd9,
            0xd19c_12b5,
            0xb94e_16de,
            0xe883_d0cb,
            0x4e3c_50a2,
        ];
        assert_eq!(block(&key, 1, nonce), expected);
    }

    #[test]
    fn numbers_follow_from_the_seed_and_differ() {
        let take = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.u64()).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        let mut all = [take(7), take(8)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 200);
    }
}
