//! Writing within a page.

use crate::EntryId;
use crate::layout::*;

/// Makes page 0 of a new directory with its two entries, `.` and `..`. The root of a volume is
/// its own parent.
#[must_use]
pub fn make(own: EntryId, parent: EntryId) -> Page {
    let mut page = empty_page(0);
    put_u16(&mut page, PAGE_COUNT, 1);
    page[ALLOCATION..ALLOCATION + ALLOCATION_PAGES].fill(NO_PAGE);
    page[ALLOCATION] = page[FREE_COUNT] - 2;
    for (slot, name, id) in [(13, &b"."[..], own), (14, b"..", parent)] {
        put_entry(&mut page, slot, 0, name, id);
        put_u16(&mut page, head(hash(name)), slot);
    }
    page
}

/// Makes an empty page with its own slots in use. Its free count is never changed after that.
pub(crate) fn empty_page(page: usize) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    put_u16(&mut bytes, PAGE_TAG, usize::from(TAG));
    bytes[FREE_COUNT] = to_u8(SLOTS - first_slot(page));
    put_bitmap(&mut bytes, slot_bits(0, first_slot(page)));
    bytes
}

/// Writes an entry into free slots and marks them as used.
pub(crate) fn put_entry(bytes: &mut Page, slot: usize, next: usize, name: &[u8], id: EntryId) {
    let at = slot * SLOT_SIZE;
    let slots = slots_for(name.len());
    bytes[at..][..slots * SLOT_SIZE].fill(0);
    bytes[at + FLAG] = FLAG_FIRST;
    put_u16(bytes, at + NEXT, next);
    bytes[at + VNODE..][..4].copy_from_slice(&id.vnode.0.to_be_bytes());
    bytes[at + UNIQUIFIER..][..4].copy_from_slice(&id.uniquifier.0.to_be_bytes());
    bytes[at + NAME..][..name.len()].copy_from_slice(name);
    let bitmap = read_bitmap(bytes) | slot_bits(slot, slots);
    put_bitmap(bytes, bitmap);
}

pub(crate) fn to_u8(slots: usize) -> u8 {
    u8::try_from(slots).expect("a page has 64 slots")
}
