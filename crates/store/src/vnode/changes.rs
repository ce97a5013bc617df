//! How a directory page differs from its row.
//!
//! A name that comes or goes changes some dozens of bytes in two pages. They are kept in a row of
//! their own beside that of the page until they are too many: then the page's row is rewritten.
//! So a change of many directories writes one or two pages of the database, not two for each.

use afar_dir::Page;

/// Most bytes of such a row. A page's own has about 1400.
const MOST: usize = 512;
/// Bytes that are compared at once.
const PIECE: usize = 64;
/// Bytes before each stretch: `u16` offset in the page and `u8` length.
const HEAD: usize = 3;

/// What makes `page` of `base`: stretches of bytes with their places. Empty if nothing differs;
/// `None` if it would be too long.
pub(crate) fn difference(base: &Page, page: &Page) -> Option<Vec<u8>> {
    // With room for the row's checksum.
    let mut out = Vec::with_capacity(MOST + 64);
    // The stretch that may go on: where it begins and ends.
    let mut open: Option<(usize, usize)> = None;
    let (before, _) = base.as_chunks::<PIECE>();
    let (after, _) = page.as_chunks::<PIECE>();
    for (piece, (before, after)) in before.iter().zip(after).enumerate() {
        // Most of a page is as it was.
        if before == after {
            continue;
        }
        let start = piece * PIECE;
        for at in (start..start + PIECE).filter(|at| base[*at] != page[*at]) {
            match &mut open {
                // To go on is shorter than to begin again.
                Some((start, end)) if at - *end <= HEAD && at - *start < usize::from(u8::MAX) => {
                    *end = at + 1;
                }
                _ => {
                    close(open.replace((at, at + 1)), page, &mut out);
                    if out.len() > MOST {
                        return None;
                    }
                }
            }
        }
    }
    close(open, page, &mut out);
    (out.len() <= MOST).then_some(out)
}

fn close(stretch: Option<(usize, usize)>, page: &Page, out: &mut Vec<u8>) {
    if let Some((start, end)) = stretch {
        let offset = u16::try_from(start).unwrap_or(u16::MAX);
        out.extend_from_slice(&offset.to_be_bytes());
        out.push(u8::try_from(end - start).unwrap_or(u8::MAX));
        out.extend_from_slice(&page[start..end]);
    }
}

/// Makes the page of its base. `None`, with the page in any state, if that is no such row.
pub(crate) fn apply(mut changes: &[u8], page: &mut Page) -> Option<()> {
    let mut end = 0;
    while let Some((head, rest)) = changes.split_first_chunk::<HEAD>() {
        let offset = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let (stretch, rest) = rest.split_at_checked(head[2].into())?;
        if offset < end || stretch.is_empty() {
            return None;
        }
        end = offset + stretch.len();
        page.get_mut(offset..end)?.copy_from_slice(stretch);
        changes = rest;
    }
    changes.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use afar_dir::PAGE_SIZE;
    use proptest::prelude::*;

    use super::*;

    fn comes_back(base: &Page, page: &Page) -> Option<usize> {
        let changes = difference(base, page)?;
        let mut made = *base;
        apply(&changes, &mut made).unwrap();
        assert!(made == *page);
        Some(changes.len())
    }

    #[test]
    fn near_octets_share_a_stretch_and_far_ones_do_not() {
        let base = [7; PAGE_SIZE];
        assert_eq!(comes_back(&base, &base), Some(0));
        let mut page = base;
        page[0] = 1;
        page[4] = 1;
        assert_eq!(comes_back(&base, &page), Some(HEAD + 5));
        page[9] = 1;
        assert_eq!(comes_back(&base, &page), Some(HEAD + 5 + HEAD + 1));
        page[PAGE_SIZE - 1] = 1;
        assert_eq!(comes_back(&base, &page), Some(HEAD + 5 + 2 * (HEAD + 1)));
        page[100..400].fill(1);
        let long = HEAD + 255 + HEAD + 45;
        assert_eq!(
            comes_back(&base, &page),
            Some(HEAD + 5 + 2 * (HEAD + 1) + long)
        );
    }

    #[test]
    fn a_page_that_differs_much_has_no_changes() {
        let base = [0; PAGE_SIZE];
        let mut page = base;
        page[..=MOST].fill(1);
        assert_eq!(difference(&base, &page), None);
        for at in (0..PAGE_SIZE).step_by(8) {
            page[at] = 2;
        }
        assert_eq!(difference(&base, &page), None);
    }

    #[test]
    fn what_is_no_row_of_changes_is_refused() {
        let mut page = [0; PAGE_SIZE];
        for bad in [
            &[0][..],
            &[0, 0, 1],
            &[0, 0, 0],
            &[0, 0, 2, 1],
            &[7, 255, 2, 1, 1],
            &[255, 255, 1, 1],
            // Stretches that overlap, and ones that go back.
            &[0, 0, 2, 1, 1, 0, 1, 1, 1],
            &[0, 9, 1, 1, 0, 0, 1, 1],
        ] {
            assert_eq!(apply(bad, &mut page), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_page_is_made_of_any_other(
            seed: u64,
            spots in prop::collection::vec((0..PAGE_SIZE, 1..40usize, any::<u8>()), 0..12),
        ) {
            let mut base = [0; PAGE_SIZE];
            fastrand::Rng::with_seed(seed).fill(&mut base);
            let mut page = base;
            for (start, len, octet) in spots {
                let end = (start + len).min(PAGE_SIZE);
                page[start..end].fill(octet);
            }
            comes_back(&base, &page);
        }

        #[test]
        fn no_octets_panic(changes: Vec<u8>) {
            apply(&changes, &mut [0; PAGE_SIZE]);
        }
    }
}
