//! Batches: many changes of one volume in one call. AFS-3 has nothing of the kind.
//!
//! What goes over the wire is in `docs/protocol/batches.md`.
// spec: batches#operations

use afar_xdr::{Decode, Encode, List, Opaque, XdrString};

use crate::{
    CallBack, FetchStatus, Fid, FileName, StoreStatus, Uniquifier, UnixTime, VnodeId, VolumeId,
};

/// The most operations of a batch.
pub const BATCH_OPERATIONS: usize = 2048;
/// The most bytes of a batch's operations, with the data of files.
pub const BATCH_BYTES: usize = 4 << 20;
/// The most vnodes an operation changes and is told of: a rename's directories, and what it moves and replaces.
const TOLD: usize = 4;
/// The most leases a change is made under: those of the vnodes it changes.
const CONDITIONS: usize = 4;

/// A vnode of the batch's volume, or what an earlier operation of the same batch made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct BatchVnode {
    /// The vnode; 0 stands for what an operation made.
    pub vnode: VnodeId,
    /// Its uniquifier, or the place of that operation in the batch, from 0.
    pub uniquifier: Uniquifier,
}

impl BatchVnode {
    /// What the operation at this place makes.
    #[must_use]
    pub const fn made_by(place: u32) -> Self {
        Self {
            vnode: VnodeId(0),
            uniquifier: Uniquifier(place),
        }
    }

    /// The place of the operation that makes it; `None` if it was there before.
    #[must_use]
    pub const fn maker(self) -> Option<u32> {
        match self.vnode.0 {
            0 => Some(self.uniquifier.0),
            _ => None,
        }
    }

    /// The fid it is in this volume, if it was there before.
    #[must_use]
    pub const fn fid(self, volume: VolumeId) -> Fid {
        Fid {
            volume,
            vnode: self.vnode,
            uniquifier: self.uniquifier,
        }
    }
}

impl From<Fid> for BatchVnode {
    fn from(fid: Fid) -> Self {
        Self {
            vnode: fid.vnode,
            uniquifier: fid.uniquifier,
        }
    }
}

/// A change. Each does what the single operation of RXAFS with its name does.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum BatchOperation {
    /// CreateFile.
    #[xdr(case = 1)]
    Create(BatchMake),
    /// MakeDir.
    #[xdr(case = 2)]
    MakeDir(BatchMake),
    /// Symlink.
    #[xdr(case = 3)]
    Symlink(BatchMake, XdrString<1024>),
    /// Link.
    #[xdr(case = 4)]
    Link {
        /// Where the new name is to be.
        directory: BatchVnode,
        /// The new name.
        name: FileName,
        /// The file.
        existing: BatchVnode,
    },
    /// RemoveFile.
    #[xdr(case = 5)]
    RemoveFile {
        /// Where the name is.
        directory: BatchVnode,
        /// The name.
        name: FileName,
    },
    /// RemoveDir.
    #[xdr(case = 6)]
    RemoveDir {
        /// Where the name is.
        directory: BatchVnode,
        /// The name.
        name: FileName,
    },
    /// Rename.
    #[xdr(case = 7)]
    Rename {
        /// Where the name is.
        old_directory: BatchVnode,
        /// The name.
        old_name: FileName,
        /// Where it is to be.
        new_directory: BatchVnode,
        /// What it is to be.
        new_name: FileName,
    },
    /// StoreStatus.
    #[xdr(case = 8)]
    StoreStatus {
        /// What gets the attributes.
        target: BatchVnode,
        /// The attributes.
        attributes: StoreStatus,
    },
    /// StoreData64 of all data of a file, which has nothing else afterwards.
    #[xdr(case = 9)]
    StoreData {
        /// The file.
        target: BatchVnode,
        /// What goes with the data.
        attributes: StoreStatus,
        /// The data.
        data: Opaque<BATCH_BYTES>,
    },
}

/// What is made, and where.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BatchMake {
    /// The directory.
    pub directory: BatchVnode,
    /// The new name.
    pub name: FileName,
    /// Its attributes.
    pub attributes: StoreStatus,
    /// The fid it is to have, of those that the client has in reserve; zeros if the server chooses.
    // spec: leases#birth
    pub wanted: BatchVnode,
}

impl BatchOperation {
    /// Whether it makes a vnode that others can name.
    #[must_use]
    pub const fn makes(&self) -> bool {
        matches!(self, Self::Create(_) | Self::MakeDir(_) | Self::Symlink(..))
    }

    /// The vnodes it names.
    #[must_use]
    pub fn vnodes(&self) -> [Option<BatchVnode>; 2] {
        match self {
            Self::Create(make) | Self::MakeDir(make) | Self::Symlink(make, _) => {
                [Some(make.directory), None]
            }
            Self::Link {
                directory,
                existing,
                ..
            } => [Some(*directory), Some(*existing)],
            Self::RemoveFile { directory, .. } | Self::RemoveDir { directory, .. } => {
                [Some(*directory), None]
            }
            Self::Rename {
                old_directory,
                new_directory,
                ..
            } => [Some(*old_directory), Some(*new_directory)],
            Self::StoreStatus { target, .. } | Self::StoreData { target, .. } => {
                [Some(*target), None]
            }
        }
    }
}

/// What a change was made under.
// spec: leases#late-changes
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BatchCondition {
    /// What is leased: a vnode with a fid of its own.
    pub vnode: BatchVnode,
    /// The number of its lease.
    pub lease: u64,
    /// The data version it must have if that lease is over.
    pub version: u64,
}

/// A change, and the leases under which the client has made it. Without any it is made as by a single call.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BatchChange {
    /// The change.
    pub operation: BatchOperation,
    /// The leases.
    pub under: List<BatchCondition, CONDITIONS>,
    /// When the client has made it, by its clock; 0 if that is when the server does.
    pub made: UnixTime,
}

impl From<BatchOperation> for BatchChange {
    fn from(operation: BatchOperation) -> Self {
        Self {
            operation,
            under: List::default(),
            made: UnixTime(0),
        }
    }
}

/// The changes of a batch, in their order.
pub type BatchChanges = List<BatchChange, BATCH_OPERATIONS>;

/// What came of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct BatchResult {
    /// 0, or the code that the single call would have been aborted with.
    pub code: i32,
    /// What was made; zeros if nothing was.
    pub made: BatchVnode,
}

/// A vnode after the batch, and the promise that comes with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BatchStatus {
    /// The vnode.
    pub vnode: BatchVnode,
    /// Its status.
    pub status: FetchStatus,
    /// The promise.
    pub callback: CallBack,
}

/// What came of each operation.
pub type BatchResults = List<BatchResult, BATCH_OPERATIONS>;
/// What the vnodes that a batch changed are now.
pub type BatchStatuses = List<BatchStatus, { BATCH_OPERATIONS * TOLD }>;
