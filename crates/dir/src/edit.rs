//! Changing a directory page by page.

use std::mem;
use std::sync::Arc;

use crate::chains::{Chains, Link};
use crate::layout::*;
use crate::page::{empty_page, make, put_entry, to_u8};
use crate::pages::{Pages, PagesMut};
use crate::read::{Circle, check_place, entry_in};
use crate::room::Room;
use crate::{DirError, EditError, EntryId};

/// Finds and changes entries of a directory, and reads and writes no more pages than it must.
///
/// A look-up reads page 0 and the pages on the name's hash chain. An insertion writes page 0 and
/// the page with the entry; a removal these two and the page of the entry before it on the chain.
///
/// Entries are placed and chained as an OpenAFS file server does it: in the first page with room,
/// in the first free slots there, at the head of the chain. Clients rely on that when they repeat
/// a change in the copy they hold. Only bytes that mean nothing differ: slots are zero before and
/// after an entry has them, as Linux clients leave them, while OpenAFS clears 28 bytes of each 32.
///
/// A change that ends with [`EditError::Damaged`] or [`EditError::Pages`] can have been made in
/// part. The owner of the pages must then take back what was written, and the editor must not be
/// used again. After any other error the directory is as it was before the call.
#[derive(Debug)]
// spec: volumes#copies-of-directories
pub struct Editor<P> {
    pages: P,
    count: usize,
    /// Page 0.
    header: Arc<Page>,
    /// The page used last besides page 0, and its number; 0 if there is none.
    other: Arc<Page>,
    other_page: usize,
    room: Room,
    chains: Chains,
}

/// Where an entry is, and what leads to it.
#[derive(Debug, Clone, Copy)]
struct Found {
    position: usize,
    /// The entry before it on its chain; 0 if it is the first.
    previous: usize,
    chain: usize,
    slots: usize,
    id: EntryId,
}

impl<P: Pages> Editor<P> {
    /// Opens a directory.
    ///
    /// # Errors
    /// When it has no page, or more than it can have or than there are, or page 0 is no page.
    pub fn open(mut pages: P) -> Result<Self, EditError<P::Error>> {
        let present = pages.count();
        if !(1..=MAX_PAGES).contains(&present) {
            return Err(DirError::Length(present.saturating_mul(PAGE_SIZE)).into());
        }
        let header = pages.read(0).map_err(EditError::Pages)?;
        check_tag(&header, 0)?;
        // Very old directories do not count their pages.
        let count = match usize::from(read_u16(&*header, PAGE_COUNT)) {
            0 => present,
            counted if counted <= present => counted,
            counted => return Err(DirError::PageCount { counted, present }.into()),
        };
        Ok(Self::with(pages, count, header))
    }

    fn with(pages: P, count: usize, header: Arc<Page>) -> Self {
        Self {
            pages,
            count,
            other: Arc::clone(&header),
            header,
            other_page: 0,
            room: Room::default(),
            chains: Chains::default(),
        }
    }

    /// Takes what an editor of the same directory knew, if nothing else has changed it since.
    #[must_use]
    pub fn knowing(mut self, room: Room, chains: Chains) -> Self {
        (self.room, self.chains) = (room, chains);
        self
    }

    /// Where room is and what is on the chains, for the directory's next editor. This one forgets it.
    #[must_use]
    pub fn known(&mut self) -> (Room, Chains) {
        (mem::take(&mut self.room), mem::take(&mut self.chains))
    }

    /// The pages the editor was made with.
    #[must_use]
    pub fn pages(&self) -> &P {
        &self.pages
    }

    /// Gives back the pages the editor was made with.
    #[must_use]
    pub fn into_pages(self) -> P {
        self.pages
    }

    /// Pages of the directory now. Times [`PAGE_SIZE`], this is the directory's length in bytes.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.count
    }

    /// Finds what a name stands for.
    ///
    /// # Errors
    /// When an entry on the chain before it is damaged, the chain does not end, or a page cannot
    /// be read.
    pub fn lookup(&mut self, name: &[u8]) -> Result<Option<EntryId>, EditError<P::Error>> {
        Ok(self.find(name)?.map(|found| found.id))
    }

    /// Tells whether there are no entries but `.` and `..`.
    ///
    /// # Errors
    /// When an entry before the first other one is damaged, a chain does not end, or a page
    /// cannot be read.
    pub fn is_empty(&mut self) -> Result<bool, EditError<P::Error>> {
        for chain in 0..CHAINS {
            let other = self.walk(chain, |name| name != b"." && name != b"..")?;
            if other.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn find(&mut self, name: &[u8]) -> Result<Option<Found>, EditError<P::Error>> {
        let print = print(name);
        let chain = chain_of(print);
        let Some(links) = self.chains.get(chain) else {
            let mut passed = Vec::new();
            let found = self.walk_noting(chain, |other| other == name, Some(&mut passed))?;
            if found.is_none() && Chains::is_long(passed.len()) {
                self.chains.set(chain, passed);
            }
            return Ok(found);
        };
        // Few others have the same print. The one before on the chain is the next one here.
        let before = links[1.min(links.len())..].iter();
        let before = before.map(|link| usize::from(link.position)).chain([0]);
        let alike: Vec<(usize, usize)> = links
            .iter()
            .zip(before)
            .filter(|(link, _)| link.print == print)
            .map(|(link, previous)| (usize::from(link.position), previous))
            .collect();
        for (position, previous) in alike.into_iter().rev() {
            let entry = entry_in(self.load(position / SLOTS)?, position)?;
            if entry.name == name {
                return Ok(Some(Found {
                    position,
                    previous,
                    chain,
                    slots: slots_for(name.len()),
                    id: entry.id,
                }));
            }
        }
        Ok(None)
    }

    /// Goes along a chain to the first entry with a name like that.
    fn walk(
        &mut self,
        chain: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Found>, EditError<P::Error>> {
        self.walk_noting(chain, wanted, None)
    }

    /// The same, noting the entries that were passed.
    fn walk_noting(
        &mut self,
        chain: usize,
        wanted: impl Fn(&[u8]) -> bool,
        mut passed: Option<&mut Vec<Link>>,
    ) -> Result<Option<Found>, EditError<P::Error>> {
        let mut previous = 0;
        let mut position = usize::from(read_u16(&*self.header, head(chain)));
        let mut circle = Circle::default();
        while position != 0 {
            if circle.closes_at(position) {
                return Err(DirError::Cycle { chain }.into());
            }
            check_place(position, self.count)?;
            let page = self.load(position / SLOTS)?;
            let entry = entry_in(page, position)?;
            if wanted(entry.name) {
                return Ok(Some(Found {
                    position,
                    previous,
                    chain,
                    slots: slots_for(entry.name.len()),
                    id: entry.id,
                }));
            }
            if let Some(passed) = &mut passed {
                passed.push(Link::new(position, entry.name));
            }
            previous = position;
            position = usize::from(read_u16(page, position % SLOTS * SLOT_SIZE + NEXT));
        }
        Ok(None)
    }

    /// A page, from memory if it was the one used last.
    fn load(&mut self, page: usize) -> Result<&Page, EditError<P::Error>> {
        Ok(self.loaded(page)?)
    }

    /// The same, to be changed: a copy if somebody else has it too.
    fn load_mut(&mut self, page: usize) -> Result<&mut Page, EditError<P::Error>> {
        Ok(Arc::make_mut(self.loaded(page)?))
    }

    fn loaded(&mut self, page: usize) -> Result<&mut Arc<Page>, EditError<P::Error>> {
        if page == 0 {
            return Ok(&mut self.header);
        }
        if page != self.other_page {
            let other = self.pages.read(page).map_err(EditError::Pages)?;
            check_tag(&other, page)?;
            self.other = other;
            self.other_page = page;
        }
        Ok(&mut self.other)
    }
}

impl<P: PagesMut> Editor<P> {
    /// Makes a new directory with its two entries, `.` and `..`, in place of the first page if
    /// there is one.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn create(mut pages: P, own: EntryId, parent: EntryId) -> Result<Self, P::Error> {
        let header = Arc::new(make(own, parent));
        pages.write(0, &header)?;
        Ok(Self::with(pages, 1, header))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When the name is there already or cannot be one, the directory is full or damaged, or a
    /// page cannot be read or written.
    pub fn insert(&mut self, name: &[u8], id: EntryId) -> Result<(), EditError<P::Error>> {
        check_name(name)?;
        if is_dots(name) || self.find(name)?.is_some() {
            return Err(EditError::Exists);
        }
        self.add(name, id)
    }

    /// Removes an entry other than `.` and `..` and returns what it stood for. The directory
    /// keeps its pages.
    ///
    /// # Errors
    /// When there is no such name or it may not go, the directory is damaged, or a page cannot be
    /// read or written.
    pub fn remove(&mut self, name: &[u8]) -> Result<EntryId, EditError<P::Error>> {
        let found = self.find_removable(name)?;
        self.unlink(found)?;
        Ok(found.id)
    }

    /// Lets an entry other than `.` and `..` stand for something else, and returns what it stood
    /// for. As in a file server's Rename over an existing name, it is removed and added again, so
    /// it can come to another place; the name renamed is removed after that.
    ///
    /// # Errors
    /// When there is no such name or it may not change, the directory is damaged, or a page
    /// cannot be read or written.
    pub fn replace(&mut self, name: &[u8], id: EntryId) -> Result<EntryId, EditError<P::Error>> {
        let found = self.find_removable(name)?;
        self.unlink(found)?;
        self.add(name, id)?;
        Ok(found.id)
    }

    /// Lets `..` stand for another directory, for one that was moved there; adds it if it is
    /// missing. It becomes the head of its chain, as with OpenAFS.
    ///
    /// # Errors
    /// When the directory is damaged, or a page cannot be read or written.
    pub fn set_parent(&mut self, parent: EntryId) -> Result<(), EditError<P::Error>> {
        if let Some(found) = self.find(b"..")? {
            self.unlink(found)?;
        }
        self.add(b"..", parent)
    }

    fn find_removable(&mut self, name: &[u8]) -> Result<Found, EditError<P::Error>> {
        if is_dots(name) {
            return Err(EditError::Name);
        }
        self.find(name)?.ok_or(EditError::NotFound)
    }

    /// Puts a name that is not there at the head of its chain.
    fn add(&mut self, name: &[u8], id: EntryId) -> Result<(), EditError<P::Error>> {
        let slots = slots_for(name.len());
        let (page, slot) = self.find_room(slots)?;
        let head = head(hash(name));
        let next = usize::from(read_u16(&*self.header, head));
        put_entry(self.load_mut(page)?, slot, next, name, id);
        let position = page * SLOTS + slot;
        put_u16(self.header_mut(), head, position);
        self.chains.push(hash(name), Link::new(position, name));
        if let Some(free) = self.allocation(page) {
            // A page was chosen that has as many by the map.
            *free -= to_u8(slots);
        }
        if page != 0 {
            self.store(page)?;
        }
        self.store(0)
    }

    /// Finds so many free slots in a row, in a new page if none has them. That page is in memory
    /// then, but not written.
    fn find_room(&mut self, slots: usize) -> Result<(usize, usize), EditError<P::Error>> {
        while let Some(page) = self.room.first(slots) {
            let page = page.min(self.count);
            if page == self.count {
                self.add_page(page)?;
            }
            if let Some(slot) = self.find_room_in(page, slots)? {
                return Ok((page, slot));
            }
            self.room.none_in(page, slots);
        }
        Err(EditError::Full)
    }

    /// The first of so many free slots in a row of a page.
    fn find_room_in(
        &mut self,
        page: usize,
        slots: usize,
    ) -> Result<Option<usize>, EditError<P::Error>> {
        if let Some(&mut says) = self.allocation(page) {
            if says >= NO_PAGE {
                return Err(self.wrong_allocation(page, says));
            }
            if usize::from(says) < slots {
                return Ok(None);
            }
        }
        let bitmap = read_bitmap(self.load(page)?);
        let fits = |slot: &usize| bitmap & slot_bits(*slot, slots) == 0;
        Ok((first_slot(page)..=SLOTS - slots).find(fits))
    }

    /// Formats another page in memory and counts it in page 0.
    fn add_page(&mut self, page: usize) -> Result<(), EditError<P::Error>> {
        let free = to_u8(SLOTS - first_slot(page));
        if let Some(says) = self.allocation(page) {
            if *says != NO_PAGE {
                let (says, free) = (*says, NO_PAGE);
                return Err(DirError::AllocationMap { page, says, free }.into());
            }
            *says = free;
        }
        self.other = Arc::new(empty_page(page));
        self.other_page = page;
        self.count = page + 1;
        put_u16(self.header_mut(), PAGE_COUNT, page + 1);
        Ok(())
    }

    /// Frees an entry's slots and takes it off its chain.
    fn unlink(&mut self, found: Found) -> Result<(), EditError<P::Error>> {
        let (page, slot) = (found.position / SLOTS, found.position % SLOTS);
        if let Some(says) = self.allocation(page) {
            let (said, free) = (*says, usize::from(*says) + found.slots);
            if free > SLOTS - first_slot(page) {
                return Err(self.wrong_allocation(page, said));
            }
            *says = to_u8(free);
        }
        let bytes = self.load_mut(page)?;
        let next = usize::from(read_u16(&*bytes, slot * SLOT_SIZE + NEXT));
        bytes[slot * SLOT_SIZE..][..found.slots * SLOT_SIZE].fill(0);
        let bitmap = read_bitmap(&*bytes) & !slot_bits(slot, found.slots);
        put_bitmap(bytes, bitmap);
        self.room.freed(page);
        self.chains.remove(found.chain, found.position);

        let (before, link) = match found.previous {
            0 => (0, head(found.chain)),
            previous => (previous / SLOTS, previous % SLOTS * SLOT_SIZE + NEXT),
        };
        if before != page {
            self.store(page)?;
        }
        put_u16(self.load_mut(before)?, link, next);
        self.store(before)?;
        if before != 0 && page < ALLOCATION_PAGES {
            self.store(0)?;
        }
        Ok(())
    }

    fn header_mut(&mut self) -> &mut Page {
        Arc::make_mut(&mut self.header)
    }

    /// What the allocation map says of a page, if it has a byte for it.
    fn allocation(&mut self, page: usize) -> Option<&mut u8> {
        (page < ALLOCATION_PAGES).then(|| &mut self.header_mut()[ALLOCATION + page])
    }

    fn wrong_allocation(&mut self, page: usize, says: u8) -> EditError<P::Error> {
        match self.load(page) {
            Ok(bytes) => {
                let free = to_u8(read_bitmap(bytes).count_zeros() as usize);
                DirError::AllocationMap { page, says, free }.into()
            }
            Err(error) => error,
        }
    }

    /// Writes page 0 or the other page in memory.
    fn store(&mut self, page: usize) -> Result<(), EditError<P::Error>> {
        let bytes = if page == 0 { &self.header } else { &self.other };
        self.pages.write(page, bytes).map_err(EditError::Pages)
    }
}

fn check_tag<E>(page: &Page, number: usize) -> Result<(), EditError<E>> {
    match read_u16(page, PAGE_TAG) {
        TAG => Ok(()),
        tag => Err(DirError::Tag { page: number, tag }.into()),
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn check_name<E>(name: &[u8]) -> Result<(), EditError<E>> {
    if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(EditError::Name);
    }
    if name.len() > MAX_NAME {
        return Err(EditError::NameTooLong);
    }
    Ok(())
}
