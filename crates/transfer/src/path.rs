//! Paths as users give them, and what the process adds to them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bits the owner needs to fill a new file or directory.
pub(crate) const FILL_FILE: u32 = 0o200;
pub(crate) const FILL_DIRECTORY: u32 = 0o700;

/// Whether a path is in AFS.
#[must_use]
pub fn is_afs(path: &Path) -> bool {
    path.starts_with("/afs")
}

/// A path's bytes, as AFS takes them.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A path as it was given, for messages.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The mode bits that new files of this process do not get.
#[must_use]
pub fn umask() -> u32 {
    use rustix::fs::Mode;
    // It can only be read by setting it.
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
