//! The cache manager: what a machine knows of AFS files, kept coherent by callbacks.
//!
//! A [`Cache`] has one method for each request of a kernel's file system interface, and knows
//! nothing of how these come in. A name or status is used only while a file server's promise to tell
//! of changes holds; data is used only for the version that the status tells. What is written is kept
//! beside the version it was written to, and stored when the file is closed.

mod cache;
mod config;
mod error;
mod types;

pub use cache::Cache;
pub use config::{CacheConfig, Root};
pub use error::{CacheError, Errno};
pub use types::{
    Attr, DirEntry, Entry, Handle, Ino, Invalidation, KeepCache, Kind, Lock, LockKind, OpenFlags,
    RenameFlags, SetAttr, StatFs, Who,
};
