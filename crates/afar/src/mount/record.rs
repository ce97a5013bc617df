//! Which process serves which mount: a locked file for each, so that a second start says who is in
//! the way, and `afar umount` waits until everything is written back.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afar_server::local_cell;
use anyhow::{Context, bail};

/// Where the files are, beside the directories of cells. No cell's name starts with a dot.
const FOLDER: &str = ".mounts";
/// How often somebody who waits looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// That this process serves a mount; for as long as it is kept.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    /// Locked. The kernel drops the lock with the process, however that ends.
    _file: File,
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
        let written = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, _file: file })
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
    let files = folders().into_iter().map(|folder| folder.join(name(place)));
    let mut files = files.filter_map(|path| File::open(path).ok());
    files.any(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The process that serves the mount at `place`, if a record that we may read names one.
pub(super) fn process(place: &Path) -> Option<String> {
    let paths = folders().into_iter().map(|folder| folder.join(name(place)));
    let mut files = paths.filter_map(|path| File::open(path).ok());
    let mut locked =
        files.find(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))?;
    Some(server(&mut locked)).filter(|process| process.bytes().all(|b| b.is_ascii_digit()))
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
    match file.take(20).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        Err(error) if error.kind() != ErrorKind::InvalidData => format!("? ({error})"),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
