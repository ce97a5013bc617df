//! The disk of the cache: how full it is, and how fast it takes data.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::measured::Disk;

/// What is written, in pieces, and for how long at the most.
const PIECE: usize = 1 << 20;
const PIECES: usize = 16;
const TIME: Duration = Duration::from_secs(2);
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

/// Writes a file without a name and flushes each piece.
fn write_speed(directory: &Path) -> io::Result<f64> {
    let mut file: File = tempfile::tempfile_in(directory)?;
    // Nothing that the file system could compress.
    let mut random = fastrand::Rng::new();
    let mut piece = vec![0; PIECE];
    random.fill(&mut piece);
    let begin = Instant::now();
    let mut written = 0_u32;
    for _ in 0..PIECES {
        file.write_all(&piece)?;
        written += 1;
        if begin.elapsed() >= TIME {
            break;
        }
    }
    file.sync_data()?;
    let time = begin.elapsed().as_secs_f64().max(1e-6);
    Ok(f64::from(written) * PIECE as f64 / time)
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
