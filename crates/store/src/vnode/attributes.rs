//! Setting attributes and ACLs.

use afar_types::{AclRecord, Fid, PtsId, UnixTime};

use super::edit::Edit;
use super::{VnodeStatus, trim_acl};
use crate::error::Result;
use crate::volume::Volume;

/// Attributes to set. `None` leaves one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The twelve permission bits.
    pub mode: Option<u16>,
    /// The owner.
    pub owner: Option<PtsId>,
    /// The group.
    pub group: Option<PtsId>,
    /// The modification time.
    pub modify_time: Option<UnixTime>,
}

impl Volume {
    /// Sets attributes. The data version stays, as with StoreStatus.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVnode`](crate::StoreError::NoVnode),
    /// [`StoreError::ReadOnly`](crate::StoreError::ReadOnly).
    pub fn set_attributes(&self, fid: Fid, wanted: &SetAttributes) -> Result<VnodeStatus> {
        let (id, fid, wanted) = (self.id, self.own(fid)?, *wanted);
        self.partition.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let status = edit.set_attributes(fid, &wanted)?;
            edit.finish()?;
            Ok(status)
        })
    }

    /// Sets a directory's ACL.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotDirectory`](crate::StoreError::NotDirectory),
    /// [`StoreError::ReadOnly`](crate::StoreError::ReadOnly).
    pub fn set_acl(&self, fid: Fid, acl: &AclRecord) -> Result<VnodeStatus> {
        let (id, fid, acl) = (self.id, self.own(fid)?, trim_acl(&acl.to_bytes()));
        self.partition.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let mut row = edit.directory(fid)?;
            row.acl = acl;
            row.server_modify_time = edit.now();
            edit.put(fid.vnode.0, &row)?;
            let status = edit.status(fid, &row)?;
            edit.finish()?;
            Ok(status)
        })
    }
}

impl Edit<'_, '_> {
    pub(super) fn set_attributes(
        &mut self,
        fid: Fid,
        wanted: &SetAttributes,
    ) -> Result<VnodeStatus> {
        let mut row = self.node(fid)?;
        if let Some(mode) = wanted.mode {
            row.mode = mode & 0o7777;
        }
        if let Some(owner) = wanted.owner {
            row.owner = owner.0;
        }
        if let Some(group) = wanted.group {
            row.group = group.0;
        }
        if let Some(time) = wanted.modify_time {
            row.modify_time = time.0;
        }
        row.server_modify_time = self.now();
        self.put(fid.vnode.0, &row)?;
        self.status(fid, &row)
    }
}
