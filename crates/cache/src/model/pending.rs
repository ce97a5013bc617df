//! A change that was made here, and that its server does not have yet.

use std::sync::Arc;

use afar_types::{BatchChange, BatchOperation, Fid, VolumeId};
use tokio::time::Instant;

use crate::model::vnode::Vnode;

/// A change that was made here, and that its server does not have yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Counts up, in the order in which changes are made.
    pub(crate) number: u64,
    /// The user of this machine who made it.
    pub(crate) user: u32,
    pub(crate) change: BatchChange,
    /// What it changes. Until the server has it, nobody can learn of that from the server, so it stays in memory.
    pub(crate) touched: Vec<Arc<Vnode>>,
    /// What it makes, under a fid of our reserve.
    pub(crate) makes: Option<Arc<Vnode>>,
    /// What is gone with it.
    pub(crate) removes: Option<Fid>,
    /// Bytes of its data.
    pub(crate) bytes: usize,
    pub(crate) made: Instant,
    /// A lease under which it was made is over: the server makes it only if nobody has changed anything since.
    // spec: leases#late-changes
    pub(crate) late: bool,
}

/// A batch that an earlier process has sent, of the first changes that wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentBefore {
    pub(crate) series: [u8; 16],
    pub(crate) number: u64,
    /// How many changes are in it.
    pub(crate) changes: usize,
}

impl Pending {
    /// Whether it was made under a lease of this.
    pub(crate) fn is_under(&self, fid: Fid) -> bool {
        let mut under = self.change.under.iter();
        under.any(|under| under.vnode.fid(fid.volume) == fid)
    }

    /// What the log calls it.
    pub(crate) fn verb(&self) -> &'static str {
        match &self.change.operation {
            BatchOperation::Create(_) => "create",
            BatchOperation::MakeDir(_) => "mkdir",
            BatchOperation::Symlink(..) => "symlink",
            BatchOperation::Link { .. } => "link",
            BatchOperation::RemoveFile { .. } => "unlink",
            BatchOperation::RemoveDir { .. } => "rmdir",
            BatchOperation::Rename { .. } => "rename",
            BatchOperation::StoreStatus { .. } => "setattr",
            BatchOperation::StoreData { .. } => "store",
        }
    }

    /// The file that it is of, or the directory in which its name is.
    pub(crate) fn about(&self, volume: VolumeId) -> Fid {
        let vnode = match &self.change.operation {
            BatchOperation::Create(make)
            | BatchOperation::MakeDir(make)
            | BatchOperation::Symlink(make, _) => make.directory,
            BatchOperation::Link { directory, .. }
            | BatchOperation::RemoveFile { directory, .. }
            | BatchOperation::RemoveDir { directory, .. } => *directory,
            BatchOperation::Rename { new_directory, .. } => *new_directory,
            BatchOperation::StoreStatus { target, .. }
            | BatchOperation::StoreData { target, .. } => *target,
        };
        vnode.fid(volume)
    }

    /// The name that it makes, moves or removes; empty if it is of none.
    pub(crate) fn name(&self) -> &[u8] {
        match &self.change.operation {
            BatchOperation::Create(make)
            | BatchOperation::MakeDir(make)
            | BatchOperation::Symlink(make, _) => make.name.as_bytes(),
            BatchOperation::Link { name, .. }
            | BatchOperation::RemoveFile { name, .. }
            | BatchOperation::RemoveDir { name, .. } => name.as_bytes(),
            BatchOperation::Rename { new_name, .. } => new_name.as_bytes(),
            BatchOperation::StoreStatus { .. } | BatchOperation::StoreData { .. } => &[],
        }
    }
}
