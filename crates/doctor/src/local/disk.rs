//! The disk of the cache: how full it is, and how fast it takes data.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::measured::Disk;

/// Bytes written at first and at last: each piece has twice as many as the one before, so that a slow disk is not
/// waited out.
const FIRST: usize = 256 << 10;
const LAST: usize = 8 << 20;
/// No further piece is begun after this time.
const TIME: Duration = Duration::from_secs(1);
/// On a disk with less free than this nothing is written.
const FREE_LEAST: u64 = 256 << 20;

/// Looks at the disk of a directory, which need not be there yet.
pub(super) fn look(directory: &Path) -> Option<Disk> {
    let there = directory.ancestors().find(|place| place.is_dir())?;
    let stat = statvfs(there).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let write = (free >= FREE_LEAST).then(|| write_speed(there).ok());
    Some(Disk {
        directory: there.to_owned(),
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        free,
        write_bytes_per_s: write.flatten(),
    })
}

/// Writes a file without a name and flushes each piece; the rate of the last one.
fn write_speed(directory: &Path) -> io::Result<f64> {
    let mut file: File = tempfile::tempfile_in(directory)?;
    // Nothing that the file system could compress.
    let mut random = fastrand::Rng::new();
    let mut data = vec![0; LAST];
    random.fill(&mut data);
    let begin = Instant::now();
    let mut size = FIRST;
    loop {
        let piece = Instant::now();
        file.write_all(&data[..size])?;
        file.sync_data()?;
        let time = piece.elapsed().as_secs_f64().max(1e-6);
        if size == LAST || begin.elapsed() >= TIME {
            return Ok(size as f64 / time);
        }
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_has_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disk = look(&dir.path().join("not/yet")).unwrap();
        assert_eq!(disk.directory, dir.path());
        assert!(disk.size > 0 && disk.free <= disk.size);
        // The file is gone.
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }
}
