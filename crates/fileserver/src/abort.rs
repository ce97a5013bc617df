//! The codes that failures are answered with.

use afar_net::AbortCode;
use afar_store::StoreError;
use afar_types::error::{
    VBUSY, VDISKFULL, VIO, VNOVNODE, VNOVOL, VOFFLINE, VOVERQUOTA, VRESTRICTED, VSALVAGE,
    errno_to_uae,
};
pub(crate) use afar_types::error::{VVOLEXISTS, errno};

/// What a client is told of a store's failure. Details are for the log: the code names no path.
pub(crate) fn store_code(error: &StoreError) -> AbortCode {
    AbortCode(match error {
        StoreError::NoVolume(_) => VNOVOL,
        StoreError::Offline(_) => VOFFLINE,
        StoreError::VolumeExists(_) => VVOLEXISTS,
        StoreError::NoVnode(_) => VNOVNODE,
        StoreError::NotReserved(_) => errno::ESTALE,
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

/// The code as a client is sent it: VICE codes as they are, `errno` values as UAE codes if the
/// client said that it knows these.
// spec: afs-rpc#error-codes
pub(crate) fn translated(code: AbortCode, translates: bool) -> AbortCode {
    let vice = (VSALVAGE..=VIO).contains(&code.0) || code.0 == VRESTRICTED;
    match errno_to_uae(code.0) {
        Some(uae) if translates && !vice && code.0 < 512 => AbortCode(uae),
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_values_are_translated_and_vice_codes_are_not() {
        let uae = |code| translated(AbortCode(code), true).0;
        assert_eq!(uae(errno::EACCES), 49_733_376 + 0x0c);
        assert_eq!(uae(errno::EAGAIN), 49_733_376 + 0x0a);
        for code in [
            VSALVAGE,
            VNOVNODE,
            VBUSY,
            VIO,
            VRESTRICTED,
            -455,
            0,
            363_524,
        ] {
            assert_eq!(uae(code), code);
        }
        assert_eq!(translated(AbortCode(13), false), AbortCode(13));
    }
}
