//! What can go wrong in a store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use afar_dir::DirError;
use afar_types::{Fid, VnodeId, VolumeId};

use crate::dump::DumpError;
use crate::segment::{ReadError, SegmentError};

/// Why an operation on a store failed. None of them leaves anything half done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No partition of the store has the volume (AFS: VNOVOL).
    #[error("volume {0}: not on this server")]
    NoVolume(VolumeId),
    /// The volume is there but must not be used now (AFS: VOFFLINE).
    #[error("volume {0} is offline")]
    Offline(VolumeId),
    /// A volume of that number is there already (AFS: VVOLEXISTS).
    #[error("volume {0} exists already")]
    VolumeExists(VolumeId),
    /// The vnode is gone, or its number is another file's now (AFS: VNOVNODE).
    #[error("{0}: no such vnode")]
    NoVnode(Fid),
    /// A change to a read-only or backup volume (AFS: EROFS).
    #[error("volume {0} cannot be changed: it is a clone")]
    ReadOnly(VolumeId),
    /// No entry of that name (AFS: ENOENT).
    #[error("no entry {0:?}")]
    NotFound(String),
    /// There is an entry of that name (AFS: EEXIST).
    #[error("entry {0:?} exists already")]
    Exists(String),
    /// The name cannot be one of a directory entry (AFS: EINVAL).
    #[error("{name:?} cannot name an entry: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A directory was needed (AFS: ENOTDIR).
    #[error("vnode {0} is not a directory")]
    NotDirectory(VnodeId),
    /// A directory was not wanted (AFS: EISDIR).
    #[error("vnode {0} is a directory")]
    IsDirectory(VnodeId),
    /// The directory has entries (AFS: EEXIST, as OpenAFS answers).
    #[error("directory {0} is not empty")]
    NotEmpty(VnodeId),
    /// A hard link into another directory, or a linked file moved to one (AFS: EXDEV).
    #[error("vnode {0}: a file with several names has them all in one directory")]
    OtherDirectory(VnodeId),
    /// A directory moved into itself or below (AFS: EINVAL).
    #[error("directory {0} cannot move below itself")]
    Loop(VnodeId),
    /// The directory's pages are full (AFS: EFBIG).
    #[error("directory {0} is full")]
    DirectoryFull(VnodeId),
    /// Past 2^63 - 1 bytes (AFS: EFBIG).
    #[error("a file cannot have {0} bytes: the most is 2^63 - 1")]
    TooBig(u64),
    /// The volume's quota is used up (AFS: VOVERQUOTA).
    #[error("volume {0} is over its quota of {1} KiB")]
    OverQuota(VolumeId, u64),
    /// The partition's disk is full (AFS: VDISKFULL).
    #[error("partition {}: no space left on its disk", .0.display())]
    NoSpace(PathBuf),
    /// The file changed between the start and the end of a write that replaces part of a record.
    #[error("{0}: changed by another writer meanwhile")]
    Conflict(Fid),
    /// What was removed from the volume's group is not all gone; it is in a moment (AFS: VBUSY).
    #[error("volume {0} is busy: removed data of its group is still being freed")]
    Busy(VolumeId),
    /// A clone cannot become the read-write volume while its group has a newer one.
    #[error("volume {0} cannot be made read-write: volume {1} is a newer clone")]
    NewerClone(VolumeId, VolumeId),
    /// It was not set aside, or its number is in use.
    #[error("fid {0} is not one that may be given to something new")]
    NotReserved(Fid),
    /// All vnode numbers of one parity are used.
    #[error("volume {0} has no free vnode number")]
    VnodesExhausted(VolumeId),
    /// A record of file data that cannot be read (AFS: EIO).
    #[error(transparent)]
    Read(Arc<ReadError>),
    /// A segment file that cannot be used.
    #[error(transparent)]
    Segment(Arc<SegmentError>),
    /// The database or a row of it is damaged.
    #[error("partition {}: {what}", .partition.display())]
    Corrupt {
        /// Where the partition is.
        partition: PathBuf,
        /// What was found.
        what: String,
    },
    /// A page of the database is damaged, so it is not read.
    #[error("partition {}: {what}", .partition.display())]
    Damaged {
        /// Where the partition is.
        partition: PathBuf,
        /// The file and the page.
        what: String,
    },
    /// A directory's pages are damaged.
    #[error("directory {vnode}: {source}")]
    Directory {
        /// The directory.
        vnode: VnodeId,
        /// What is wrong with its pages.
        source: DirError,
    },
    /// A dump stream that cannot be restored.
    #[error(transparent)]
    Dump(Arc<DumpError>),
    /// What a dump stream says does not hold together.
    #[error("dump of volume {volume}: {what}")]
    BadDump {
        /// The volume it is of.
        volume: VolumeId,
        /// What is wrong.
        what: String,
    },
    /// The directory is no partition, or one of another format.
    #[error("{}: {why}", .path.display())]
    NotPartition {
        /// The directory.
        path: PathBuf,
        /// What is missing or wrong.
        why: NoPartition,
    },
    /// Another process uses the partition.
    #[error("{}: in use by another process (lock file {})", .path.display(), .path.join("lock").display())]
    Locked {
        /// The partition.
        path: PathBuf,
    },
    /// An option that cannot be.
    #[error("{option} {value} is out of range: {range}")]
    OutOfRange {
        /// The option's name.
        option: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        range: &'static str,
    },
    /// A failed write or sync stopped the partition: what is on the disk is consistent, but
    /// nothing more is accepted until the partition is opened again.
    #[error("partition {}: stopped after a failed write ({why})", .path.display())]
    Stopped {
        /// The partition.
        path: PathBuf,
        /// The first failure.
        why: Arc<str>,
    },
    /// The database failed.
    #[error("partition {}: database: {source}", .path.display())]
    Database {
        /// The partition.
        path: PathBuf,
        /// What it says.
        source: Arc<heed::Error>,
    },
    /// The system failed at something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: Arc<io::Error>,
    },
}

/// Why a directory is no partition that can be used, or cannot become one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoPartition {
    /// Its mark cannot be read, so it is none.
    #[error("not a partition ({0} reading its file \"format\")")]
    Unmarked(Arc<io::Error>),
    /// Its mark is of something else.
    #[error("its file \"format\" does not name a store of afar")]
    Foreign,
    /// It was written by a later version, or by one that is too old.
    #[error("its format is version {found}, but this afar knows versions {oldest} to {newest}")]
    Version {
        /// Its version.
        found: u32,
        /// The oldest that is known.
        oldest: u32,
        /// The newest that is known.
        newest: u32,
    },
    /// It has something in it, so that it cannot become one.
    #[error("not empty (it holds {name:?}): a new partition needs an empty directory")]
    NotEmpty {
        /// What is in it.
        name: String,
        /// Whether that looks like a partition that did not become one.
        interrupted: bool,
    },
    /// What its database is restored from is missing.
    #[error("its meta/base files are missing or damaged")]
    Base,
    /// Its database cannot be restored.
    #[error("its database cannot be restored ({0})")]
    Database(Arc<io::Error>),
    /// Its database is not there.
    #[error("its database is missing or empty")]
    Empty,
}

impl StoreError {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn name_not_found(name: &[u8]) -> Self {
        Self::NotFound(String::from_utf8_lossy(name).into_owned())
    }

    pub(crate) fn name_exists(name: &[u8]) -> Self {
        Self::Exists(String::from_utf8_lossy(name).into_owned())
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        Self::Read(Arc::new(error))
    }
}

impl From<SegmentError> for StoreError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(Arc::new(error))
    }
}

impl From<DumpError> for StoreError {
    fn from(error: DumpError) -> Self {
        Self::Dump(Arc::new(error))
    }
}

/// What operations on a store return.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
