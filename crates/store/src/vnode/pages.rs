//! Directory pages as rows: page by page, so that a new entry touches one or two of them.

use std::sync::Arc;

use afar_dir::{PAGE_SIZE, Page, Pages, PagesMut};

use super::packing::{pack_page, unpack_page};
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Image, Item, Rows};

/// A directory's page.
pub(crate) fn read_page(rows: &impl Rows, at: At, vnode: u32, page: usize) -> Result<Arc<Page>> {
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

    fn read(&mut self, page: usize) -> Result<Arc<Page>> {
        read_page(self.rows, self.at, self.vnode, page)
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

    fn read(&mut self, page: usize) -> Result<Arc<Page>> {
        if let Some(known) = self.image.page(page) {
            return Ok(Arc::clone(known));
        }
        let read = read_page(self.change, self.at, self.vnode, page)?;
        self.image.set(page, Arc::clone(&read));
        Ok(read)
    }
}

impl PagesMut for ChangePages<'_, '_, '_> {
    fn write(&mut self, page: usize, data: &Arc<Page>) -> Result<()> {
        let item = Item::page(self.vnode, page as u64);
        self.change.put_row(self.at, item, pack_page(data))?;
        self.image.set(page, Arc::clone(data));
        self.count = self.count.max(page + 1);
        Ok(())
    }
}

/// Pages a directory of this length has.
pub(super) fn page_count(length: u64) -> usize {
    usize::try_from(length / PAGE_SIZE as u64).unwrap_or(usize::MAX)
}
