//! The directory of a cache: whose it is, and of which format.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{instances, slots, written};
use crate::model::error::CacheError;
use crate::storage::{conflicts, journal, lost, private};

/// What tells the format.
const FORMAT: &str = "format";
/// What precedes its number.
const NAME: &str = "afar-cache ";
/// The format that is written.
const VERSION: u32 = 1;
/// What is locked.
const LOCK: &str = "lock";
/// The end of the name of what is thrown away.
const OLD: &str = "old";

/// A directory that is ours as long as this is there.
#[derive(Debug)]
pub(super) struct Directory {
    _lock: File,
}

impl Directory {
    /// Takes a directory, which is made if it is not there. What is no cache of this format is made
    /// an empty one; what was written and not stored stays.
    pub(super) fn take(dir: &Path) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Storage {
            dir: dir.display().to_string(),
            source,
        };
        // What it holds is for its owner only.
        private::make_dir(dir).map_err(failed)?;
        let mut options = private::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let lock = options.open(dir.join(LOCK)).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(CacheError::InUse {
                    dir: dir.display().to_string(),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        mend(dir).map_err(failed)?;
        match version(dir).map_err(failed)? {
            Some(VERSION) => {}
            Some(found) if found > VERSION => {
                return Err(CacheError::Newer {
                    dir: dir.display().to_string(),
                    found,
                    known: VERSION,
                });
            }
            found => {
                if found.is_some() || dir.join(FORMAT).exists() {
                    tracing::warn!(
                        dir = %dir.display(),
                        "the cache has another format or is damaged; starting with an empty one"
                    );
                }
                clear(dir).map_err(failed)?;
            }
        }
        Ok(Self { _lock: lock })
    }

    /// Throws away what is clean, after it could not be opened.
    pub(super) fn clear(dir: &Path) -> io::Result<()> {
        clear(dir)
    }
}

/// Takes from others what older versions let them do with a cache. What else is in its directory is not
/// ours, nor is a directory that is no cache yet.
fn mend(dir: &Path) -> io::Result<()> {
    if !dir.join(FORMAT).exists() {
        return Ok(());
    }
    private::restrict(dir)?;
    let names = [
        FORMAT,
        LOCK,
        instances::NAME,
        journal::NAME,
        written::NAME,
        lost::NAME,
        conflicts::NAME,
    ];
    let names = names.map(str::to_owned).into_iter().chain(slots::names());
    for path in names
        .map(|name| dir.join(name))
        .filter(|path| path.exists())
    {
        private::mend(&path)?;
    }
    Ok(())
}

/// The version of the format, if one is told.
fn version(dir: &Path) -> io::Result<Option<u32>> {
    let mut text = Vec::new();
    match File::open(dir.join(FORMAT)) {
        Ok(file) => file.take(64).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8(text).ok();
    let number = text
        .as_deref()
        .and_then(|text| text.strip_prefix(NAME)?.strip_suffix('\n'));
    Ok(number.and_then(|number| number.parse().ok()))
}

/// Makes it an empty cache: only files of ours are touched.
fn clear(dir: &Path) -> io::Result<()> {
    let old: Vec<PathBuf> = slots::names()
        .chain([instances::NAME.to_owned()])
        .map(|name| dir.join(name))
        .collect();
    for path in &old {
        // Renamed now and removed by the worker: a mount does not wait until a file system has removed gigabytes.
        match fs::rename(path, aside(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let new = dir.join(format!("{FORMAT}.new"));
    private::write(&new, format!("{NAME}{VERSION}\n").as_bytes())?;
    File::open(&new)?.sync_all()?;
    // Last, and whole: a directory without it counts as none of ours, and is cleared again.
    fs::rename(new, dir.join(FORMAT))?;
    File::open(dir)?.sync_all()
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(OLD);
    name.into()
}

/// Removes what was put aside, which may take the file system a while.
pub(super) fn remove_old(dir: &Path) {
    for name in slots::names().chain([instances::NAME.to_owned()]) {
        match fs::remove_file(aside(&dir.join(name))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(dir = %dir.display(), %error, "cannot remove an old cache");
            }
            _ => {}
        }
    }
}
