//! What can go wrong with a cell, a volume or a path.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use afar_dir::DirError;
use afar_rpc::{RpcCause, RpcError};
use afar_types::error::errno::{EACCES, ENOENT, EROFS};
use afar_types::error::{VNOVNODE, errno_of};
use afar_types::{AclError, CellName, CellNameError, VolumeType};
use afar_xdr::LengthError;

use crate::dns::DnsError;
use crate::mountpoint::MountPointError;
use crate::refusal::{self, ANONYMOUS};
use crate::room::NoRoom;

/// A cell, volume or file that could not be reached or read. The text says what and why, in one line;
/// what to do next is for the program to say, by the variant.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The CellServDB named cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    CellServDb {
        /// The file.
        path: PathBuf,
        /// Why, in the system's words.
        error: String,
    },
    /// Nobody knows the cell's servers.
    #[error("cell {cell} is not known: it is not in {looked}, and {dns}")]
    UnknownCell {
        /// The cell.
        cell: CellName,
        /// Where it was looked for.
        looked: String,
        /// What DNS said.
        dns: DnsErrorOrOff,
    },
    /// The cell is known and has no servers.
    #[error("cell {cell} has no server in {looked}")]
    NoServers {
        /// The cell.
        cell: CellName,
        /// Where it was looked for.
        looked: String,
    },
    /// The client is for other cells alone.
    #[error("cell {cell} cannot be reached as the administrator of {only}")]
    OutOfReach {
        /// The cell.
        cell: CellName,
        /// Those that can be reached.
        only: String,
    },
    /// No volume location server answered.
    #[error(
        "cell {cell}: none of its {tried} volume location servers answered ({})",
        rpc_text(last)
    )]
    VlUnreachable {
        /// The cell.
        cell: CellName,
        /// Servers tried.
        tried: usize,
        /// What the last one failed with.
        last: Box<RpcError>,
    },
    /// A volume location server refused.
    #[error("cell {cell}: looking up volume {volume} failed: {}", rpc_text(source))]
    Vl {
        /// The cell.
        cell: CellName,
        /// The volume.
        volume: String,
        /// What it said.
        source: Box<RpcError>,
    },
    /// There is no such volume.
    #[error("cell {cell} has no volume {volume}")]
    NoSuchVolume {
        /// The cell.
        cell: CellName,
        /// The volume.
        volume: String,
    },
    /// The volume has no such member.
    #[error("volume {volume} of cell {cell} has no {kind} volume")]
    NoSuchMember {
        /// The cell.
        cell: CellName,
        /// The volume.
        volume: String,
        /// Which one is missing.
        kind: VolumeType,
    },
    /// The database names no server that could be asked.
    #[error("volume {volume} of cell {cell}: {problem}")]
    NoSite {
        /// The cell.
        cell: CellName,
        /// The volume.
        volume: String,
        /// What is wrong with the entry.
        problem: String,
    },
    /// Every file server that has the volume failed.
    #[error("volume {volume} of cell {cell}: {}{}", rpc_text(last), others_failed(last, *tried))]
    Volume {
        /// The cell.
        cell: CellName,
        /// The volume.
        volume: String,
        /// Servers tried.
        tried: usize,
        /// What the last one failed with.
        last: Box<RpcError>,
    },
    /// The file server refused or answered nonsense.
    #[error("{}", rpc_text(.0))]
    Refused(Box<RpcError>),
    /// The file server says that the caller has no right to this.
    #[error("permission denied to {who}{}", rights_of(who))]
    Denied {
        /// As whom it was tried.
        who: Arc<str>,
        /// What the server said.
        source: Box<RpcError>,
    },
    /// Servers do not take the token, and there is no newer one.
    #[error(
        "cell {cell}: its servers refuse the token of {who}: {}",
        refusal::problem(*code, until.as_deref())
    )]
    Token {
        /// The cell.
        cell: CellName,
        /// Whose token it is.
        who: Arc<str>,
        /// When it expires or has expired.
        until: Option<Arc<str>>,
        /// What servers say of it.
        code: i32,
    },
    /// There is no token for the cell, and the client is not to be anonymous.
    #[error("cell {cell}: {problem}")]
    NoToken {
        /// The cell.
        cell: CellName,
        /// Why there is none.
        problem: String,
    },
    /// The file does not exist any more.
    #[error("it no longer exists")]
    Gone,
    /// A volume that cannot be changed was to be changed.
    #[error("volume {volume} of cell {cell} is a {kind} volume and cannot be changed")]
    ReadOnly {
        /// The cell.
        cell: CellName,
        /// The volume.
        volume: String,
        /// Which one it is.
        kind: VolumeType,
    },
    /// A volume has no room for something.
    #[error("{0}")]
    NoRoom(Box<NoRoom>),
    /// A server did not answer, nor later tell, whether it has done something.
    #[error("{0}; the change may have been made")]
    InDoubt(Box<Self>),
    /// A name or text that AFS cannot hold.
    #[error("{what} {text:?} cannot be used in AFS: {problem}")]
    Text {
        /// What it is for.
        what: &'static str,
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: LengthError,
    },
    /// An access control list makes no sense, or is too long.
    #[error(transparent)]
    Acl(#[from] AclError),
    /// A directory cannot be read.
    #[error("the directory is damaged: {0}")]
    Directory(#[from] DirError),
    /// The file changes faster than it can be read.
    #[error("the file changed {0} times while it was being read")]
    Changing(u32),
    /// What was read cannot be written to where it should go.
    #[error("cannot write: {0}")]
    Sink(String),
    /// What is to be stored cannot be read.
    #[error("cannot read: {0}")]
    Source(String),
    /// A reply makes no sense.
    #[error("the file server's answer is invalid: {0}")]
    Nonsense(&'static str),
}

/// What DNS said of a cell, or that it was not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DnsErrorOrOff {
    /// What DNS said.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// It was not to be asked.
    #[error("DNS was not asked")]
    Off,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Sink(error.to_string())
    }
}

impl Error {
    /// The AFS code behind it, if a server gave one.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::VlUnreachable { last, .. }
            | Self::Volume { last, .. }
            | Self::Vl { source: last, .. } => Some(last.code().0),
            Self::Refused(error) | Self::Denied { source: error, .. } => Some(error.code().0),
            Self::Token { code, .. } => Some(*code),
            Self::InDoubt(error) => error.code(),
            _ => None,
        }
    }

    /// The `errno` of Linux that a program would be told.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Gone => Some(ENOENT),
            Self::ReadOnly { .. } => Some(EROFS),
            Self::NoRoom(found) => Some(found.errno()),
            _ => self.code().and_then(errno_of),
        }
    }

    /// What has happened, if other files of the volume, the server or the cell meet the same: two errors
    /// with the same answer need not be told twice.
    #[must_use]
    pub fn event(&self) -> Option<String> {
        match self {
            Self::NoRoom(found) => Some(format!("{} {} is full", found.cell, found.volume)),
            Self::Refused(error) if error.aborted().is_none() => Some(self.to_string()),
            Self::InDoubt(error) => error.event(),
            Self::CellServDb { .. }
            | Self::UnknownCell { .. }
            | Self::NoServers { .. }
            | Self::OutOfReach { .. }
            | Self::VlUnreachable { .. }
            | Self::Vl { .. }
            | Self::NoSuchVolume { .. }
            | Self::NoSuchMember { .. }
            | Self::NoSite { .. }
            | Self::Volume { .. }
            | Self::Token { .. }
            | Self::NoToken { .. }
            | Self::ReadOnly { .. } => Some(self.to_string()),
            _ => None,
        }
    }

    /// Whether the server refused for lack of rights.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.code().and_then(errno_of) == Some(EACCES)
    }

    /// An error of a file server about a file, as far as it needs no other server, to a client
    /// called so.
    pub(crate) fn refused(error: RpcError, who: Arc<str>) -> Self {
        let code = error.code().0;
        if code == VNOVNODE || errno_of(code) == Some(ENOENT) {
            Self::Gone
        } else if error.aborted().is_some() && errno_of(code) == Some(EACCES) {
            Self::Denied {
                who,
                source: Box::new(error),
            }
        } else {
            Self::Refused(Box::new(error))
        }
    }
}

/// What an RPC failed with and whom it went to, without its name: users care little for it.
fn rpc_text(error: &RpcError) -> String {
    match &error.cause {
        RpcCause::Call(call) if error.aborted().is_none() => format!("{} at {}", call, error.peer),
        cause if error.aborted().and_then(|code| errno_of(code.0)) == Some(EACCES) => {
            let _ = cause;
            "permission denied".to_owned()
        }
        cause => format!("{cause}, said {}", error.peer),
    }
}

/// Which rights count for a client without a token.
fn rights_of(who: &str) -> &'static str {
    match who {
        ANONYMOUS => ": without a token only the rights of system:anyuser count",
        _ => "",
    }
}

/// That no other server answered either.
fn others_failed(last: &RpcError, tried: usize) -> String {
    match last.aborted() {
        None if tried > 1 => format!("; all {tried} of its servers failed"),
        _ => String::new(),
    }
}

/// A path that could not be followed, and why.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct PathError {
    /// The path as far as it matters.
    pub path: String,
    /// Why.
    pub cause: PathCause,
}

/// Why a path could not be followed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PathCause {
    /// It does not start with `/afs`.
    #[error("not in AFS")]
    NotAfs,
    /// The second part is no cell's name.
    #[error(transparent)]
    CellName(#[from] CellNameError),
    /// There is no such entry.
    #[error("no such file or directory")]
    NotFound,
    /// `@sys` has no entry for any sysname.
    #[error("no such file or directory, tried for @sys: {0}")]
    NoSysname(String),
    /// Something in the middle is no directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory, where a file is needed.
    #[error("is a directory")]
    IsDirectory,
    /// `.` or `..`, or nothing, where the name of an entry is needed.
    #[error("does not end in a name")]
    NoName,
    /// The root of a cell, or `/afs`, where an entry of a directory is needed.
    #[error("is the root of a cell, which is in no directory")]
    CellRoot,
    /// Too many symlinks.
    #[error("too many levels of symbolic links; one of them leads back to itself")]
    Loop,
    /// A symlink leads to another file system.
    #[error("a symbolic link leads out of AFS, to {0}")]
    OutsideAfs(String),
    /// A mount point whose text makes no sense.
    #[error(transparent)]
    MountPoint(#[from] MountPointError),
    /// A server or the network failed.
    #[error(transparent)]
    Cell(#[from] Error),
}

impl PathError {
    pub(crate) fn new(path: &[u8], cause: impl Into<PathCause>) -> Self {
        Self {
            path: String::from_utf8_lossy(path).into_owned(),
            cause: cause.into(),
        }
    }
}
