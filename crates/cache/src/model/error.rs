//! What requests fail with, in Linux's numbers, and why.

use std::fmt;
use std::io;

use afar_cell::{Error, PathCause};
use afar_types::CellName;
use afar_types::error::{RXKADEXPIRED, errno};

/// Why a cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory cannot be used.
    #[error("the cache in {dir} cannot be opened: {source}")]
    Storage {
        /// The directory.
        dir: String,
        /// Why.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("the cache in {dir} is in use by another mount")]
    InUse {
        /// The directory.
        dir: String,
    },
    /// What is in the directory was written by a newer version.
    #[error(
        "the cache in {dir} is of format {found}, but this version knows formats up to {known}"
    )]
    Newer {
        /// The directory.
        dir: String,
        /// Its format.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// The volume at the root cannot be found.
    #[error("the root volume {volume} of cell {cell} cannot be found")]
    Root {
        /// The cell.
        cell: CellName,
        /// The volume as named.
        volume: String,
        /// Why.
        source: Box<Error>,
    },
}

/// A number by which Linux tells programs what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted to anyone but the owner or an administrator.
    pub const EPERM: Self = Self(errno::EPERM);
    /// No such file or directory.
    pub const ENOENT: Self = Self(errno::ENOENT);
    /// Reading or writing failed.
    pub const EIO: Self = Self(errno::EIO);
    /// A handle that is not open, or not for this.
    pub const EBADF: Self = Self(9);
    /// Not now: try again.
    pub const EAGAIN: Self = Self(errno::EAGAIN);
    /// Waiting would be in vain: the event needs something that the waiter holds.
    pub const EDEADLK: Self = Self(35);
    /// The access list does not allow it.
    pub const EACCES: Self = Self(errno::EACCES);
    /// It exists already.
    pub const EEXIST: Self = Self(errno::EEXIST);
    /// In another directory or volume.
    pub const EXDEV: Self = Self(errno::EXDEV);
    /// No such volume.
    pub const ENODEV: Self = Self(errno::ENODEV);
    /// Not a directory.
    pub const ENOTDIR: Self = Self(errno::ENOTDIR);
    /// A directory.
    pub const EISDIR: Self = Self(errno::EISDIR);
    /// An argument makes no sense.
    pub const EINVAL: Self = Self(errno::EINVAL);
    /// Too many handles are open.
    pub const ENFILE: Self = Self(23);
    /// A file would be too large.
    pub const EFBIG: Self = Self(errno::EFBIG);
    /// No space left.
    pub const ENOSPC: Self = Self(errno::ENOSPC);
    /// It cannot be changed.
    pub const EROFS: Self = Self(errno::EROFS);
    /// A name is too long.
    pub const ENAMETOOLONG: Self = Self(errno::ENAMETOOLONG);
    /// This is not done here.
    pub const ENOSYS: Self = Self(38);
    /// A directory is not empty.
    pub const ENOTEMPTY: Self = Self(39);
    /// Links lead in a circle.
    pub const ELOOP: Self = Self(40);
    /// What a number stood for is not there any more: the name is to be looked up again.
    pub const ESTALE: Self = Self(116);
    /// Something that this follows from was not done.
    pub const ECANCELED: Self = Self(125);
    /// There is no such attribute.
    pub const ENODATA: Self = Self(61);
    /// AFS has no such thing.
    pub const EOPNOTSUPP: Self = Self(95);
    /// No server answered.
    pub const ETIMEDOUT: Self = Self(110);
    /// The user's token has expired.
    pub const EKEYEXPIRED: Self = Self(127);
    /// The quota is used up.
    pub const EDQUOT: Self = Self(errno::EDQUOT);

    /// The number for a failure at a cell. What a server said is translated by
    /// [`afar_types::error::errno_of`]; a server or database that does not answer is ETIMEDOUT, as
    /// AFS clients say it; a token that has expired is EKEYEXPIRED; what does not exist in a cell is ENODEV but for cells themselves, which
    /// are names in a directory; nonsense of any kind is EIO.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        if let Error::Token { code, .. } = error {
            return match *code {
                RXKADEXPIRED => Self::EKEYEXPIRED,
                _ => Self::EACCES,
            };
        }
        if let Some(number) = error.errno() {
            return Self(number);
        }
        match error {
            Error::NoToken { .. } => Self::EACCES,
            Error::UnknownCell { .. } | Error::OutOfReach { .. } => Self::ENOENT,
            Error::NoServers { .. }
            | Error::NoSuchVolume { .. }
            | Error::NoSuchMember { .. }
            | Error::NoSite { .. } => Self::ENODEV,
            Error::VlUnreachable { .. } | Error::Volume { .. } => Self::ETIMEDOUT,
            Error::InDoubt(_) => Self::EIO,
            Error::Text { text, .. } if text.len() > 255 => Self::ENAMETOOLONG,
            Error::Text { .. } | Error::Acl(_) => Self::EINVAL,
            Error::Refused(error) if error.aborted().is_none() => Self::ETIMEDOUT,
            _ => Self::EIO,
        }
    }

    /// Whether what failed so would fail again, whoever answers. Rights are not among these: they come
    /// back with a token.
    pub(crate) fn is_for_good(self) -> bool {
        matches!(
            self,
            Self::EDQUOT | Self::ENOSPC | Self::EROFS | Self::EFBIG | Self::EINVAL
        )
    }

    /// The number for a mount point or cell that cannot be entered.
    #[must_use]
    pub fn of_path(cause: &PathCause) -> Self {
        match cause {
            PathCause::Cell(error) => Self::of(error),
            PathCause::MountPoint(_) => Self::EIO,
            PathCause::NotDirectory => Self::ENOTDIR,
            PathCause::Loop => Self::ELOOP,
            _ => Self::ENOENT,
        }
    }

    /// The number for a failure of the cache's own storage.
    #[must_use]
    pub fn of_storage(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(errno::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}
