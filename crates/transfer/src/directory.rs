//! Directories on the local disk.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use afar_types::UnixTime;

use crate::path::FILL_DIRECTORY;

/// Makes a directory that its owner can fill, if there is none.
pub(crate) fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(mode & 0o777 | FILL_DIRECTORY);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Sets mode and time of a file or directory.
pub(crate) fn set_attributes(path: &Path, mode: u32, modified: UnixTime) -> io::Result<()> {
    let file = fs::File::open(path)?;
    file.set_modified(modified.to_system_time())?;
    file.set_permissions(Permissions::from_mode(mode & 0o7777))
}
