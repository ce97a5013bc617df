//! Where an editor finds a directory's pages.

use std::convert::Infallible;
use std::sync::Arc;

use crate::layout::{PAGE_SIZE, Page};

/// A directory's pages, wherever they are kept.
pub trait Pages {
    /// Why a page cannot be read or written.
    type Error;

    /// How many there are.
    fn count(&self) -> usize;

    /// Reads page number `page`, which is below [`count`](Self::count).
    ///
    /// # Errors
    /// When the place where pages are kept fails.
    fn read(&mut self, page: usize) -> Result<Arc<Page>, Self::Error>;
}

/// Pages that can be changed.
pub trait PagesMut: Pages {
    /// Replaces page number `page`, or appends it if it is equal to [`count`](Pages::count).
    ///
    /// # Errors
    /// When the place where pages are kept fails.
    fn write(&mut self, page: usize, data: &Arc<Page>) -> Result<(), Self::Error>;
}

impl<P: Pages + ?Sized> Pages for &mut P {
    type Error = P::Error;

    fn count(&self) -> usize {
        (**self).count()
    }

    fn read(&mut self, page: usize) -> Result<Arc<Page>, Self::Error> {
        (**self).read(page)
    }
}

impl<P: PagesMut + ?Sized> PagesMut for &mut P {
    fn write(&mut self, page: usize, data: &Arc<Page>) -> Result<(), Self::Error> {
        (**self).write(page, data)
    }
}

/// A directory in memory; bytes after the last whole page do not count.
impl Pages for Vec<u8> {
    type Error = Infallible;

    fn count(&self) -> usize {
        self.len() / PAGE_SIZE
    }

    fn read(&mut self, page: usize) -> Result<Arc<Page>, Infallible> {
        Ok(Arc::new(self.as_chunks().0[page]))
    }
}

impl PagesMut for Vec<u8> {
    fn write(&mut self, page: usize, data: &Arc<Page>) -> Result<(), Infallible> {
        let at = page * PAGE_SIZE;
        if page == self.count() {
            self.resize(at + PAGE_SIZE, 0);
        }
        self[at..at + PAGE_SIZE].copy_from_slice(&**data);
        Ok(())
    }
}
