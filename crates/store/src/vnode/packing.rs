//! How a directory page is kept in a row.
//!
//! Two rows of up to 2000 bytes share a database page, where a whole directory page would take one for
//! itself. And each change of a directory writes two of its pages, so packing them must cost little: of
//! a directory's entries about half the bytes are zeros, and leaving those out of all pages takes half
//! the time of packing the long ones with LZ4, for shorter rows.

use afar_dir::{PAGE_SIZE, Page};

/// Most bytes of a row that is not worth compressing.
const SHORT: usize = 1_900;
/// Bytes that share a byte which says which of them are not zero.
const GROUP: usize = 8;

/// The page without the zeros at its end.
const TRIMMED: u8 = 0;
/// The same as an LZ4 block.
const LZ4: u8 = 1;
/// The same without any zeros.
const SPARSE: u8 = 2;

/// A page in the form of its row.
pub(crate) fn pack_page(page: &Page) -> Vec<u8> {
    let used = page
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let trimmed = &page[..used];
    let mut buffer = [0; 1 + PAGE_SIZE / GROUP + PAGE_SIZE];
    buffer[0] = SPARSE;
    let len = 1 + pack_sparse(page, used, &mut buffer[1..]);
    let sparse = &buffer[..len];
    if sparse.len().min(1 + used) > SHORT {
        let packed = lz4_flex::block::compress(trimmed);
        if packed.len() < used {
            return [&[LZ4], packed.as_slice()].concat();
        }
    }
    if sparse.len() <= used {
        return sparse.to_vec();
    }
    [&[TRIMMED], trimmed].concat()
}

/// Puts the first `used` bytes of a page into `out` without the zeros, and returns how many that are.
/// Before each group goes a byte whose bits, from the lowest on, say which of the group are there.
fn pack_sparse(page: &Page, used: usize, out: &mut [u8]) -> usize {
    let mut at = 0;
    for group in page[..used.next_multiple_of(GROUP)].as_chunks::<GROUP>().0 {
        let head = at;
        at += 1;
        let mut there = 0;
        for (bit, byte) in group.iter().enumerate() {
            // A zero is written as well, and the next byte over it: no branch that is guessed wrong.
            out[at] = *byte;
            let is = *byte != 0;
            at += usize::from(is);
            there |= u8::from(is) << bit;
        }
        out[head] = there;
    }
    at
}

/// The page of a row.
pub(crate) fn unpack_page(row: &[u8], into: &mut Page) -> Option<()> {
    let len = match row.split_first()? {
        (&TRIMMED, trimmed) => {
            into.get_mut(..trimmed.len())?.copy_from_slice(trimmed);
            trimmed.len()
        }
        (&LZ4, packed) => lz4_flex::block::decompress_into(packed, into).ok()?,
        (&SPARSE, packed) => unpack_sparse(packed, into)?,
        _ => return None,
    };
    // Decompression can leave anything behind its end.
    into[len..].fill(0);
    Some(())
}

fn unpack_sparse(mut packed: &[u8], into: &mut Page) -> Option<usize> {
    let mut groups = into.as_chunks_mut::<GROUP>().0.iter_mut();
    let mut len = 0;
    while let Some((there, rest)) = packed.split_first() {
        let group = groups.next()?;
        let (mut bytes, rest) = rest.split_at_checked(there.count_ones() as usize)?;
        for (bit, byte) in group.iter_mut().enumerate() {
            *byte = match (there >> bit) & 1 {
                0 => 0,
                _ => *bytes.split_off_first()?,
            };
        }
        packed = rest;
        len += GROUP;
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use afar_dir::{DirectoryBuilder, EntryId};
    use proptest::prelude::*;

    use super::*;

    fn comes_back(page: &Page) -> Vec<u8> {
        let row = pack_page(page);
        let mut unpacked = [0xff; PAGE_SIZE];
        unpack_page(&row, &mut unpacked).unwrap();
        assert!(unpacked == *page);
        row
    }

    /// Directories of every size, so that the last name ends at any place.
    #[test]
    fn a_packed_page_comes_back_whatever_was_in_the_buffer() {
        let own = EntryId::new(1, 1);
        for (entries, long) in (0..40).flat_map(|entries| [(entries, false), (entries, true)]) {
            let mut builder = DirectoryBuilder::new(own, own);
            for number in 0..entries {
                let name = match number % 2 {
                    0 if long => format!("a rather long name, numbered {number}"),
                    _ => format!("n{number}"),
                };
                builder.add(name.as_bytes(), own).unwrap();
            }
            for page in builder.finish().as_chunks::<PAGE_SIZE>().0 {
                comes_back(page);
            }
        }
    }

    #[test]
    fn full_pages_of_ordinary_names_are_short_rows() {
        let own = EntryId::new(1, 1);
        let mut builder = DirectoryBuilder::new(own, own);
        for number in 0..2_000 {
            let id = EntryId::new(number * 2, number + 7);
            builder.add(format!("file{number}").as_bytes(), id).unwrap();
        }
        for page in builder.finish().as_chunks::<PAGE_SIZE>().0 {
            let row = comes_back(page);
            assert!(
                row.len() < 1_500,
                "{} bytes, packed as {}",
                row.len(),
                row[0]
            );
        }
    }

    #[test]
    fn each_form_is_used() {
        let mut page = [0; PAGE_SIZE];
        assert_eq!(comes_back(&page), [TRIMMED]);
        page[..3].copy_from_slice(b"abc");
        assert_eq!(comes_back(&page)[0], TRIMMED);
        page[100] = 1;
        assert_eq!(comes_back(&page)[0], SPARSE);
        page.fill(b'x');
        assert_eq!(comes_back(&page)[0], LZ4);
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let mut page = [0; PAGE_SIZE];
        for row in [
            &[][..],
            &[3, 1],
            &[SPARSE, 0b11, 1],
            &[[SPARSE].as_slice(), &[0; PAGE_SIZE / GROUP + 1]].concat(),
            &[[TRIMMED].as_slice(), &[0; PAGE_SIZE + 1]].concat(),
        ] {
            assert_eq!(unpack_page(row, &mut page), None, "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn any_page_comes_back(
            bytes in proptest::collection::vec(prop_oneof![3 => Just(0), 2 => any::<u8>()], PAGE_SIZE),
        ) {
            comes_back(&bytes.try_into().unwrap());
        }
    }
}
