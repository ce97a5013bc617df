//! Dumping volumes and restoring them: the store's side of the [dump stream](crate::dump).
//!
//! A dump reads a volume as it was at one moment, however long it takes and whatever is written
//! meanwhile. A restore fills rows nobody sees, checks that they make up a sound tree, and only
//! then shows them, so that it happens as a whole or not at all. Neither holds more than a few MiB.

mod batch;
mod dump;
mod existing;
mod load;
mod pin;
mod restore;
mod set;
mod tree;

pub use dump::{DumpOptions, DumpSummary};
pub(crate) use pin::Pin;
pub use restore::{RestoreMode, RestoreOptions, RestoreSummary};

/// How far a dump or restore is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferProgress {
    /// Bytes of the stream that went by.
    pub bytes: u64,
    /// Vnodes in them, with or without their content.
    pub vnodes: u64,
}
