//! The keys of a cell: in which files they are, and finding them.
//!
//! - [`KeyRing`]: the keys a server has at hand
//! - [`edit`]: changing a KeyFileExt
//!
//! Three kinds of files are read: KeyFileExt of OpenAFS 1.8 and later, the keytab of a KDC's
//! administrator, and the KeyFile of DES keys.

pub mod edit;
mod error;
mod keyfile;
mod keytab;
mod ring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use des::Des;
use des::cipher::{Block, BlockEncrypt, KeyInit};
use sha2::{Digest, Sha256};

use crate::kerberos::{EncryptionKey, EncryptionType, Secret};
use crate::reload;

pub use error::KeyError;
pub use ring::KeyRing;

/// A key of the cell, with the number by which tickets name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key version number.
    pub kvno: u32,
    /// The key and its encryption type.
    pub key: EncryptionKey,
}

/// What a key of a KeyFileExt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// Tickets of single DES.
    Rxkad,
    /// rxgk's tokens.
    Rxgk,
    /// Tickets of any other encryption type.
    RxkadKrb5,
    /// Something newer, by its number.
    Other(u32),
}

impl KeyKind {
    const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Rxkad,
            1 => Self::Rxgk,
            2 => Self::RxkadKrb5,
            other => Self::Other(other),
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Rxkad => 0,
            Self::Rxgk => 1,
            Self::RxkadKrb5 => 2,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for KeyKind {
    /// As `asetkey` calls them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rxkad => f.write_str("rxkad"),
            Self::Rxgk => f.write_str("rxgk"),
            Self::RxkadKrb5 => f.write_str("rxkad_krb5"),
            Self::Other(number) => write!(f, "type {number}"),
        }
    }
}

/// What may be told about a key: everything but the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// What it is for.
    pub kind: KeyKind,
    /// The key version number.
    pub kvno: u32,
    /// The number of its encryption type; 0 of DES keys in a KeyFile.
    pub etype: i32,
    /// The file it is in; empty if it is in none.
    pub source: PathBuf,
    /// By which two keys can be compared without showing them: of DES keys as OpenAFS's `bos listkeys` has
    /// it, of others the first four bytes of their SHA-256.
    pub checksum: u32,
}

impl KeyInfo {
    fn of(record: &Record, source: &Path) -> Self {
        Self {
            kind: record.kind,
            kvno: record.kvno,
            etype: record.etype,
            source: source.to_owned(),
            checksum: record.checksum(),
        }
    }

    /// Whether tickets made with this key can be opened, where DES is allowed if it is DES.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        match self.kind {
            KeyKind::Rxkad => true,
            KeyKind::RxkadKrb5 => EncryptionType::from_number(self.etype).is_some(),
            // spec: security#rxgk
            KeyKind::Rxgk | KeyKind::Other(_) => false,
        }
    }
}

impl fmt::Display for KeyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind, kvno, etype, ..
        } = self;
        match (kind, EncryptionType::from_number(*etype)) {
            (KeyKind::Rxkad, _) => write!(f, "{kind} kvno {kvno}: single DES"),
            (_, Some(known)) => write!(f, "{kind} kvno {kvno}: {known}"),
            (_, None) => write!(f, "{kind} kvno {kvno}: encryption type {etype}"),
        }
    }
}

/// A key as it stands in a file.
#[derive(Clone, PartialEq, Eq)]
struct Record {
    kind: KeyKind,
    kvno: u32,
    etype: i32,
    octets: Secret,
}

impl Record {
    /// The record of a key for tickets.
    fn of(key: &Key) -> Self {
        let etype = key.key.etype();
        let des = EncryptionType::from_number(etype).is_some_and(EncryptionType::is_des);
        Self {
            kind: if des {
                KeyKind::Rxkad
            } else {
                KeyKind::RxkadKrb5
            },
            kvno: key.kvno,
            etype: if des { 0 } else { etype },
            octets: Secret::new(key.key.octets().to_vec()),
        }
    }

    /// See [`KeyInfo::checksum`].
    fn checksum(&self) -> u32 {
        let start = match self.kind {
            KeyKind::Rxkad => des_checksum(&self.octets),
            _ => Sha256::digest(&self.octets[..]).first_chunk().copied(),
        };
        start.map_or(0, u32::from_be_bytes)
    }

    /// What tells keys of a file apart.
    const fn id(&self) -> (KeyKind, u32, i32) {
        (self.kind, self.kvno, self.etype)
    }

    /// The key, taken for this encryption type.
    fn key(&self, etype: i32) -> Key {
        Key {
            kvno: self.kvno,
            key: EncryptionKey::new(etype, self.octets.to_vec()),
        }
    }
}

/// The start of a block of zeros under this key.
fn des_checksum(key: &[u8]) -> Option<[u8; 4]> {
    let mut block = Block::<Des>::default();
    Des::new_from_slice(key).ok()?.encrypt_block(&mut block);
    block.first_chunk().copied()
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Record({}, {}, {}, ..)",
            self.kind, self.kvno, self.etype
        )
    }
}

/// Reads the keys of a file of any kind: a keytab by how it begins, a KeyFile by its name,
/// otherwise a KeyFileExt. Warns of one that others may read.
fn read(path: &Path) -> Result<Vec<Record>, KeyError> {
    let (content, metadata) = reload::read(path).map_err(|source| KeyError::Read {
        path: path.to_owned(),
        source,
    })?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format_args!("{mode:o}"),
            "users other than its owner may read or change the cell's keys; run chmod 600 on it"
        );
    }
    let parsed = if keytab::is(&content) {
        keytab::parse(&content)
    } else if path.file_name().is_some_and(|name| name == "KeyFile") {
        keyfile::parse_des(&content)
    } else {
        keyfile::parse_ext(&content)
    };
    parsed.map_err(|damage| damage.of(path))
}

/// Reads numbers and bytes from the front of a file's content.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// As many bytes as the 32 bits in front of them say.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }

    /// As many bytes as the 16 bits in front of them say.
    fn counted_short(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }
}
