//! What a caller says of a copy.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// How [`copy`](super::copy()) copies.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyOptions {
    /// Directories too, with all that is in them, through mount points; symlinks are copied as symlinks.
    pub recursive: bool,
    /// Copies get the mode bits and modification times of the originals.
    pub preserve: bool,
    /// When recursive, what symlinks lead to is copied.
    pub dereference: bool,
    /// What is there already stays as it is.
    pub no_clobber: bool,
    /// Each file is on stable storage before it gets its name.
    pub fsync: bool,
    /// Files stored at a time in AFS; usually as many as fill the path to the server.
    pub calls: Option<NonZeroUsize>,
}

/// Where copies go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Into this directory, under their own names.
    Into(PathBuf),
    /// The only copy gets this path.
    Exactly(PathBuf),
    /// Into this directory if it is one; else the only copy gets this path.
    Usual(PathBuf),
}

impl Destination {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Into(path) | Self::Exactly(path) | Self::Usual(path) => path,
        }
    }
}
