//! Building the pages of an AFS directory.
//!
//! Written apart from the project's own directory code on purpose: what the tests read
//! should not come from the code under test.

/// Bytes of a page, slots in it, bytes of a slot.
const PAGE: usize = 2048;
const SLOTS: usize = 64;
const SLOT: usize = 32;
/// Slots taken by the headers of the first page and of any other.
const FIRST_RESERVED: usize = 13;
const OTHER_RESERVED: usize = 1;
/// Every page carries this number.
const TAG: u16 = 1234;
/// Pages whose free slots are listed in the first page.
const LISTED_PAGES: usize = 128;
/// Where the list of free slots and the hash table begin in the first page.
const ALLOCATION_MAP: usize = 32;
const HASH_TABLE: usize = 160;

/// A file's place in its volume: vnode number and uniquifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) vnode: u32,
    pub(super) uniquifier: u32,
}

/// A directory under construction.
pub(super) struct Pages {
    bytes: Vec<u8>,
    /// Free slots of each page, from the first free one to its end.
    used: Vec<usize>,
}

impl Pages {
    /// A directory with its two first entries, `.` and `..`.
    pub(super) fn new(own: Place, parent: Place) -> Self {
        let mut pages = Self {
            bytes: Vec::new(),
            used: Vec::new(),
        };
        pages.add_page();
        pages.add(b".", own);
        pages.add(b"..", parent);
        pages
    }

    /// Adds an entry. The caller gives no name twice and none of more than 255 bytes.
    pub(super) fn add(&mut self, name: &[u8], place: Place) {
        assert!(
            !name.is_empty() && name.len() < 256,
            "a name has 1 to 255 bytes"
        );
        let count = slots(name.len());
        // Entries are never removed here, so the used slots of a page are a prefix of it.
        let page = match self.used.iter().position(|used| used + count <= SLOTS) {
            Some(page) => page,
            None => self.add_page(),
        };
        let slot = page * SLOTS + self.used[page];
        self.take(page, count);

        let chain = HASH_TABLE + 2 * hash(name);
        let at = slot * SLOT;
        self.bytes[at] = 1;
        self.bytes.copy_within(chain..chain + 2, at + 2);
        self.bytes[at + 4..at + 8].copy_from_slice(&place.vnode.to_be_bytes());
        self.bytes[at + 8..at + 12].copy_from_slice(&place.uniquifier.to_be_bytes());
        self.bytes[at + 12..at + 12 + name.len()].copy_from_slice(name);
        self.put_u16(chain, slot);
    }

    /// The finished pages.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn add_page(&mut self) -> usize {
        let page = self.used.len();
        self.bytes.resize(self.bytes.len() + PAGE, 0);
        self.used.push(0);
        self.bytes[page * PAGE + 2..page * PAGE + 4].copy_from_slice(&TAG.to_be_bytes());
        if page == 0 {
            let map = ALLOCATION_MAP..ALLOCATION_MAP + LISTED_PAGES;
            self.bytes[map].fill(64);
        }
        self.put_u16(0, page + 1);
        self.take(
            page,
            if page == 0 {
                FIRST_RESERVED
            } else {
                OTHER_RESERVED
            },
        );
        page
    }

    /// Marks the next `count` slots of a page as used.
    fn take(&mut self, page: usize, count: usize) {
        for slot in self.used[page]..self.used[page] + count {
            self.bytes[page * PAGE + 5 + slot / 8] |= 1 << (slot % 8);
        }
        self.used[page] += count;
        if page < LISTED_PAGES {
            let free = u8::try_from(SLOTS - self.used[page]).expect("a page has 64 slots");
            self.bytes[ALLOCATION_MAP + page] = free;
        }
    }

    fn put_u16(&mut self, at: usize, value: usize) {
        let value = u16::try_from(value).expect("a directory has at most 1,023 pages");
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Slots of an entry. The first slot has room for 20 bytes of name, but the rule counts 16;
/// every implementation must count alike.
fn slots(name_len: usize) -> usize {
    1 + ((name_len + 1 + 15) >> 5)
}

/// The chain a name belongs to.
fn hash(name: &[u8]) -> usize {
    let sum = name.iter().fold(0_u32, |h, &byte| {
        h.wrapping_mul(173).wrapping_add(byte.into())
    });
    let chain = (sum & 127) as usize;
    if chain != 0 && sum >= 1 << 31 {
        128 - chain
    } else {
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(vnode: u32) -> Place {
        Place {
            vnode,
            uniquifier: vnode + 7,
        }
    }

    #[test]
    fn known_hashes() {
        let known: [(&[u8], usize); 6] = [
            (b".", 46),
            (b"..", 68),
            (b"a", 97),
            (b"root.cell", 90),
            (b"hello.txt", 18),
            (b"xxxxxxxxxxxxxxxxxxxx", 32),
        ];
        for (name, chain) in known {
            assert_eq!(hash(name), chain, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn slots_follow_the_historical_count() {
        assert_eq!(
            [1, 15, 16, 47, 48, 79, 255].map(slots),
            [1, 1, 2, 2, 3, 3, 9]
        );
    }

    #[test]
    fn a_fresh_directory_has_two_entries() {
        let bytes = Pages::new(place(1), place(3)).into_bytes();
        assert_eq!(bytes.len(), PAGE);
        assert_eq!(&bytes[..4], [0, 1, 0x04, 0xd2]);
        assert_eq!(&bytes[5..13], [0xff, 0x7f, 0, 0, 0, 0, 0, 0]);
        assert_eq!((bytes[32], bytes[33]), (49, 64));
        assert_eq!(bytes[HASH_TABLE + 2 * 46 + 1], 13);
        assert_eq!(bytes[HASH_TABLE + 2 * 68 + 1], 14);
        assert_eq!(
            &bytes[14 * 32..14 * 32 + 15],
            b"\x01\0\0\0\0\0\0\x03\0\0\0\x0a..\0"
        );
    }

    #[test]
    fn every_entry_of_a_big_directory_is_on_its_chain() {
        let mut pages = Pages::new(place(1), place(1));
        let names: Vec<String> = (0..3000)
            .map(|i| format!("{i}-{}", "n".repeat(i % 60)))
            .collect();
        for (vnode, name) in (2..).zip(&names) {
            pages.add(name.as_bytes(), place(vnode));
        }
        let bytes = pages.into_bytes();
        assert_eq!(
            usize::from(u16::from_be_bytes([bytes[0], bytes[1]])),
            bytes.len() / PAGE
        );
        for (vnode, name) in (2_u32..).zip(&names) {
            let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            let mut slot = word(HASH_TABLE + 2 * hash(name.as_bytes()));
            let wanted = [name.as_bytes(), b"\0"].concat();
            while slot != 0 && !bytes[slot * SLOT + 12..].starts_with(&wanted) {
                slot = word(slot * SLOT + 2);
            }
            assert_ne!(slot, 0, "{name} is not on its chain");
            assert_eq!(bytes[slot * SLOT + 4..slot * SLOT + 8], vnode.to_be_bytes());
        }
    }
}
