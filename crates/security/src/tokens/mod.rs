//! Where users' tokens are kept, and how they are handed to and taken from kernels' AFS clients.
//!
//! - [`Held`]: a token, for which cell, and whose; its bytes are those kernels take
//! - [`Store`]: afar's own places for them: the kernel's keyring, or files
//! - [`openafs`], [`kafs`]: the AFS clients of this machine's kernel, where they are

mod entry;
mod files;
pub mod kafs;
mod keyring;
pub mod openafs;
mod store;
mod sys;

use std::fmt;
use std::path::PathBuf;

pub use entry::{EntryError, Held};
pub use store::{STORE_VARIABLE, Store, StoreError};

/// Where a token was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// In a keyring of the kernel, put there by afar.
    Keyring,
    /// In this file of afar's.
    File(PathBuf),
    /// In OpenAFS's kernel client.
    OpenAfs,
    /// In the keyring, for the kernel's own client kafs.
    Kafs,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keyring => f.write_str("the kernel's keyring"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::OpenAfs => f.write_str("OpenAFS's client"),
            Self::Kafs => f.write_str("kafs"),
        }
    }
}
