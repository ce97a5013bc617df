//! How much of a disk a cache takes unless it is told.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::statvfs;

/// The part of the disk, as one in so many.
const PART: u64 = 10;
/// No more than this.
const MOST: u64 = 20 << 30;

/// Bytes a cache in this directory takes by default: a tenth of the disk, at most 20 GiB, and at
/// most half of what is free. What the cache takes already counts as free.
pub(super) fn default_size(dir: &Path) -> io::Result<u64> {
    let disk = statvfs(dir)?;
    let size = disk.f_blocks.saturating_mul(disk.f_frsize);
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Ok(share(size, free.saturating_add(taken(dir)?)))
}

fn share(size: u64, free: u64) -> u64 {
    (size / PART).min(MOST).min(free / 2)
}

/// Bytes that the files in a directory take.
fn taken(dir: &Path) -> io::Result<u64> {
    let mut taken = 0_u64;
    for entry in std::fs::read_dir(dir)? {
        let metadata = entry?.metadata()?;
        if metadata.is_file() {
            taken = taken.saturating_add(metadata.blocks().saturating_mul(512));
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_room_for_others() {
        let gib = 1 << 30;
        assert_eq!(share(1000 * gib, 900 * gib), 20 * gib);
        assert_eq!(share(100 * gib, 90 * gib), 10 * gib);
        assert_eq!(share(1000 * gib, 6 * gib), 3 * gib);
        assert_eq!(share(1000 * gib, 0), 0);
    }

    #[test]
    fn what_is_in_the_directory_counts_as_free() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("blocks.64k"), vec![1; 1 << 20]).unwrap();
        assert!(taken(dir.path()).unwrap() >= 1 << 20);
        assert!(default_size(dir.path()).unwrap() <= MOST);
    }
}
