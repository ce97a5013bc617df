//! The codes that failures are answered with.

use afar_net::AbortCode;
use afar_store::StoreError;
use afar_types::error::{VBUSY, VDISKFULL, VNOVNODE, VNOVOL, VOFFLINE, VOVERQUOTA};

/// `errno` values of Linux that servers abort calls with.
pub(crate) mod errno {
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const EEXIST: i32 = 17;
    pub(crate) const EXDEV: i32 = 18;
    pub(crate) const ENOTDIR: i32 = 20;
    pub(crate) const EISDIR: i32 = 21;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const EFBIG: i32 = 27;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const EROFS: i32 = 30;
}

/// VICE: a volume of that number is there already.
pub(crate) const VVOLEXISTS: i32 = 104;

/// What a client is told of a store's failure. Details are for the log: the code names no path.
pub(crate) fn store_code(error: &StoreError) -> AbortCode {
    AbortCode(match error {
        StoreError::NoVolume(_) => VNOVOL,
        StoreError::Offline(_) => VOFFLINE,
        StoreError::VolumeExists(_) => VVOLEXISTS,
        StoreError::NoVnode(_) => VNOVNODE,
        StoreError::ReadOnly(_) => errno::EROFS,
        StoreError::NotFound(_) => errno::ENOENT,
        StoreError::Exists(_) | StoreError::NotEmpty(_) => errno::EEXIST,
        StoreError::BadName { .. } | StoreError::Loop(_) | StoreError::OutOfRange { .. } => {
            errno::EINVAL
        }
        StoreError::NotDirectory(_) => errno::ENOTDIR,
        StoreError::IsDirectory(_) => errno::EISDIR,
        StoreError::OtherDirectory(_) => errno::EXDEV,
        StoreError::DirectoryFull(_) | StoreError::TooBig(_) => errno::EFBIG,
        StoreError::OverQuota(..) => VOVERQUOTA,
        StoreError::NoSpace(_) => VDISKFULL,
        StoreError::Conflict(_) | StoreError::Busy(_) => VBUSY,
        StoreError::VnodesExhausted(_) => errno::ENOSPC,
        _ => errno::EIO,
    })
}
