//! What others on this machine must not see: what processes hold in memory, and what they write.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, umask};

/// Set to leave processes open to debuggers.
const DEBUG_VARIABLE: &str = "AFAR_DEBUG_PROCESS";

/// Keeps others from this process's memory, which has keys, tokens and what files hold: it leaves no
/// core, and only root may trace it.
///
/// # Errors
/// The system's: a crash may leave this process's memory in a core.
pub fn process() -> io::Result<()> {
    if std::env::var_os(DEBUG_VARIABLE).is_some() {
        return Ok(());
    }
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Has what this process makes from now on be for its user alone.
pub fn files() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Takes from others what they may do with a directory of ours, and with all that is in it under these
/// names: what else is there is not ours.
pub fn mend(dir: &Path, names: &[&str]) -> io::Result<()> {
    take(dir, false)?;
    names
        .iter()
        .try_for_each(|name| take(&dir.join(name), true))
}

/// The same for one file or directory. One that is not there is fine.
fn take(path: &Path, all: bool) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7700))?;
    }
    if all && metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            take(&entry?.path(), true)?;
        }
    }
    Ok(())
}

/// Makes a directory that everybody may enter, and those above it.
pub fn public_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        public_dir(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755))),
    }
}

/// Writes a file that everybody may read.
pub fn write_public(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}
