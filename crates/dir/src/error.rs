//! What can be wrong with a directory.

/// What is wrong with a directory's pages.
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
    /// The allocation map in page 0 is wrong about a page.
    #[error("the allocation map says {says} for page {page}, not {free}")]
    AllocationMap {
        /// The page, from 0.
        page: usize,
        /// Free slots by the map.
        says: u8,
        /// Free slots by the page's bitmap; 64 for a page that is not there.
        free: u8,
    },
    /// A page's bitmap marks slots that no entry has, or not all that entries have.
    #[error("page {page} marks slots {marked:#x} as used; {used:#x} are")]
    Bitmap {
        /// The page, from 0.
        page: usize,
        /// Bit n is set if slot n is marked.
        marked: u64,
        /// Bit n is set if slot n is one of the page itself or of an entry.
        used: u64,
    },
    /// An entry hangs on a chain where its name is not looked for.
    #[error("page {page}, entry at slot {slot} is on hash chain {chain}, not {belongs}")]
    Chain {
        /// The page, from 0.
        page: usize,
        /// The entry's first slot in the page.
        slot: usize,
        /// The chain it is on.
        chain: usize,
        /// The chain of its name.
        belongs: usize,
    },
    /// Two entries have the same name.
    #[error("page {page}, entry at slot {slot} has the name of another")]
    Duplicate {
        /// The page, from 0.
        page: usize,
        /// The first slot of the one found last.
        slot: usize,
    },
    /// `.` is not the first entry in page 0, or `..` not the second.
    #[error("the directory's entry {0:?} is not in its place")]
    Dots(&'static str),
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
    /// It is not marked as the first slot of an entry.
    #[error("it is not marked as an entry")]
    Flag,
    /// One of its slots belongs to an entry before it, or it was met already.
    #[error("it shares a slot with another entry")]
    Overlap,
}

/// Why an entry could not be found or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError<E> {
    /// The directory has an entry of that name (EEXIST).
    #[error("the directory has an entry of that name")]
    Exists,
    /// The directory has no entry of that name (ENOENT).
    #[error("the directory has no entry of that name")]
    NotFound,
    /// The name is empty or has a `/` or NUL, or is `.` or `..` and may not go (EINVAL).
    #[error("no entry of that name can be made or removed")]
    Name,
    /// The name has more than 255 bytes (ENAMETOOLONG).
    #[error("the name has more than 255 bytes")]
    NameTooLong,
    /// No page has room, and there are 1023 of them (EFBIG).
    #[error("the directory is full")]
    Full,
    /// The directory is damaged (EIO).
    #[error("the directory is damaged")]
    Damaged(#[from] DirError),
    /// A page could not be read or written.
    #[error("a page of the directory cannot be read or written")]
    Pages(#[source] E),
}
