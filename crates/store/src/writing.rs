//! Having the disk begin with what is to be synced later.
#![expect(
    unsafe_code,
    reason = "sync_file_range has no safe wrapper in rustix or nix"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Has the system begin to write what is dirty of a range to the disk, and does not wait for it. It
/// is durable after a sync, which tells of errors, as before; that one has less to wait for.
pub(crate) fn begin(file: &File, range: Range<u64>) {
    let (Ok(from), Ok(len)) = (
        i64::try_from(range.start),
        i64::try_from(range.end.saturating_sub(range.start)),
    ) else {
        return;
    };
    // A length of zero would mean all the rest.
    if len == 0 {
        return;
    }
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: the call takes numbers and a descriptor that is open as long as `file` is.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, flags) };
    if result != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "the system does not begin to write");
    }
}
