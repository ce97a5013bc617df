//! Where a batch stores data, as far as is known before it is run.
//!
//! What a caller may do is decided in the committer, where an earlier operation of the batch may have changed it. But
//! data is written to the disk before that, and other stores wait for their turns: neither for a caller who can change
//! nothing there.

use std::collections::{BTreeMap, BTreeSet};

use afar_net::AbortCode;
use afar_types::{BatchChange, BatchOperation, BatchVnode, Fid, Rights, VolumeId};

use super::super::visit::Visit;

/// Rights of which a caller needs at least one for any change.
const CHANGES: Rights = Rights(Rights::INSERT.0 | Rights::DELETE.0 | Rights::WRITE.0);

/// Where a batch stores data.
pub(super) struct Targets {
    /// For each operation whether its data is wanted.
    pub(super) open: Vec<bool>,
    /// The files that are there. Other stores to them may be going on.
    pub(super) files: BTreeSet<Fid>,
}

impl Targets {
    pub(super) fn of(
        visit: &Visit,
        volume: VolumeId,
        changes: &[BatchChange],
    ) -> Result<Self, AbortCode> {
        let mut place = visit.change(volume)?;
        let mut known = BTreeMap::new();
        let mut targets = Self {
            open: Vec::with_capacity(changes.len()),
            files: BTreeSet::new(),
        };
        // Of each operation, what was there before that it is in, or that it names.
        let mut places: Vec<Fid> = Vec::with_capacity(changes.len());
        // What the caller has chosen fids for, and where it is to be.
        let mut made: BTreeMap<Fid, Fid> = BTreeMap::new();
        for BatchChange { operation, .. } in changes {
            let [first, _] = operation.vnodes();
            let fid = first.map_or_else(Fid::default, |vnode| {
                let maker = vnode.maker().and_then(|maker| usize::try_from(maker).ok());
                let above = maker.and_then(|maker| places.get(maker).copied());
                let fid = above.unwrap_or_else(|| vnode.fid(volume));
                made.get(&fid).copied().unwrap_or(fid)
            });
            places.push(fid);
            if let BatchOperation::Create(make)
            | BatchOperation::MakeDir(make)
            | BatchOperation::Symlink(make, _) = operation
                && make.wanted != BatchVnode::default()
            {
                made.insert(make.wanted.fid(volume), fid);
            }
            let BatchOperation::StoreData { target, .. } = operation else {
                targets.open.push(false);
                continue;
            };
            let open = *known.entry(fid).or_insert_with(|| {
                let look = place.look(fid);
                let administrates = visit.person.is_administrator();
                look.is_ok_and(|look| administrates || look.grant.own.0 & CHANGES.0 != 0)
            });
            targets.open.push(open);
            if open && target.maker().is_none() && target.fid(volume) == fid {
                targets.files.insert(fid);
            }
        }
        Ok(targets)
    }
}
