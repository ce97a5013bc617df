//! Checking all of a directory.

use std::collections::BTreeSet;

use crate::layout::*;
use crate::read::{bad, check_place, entry_in};
use crate::{DirError, EntryProblem};

/// Problems after which [`check`] stops looking for more.
pub const MAX_PROBLEMS: usize = 100;

/// Checks everything that holds in a sound directory: the number of pages and their tags, that
/// the allocation map agrees with the pages' bitmaps and these with the entries, that every entry
/// is found on the chain of its name and no other, that none shares a slot or name with another,
/// and that `.` and `..` are the first two in page 0. This is what OpenAFS's salvager asks of a
/// directory, and a little more; it says nothing about the vnodes the entries stand for.
///
/// # Errors
/// With the first problems found, at most [`MAX_PROBLEMS`]. One can be the cause of others.
pub fn check(data: &[u8]) -> Result<(), Vec<DirError>> {
    let present = data.len() / PAGE_SIZE;
    if !data.len().is_multiple_of(PAGE_SIZE) || !(1..=MAX_PAGES).contains(&present) {
        return Err(vec![DirError::Length(data.len())]);
    }
    let mut check = Check {
        pages: data.as_chunks().0,
        used: (0..present)
            .map(|page| slot_bits(0, first_slot(page)))
            .collect(),
        names: BTreeSet::new(),
        problems: Vec::new(),
    };
    check.page_count();
    check.tags();
    for chain in 0..CHAINS {
        check.chain(chain);
    }
    check.dots();
    check.bitmaps();
    check.allocation_map();
    check.problems.truncate(MAX_PROBLEMS);
    if check.problems.is_empty() {
        Ok(())
    } else {
        Err(check.problems)
    }
}

struct Check<'a> {
    /// At least one.
    pages: &'a [Page],
    /// For each page, the slots found in use.
    used: Vec<u64>,
    names: BTreeSet<&'a [u8]>,
    problems: Vec<DirError>,
}

impl Check<'_> {
    fn page_count(&mut self) {
        let present = self.pages.len();
        let counted = match usize::from(read_u16(&self.pages[0], PAGE_COUNT)) {
            // spec: volumes#directory-pages
            // Very old directories do not count their pages, and have no more than the map.
            0 if present <= ALLOCATION_PAGES => return,
            counted => counted,
        };
        if counted != present {
            self.problems.push(DirError::PageCount { counted, present });
        }
    }

    fn tags(&mut self) {
        for (page, bytes) in self.pages.iter().enumerate() {
            let tag = read_u16(bytes, PAGE_TAG);
            if tag != TAG {
                self.problems.push(DirError::Tag { page, tag });
            }
        }
    }

    /// Goes along a chain and notes the slots of its entries. An entry met before ends it, so no
    /// slot is met twice and chains that run in a circle end too.
    fn chain(&mut self, chain: usize) {
        let mut position = usize::from(read_u16(&self.pages[0], head(chain)));
        while position != 0 && self.problems.len() < MAX_PROBLEMS {
            match self.entry(chain, position) {
                Ok(next) => position = next,
                Err(problem) => {
                    self.problems.push(problem);
                    break;
                }
            }
        }
    }

    /// Checks one entry and returns the position of the next one on its chain.
    fn entry(&mut self, chain: usize, position: usize) -> Result<usize, DirError> {
        check_place(position, self.pages.len())?;
        let (page, slot) = (position / SLOTS, position % SLOTS);
        let bytes = &self.pages[page];
        let entry = entry_in(bytes, position)?;
        let bits = slot_bits(slot, slots_for(entry.name.len()));
        if self.used[page] & bits != 0 {
            return Err(bad(position, EntryProblem::Overlap));
        }
        self.used[page] |= bits;
        if bytes[slot * SLOT_SIZE + FLAG] != FLAG_FIRST {
            self.problems.push(bad(position, EntryProblem::Flag));
        }
        let belongs = hash(entry.name);
        if belongs != chain {
            self.problems.push(DirError::Chain {
                page,
                slot,
                chain,
                belongs,
            });
        }
        if !self.names.insert(entry.name) {
            self.problems.push(DirError::Duplicate { page, slot });
        }
        Ok(usize::from(read_u16(bytes, slot * SLOT_SIZE + NEXT)))
    }

    fn dots(&mut self) {
        for (position, name) in [(RESERVED_FIRST, "."), (RESERVED_FIRST + 1, "..")] {
            let entry = entry_in(&self.pages[0], position);
            let there = entry.is_ok_and(|entry| entry.name == name.as_bytes());
            if !there || !self.names.contains(name.as_bytes()) {
                self.problems.push(DirError::Dots(name));
            }
        }
    }

    fn bitmaps(&mut self) {
        for (page, (bytes, &used)) in self.pages.iter().zip(&self.used).enumerate() {
            let marked = read_bitmap(bytes);
            if marked != used {
                self.problems.push(DirError::Bitmap { page, marked, used });
            }
        }
    }

    fn allocation_map(&mut self) {
        let map = &self.pages[0][ALLOCATION..ALLOCATION + ALLOCATION_PAGES];
        for (page, &says) in map.iter().enumerate() {
            let free = self.pages.get(page).map_or(NO_PAGE, |bytes| {
                u8::try_from(read_bitmap(bytes).count_zeros()).unwrap_or(NO_PAGE)
            });
            if says != free {
                self.problems
                    .push(DirError::AllocationMap { page, says, free });
            }
        }
    }
}
