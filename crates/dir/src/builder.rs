//! Making the pages of a directory.

use crate::layout::*;
use crate::{DirError, Directory, EntryId};

/// Makes a directory's pages by adding entries, as a file server would over time.
#[derive(Debug, Clone)]
pub struct DirectoryBuilder {
    data: Vec<u8>,
}

impl DirectoryBuilder {
    /// A directory with its first two entries, `.` for itself and `..` for its parent. The root
    /// of a volume is its own parent.
    #[must_use]
    pub fn new(own: EntryId, parent: EntryId) -> Self {
        let mut builder = Self {
            data: Vec::with_capacity(PAGE_SIZE),
        };
        builder.add_page();
        for page in 1..ALLOCATION_PAGES {
            builder.data[ALLOCATION + page] = 64;
        }
        // An empty page has room for both.
        for (name, id) in [(&b"."[..], own), (b"..", parent)] {
            if let Some(position) = builder.take_slots(slots_for(name.len())) {
                builder.write(position, name, id);
            }
        }
        builder
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When the name is there already or cannot be one, or the directory is full.
    pub fn add(&mut self, name: &[u8], id: EntryId) -> Result<(), DirError> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        let forbidden = |byte: &u8| matches!(byte, 0 | b'/');
        if name.is_empty() || name.len() > MAX_NAME || name.iter().any(forbidden) {
            return Err(DirError::Name(shown()));
        }
        if Directory::trusted(&self.data).lookup(name)?.is_some() {
            return Err(DirError::Exists(shown()));
        }
        let position = self
            .take_slots(slots_for(name.len()))
            .ok_or(DirError::Full)?;
        self.write(position, name, id);
        Ok(())
    }

    /// The pages.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.data
    }

    fn pages(&self) -> usize {
        self.data.len() / PAGE_SIZE
    }

    /// Appends a page whose own slots are in use and the others free.
    fn add_page(&mut self) {
        let page = self.pages();
        self.data.resize(self.data.len() + PAGE_SIZE, 0);
        self.put_u16(page * PAGE_SIZE + PAGE_TAG, TAG);
        let reserved = first_slot(page);
        let free = SLOTS - reserved;
        self.data[page * PAGE_SIZE + FREE_COUNT] = to_u8(free);
        self.put_bitmap(page, slot_bits(0, reserved));
        if page < ALLOCATION_PAGES {
            self.data[ALLOCATION + page] = to_u8(free);
        }
        self.put_u16(PAGE_COUNT, to_u16(page + 1));
    }

    /// Marks the first `count` free slots in a row as used and returns their position.
    fn take_slots(&mut self, count: usize) -> Option<usize> {
        for page in 0..MAX_PAGES {
            if page == self.pages() {
                self.add_page();
            }
            let bitmap = read_bitmap(&self.data[page * PAGE_SIZE..]);
            if (bitmap.count_zeros() as usize) < count {
                continue;
            }
            let fits = |slot: &usize| bitmap & slot_bits(*slot, count) == 0;
            if let Some(slot) = (first_slot(page)..=SLOTS - count).find(fits) {
                self.put_bitmap(page, bitmap | slot_bits(slot, count));
                if page < ALLOCATION_PAGES {
                    self.data[ALLOCATION + page] -= to_u8(count);
                }
                return Some(page * SLOTS + slot);
            }
        }
        None
    }

    /// Writes an entry into its slots and puts it at the head of its hash chain.
    fn write(&mut self, position: usize, name: &[u8], id: EntryId) {
        let at = position * SLOT_SIZE;
        let head = HASH_TABLE + 2 * hash(name);
        let next = read_u16(&self.data, head);
        self.data[at + FLAG] = FLAG_FIRST;
        self.put_u16(at + NEXT, next);
        self.data[at + VNODE..][..4].copy_from_slice(&id.vnode.0.to_be_bytes());
        self.data[at + UNIQUIFIER..][..4].copy_from_slice(&id.uniquifier.0.to_be_bytes());
        self.data[at + NAME..][..name.len()].copy_from_slice(name);
        self.put_u16(head, to_u16(position));
    }

    fn put_u16(&mut self, at: usize, number: u16) {
        self.data[at..at + 2].copy_from_slice(&number.to_be_bytes());
    }

    fn put_bitmap(&mut self, page: usize, bitmap: u64) {
        self.data[page * PAGE_SIZE + BITMAP..][..8].copy_from_slice(&bitmap.to_le_bytes());
    }
}

/// Slots of a page and positions in a directory of at most 1023 pages fit their fields.
fn to_u8(number: usize) -> u8 {
    u8::try_from(number).expect("a page has 64 slots")
}

fn to_u16(number: usize) -> u16 {
    u16::try_from(number).expect("a directory has at most 1023 pages of 64 slots")
}
