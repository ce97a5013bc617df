//! What can be wrong with a directory.

/// Why a directory, or an entry of it, cannot be read or added to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// The data is no whole number of pages, or none, or more than a directory can have.
    #[error("a directory of {0} bytes is not 1 to 1023 pages of 2048 bytes")]
    Length(usize),
    /// A page does not start like one.
    #[error("page {page} of the directory has tag {tag}, not 1234")]
    Tag {
        /// The page, from 0.
        page: usize,
        /// What stands where the tag belongs.
        tag: u16,
    },
    /// Page 0 counts more pages than there are.
    #[error("the directory says it has {counted} pages; there are {present}")]
    PageCount {
        /// Pages counted in page 0.
        counted: usize,
        /// Pages present.
        present: usize,
    },
    /// An entry is damaged.
    #[error("page {page}, entry at slot {slot}: {problem}")]
    Entry {
        /// The page, from 0.
        page: usize,
        /// The entry's first slot in the page.
        slot: usize,
        /// What is wrong with it.
        problem: EntryProblem,
    },
    /// A hash chain does not end.
    #[error("hash chain {chain} of the directory runs in a circle")]
    Cycle {
        /// The chain, 0 to 127.
        chain: usize,
    },
    /// The name to be added is there already.
    #[error("the directory has an entry {0:?}")]
    Exists(String),
    /// The name to be added is not one: empty, too long, or with a `/` or NUL.
    #[error("{0:?} cannot be the name of a directory entry")]
    Name(String),
    /// No room is left, and the directory has as many pages as it can.
    #[error("the directory is full")]
    Full,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryProblem {
    /// Its place is outside the pages, or where a page describes itself.
    #[error("no entry can be there")]
    Place,
    /// One of its slots counts as free.
    #[error("one of its slots is marked free")]
    Free,
    /// The name has no NUL in the page, or more than 255 bytes.
    #[error("its name does not end")]
    Unterminated,
    /// The name is empty or has a `/`.
    #[error("its name is not one")]
    Name,
}
