//! The cache manager: what a machine knows of AFS files, kept coherent by callbacks.
//!
//! A [`Cache`] has one method for each request of a kernel's file system interface, and knows
//! nothing of how these come in. A name or status is used only while a file server's promise to tell
//! of changes holds; data is used only for the version that the status tells. What is written is kept
//! beside the version it was written to, and stored when the file is closed.
//!
//! It is made of layers, and each uses those before it only (`cargo xtask tidy` holds that):
//!
//! - `model`: types and what they do by themselves
//! - `storage`: where the data of files is kept, on a disk
//! - `table`: what is known, in memory
//! - `ops`: what a mount asks for

mod model;
mod ops;
mod storage;
mod table;

pub use afar_cell::{Asker, Class, Collection, OobOffer, OobServer, OobTransfers, Waits};
pub use model::changes_here::ChangesHere;
pub use model::config::{CacheConfig, Root};
pub use model::conflict::{Conflict, ConflictError};
pub use model::error::{CacheError, Errno};
pub use model::held::{Held, HeldError};
pub use model::oob_info::{OobInfo, OobInfoError};
pub use model::owner::{Owner, Owners, OwnersOfCell};
pub use model::path_info::{PathInfo, PathInfoError};
pub use model::pending_volume::PendingVolume;
pub use model::place_name::{Object, PlaceName, PlaceNameError, VOLUMES};
pub use model::types::{
    Attr, DirEntry, Entry, Handle, Ino, Invalidation, KeepCache, Kind, Lock, LockKind, OpenFlags,
    RenameFlags, SetAttr, StatFs, Who,
};
pub use model::user::{Identity, Stamp, Users};
pub use model::xattr_name;
pub use ops::answers::{Counters, Seen, ServersSeen};
pub use ops::cache::{Acknowledger, Cache};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use storage::journal::fuzz as fuzz_journal;
