//! What the cache is made of: types and what they do by themselves. Nothing here asks a server, waits or
//! reaches a disk.
//!
//! - `types`: what requests and answers are made of; `error`: what they fail with; `config`: settings
//! - `key`: names a file; `ranges`: bytes of it; `place_name`, `xattr_name`: names of files and of attributes;
//!   `held`: what is there of a file; `path_info`, `oob_info`: what is told of a path, and of data out of band
//! - `user`, `owner`: users of this machine, and who they are to cells
//! - `vnode`: what is known of a file, which is made of `brief`, `promise`, `rights`, `numbers`, `directory`, `dirty`,
//!   `flight` and `locks`
//! - `pending`: a change that its server does not have yet; `boot`: the time that leases count
//! - `changes_here`, `pending_volume`: what is told of such changes; `conflict`: one that its server did not make
//! - `place`: how a file is reached; `ahead`: how it is read; `order`: how a directory is gone through; `budget`: how
//!   much is prefetched

pub(crate) mod ahead;
pub(crate) mod boot;
pub(crate) mod brief;
pub(crate) mod budget;
pub(crate) mod changes_here;
pub(crate) mod config;
pub(crate) mod conflict;
pub(crate) mod directory;
pub(crate) mod dirty;
pub(crate) mod error;
pub(crate) mod flight;
pub(crate) mod held;
pub(crate) mod key;
pub(crate) mod locks;
pub(crate) mod numbers;
pub(crate) mod oob_info;
pub(crate) mod order;
pub(crate) mod owner;
pub(crate) mod path_info;
pub(crate) mod pending;
pub(crate) mod pending_volume;
pub(crate) mod place;
pub(crate) mod place_name;
pub(crate) mod promise;
pub(crate) mod ranges;
pub(crate) mod rights;
pub(crate) mod types;
pub(crate) mod user;
pub(crate) mod vnode;
pub mod xattr_name;
