//! Directories as the committer left them, for the next change of the same one.
//!
//! A name is found along a chain of entries, each in a page of its own in the worst case. In a
//! large directory that is hundreds of pages, and a row looked up for each would be most of what a
//! change costs.

use std::sync::Arc;

use afar_dir::{Chains, PAGE_SIZE, Page, Room};
use parking_lot::Mutex;
use quick_cache::Weighter;

use super::key::At;

/// Pages that are kept: 64 MiB of them, enough for a dozen of the largest directories.
const PAGES: u64 = 32_768;
/// Directories, about.
const DIRECTORIES: usize = 1_024;

/// What is known of a directory's pages.
#[derive(Clone, Default)]
pub(crate) struct Image {
    pub(crate) uniquifier: u32,
    /// The data version it is of.
    pub(crate) version: u64,
    pub(crate) pages: Vec<Option<PageImage>>,
    /// Where to look for free slots.
    pub(crate) room: Room,
    /// What is on the hash chains.
    pub(crate) chains: Chains,
}

/// What is known of a page.
#[derive(Clone)]
pub(crate) struct PageImage {
    pub(crate) page: Arc<Page>,
    /// The page as its row has it, if there is one.
    pub(crate) base: Option<Arc<Page>>,
}

impl Image {
    /// The page of a number, if it is known.
    pub(crate) fn page(&self, page: usize) -> Option<&PageImage> {
        self.pages.get(page)?.as_ref()
    }

    /// Notes a page.
    pub(crate) fn set(&mut self, page: usize, data: PageImage) {
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        self.pages[page] = Some(data);
    }
}

#[derive(Clone)]
pub(crate) struct ByPages;

impl Weighter<(At, u32), Image> for ByPages {
    fn weight(&self, _: &(At, u32), image: &Image) -> u64 {
        // A page and its base are two while they differ.
        let pages = 2 * image.pages.len() + image.chains.octets() / PAGE_SIZE;
        pages as u64 + 1
    }
}

/// Images by tree, generation and vnode. A change takes one out, and puts it back when it is done;
/// one that fails does not.
///
/// It is one cache, not one of shards: the committer alone uses it, and a large directory can be more
/// than a shard's part of it.
pub(crate) type Images = Mutex<quick_cache::unsync::Cache<(At, u32), Image, ByPages>>;

/// An empty cache.
pub(crate) fn images() -> Images {
    let cache = quick_cache::unsync::Cache::with_weighter(DIRECTORIES, PAGES, ByPages);
    Mutex::new(cache)
}
