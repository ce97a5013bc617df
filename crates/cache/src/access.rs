//! Who may do what, by the rights a server gives.

use afar_types::{FetchStatus, FileType, Rights, VolumeType};

use crate::cache::Cache;
use crate::error::Errno;
use crate::inodes::Place;
use crate::types::{Ino, Who};

const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

impl Cache {
    /// Whether something may be read (4), written (2) and executed or entered (1), by the rights the
    /// server gives. Of a file's permission bits those of the owner take away from these.
    ///
    /// # Errors
    /// [`EACCES`](Errno::EACCES) when it may not; others as servers say.
    pub async fn access(&self, who: Who, ino: Ino, mask: u32) -> Result<(), Errno> {
        let _ = who;
        let inode = self.inode(ino)?;
        let spot = match &inode.place {
            Place::Cells if mask & WRITE != 0 => return Err(Errno::EROFS),
            Place::Cells => return Ok(()),
            Place::Vnode(spot) => spot,
        };
        let status = self.fresh(&spot.vnode).await?;
        if mask & WRITE != 0 && spot.mount.volume.kind() != VolumeType::ReadWrite {
            return Err(Errno::EROFS);
        }
        if allowed(&status, mask) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }
}

/// What the user may do.
pub(crate) fn rights(status: &FetchStatus) -> Rights {
    status.caller_access | status.anonymous_access
}

fn allowed(status: &FetchStatus, mask: u32) -> bool {
    let has = rights(status);
    let wants = |bit| mask & bit != 0;
    if status.file_type == FileType::Directory {
        let changes = has.contains(Rights::INSERT) || has.contains(Rights::DELETE);
        return (!wants(READ | EXECUTE) || has.contains(Rights::LOOKUP))
            && (!wants(WRITE) || changes);
    }
    if status.file_type == FileType::Symlink {
        return has.contains(Rights::LOOKUP) || has.contains(Rights::READ);
    }
    // A server sets this for files of which the caller is the owner.
    let owner = has.contains(Rights::ADMINISTER);
    let mode = status.unix_mode_bits;
    let reads = has.contains(Rights::READ) || owner && has.contains(Rights::INSERT);
    let writes = has.contains(Rights::WRITE) || owner && has.contains(Rights::INSERT);
    (!wants(READ) || reads && mode & 0o400 != 0)
        && (!wants(WRITE) || writes && mode & 0o200 != 0)
        && (!wants(EXECUTE) || reads && mode & 0o100 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(file_type: FileType, rights: &str, mode: u32, mask: u32) -> bool {
        let status = FetchStatus {
            file_type,
            caller_access: rights.parse().unwrap(),
            unix_mode_bits: mode,
            ..FetchStatus::default()
        };
        allowed(&status, mask)
    }

    #[test]
    fn rights_decide_and_the_owners_bits_take_away() {
        use FileType::{Directory, File};
        assert!(may(File, "rl", 0o444, READ));
        assert!(!may(File, "rl", 0o044, READ));
        assert!(!may(File, "l", 0o777, READ));
        assert!(!may(File, "rlw", 0o444, WRITE));
        assert!(may(File, "rlw", 0o644, READ | WRITE));
        assert!(!may(File, "rl", 0o644, EXECUTE));
        assert!(may(File, "rl", 0o755, READ | EXECUTE));
        assert!(may(File, "ia", 0o644, WRITE), "an owner in a drop box");
        assert!(may(Directory, "l", 0o000, READ | EXECUTE));
        assert!(!may(Directory, "rl", 0o777, WRITE));
        assert!(may(Directory, "li", 0o000, WRITE));
    }
}
