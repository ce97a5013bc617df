//! Reading a directory that may be damaged or hostile.

use afar_types::{Uniquifier, VnodeId};
use memchr::memchr;

use crate::layout::*;
use crate::{DirError, EntryId, EntryProblem};

/// A directory's pages, checked as far as their headers go. Every entry is checked when it is
/// read.
#[derive(Debug, Clone, Copy)]
pub struct Directory<'a> {
    data: &'a [u8],
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Name: 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
    /// What it names.
    pub id: EntryId,
    /// Its first slot, counted over all pages: where a reader that stopped can go on.
    pub position: usize,
}

impl<'a> Directory<'a> {
    /// Takes a directory's data and checks its pages.
    ///
    /// # Errors
    /// When the data is no whole number of pages or a page's header is damaged.
    pub fn new(data: &'a [u8]) -> Result<Self, DirError> {
        let present = data.len() / PAGE_SIZE;
        if !data.len().is_multiple_of(PAGE_SIZE) || !(1..=MAX_PAGES).contains(&present) {
            return Err(DirError::Length(data.len()));
        }
        // Very old directories do not count their pages.
        let counted = match usize::from(read_u16(data, PAGE_COUNT)) {
            0 => present,
            counted => counted,
        };
        let Some(data) = data.get(..counted * PAGE_SIZE) else {
            return Err(DirError::PageCount { counted, present });
        };
        for (page, bytes) in data.chunks_exact(PAGE_SIZE).enumerate() {
            let tag = read_u16(bytes, PAGE_TAG);
            if tag != TAG {
                return Err(DirError::Tag { page, tag });
            }
        }
        Ok(Self { data })
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.data.len() / PAGE_SIZE
    }

    /// All entries in the order of their places, `.` and `..` among them. A damaged entry is an
    /// error; the ones behind it follow.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        self.entries_from(0)
    }

    /// The entries from this [position](Entry::position) on.
    #[must_use]
    pub fn entries_from(&self, position: usize) -> Entries<'a> {
        Entries {
            directory: *self,
            position,
            lost: false,
        }
    }

    /// Finds a name by its hash chain.
    ///
    /// # Errors
    /// When an entry on the chain before it is damaged, or the chain does not end.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<Entry<'a>>, DirError> {
        let chain = hash(name);
        let mut position = usize::from(read_u16(self.data, head(chain)));
        let mut circle = Circle::default();
        while position != 0 {
            if circle.closes_at(position) {
                return Err(DirError::Cycle { chain });
            }
            let entry = self.entry(position)?;
            if entry.name == name {
                return Ok(Some(entry));
            }
            position = usize::from(read_u16(self.data, position * SLOT_SIZE + NEXT));
        }
        Ok(None)
    }

    fn page(&self, page: usize) -> &'a [u8] {
        self.data
            .get(page * PAGE_SIZE..(page + 1) * PAGE_SIZE)
            .unwrap_or_default()
    }

    /// Reads and checks the entry whose first slot is there.
    pub(crate) fn entry(&self, position: usize) -> Result<Entry<'a>, DirError> {
        check_place(position, self.pages())?;
        entry_in(self.page(position / SLOTS), position)
    }
}

/// Tells whether an entry can be at a position of a directory of so many pages.
pub(crate) fn check_place(position: usize, pages: usize) -> Result<(), DirError> {
    let (page, slot) = (position / SLOTS, position % SLOTS);
    if page >= pages || slot < first_slot(page) {
        return Err(bad(position, EntryProblem::Place));
    }
    Ok(())
}

/// Reads and checks an entry in its page, given its position over all pages.
pub(crate) fn entry_in(bytes: &[u8], position: usize) -> Result<Entry<'_>, DirError> {
    let slot = position % SLOTS;
    let entry = bytes.get(slot * SLOT_SIZE..).unwrap_or_default();
    let rest = entry.get(NAME..).unwrap_or_default();
    let rest = rest.get(..=MAX_NAME).unwrap_or(rest);
    let end = memchr(0, rest);
    let name = end.and_then(|end| rest.get(..end));
    let name = name.ok_or_else(|| bad(position, EntryProblem::Unterminated))?;
    // A name may end in the page although the slots counted for it do not.
    let slots = slots_for(name.len());
    if slot + slots > SLOTS {
        return Err(bad(position, EntryProblem::Unterminated));
    }
    let bits = slot_bits(slot, slots);
    if read_bitmap(bytes) & bits != bits {
        return Err(bad(position, EntryProblem::Free));
    }
    if name.is_empty() || memchr(b'/', name).is_some() {
        return Err(bad(position, EntryProblem::Name));
    }
    let vnode = VnodeId(read_u32(entry, VNODE));
    let uniquifier = Uniquifier(read_u32(entry, UNIQUIFIER));
    Ok(Entry {
        name,
        id: EntryId { vnode, uniquifier },
        position,
    })
}

pub(crate) fn bad(position: usize, problem: EntryProblem) -> DirError {
    DirError::Entry {
        page: position / SLOTS,
        slot: position % SLOTS,
        problem,
    }
}

/// Notices that a hash chain runs in a circle, within three times its steps (Brent's algorithm).
#[derive(Debug, Default)]
pub(crate) struct Circle {
    mark: usize,
    steps: usize,
}

impl Circle {
    /// Takes the next position on the chain; true if the chain was there before.
    pub(crate) fn closes_at(&mut self, position: usize) -> bool {
        if position == self.mark {
            return true;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.mark = position;
        }
        false
    }
}

/// The entries of a directory in the order of their places.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    directory: Directory<'a>,
    position: usize,
    /// After a damaged entry, until a slot looks like the first of one.
    lost: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DirError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (page, slot) = (self.position / SLOTS, self.position % SLOTS);
            if page >= self.directory.pages() {
                return None;
            }
            if slot < first_slot(page) {
                self.position = page * SLOTS + first_slot(page);
                self.lost = false;
                continue;
            }
            let bytes = self.directory.page(page);
            let used = read_bitmap(bytes) >> slot & 1 == 1;
            let first = bytes.get(slot * SLOT_SIZE + FLAG) == Some(&FLAG_FIRST);
            if !used || self.lost && !first {
                self.position += 1;
                continue;
            }
            let entry = self.directory.entry(self.position);
            self.lost = entry.is_err();
            self.position += entry
                .as_ref()
                .map_or(1, |entry| slots_for(entry.name.len()));
            return Some(entry);
        }
    }
}

impl std::iter::FusedIterator for Entries<'_> {}
