//! Remembering where room is.

use crate::layout::{MAX_NAME, MAX_PAGES, slots_for};

/// Which pages an [`Editor`](crate::Editor) need not look at for room, by the number of slots wanted:
/// they have not as many in a row.
///
/// The allocation map ends at page 128, so an insertion into a large directory reads all pages
/// behind. A caller that keeps this for a directory between two editors saves that, and must forget it
/// when the directory was changed otherwise or a change was taken back: entries would then come to
/// other places. The default is right for any directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Index 0 stands for one slot. A page's bit is set if it has not as many.
    full: [[u64; WORDS]; MAX_SLOTS],
}

/// Slots that the longest name takes.
const MAX_SLOTS: usize = slots_for(MAX_NAME);
/// Words with a bit for each page.
const WORDS: usize = MAX_PAGES.div_ceil(u64::BITS as usize);

impl Default for Room {
    fn default() -> Self {
        Self {
            full: [[0; WORDS]; MAX_SLOTS],
        }
    }
}

impl Room {
    /// The first page that may have so many free slots in a row, of those a directory can have.
    pub(crate) fn first(&self, slots: usize) -> Option<usize> {
        let words = self.full.get(slots - 1)?;
        let word = words.iter().position(|word| *word != u64::MAX)?;
        let page = word * u64::BITS as usize + words[word].trailing_ones() as usize;
        (page < MAX_PAGES).then_some(page)
    }

    /// Notes that a page has not so many free slots in a row.
    pub(crate) fn none_in(&mut self, page: usize, slots: usize) {
        let (word, bit) = place(page);
        for words in self.full.iter_mut().skip(slots - 1) {
            words[word] |= bit;
        }
    }

    /// Notes that slots of a page became free.
    pub(crate) fn freed(&mut self, page: usize) {
        let (word, bit) = place(page);
        for words in &mut self.full {
            words[word] &= !bit;
        }
    }
}

/// A page's word, and its bit there.
fn place(page: usize) -> (usize, u64) {
    let bits = u64::BITS as usize;
    (page / bits, 1 << (page % bits))
}
