//! The bytes of a file, sparse, cheap to clone and to change in part.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes to a block; clones share blocks until one of them changes.
const BLOCK: u64 = 32 << 10;
const BLOCK_BYTES: usize = 32 << 10;

/// A file's bytes; what no block covers is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    blocks: BTreeMap<u64, Arc<[u8; BLOCK_BYTES]>>,
    len: u64,
}

impl Content {
    /// Reads a file whole.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut content = Self {
            blocks: BTreeMap::new(),
            len,
        };
        let mut buffer = vec![0; BLOCK_BYTES];
        for start in (0..len).step_by(BLOCK_BYTES) {
            let part = &mut buffer[..index(BLOCK.min(len - start))];
            file.read_exact_at(part, start)?;
            if part.iter().any(|byte| *byte != 0) {
                content.write(start, part);
            }
        }
        Ok(content)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Makes the file longer or shorter; what is cut off reads as zeros if it grows again.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.blocks.split_off(&len.div_ceil(BLOCK));
            self.zero(len..len.next_multiple_of(BLOCK));
        }
        self.len = len;
    }

    /// Writes within or beyond the file's length, which stays as it is.
    pub(crate) fn write(&mut self, offset: u64, mut data: &[u8]) {
        let mut at = offset;
        while !data.is_empty() {
            let inside = index(at % BLOCK);
            let (part, rest) = data.split_at(data.len().min(BLOCK_BYTES - inside));
            let block = self
                .blocks
                .entry(at / BLOCK)
                .or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            Arc::make_mut(block)[inside..inside + part.len()].copy_from_slice(part);
            at += part.len() as u64;
            data = rest;
        }
    }

    /// Makes a range zero; the file's length stays as it is.
    pub(crate) fn zero(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let mut emptied = Vec::new();
        for (number, block) in self.blocks.range_mut(touched) {
            let start = number * BLOCK;
            if range.start <= start && start + BLOCK <= range.end {
                emptied.push(*number);
                continue;
            }
            let from = index(range.start.saturating_sub(start));
            let to = index((range.end - start).min(BLOCK));
            Arc::make_mut(block)[from..to].fill(0);
        }
        for number in emptied {
            self.blocks.remove(&number);
        }
    }

    /// Where blocks are that may hold something but zeros, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.blocks
            .keys()
            .map(|number| number * BLOCK..(number + 1) * BLOCK)
    }

    /// Writes the bytes to a new file.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create_new(path)?;
        for (number, block) in &self.blocks {
            let start = number * BLOCK;
            if start < self.len {
                file.write_all_at(&block[..index(BLOCK.min(self.len - start))], start)?;
            }
        }
        file.set_len(self.len)
    }

    /// The offset of the first byte that differs, the lengths' difference included.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<u64> {
        let zeros = Arc::new([0; BLOCK_BYTES]);
        let mut numbers: Vec<u64> = self
            .blocks
            .keys()
            .chain(other.blocks.keys())
            .copied()
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let ours = self.blocks.get(&number).unwrap_or(&zeros);
            let theirs = other.blocks.get(&number).unwrap_or(&zeros);
            if let Some(at) = ours.iter().zip(theirs.iter()).position(|(a, b)| a != b) {
                return Some(number * BLOCK + at as u64);
            }
        }
        (self.len != other.len).then(|| self.len.min(other.len))
    }
}

/// An offset within one block.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("at most the size of a block")
}
