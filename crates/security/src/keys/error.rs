//! What may be wrong with keys.

use std::io;
use std::path::{Path, PathBuf};

use crate::kerberos::EncryptionType;

/// Why keys cannot be read, changed or used. Names the file and what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file cannot be read.
    #[error("cannot read keys from {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what a file of keys is.
    #[error("{} {what}", path.display())]
    NoKeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, beginning with a verb.
        what: &'static str,
    },
    /// One key in a file is damaged.
    #[error("key {record} in {} {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which one, counted from 1.
        record: usize,
        /// What is wrong, beginning with a verb.
        what: &'static str,
    },
    /// A changed file cannot be written. The old one is as it was.
    #[error("cannot write keys to {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is such a key already.
    #[error("{} has another key kvno {kvno} of encryption type {etype} already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// The key version number.
        kvno: u32,
        /// The number of the encryption type.
        etype: i32,
    },
    /// There is no such key.
    #[error("{} has no key kvno {kvno} that fits", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The key version number.
        kvno: u32,
    },
    /// A KeyFileExt does not have DES keys, and nobody should make new ones.
    #[error("a key of {0} can be broken in a day")]
    Des(EncryptionType),
    /// A key does not have the length of its type, or the type is not known.
    #[error("a key of {length} bytes of encryption type {etype} cannot open tickets here")]
    Unusable {
        /// The number of the encryption type.
        etype: i32,
        /// The key's bytes.
        length: usize,
    },
    /// There is no key to make tickets with.
    #[error("there is no key to make tickets with in {sources}")]
    NoKey {
        /// The files where keys were looked for.
        sources: String,
    },
    /// A ticket that servers would refuse was asked for.
    #[error("no server would accept a ticket for {what}")]
    NoSuchTicket {
        /// What is wrong about it.
        what: &'static str,
    },
}

/// What is wrong with the content of a file, of which only the caller knows the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// Which key, counted from 1; 0 if it is the file as a whole.
    pub(super) record: usize,
    /// What is wrong, beginning with a verb.
    pub(super) what: &'static str,
}

impl Damage {
    pub(super) fn of(self, path: &Path) -> KeyError {
        let path = path.to_owned();
        let Self { record, what } = self;
        match record {
            0 => KeyError::NoKeyFile { path, what },
            _ => KeyError::Damaged { path, record, what },
        }
    }
}
