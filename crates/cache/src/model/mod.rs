//! What the cache is made of: types and what they do by themselves. Nothing here asks a server, waits or
//! reaches a disk.
//!
//! - `types`: what requests and answers are made of; `error`: what they fail with
//! - `key`: names a file; `ranges`: octets of it; `xattr_name`: names by which a mount is looked at

pub(crate) mod error;
pub(crate) mod key;
pub(crate) mod ranges;
pub(crate) mod types;
pub mod xattr_name;
