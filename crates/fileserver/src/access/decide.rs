//! Whether an operation is allowed.

use afar_net::AbortCode;
use afar_store::VnodeStatus;
use afar_types::{FileType, PtsId, Rights, StoreStatus};

use super::{Grant, Person};
use crate::abort::errno;

/// Why something is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// A right is missing.
    Access,
    /// Only administrators do this.
    Permission,
}

impl From<Denied> for AbortCode {
    fn from(denied: Denied) -> Self {
        Self(match denied {
            Denied::Access => errno::EACCES,
            Denied::Permission => errno::EPERM,
        })
    }
}

const SET_ID: u32 = 0o6000;
const OWNER_WRITE: u16 = 0o200;
const OWNER_READ_OR_EXECUTE: u16 = 0o500;

fn check(allowed: bool) -> Result<(), Denied> {
    allowed.then_some(()).ok_or(Denied::Access)
}

/// Whether contents may be read (AFS-3 RXAFS FetchData). The right to administrate data is not
/// one to read it: administrators grant themselves the right first, which shows in the ACL.
// spec: afs-rpc#rights
pub(crate) fn may_fetch_data(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    volume_owner: PtsId,
) -> Result<(), Denied> {
    if person.superuser {
        return Ok(());
    }
    may_see(person, vnode, grant, volume_owner)?;
    check(
        vnode.file_type != FileType::File
            || person.owns(vnode)
            || person.is_administrator()
            || vnode.mode & OWNER_READ_OR_EXECUTE != 0,
    )
}

/// Whether a status may be read (AFS-3 RXAFS FetchStatus): of directories always, as clients come
/// by them on their way to directories below.
// spec: afs-rpc#rights
pub(crate) fn may_fetch_status(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    volume_owner: PtsId,
) -> Result<(), Denied> {
    if vnode.file_type == FileType::Directory || person.is_administrator() {
        return Ok(());
    }
    may_see(person, vnode, grant, volume_owner)
}

/// Whether an ACL may be read (AFS-3 RXAFS FetchACL).
// spec: afs-rpc#rights
pub(crate) fn may_fetch_acl(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    volume_owner: PtsId,
) -> Result<(), Denied> {
    if person.is_administrator() {
        return Ok(());
    }
    may_see(person, vnode, grant, volume_owner)
}

/// What reading needs by the ACL.
fn may_see(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    volume_owner: PtsId,
) -> Result<(), Denied> {
    let rights = grant.own;
    check(if vnode.file_type == FileType::File {
        // Strangers are all one owner: what one of them has made is not for the others to read.
        // spec: afs-rpc#rights
        let inserted = person.owns(vnode) && person.id != PtsId::ANONYMOUS;
        rights.contains(Rights::READ) || inserted && rights.contains(Rights::INSERT)
    } else {
        rights.contains(Rights::LOOKUP) || person.owns_volume(volume_owner)
    })
}

/// Whether entries of a directory may be added (`i`) or removed (`d`).
// spec: afs-rpc#rights
pub(crate) fn may_change_entries(grant: Grant, needed: Rights) -> Result<(), Denied> {
    check(grant.own.contains(needed))
}

/// Whether data may be stored, with these attributes (AFS-3 RXAFS StoreData).
// spec: afs-rpc#rights
pub(crate) fn may_store_data(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    attributes: &StoreStatus,
) -> Result<(), Denied> {
    if person.superuser {
        return Ok(());
    }
    if creates(person, vnode, grant) {
        return may_give_away(person, vnode, attributes);
    }
    may_give_away(person, vnode, attributes)?;
    may_set_id(person, attributes)?;
    check(grant.own.contains(Rights::WRITE))?;
    check(vnode.mode & OWNER_WRITE != 0 || person.is_administrator())
}

/// Whether attributes may be set (AFS-3 RXAFS StoreStatus).
// spec: afs-rpc#rights
pub(crate) fn may_store_status(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    attributes: &StoreStatus,
) -> Result<(), Denied> {
    if person.is_administrator() {
        return Ok(());
    }
    may_give_away(person, vnode, attributes)?;
    if creates(person, vnode, grant) {
        return Ok(());
    }
    may_set_id(person, attributes)?;
    let rights = grant.own;
    check(if vnode.file_type == FileType::Directory {
        rights.contains(Rights::DELETE) || rights.contains(Rights::INSERT)
    } else {
        rights.contains(Rights::WRITE)
    })
}

/// Whether a directory's ACL may be replaced (AFS-3 RXAFS StoreACL).
// spec: afs-rpc#rights
pub(crate) fn may_store_acl(
    person: &Person,
    grant: Grant,
    volume_owner: PtsId,
) -> Result<(), Denied> {
    check(
        person.is_administrator()
            || grant.own.contains(Rights::ADMINISTER)
            || person.owns_volume(volume_owner),
    )
}

/// Whether a lock may be taken, for writing or for reading.
// spec: afs-rpc#rights
pub(crate) fn may_lock(
    person: &Person,
    vnode: &VnodeStatus,
    grant: Grant,
    exclusive: bool,
) -> Result<(), Denied> {
    let rights = grant.own;
    check(
        rights.contains(Rights::WRITE)
            || person.owns(vnode) && rights.contains(Rights::INSERT)
            || !exclusive && rights.contains(Rights::LOCK),
    )
}

/// A user who may add files may also fill their own: a client makes a file, perhaps without
/// permission to write it, and stores its data after that.
// spec: afs-rpc#rights
fn creates(person: &Person, vnode: &VnodeStatus, grant: Grant) -> bool {
    vnode.file_type == FileType::File && person.owns(vnode) && grant.own.contains(Rights::INSERT)
}

/// Owner and group are changed by administrators only.
// spec: afs-rpc#owners-and-modes
fn may_give_away(
    person: &Person,
    vnode: &VnodeStatus,
    attributes: &StoreStatus,
) -> Result<(), Denied> {
    let set = |bit| attributes.mask & bit != 0;
    let owner = set(StoreStatus::SET_OWNER) && attributes.owner != vnode.owner;
    let group = set(StoreStatus::SET_GROUP) && attributes.group != vnode.group;
    if (owner || group) && !person.is_administrator() {
        return Err(Denied::Permission);
    }
    Ok(())
}

/// The set-user-id and set-group-id bits are set by administrators only.
// spec: afs-rpc#owners-and-modes
fn may_set_id(person: &Person, attributes: &StoreStatus) -> Result<(), Denied> {
    let sets =
        attributes.mask & StoreStatus::SET_MODE != 0 && attributes.unix_mode_bits & SET_ID != 0;
    check(!sets || person.is_administrator())
}
