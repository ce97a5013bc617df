//! A set of vnode numbers.

use std::collections::BTreeMap;

/// Numbers in a part.
const PART: u32 = 512;

/// Vnode numbers, a bit each where they lie close together.
#[derive(Debug, Default)]
pub(super) struct VnodeSet(BTreeMap<u32, [u64; PART as usize / 64]>);

fn place(vnode: u32) -> (usize, u64) {
    ((vnode % PART / 64) as usize, 1 << (vnode % 64))
}

impl VnodeSet {
    /// Adds a number; whether it is new.
    pub(super) fn insert(&mut self, vnode: u32) -> bool {
        let (word, bit) = place(vnode);
        let part = self.0.entry(vnode / PART).or_default();
        let new = part[word] & bit == 0;
        part[word] |= bit;
        new
    }

    pub(super) fn contains(&self, vnode: u32) -> bool {
        let (word, bit) = place(vnode);
        self.0
            .get(&(vnode / PART))
            .is_some_and(|part| part[word] & bit != 0)
    }

    /// Adds all of another set.
    pub(super) fn add(&mut self, other: Self) {
        for (number, words) in other.0 {
            let part = self.0.entry(number).or_default();
            for (word, more) in part.iter_mut().zip(words) {
                *word |= more;
            }
        }
    }
}
