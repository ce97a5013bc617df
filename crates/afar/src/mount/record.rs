//! Which process serves which mount: a locked file for each, so that a second start says who is in
//! the way, and `afar umount` waits until everything is written back. A process that ends notes there how much is left.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afar_cache::PendingVolume;
use afar_server::local_cell;
use anyhow::{Context, bail};

/// Where the files are, beside the directories of cells. No cell's name starts with a dot.
const FOLDER: &str = ".mounts";
/// How often somebody who waits looks again.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a file that are read.
const LENGTH_MOST: u64 = 100;

/// Changes that a process has to send before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) changes: u64,
    pub(super) bytes: u64,
}

impl Left {
    /// Those of all volumes.
    pub(super) fn of(pending: &[PendingVolume]) -> Self {
        Self {
            changes: pending.iter().map(|volume| volume.changes).sum(),
            bytes: pending.iter().map(|volume| volume.bytes).sum(),
        }
    }

    /// The second line of a record; it always has the same length, so that it is written over the one before.
    fn line(self) -> String {
        format!("{:>20} {:>20}\n", self.changes, self.bytes)
    }

    /// What a record tells, if its process ends and notes that.
    fn read(record: &str) -> Option<Self> {
        let mut words = record.lines().nth(1)?.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Self {
            changes: number()?,
            bytes: number()?,
        })
    }
}

/// That this process serves a mount; for as long as it is kept.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    /// Locked. The kernel drops the lock with the process, however that ends.
    file: File,
    /// The line with the process, which is first in the file.
    first: String,
}

impl Record {
    /// Notes that this process serves the mount at `place`.
    ///
    /// # Errors
    /// Another process does.
    pub(super) fn take(place: &Path) -> anyhow::Result<Self> {
        let (path, mut file) = open(place)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "{0} is served by process {1} already; `afar umount {0}` ends that, or waits for \
                 its end",
                place.display(),
                server(&mut file)
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let first = format!("{}\n", std::process::id());
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all(first.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file, first })
    }

    /// Notes how much is left, for who waits for the end of this process.
    pub(super) fn tell(&self, left: Left) {
        let line = left.line();
        let written = self
            .file
            .write_all_at(line.as_bytes(), self.first.len() as u64);
        if let Err(error) = written {
            tracing::debug!(path = %self.path.display(), %error, "cannot note what is left");
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A process that opened it before this and locks it afterwards has a file without a name: it
        // serves its mount all the same, and `afar umount` does not wait for it.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Waits until nobody serves the mount at `place`; false when that takes longer than `limit`.
pub(super) fn wait_until_gone(place: &Path, limit: Duration) -> bool {
    let begun = Instant::now();
    while is_served(place) {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Whether a process of ours serves a mount at `place`.
pub(super) fn is_served(place: &Path) -> bool {
    locked(place).is_some()
}

/// The process that serves the mount at `place`, if a record that we may read names one.
pub(super) fn process(place: &Path) -> Option<String> {
    let mut locked = locked(place)?;
    Some(server(&mut locked)).filter(|process| process.bytes().all(|b| b.is_ascii_digit()))
}

/// What the process that serves the mount at `place` has to send before it ends, if it notes that.
pub(super) fn left(place: &Path) -> Option<Left> {
    let mut text = String::new();
    let mut record = locked(place)?.take(LENGTH_MOST);
    record.read_to_string(&mut text).ok()?;
    Left::read(&text)
}

/// The record of the mount at `place`, if a process has it.
fn locked(place: &Path) -> Option<File> {
    let paths = folders().into_iter().map(|folder| folder.join(name(place)));
    let mut files = paths.filter_map(|path| File::open(path).ok());
    files.find(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn folders() -> Vec<PathBuf> {
    let bases = local_cell::bases().into_iter();
    bases.map(|base| base.join(FOLDER)).collect()
}

/// The file of a mount, in the first folder that can be written.
fn open(place: &Path) -> anyhow::Result<(PathBuf, File)> {
    let mut first = None;
    for folder in folders() {
        let path = folder.join(name(place));
        let opened = fs::create_dir_all(&folder).and_then(|()| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        });
        match opened {
            Ok(file) => return Ok((path, file)),
            Err(error) => first = first.or(Some((path, error))),
        }
    }
    match first {
        Some((path, error)) => Err(error).with_context(|| {
            let variable = local_cell::BASE_VARIABLE;
            format!(
                "cannot create {}; set {variable} to a directory",
                path.display()
            )
        }),
        None => bail!("there is no directory for the record of the mount; set XDG_RUNTIME_DIR"),
    }
}

/// A file name for a path: `afs` for /afs, `mnt-a` for /mnt/a, other bytes in hexadecimal.
pub(super) fn name(place: &Path) -> String {
    let octets = place.as_os_str().as_bytes();
    let inner = octets.strip_prefix(b"/").unwrap_or(octets);
    if inner.is_empty() {
        return "-".to_owned();
    }
    let mut name = String::new();
    for (index, &octet) in inner.iter().enumerate() {
        match octet {
            b'/' => name.push('-'),
            b'.' if index > 0 => name.push('.'),
            _ if octet.is_ascii_alphanumeric() || octet == b'_' => name.push(octet.into()),
            _ => name.push_str(&format!("\\x{octet:02x}")),
        }
    }
    name
}

/// The process that a record names.
fn server(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(LENGTH_MOST).read_to_string(&mut text) {
        Ok(_) => first_line(&text).unwrap_or("?").to_owned(),
        Err(error) if error.kind() != ErrorKind::InvalidData => format!("? ({error})"),
        Err(_) => "?".to_owned(),
    }
}

fn first_line(text: &str) -> Option<&str> {
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_process_and_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("afs");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let mut file = options.open(&path).unwrap();
        let first = "123\n".to_owned();
        file.write_all(first.as_bytes()).unwrap();
        let record = Record {
            path: path.clone(),
            file,
            first,
        };
        let text = || fs::read_to_string(&path).unwrap();
        assert_eq!(Left::read(&text()), None);
        for (changes, bytes) in [(20_000, 64 << 20), (7, 300), (0, 0)] {
            let left = Left { changes, bytes };
            record.tell(left);
            assert_eq!(Left::read(&text()), Some(left));
            assert_eq!(first_line(&text()), Some("123"));
            assert_eq!(server(&mut File::open(&path).unwrap()), "123");
        }
        let most = Left {
            changes: u64::MAX,
            bytes: u64::MAX,
        };
        let none = Left {
            changes: 0,
            bytes: 0,
        };
        assert_eq!(most.line().len(), none.line().len());
        assert_eq!(Left::read(&format!("1\n{}", most.line())), Some(most));
        for wrong in ["", "1", "1\n", "1\n5", "1\n5 x\n", "\n"] {
            assert_eq!(Left::read(wrong), None, "{wrong:?}");
        }
        assert_eq!(first_line("\n"), None);
    }

    #[test]
    fn names_tell_places_apart() {
        for (place, file) in [
            ("/afs", "afs"),
            ("/mnt/a", "mnt-a"),
            ("/mnt-a", "mnt\\x2da"),
            ("/.a b", "\\x2ea\\x20b"),
            ("/", "-"),
        ] {
            assert_eq!(name(Path::new(place)), file);
        }
    }
}
