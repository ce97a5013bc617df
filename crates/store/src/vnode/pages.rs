//! Directory pages as rows: page by page, so that a new entry touches one or two of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use afar_dir::{PAGE_SIZE, Page, Pages, PagesMut};

use super::changes;
use super::packing::unpack_page;
use crate::error::{Result, StoreError};
use crate::meta::{At, Changes, Image, PageImage, Rows};

/// A directory's page.
pub(crate) fn read_page(rows: &impl Rows, at: At, vnode: u32, page: usize) -> Result<Arc<Page>> {
    read(rows, at, vnode, page, Changes::Applied)
}

fn read(rows: &impl Rows, at: At, vnode: u32, page: usize, changes: Changes) -> Result<Arc<Page>> {
    let read = rows.page(at, (vnode, page as u64), changes, make)?;
    read.ok_or_else(|| {
        rows.env().corrupt(format!(
            "page {page} of directory {vnode} in tree {}",
            at.tree
        ))
    })
}

/// A page of its row and of its changes' row.
pub(crate) fn make(row: &[u8], changes: Option<&[u8]>) -> Option<Page> {
    let mut page = [0; PAGE_SIZE];
    unpack_page(row, &mut page)?;
    if let Some(changes) = changes {
        changes::apply(changes, &mut page)?;
    }
    Some(page)
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

/// A directory's pages for changing, in memory.
pub(super) struct ChangePages<'r, R> {
    pub(super) rows: &'r R,
    pub(super) image: &'r mut Image,
    /// Where it is noted which pages are to be written: directory and number.
    pub(super) changed: &'r mut BTreeSet<(u32, usize)>,
    pub(super) at: At,
    pub(super) vnode: u32,
    pub(super) count: usize,
}

impl<R: Rows> Pages for ChangePages<'_, R> {
    type Error = StoreError;

    fn count(&self) -> usize {
        self.count
    }

    fn read(&mut self, page: usize) -> Result<Arc<Page>> {
        if let Some(known) = self.image.page(page) {
            return Ok(Arc::clone(&known.page));
        }
        let read = |changes| read(self.rows, self.at, self.vnode, page, changes);
        let (page_now, base) = (read(Changes::Applied)?, read(Changes::LeftOut)?);
        let known = PageImage {
            page: Arc::clone(&page_now),
            base: Some(base),
        };
        self.image.set(page, known);
        Ok(page_now)
    }
}

impl<R: Rows> PagesMut for ChangePages<'_, R> {
    fn write(&mut self, page: usize, data: &Arc<Page>) -> Result<()> {
        // A page that was added has no row.
        let known = self.image.page(page).filter(|_| page < self.count);
        let base = known.and_then(|known| known.base.clone());
        let known = PageImage {
            page: Arc::clone(data),
            base,
        };
        self.image.set(page, known);
        self.changed.insert((self.vnode, page));
        self.count = self.count.max(page + 1);
        Ok(())
    }
}

/// Pages a directory of this length has.
pub(super) fn page_count(length: u64) -> usize {
    usize::try_from(length / PAGE_SIZE as u64).unwrap_or(usize::MAX)
}
