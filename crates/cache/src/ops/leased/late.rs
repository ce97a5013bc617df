//! Changes that are sent after a lease they were made under is over.
//!
//! The server makes them only if each vnode still has the version that it had here. What was made under a fid of the
//! reserve gets another one, and what follows names that.
// spec: leases#late-changes

use std::collections::BTreeMap;

use afar_types::{BatchChange, BatchCondition, BatchMake, BatchOperation, BatchVnode, Fid};
use afar_xdr::List;

use crate::model::pending::Pending;

/// The fids of what was made again.
#[derive(Debug, Default)]
pub(super) struct Reborn {
    /// Those that the server has told.
    known: BTreeMap<BatchVnode, BatchVnode>,
    /// The places of those that the batch makes which is put together.
    here: BTreeMap<BatchVnode, u32>,
    place: u32,
}

impl Reborn {
    /// Another batch is put together.
    pub(super) fn begin(&mut self) {
        self.here.clear();
        self.place = 0;
    }

    /// One more change is in the batch.
    pub(super) fn count(&mut self) {
        self.place += 1;
    }

    /// The server has made again what was made here under this fid.
    pub(super) fn made(&mut self, old: Fid, new: Fid) {
        self.known.insert(old.into(), new.into());
    }

    /// What a vnode is called now.
    fn name(&self, vnode: BatchVnode) -> BatchVnode {
        let here = self.here.get(&vnode);
        let here = here.map(|place| BatchVnode::made_by(*place));
        let known = || self.known.get(&vnode).copied();
        here.or_else(known).unwrap_or(vnode)
    }

    /// A change as it is sent late.
    pub(super) fn late(&mut self, pending: &Pending) -> BatchChange {
        let mut operation = pending.change.operation.clone();
        match &mut operation {
            BatchOperation::Create(make)
            | BatchOperation::MakeDir(make)
            | BatchOperation::Symlink(make, _) => self.make(make),
            BatchOperation::Link {
                directory,
                existing,
                ..
            } => {
                *directory = self.name(*directory);
                *existing = self.name(*existing);
            }
            BatchOperation::RemoveFile { directory, .. }
            | BatchOperation::RemoveDir { directory, .. } => *directory = self.name(*directory),
            BatchOperation::Rename {
                old_directory,
                new_directory,
                ..
            } => {
                *old_directory = self.name(*old_directory);
                *new_directory = self.name(*new_directory);
            }
            BatchOperation::StoreStatus { target, .. }
            | BatchOperation::StoreData { target, .. } => *target = self.name(*target),
        }
        // What was made again nobody else knew before.
        let under = pending
            .change
            .under
            .iter()
            .filter(|under| self.name(under.vnode) == under.vnode);
        let under = under.map(|under| BatchCondition { lease: 0, ..*under });
        BatchChange {
            operation,
            under: List::new(under.collect::<Vec<_>>()).unwrap_or_default(),
            made: pending.change.made,
        }
    }

    fn make(&mut self, make: &mut BatchMake) {
        make.directory = self.name(make.directory);
        let old = std::mem::take(&mut make.wanted);
        self.here.insert(old, self.place);
    }
}
