//! Files that are for the cache's owner alone: they hold what others may have no right to read.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Options to open files with: those that are made are for their owner.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Rewrites a file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(bytes)
}

/// Makes a directory and those above it.
pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes from others what they may do with a file or directory.
pub(super) fn restrict(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let mode = metadata.permissions().mode();
    if !metadata.is_symlink() && mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7700))?;
    }
    Ok(())
}

/// The same for all that is in a directory too.
pub(super) fn mend(path: &Path) -> io::Result<()> {
    restrict(path)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            mend(&entry?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_could_read_they_cannot_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let file = inner.join("file");
        fs::write(&file, "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        set(&file, 0o664);
        set(&inner, 0o755);
        mend(dir.path()).unwrap();
        assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));
        write(&inner.join("new"), b"x").unwrap();
        assert_eq!(mode(&inner.join("new")), 0o600);
        make_dir(&inner.join("a/b")).unwrap();
        assert_eq!(mode(&inner.join("a")), 0o700);
    }
}
