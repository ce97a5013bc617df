//! Remembering where room is.

use crate::layout::{MAX_NAME, slots_for};

/// Where an [`Editor`](crate::Editor) begins to look for room, by the number of slots wanted: no
/// page before has as many in a row.
///
/// The allocation map ends at page 128, so an insertion into a large directory reads all pages
/// behind. Whoever keeps this for a directory between two editors spares that, and must forget it
/// when the directory was changed otherwise or a change was taken back: entries would then come to
/// other places. The default is right for any directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Index 0 stands for one slot.
    first_page: [u16; MAX_SLOTS],
}

/// Slots that the longest name takes.
const MAX_SLOTS: usize = slots_for(MAX_NAME);

impl Room {
    pub(crate) fn start(&self, slots: usize) -> usize {
        self.first_page.get(slots - 1).copied().unwrap_or(0).into()
    }

    /// Notes that no page before this one has so many free slots in a row.
    pub(crate) fn none_before(&mut self, page: usize, slots: usize) {
        let page = to_u16(page);
        for first in self.first_page.iter_mut().skip(slots - 1) {
            *first = page.max(*first);
        }
    }

    /// Notes that slots of a page became free.
    pub(crate) fn freed(&mut self, page: usize) {
        let page = to_u16(page);
        for first in &mut self.first_page {
            *first = page.min(*first);
        }
    }
}

fn to_u16(page: usize) -> u16 {
    u16::try_from(page).expect("a directory has at most 1023 pages")
}
