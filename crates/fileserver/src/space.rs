//! The space of a partition's file system.

use std::io;
use std::path::Path;

/// What there is, in KiB, without what the file system keeps for root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

impl DiskSpace {
    /// The space of the file system with this path.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        let blocks = |count: u64| kib(count, found.f_frsize);
        let reserved = found.f_bfree.saturating_sub(found.f_bavail);
        Ok(Self {
            total: blocks(found.f_blocks.saturating_sub(reserved)),
            free: blocks(found.f_bavail),
        })
    }
}

fn kib(blocks: u64, size: u64) -> u64 {
    let bytes = u128::from(blocks) * u128::from(size);
    u64::try_from(bytes / 1024).unwrap_or(u64::MAX)
}
