//! Caches of Kerberos tickets in files (`FILE:`, version 4 of MIT's format), read and written
//! without Kerberos's library: so that a ticket for AFS is found where the library is missing, and
//! one that was minted without a KDC is found by `aklog` and other programs.

mod format;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::kerberos::EncryptionKey;
use crate::{Token, kvno, ticket};

pub use format::FormatError;

/// Bytes of the largest cache that is read. Hundreds of the largest tickets fit.
const CACHE_MAX: u64 = 4 << 20;

/// The name of a user or a service as Kerberos has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Its parts: `afs` and `example.org`.
    pub components: Vec<String>,
    /// The realm.
    pub realm: String,
}

/// A ticket with its session's key, as a cache has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Whose it is.
    pub client: Name,
    /// For which service.
    pub server: Name,
    /// The key of the session.
    pub key: EncryptionKey,
    /// When the user proved to be that, in seconds since 1970.
    pub authenticated: u32,
    /// From when on it holds; 0 means since then.
    pub start: u32,
    /// When it expires.
    pub end: u32,
    /// Until when it can be renewed; 0 if it cannot.
    pub renew_till: u32,
    /// The flags of the ticket.
    pub flags: u32,
    /// The ticket (RFC 4120, DER).
    pub ticket: Bytes,
}

/// What is in a cache: whose it is, and the tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ccache {
    /// Whose it is.
    pub principal: Name,
    /// The tickets. What programs note in caches besides is left out.
    pub credentials: Vec<Credential>,
}

/// A cache that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CcacheError {
    /// The system says so.
    #[error("cannot use the ticket cache {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another user could have put tickets into it.
    #[error("the ticket cache {} belongs to another user, or is no file", .0.display())]
    Foreign(PathBuf),
    /// It is no cache, or damaged.
    #[error("{} is no ticket cache of version 4: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// It is another user's, as Kerberos knows users.
    #[error(
        "the ticket cache {} is {found}'s, and a ticket of {wanted}'s cannot go into it",
        path.display()
    )]
    OtherUser {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: Name,
        /// Whose ticket was to go there.
        wanted: Name,
    },
}

impl Name {
    /// `name`, `name/instance` or more, and the realm.
    #[must_use]
    pub fn new(components: &[&str], realm: &str) -> Self {
        Self {
            components: components.iter().map(|&part| part.to_owned()).collect(),
            realm: realm.to_owned(),
        }
    }

    /// Whether this is the service of a cell: `afs/CELL` or, of a realm called like it, `afs`.
    fn is_afs(&self, cell: &str) -> bool {
        match &self.components[..] {
            [afs, instance] => afs == "afs" && instance == cell,
            [afs] => afs == "afs" && self.realm.eq_ignore_ascii_case(cell),
            _ => false,
        }
    }
}

/// `afs/example.org@EXAMPLE.ORG`
impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.components.join("/"), self.realm)
    }
}

impl Credential {
    /// The token of rxkad it makes; `None` if its key is of a type that makes none.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        Some(Token {
            kvno: kvno::K5,
            key: ticket::session_key(&self.key)?,
            ticket: self.ticket.clone(),
            start: if self.start == 0 {
                self.authenticated
            } else {
                self.start
            },
            end: self.end,
        })
    }
}

impl Ccache {
    /// The file that a cache's name stands for: `FILE:/tmp/krb5cc_0` or only a path. Other kinds
    /// have none.
    #[must_use]
    pub fn path_of(name: &str) -> Option<&Path> {
        let path = name.strip_prefix("FILE:").unwrap_or(name);
        let plain = path.starts_with('/') || !path.contains(':');
        plain.then(|| Path::new(path))
    }

    /// Reads a cache.
    ///
    /// # Errors
    /// When it is not there, not ours or no cache.
    pub fn read(path: &Path) -> Result<Self, CcacheError> {
        let own = geteuid();
        let ours = |uid: u32| uid == own.as_raw() || own.is_root();
        Self::read_if(path, libc::O_NONBLOCK, ours)
    }

    /// Reads the cache of a user of this machine, who may have put something else in its place to
    /// have it read: a file of others is [`Foreign`](CcacheError::Foreign), a link not followed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_of_user(path: &Path, uid: u32) -> Result<Self, CcacheError> {
        Self::read_if(path, libc::O_NONBLOCK | libc::O_NOFOLLOW, |owner| {
            owner == uid
        })
    }

    fn read_if(
        path: &Path,
        flags: i32,
        may_own: impl Fn(u32) -> bool,
    ) -> Result<Self, CcacheError> {
        let failed = |source| CcacheError::File {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() || !may_own(found.uid()) {
            return Err(CcacheError::Foreign(path.to_owned()));
        }
        let length = usize::try_from(found.len().min(CACHE_MAX)).unwrap_or(0);
        let mut octets = Zeroizing::new(Vec::with_capacity(length));
        file.take(CACHE_MAX)
            .read_to_end(&mut octets)
            .map_err(failed)?;
        Self::from_octets(&octets).map_err(|source| CcacheError::Format {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads what is in a cache's file.
    ///
    /// # Errors
    /// When it is none of version 4, or damaged.
    pub fn from_octets(octets: &[u8]) -> Result<Self, FormatError> {
        format::read(octets)
    }

    /// What is in its file.
    #[must_use]
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        format::write(self)
    }

    /// The ticket for a cell that holds longest from `now` on.
    #[must_use]
    pub fn for_cell(&self, cell: &str, now: SystemTime) -> Option<&Credential> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        let fitting = self
            .credentials
            .iter()
            .filter(|credential| credential.server.is_afs(cell) && u64::from(credential.end) > now);
        fitting.max_by_key(|credential| credential.end)
    }

    /// Puts a ticket into a cache's file, which is made if it is missing, in place of the one of the
    /// same service. Others read either the old cache or the new one.
    ///
    /// # Errors
    /// When the file is another user's cache, no cache, or cannot be written.
    pub fn store(path: &Path, credential: &Credential) -> Result<(), CcacheError> {
        let mut cache = match Self::read(path) {
            Ok(cache) => cache,
            Err(CcacheError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self {
                    principal: credential.client.clone(),
                    credentials: Vec::new(),
                }
            }
            Err(error) => return Err(error),
        };
        if cache.principal != credential.client {
            return Err(CcacheError::OtherUser {
                path: path.to_owned(),
                found: cache.principal,
                wanted: credential.client.clone(),
            });
        }
        let other = |kept: &Credential| kept.server != credential.server;
        cache.credentials.retain(other);
        cache.credentials.push(credential.clone());
        write(path, &cache.to_octets()).map_err(|source| CcacheError::File {
            path: path.to_owned(),
            source,
        })
    }
}

/// Replaces a file by one that only its owner may read.
fn write(path: &Path, octets: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let random = u64::from_ne_bytes(*crate::random::octets());
    let unfinished = path.with_file_name(format!("{}.{random:016x}", name.to_string_lossy()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    let written = file
        .write_all(octets)
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // What is left of it is of no use; the first error says why.
        let _removed = fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests;
