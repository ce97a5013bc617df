//! Directory pages as rows: page by page, so that a new entry touches one or two of them.

use std::sync::Arc;

use afar_dir::{PAGE_SIZE, Page, Pages, PagesMut};

use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Image, Item, Rows};

/// Most octets of a page that is not worth compressing: two such rows share a database page.
const PLAIN_MAX: usize = 1_900;

/// A page without the zeros at its end, or compressed if that is still long. Two rows of up to
/// 2000 octets share a database page, where a whole directory page would take one for itself.
pub(crate) fn pack_page(page: &Page) -> Vec<u8> {
    let used = page
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let trimmed = &page[..used];
    if used > PLAIN_MAX {
        let packed = lz4_flex::block::compress(trimmed);
        if packed.len() < used {
            let mut out = vec![1];
            out.extend_from_slice(&packed);
            return out;
        }
    }
    let mut out = vec![0];
    out.extend_from_slice(trimmed);
    out
}

/// The page of a row.
pub(crate) fn unpack_page(row: &[u8], into: &mut Page) -> Option<()> {
    let len = match row.split_first()? {
        (0, trimmed) => {
            into.get_mut(..trimmed.len())?.copy_from_slice(trimmed);
            trimmed.len()
        }
        (1, packed) => lz4_flex::block::decompress_into(packed, into).ok()?,
        _ => return None,
    };
    // Decompression can leave anything behind its end.
    into[len..].fill(0);
    Some(())
}

/// Reads a directory's page.
pub(crate) fn read_page(
    rows: &impl Rows,
    at: At,
    vnode: u32,
    page: usize,
    into: &mut Page,
) -> Result<()> {
    *into = *page_of(rows, at, vnode, page)?;
    Ok(())
}

fn page_of(rows: &impl Rows, at: At, vnode: u32, page: usize) -> Result<Arc<Page>> {
    let unpacked = rows.page(at, Item::page(vnode, page as u64), |row| {
        let mut unpacked = [0; PAGE_SIZE];
        unpack_page(row, &mut unpacked).map(|()| unpacked)
    })?;
    unpacked.ok_or_else(|| {
        rows.env().corrupt(format!(
            "page {page} of directory {vnode} in tree {}",
            at.tree
        ))
    })
}

/// A directory's pages for reading.
pub(super) struct ReadPages<'r, R> {
    pub(super) rows: &'r R,
    pub(super) at: At,
    pub(super) vnode: u32,
    pub(super) count: usize,
}

impl<R: Rows> Pages for ReadPages<'_, R> {
    type Error = StoreError;

    fn count(&self) -> usize {
        self.count
    }

    fn read(&mut self, page: usize, into: &mut Page) -> Result<()> {
        read_page(self.rows, self.at, self.vnode, page, into)
    }
}

/// A directory's pages for changing.
pub(super) struct ChangePages<'r, 'c, 'e> {
    pub(super) change: &'r mut Change<'c, 'e>,
    pub(super) image: &'r mut Image,
    pub(super) at: At,
    pub(super) vnode: u32,
    pub(super) count: usize,
}

impl Pages for ChangePages<'_, '_, '_> {
    type Error = StoreError;

    fn count(&self) -> usize {
        self.count
    }

    fn read(&mut self, page: usize, into: &mut Page) -> Result<()> {
        if let Some(known) = self.image.page(page) {
            *into = *known;
            return Ok(());
        }
        let read = page_of(self.change, self.at, self.vnode, page)?;
        *into = *read;
        self.image.set(page, read);
        Ok(())
    }
}

impl PagesMut for ChangePages<'_, '_, '_> {
    fn write(&mut self, page: usize, data: &Page) -> Result<()> {
        let item = Item::page(self.vnode, page as u64);
        self.change.put_row(self.at, item, pack_page(data))?;
        self.image.set(page, Arc::new(*data));
        self.count = self.count.max(page + 1);
        Ok(())
    }
}

/// Pages a directory of this length has.
pub(super) fn page_count(length: u64) -> usize {
    usize::try_from(length / PAGE_SIZE as u64).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use afar_dir::{DirectoryBuilder, EntryId};

    use super::*;

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
                let mut unpacked = [0xff; PAGE_SIZE];
                unpack_page(&pack_page(page), &mut unpacked).unwrap();
                assert!(unpacked == *page, "{entries} entries");
            }
        }
    }
}
