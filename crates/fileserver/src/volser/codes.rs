//! The volume server's own codes (AFS-3 VOLS), as far as it answers with them.

use afar_net::AbortCode;
use afar_store::StoreError;

use crate::abort::{errno, store_code};

/// Nobody serves this operation.
pub(super) const NO_OP: AbortCode = volser(1);
/// The dump is not well formed.
pub(super) const READ_DUMPERROR: AbortCode = volser(2);
/// The dump could not be made or sent.
pub(super) const DUMPERROR: AbortCode = volser(3);
/// No such partition.
pub(super) const ILLEGAL_PARTITION: AbortCode = volser(5);
/// The caller may not do this.
pub(super) const BAD_ACCESS: AbortCode = volser(7);
/// Not a volume's name.
pub(super) const BADNAME: AbortCode = volser(9);
/// The operation does not fit the volume.
pub(super) const BADOP: AbortCode = volser(11);
/// Another transaction holds the volume.
pub(super) const VOLBUSY: AbortCode = volser(13);
/// More than the server wants to keep in memory.
pub(super) const NO_MEMORY: AbortCode = volser(14);
/// No such volume, said where VNOVOL is not.
pub(super) const NOVOL: AbortCode = volser(15);

pub(super) const EINVAL: AbortCode = AbortCode(errno::EINVAL);
pub(super) const EIO: AbortCode = AbortCode(errno::EIO);
pub(super) const ENOENT: AbortCode = AbortCode(errno::ENOENT);
pub(super) const EROFS: AbortCode = AbortCode(errno::EROFS);
pub(super) const EXDEV: AbortCode = AbortCode(errno::EXDEV);
/// Linux: argument list too long. What CreateVolume says of a missing number.
pub(super) const E2BIG: AbortCode = AbortCode(7);
/// Linux: no such device. What the lists say of a volume that is not there.
pub(super) const ENODEV: AbortCode = AbortCode(19);
/// Linux: not connected. What a destination is answered with that cannot be an address.
pub(super) const ENOTCONN: AbortCode = AbortCode(107);

const fn volser(number: i32) -> AbortCode {
    AbortCode(1_492_325_120 + number)
}

/// What the caller is told of a store's failure. The rest of it is for the log.
pub(super) fn volume_code(error: &StoreError) -> AbortCode {
    match error {
        StoreError::BadName { .. } => BADNAME,
        StoreError::Dump(_) | StoreError::BadDump { .. } => READ_DUMPERROR,
        StoreError::NewerClone(..) => AbortCode(crate::abort::VVOLEXISTS),
        other => store_code(other),
    }
}
