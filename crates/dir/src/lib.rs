//! AFS directory pages.
//!
//! A directory's data, as FetchData returns it, is a file of 2048-byte pages. A page has 64 slots
//! of 32 bytes; slot 0 of each page, and the first 13 of page 0, describe what is free. An entry
//! takes one slot or more in a row within a page, and hangs on one of 128 hash chains whose heads
//! are in page 0. [`Directory`] reads such pages when all are at hand, [`Editor`] finds and changes
//! entries in pages kept one by one, [`DirectoryBuilder`] makes a whole directory, and [`check()`]
//! finds what is wrong with one.
//!
//! ```
//! use afar_dir::{Directory, DirectoryBuilder, EntryId};
//!
//! let mut builder = DirectoryBuilder::new(EntryId::new(1, 1), EntryId::new(1, 1));
//! builder.add(b"hello.txt", EntryId::new(2, 7))?;
//! let data = builder.finish();
//!
//! let directory = Directory::new(&data)?;
//! assert_eq!(directory.lookup(b"hello.txt")?.map(|entry| entry.id), Some(EntryId::new(2, 7)));
//! let names: Result<Vec<_>, _> = directory.entries().map(|e| e.map(|e| e.name)).collect();
//! assert_eq!(names?, [&b"."[..], b"..", b"hello.txt"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod chains;
mod check;
mod edit;
mod error;
mod layout;
mod page;
mod pages;
mod read;
mod room;

pub use builder::DirectoryBuilder;
pub use chains::Chains;
pub use check::{MAX_PROBLEMS, check};
pub use edit::Editor;
pub use error::{DirError, EditError, EntryProblem};
pub use layout::{MAX_NAME, MAX_PAGES, PAGE_SIZE, Page, hash, slots_for};
pub use page::make;
pub use pages::{Pages, PagesMut};
pub use read::{Directory, Entries, Entry};
pub use room::Room;

use afar_types::{Fid, Uniquifier, VnodeId, VolumeId};

/// What an entry names: a vnode of the directory's own volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The vnode.
    pub vnode: VnodeId,
    /// Which user of the vnode's number.
    pub uniquifier: Uniquifier,
}

impl EntryId {
    /// From its two numbers.
    #[must_use]
    pub const fn new(vnode: u32, uniquifier: u32) -> Self {
        Self {
            vnode: VnodeId(vnode),
            uniquifier: Uniquifier(uniquifier),
        }
    }

    /// The whole fid, in the directory's volume.
    #[must_use]
    pub const fn fid(self, volume: VolumeId) -> Fid {
        Fid {
            volume,
            vnode: self.vnode,
            uniquifier: self.uniquifier,
        }
    }
}

#[cfg(test)]
mod tests;
