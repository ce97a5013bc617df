//! The volume server's own codes (AFS-3 VOLS), as far as it answers with them.

use afar_net::AbortCode;
use afar_store::StoreError;
use afar_types::error;

use crate::abort::{errno, store_code};

/// Nobody serves this operation.
pub(super) const NO_OP: AbortCode = AbortCode(error::VOLSERNO_OP);
/// The dump is not well formed.
pub(super) const READ_DUMPERROR: AbortCode = AbortCode(error::VOLSERREAD_DUMPERROR);
/// The dump could not be made or sent.
pub(super) const DUMPERROR: AbortCode = AbortCode(error::VOLSERDUMPERROR);
/// No such partition.
pub(super) const ILLEGAL_PARTITION: AbortCode = AbortCode(error::VOLSERILLEGAL_PARTITION);
/// The caller may not do this.
pub(super) const BAD_ACCESS: AbortCode = AbortCode(error::VOLSERBAD_ACCESS);
/// Not a volume's name.
pub(super) const BADNAME: AbortCode = AbortCode(error::VOLSERBADNAME);
/// The operation does not fit the volume.
pub(super) const BADOP: AbortCode = AbortCode(error::VOLSERBADOP);
/// Another transaction holds the volume.
pub(super) const VOLBUSY: AbortCode = AbortCode(error::VOLSERVOLBUSY);
/// More than the server wants to keep in memory.
pub(super) const NO_MEMORY: AbortCode = AbortCode(error::VOLSERNO_MEMORY);
/// No such volume, said where VNOVOL is not.
pub(super) const NOVOL: AbortCode = AbortCode(error::VOLSERNOVOL);

pub(super) const EINVAL: AbortCode = AbortCode(errno::EINVAL);
pub(super) const EIO: AbortCode = AbortCode(errno::EIO);
pub(super) const ENOENT: AbortCode = AbortCode(errno::ENOENT);
pub(super) const EROFS: AbortCode = AbortCode(errno::EROFS);
pub(super) const EXDEV: AbortCode = AbortCode(errno::EXDEV);
/// Linux: argument list too long. What CreateVolume says of a missing number.
pub(super) const E2BIG: AbortCode = AbortCode(errno::E2BIG);
/// Linux: no such device. What the lists say of a volume that is not there.
pub(super) const ENODEV: AbortCode = AbortCode(errno::ENODEV);
/// Linux: not connected. What a destination is answered with that cannot be an address.
pub(super) const ENOTCONN: AbortCode = AbortCode(errno::ENOTCONN);

/// What the caller is told of a store's failure. The rest of it is for the log.
pub(super) fn volume_code(error: &StoreError) -> AbortCode {
    match error {
        StoreError::BadName { .. } => BADNAME,
        StoreError::Dump(_) | StoreError::BadDump { .. } => READ_DUMPERROR,
        StoreError::NewerClone(..) => AbortCode(crate::abort::VVOLEXISTS),
        other => store_code(other),
    }
}
