//! What files hold, without holding it: stretches of patterns.

use std::collections::BTreeMap;

/// Bytes that can be made again from any position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// No codec makes it smaller.
    Noise(u64),
    /// Shrinks to a fraction.
    Text(u64),
    /// The same byte throughout; of zeros nothing is stored.
    Byte(u8),
}

impl Pattern {
    /// The bytes from position `from` of the pattern on.
    pub(crate) fn fill(self, from: u64, out: &mut [u8]) {
        if let Self::Byte(byte) = self {
            out.fill(byte);
            return;
        }
        let mut position = from;
        let mut out = out;
        while !out.is_empty() {
            let word = self.word(position / 8).to_le_bytes();
            let skip = usize::try_from(position % 8).unwrap();
            let len = out.len().min(8 - skip);
            let (part, rest) = out.split_at_mut(len);
            part.copy_from_slice(&word[skip..skip + len]);
            position += len as u64;
            out = rest;
        }
    }

    fn word(self, index: u64) -> u64 {
        match self {
            Self::Noise(seed) => mix(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            // Twelve words of seven letters and a space, in an order that does not repeat soon.
            Self::Text(seed) => {
                let pick = mix(seed ^ (index / 4)) % 12;
                (mix(seed ^ (pick * 4 + index % 4)) & 0x0007_0707_0707_0707) | 0x2060_6060_6060_6060
            }
            Self::Byte(byte) => u64::from_ne_bytes([byte; 8]),
        }
    }
}

fn mix(seed: u64) -> u64 {
    let mut mixed = seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    len: u64,
    pattern: Pattern,
    /// Position of the pattern where the piece begins.
    skip: u64,
}

/// A file's data: pieces that do not overlap, and zeros between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    length: u64,
    pieces: BTreeMap<u64, Piece>,
}

impl Data {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn write(&mut self, at: u64, len: u64, pattern: Pattern) {
        if len == 0 {
            return;
        }
        self.clear(at, at + len);
        let piece = Piece {
            len,
            pattern,
            skip: 0,
        };
        self.pieces.insert(at, piece);
        self.length = self.length.max(at + len);
    }

    pub(crate) fn truncate(&mut self, length: u64) {
        if length < self.length {
            self.clear(length, self.length);
        }
        self.length = length;
    }

    fn clear(&mut self, from: u64, to: u64) {
        self.cut(from);
        self.cut(to);
        let inside: Vec<u64> = self.pieces.range(from..to).map(|(at, _)| *at).collect();
        for at in inside {
            self.pieces.remove(&at);
        }
    }

    /// Makes two pieces of the one `at` lies in.
    fn cut(&mut self, at: u64) {
        let Some((&start, piece)) = self.pieces.range_mut(..at).next_back() else {
            return;
        };
        let before = at - start;
        if before < piece.len {
            let rest = Piece {
                len: piece.len - before,
                pattern: piece.pattern,
                skip: piece.skip + before,
            };
            piece.len = before;
            self.pieces.insert(at, rest);
        }
    }

    /// Up to `len` bytes from `from` on, fewer at the end.
    pub(crate) fn read(&self, from: u64, len: usize) -> Vec<u8> {
        let left = usize::try_from(self.length.saturating_sub(from)).unwrap();
        let mut out = vec![0; len.min(left)];
        let to = from + out.len() as u64;
        let first = self
            .pieces
            .range(..=from)
            .next_back()
            .map_or(from, |(at, _)| *at);
        for (&start, piece) in self.pieces.range(first..to.max(first)) {
            let (begin, end) = (start.max(from), (start + piece.len).min(to));
            if begin < end {
                let place =
                    usize::try_from(begin - from).unwrap()..usize::try_from(end - from).unwrap();
                piece
                    .pattern
                    .fill(piece.skip + begin - start, &mut out[place]);
            }
        }
        out
    }

    /// Stretches worth reading, at most `most` bytes each: all that was written, and the zeros
    /// next to it.
    pub(crate) fn stretches(&self, most: u64) -> Vec<(u64, usize)> {
        let mut stretches = Vec::new();
        let mut add = |from: u64, to: u64| {
            let mut from = from;
            while from < to {
                let len = (to - from).min(most);
                stretches.push((from, usize::try_from(len).unwrap()));
                from += len;
            }
        };
        let mut done = 0;
        for (&start, piece) in &self.pieces {
            if start - done <= 2 * most {
                add(done, start);
            } else {
                add(done, done + most);
                add(start - most, start);
            }
            done = start + piece.len;
            add(start, done);
        }
        add(done, self.length.min(done + most));
        add(self.length.max(done + most) - most, self.length);
        stretches
    }
}

#[test]
fn data_is_as_if_it_were_held() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut data = Data::default();
    let mut held: Vec<u8> = Vec::new();
    for step in 0..2_000 {
        let (at, len) = (random.usize(..3_000), random.usize(..700));
        if random.u8(..5) == 0 {
            data.truncate(at as u64);
            held.resize(at, 0);
        } else if len > 0 {
            let pattern = match random.u8(..3) {
                0 => Pattern::Noise(step),
                1 => Pattern::Text(step),
                _ => Pattern::Byte(random.u8(..)),
            };
            data.write(at as u64, len as u64, pattern);
            held.resize(held.len().max(at + len), 0);
            pattern.fill(0, &mut held[at..at + len]);
        }
        let (from, len) = (random.usize(..3_000), random.usize(..3_000));
        let expected = held.get(from..).unwrap_or_default();
        assert_eq!(
            data.read(from as u64, len),
            expected[..len.min(expected.len())]
        );
    }
}
