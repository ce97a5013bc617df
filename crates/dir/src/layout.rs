//! Where things are in a page.

/// Bytes in a page.
pub const PAGE_SIZE: usize = 2048;
/// A page's bytes.
pub type Page = [u8; PAGE_SIZE];
/// Pages a directory can have.
pub const MAX_PAGES: usize = 1023;
/// Bytes a name can have.
pub const MAX_NAME: usize = 255;

pub(crate) const SLOT_SIZE: usize = 32;
pub(crate) const SLOTS: usize = PAGE_SIZE / SLOT_SIZE;
// spec: volumes#directory-pages
pub(crate) const TAG: u16 = 1234;
pub(crate) const CHAINS: usize = 128;
/// Slots that page 0 and every other page keep for themselves.
pub(crate) const RESERVED_FIRST: usize = 13;
pub(crate) const RESERVED: usize = 1;

// In every page.
pub(crate) const PAGE_COUNT: usize = 0;
pub(crate) const PAGE_TAG: usize = 2;
pub(crate) const FREE_COUNT: usize = 4;
pub(crate) const BITMAP: usize = 5;
// In page 0.
pub(crate) const ALLOCATION: usize = 32;
/// Pages that have a byte in the allocation map.
pub(crate) const ALLOCATION_PAGES: usize = 128;
/// What the allocation map says of a page that is not there: more than any page has.
pub(crate) const NO_PAGE: u8 = 64;
pub(crate) const HASH_TABLE: usize = 160;
// In an entry.
pub(crate) const FLAG: usize = 0;
pub(crate) const FLAG_FIRST: u8 = 1;
pub(crate) const NEXT: usize = 2;
pub(crate) const VNODE: usize = 4;
pub(crate) const UNIQUIFIER: usize = 8;
pub(crate) const NAME: usize = 12;

/// The first slot of a page that an entry can have.
pub(crate) const fn first_slot(page: usize) -> usize {
    if page == 0 { RESERVED_FIRST } else { RESERVED }
}

/// The hash chain that a name is on.
#[must_use]
pub fn hash(name: &[u8]) -> usize {
    chain_of(print(name))
}

/// What the chain of a name follows from. Names on one chain differ in it, mostly.
pub(crate) fn print(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |sum, &byte| {
        sum.wrapping_mul(173).wrapping_add(u32::from(byte))
    })
}

/// The chain of the names with this print.
// spec: volumes#entries-and-chains
pub(crate) fn chain_of(sum: u32) -> usize {
    let chain = (sum % 128) as usize;
    // The sum was a signed number once, and its remainder negative.
    if chain != 0 && sum >= 1 << 31 {
        CHAINS - chain
    } else {
        chain
    }
}

/// The slots an entry takes. The format counts 16 bytes for the name in the first slot although
/// 20 fit there, so a name of 16 bytes takes two slots.
#[must_use]
// spec: volumes#entries-and-chains
pub const fn slots_for(name_len: usize) -> usize {
    1 + ((name_len + 16) >> 5)
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u16::from_be_bytes(*word))
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_be_bytes(*word))
}

pub(crate) fn put_u16(page: &mut Page, at: usize, number: usize) {
    // Positions end at 1023 pages of 64 slots.
    let number = u16::try_from(number).expect("counts and positions in a directory have 16 bits");
    page[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

/// A page's bitmap: bit n is set if slot n is in use.
pub(crate) fn read_bitmap(page: &[u8]) -> u64 {
    let bitmap = page.get(BITMAP..).and_then(<[u8]>::first_chunk);
    bitmap.map_or(0, |bitmap| u64::from_le_bytes(*bitmap))
}

pub(crate) fn put_bitmap(page: &mut Page, bitmap: u64) {
    page[BITMAP..BITMAP + 8].copy_from_slice(&bitmap.to_le_bytes());
}

/// The bits of `count` slots from `slot` on; the two may not reach beyond the page.
pub(crate) const fn slot_bits(slot: usize, count: usize) -> u64 {
    (u64::MAX >> (SLOTS - count)) << slot
}

/// Where the head of a hash chain is in page 0.
pub(crate) const fn head(chain: usize) -> usize {
    HASH_TABLE + 2 * chain
}
