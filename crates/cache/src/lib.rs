//! The cache manager: what a machine knows of AFS files, kept coherent by callbacks.
//!
//! A [`Cache`] has one method for each request of a kernel's file system interface, and knows
//! nothing of how these come in. A name or status is used only while a file server's promise to tell
//! of changes holds; data is used only for the version that the status tells. What is written is kept
//! beside the version it was written to, and stored when the file is closed.
//!
//! - `inodes`, `mount`: numbers for the kernel; volumes as they are reached through mount points;
//!   `place_name`: and without, by their names and numbers
//! - `vnode`, `vnodes`: what is known of each file; all that are in memory
//! - `status`, `breaks`: statuses and promises; promises that are broken
//! - `names`, `listing`, `entries`, `edit`: directories looked up, read and changed; `pages`: how many of them are in
//!   memory; `walk`: those that are read before they are asked for
//! - `data`: files read, read ahead, written and stored; `storage`, `disk`: where data is kept; `held`: what
//!   others on this machine are told of that
//! - `recover`: what an earlier process wrote and could not store
//! - `users`: who asks, and who that is to cells
//! - `attributes`, `access`, `xattr`, `lock`: what else there is to ask; `xattr_name`: by which names
//! - `watch`: servers that nobody talks to; `control`: what is changed while it is in use

mod access;
mod attributes;
mod cache;
mod changing;
mod control;
mod data;
mod entries;
mod held;
mod listing;
mod lock;
mod model;
mod mounts;
mod names;
mod places;
mod recover;
mod status;
mod storage;
mod table;
mod unvisited;
mod watch;
mod xattr;

pub use afar_cell::Class;
pub use cache::{Acknowledger, Cache};
pub use model::config::{CacheConfig, Root};
pub use model::error::{CacheError, Errno};
pub use model::held::{Held, HeldError};
pub use model::owner::{Owner, Owners, OwnersOfCell};
pub use model::place_name::{Object, PlaceName, PlaceNameError, VOLUMES};
pub use model::types::{
    Attr, DirEntry, Entry, Handle, Ino, Invalidation, KeepCache, Kind, Lock, LockKind, OpenFlags,
    RenameFlags, SetAttr, StatFs, Who,
};
pub use model::user::{Identity, Stamp, Users};
pub use model::xattr_name;
