//! Tokens in files, one a cell, in a directory nobody else may enter.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use afar_types::CellName;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use super::entry::ENTRY_MAX;
use super::store::{StoreError, read};
use super::{Held, Source};

/// What others must not be allowed to do with a file or directory of tokens.
const OTHERS: u32 = 0o077;
/// The directory in that of a user's session.
const BELOW_SESSION: &str = "afar/tokens";
/// The ending of a file that is being written.
const UNFINISHED: &str = ".new";

/// A directory of tokens. It is made with the first one.
#[derive(Clone, Debug)]
pub(super) struct Files {
    dir: PathBuf,
    /// Whose it must be.
    uid: u32,
}

impl Files {
    pub(super) fn new(dir: PathBuf) -> Self {
        let uid = geteuid().as_raw();
        Self { dir, uid }
    }

    /// Where a user of this machine is who may be another one: [`usual`](Self::usual) as far as it
    /// does not depend on the variables of the user's session.
    pub(super) fn of_user(uid: u32) -> Self {
        let session = PathBuf::from(format!("/run/user/{uid}"));
        let dir = match fs::metadata(&session) {
            Ok(found) if found.uid() == uid => session.join(BELOW_SESSION),
            _ => PathBuf::from(format!("/tmp/afar-tokens-{uid}")),
        };
        Self { dir, uid }
    }

    /// The user's directory: in the session's own, or else in `/tmp`, where it is looked at twice.
    pub(super) fn usual() -> Self {
        let uid = geteuid().as_raw();
        let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut dirs = session
            .into_iter()
            .chain([PathBuf::from(format!("/run/user/{uid}"))]);
        // Root may run with the variables of another user, whose directory this is not.
        let own = dirs.find(|dir| fs::metadata(dir).is_ok_and(|found| found.uid() == uid));
        Self::new(match own {
            Some(dir) => dir.join(BELOW_SESSION),
            None => PathBuf::from(format!("/tmp/afar-tokens-{uid}")),
        })
    }

    pub(super) fn put(&self, held: &Held, entry: &[u8]) -> Result<Source, StoreError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir);
        made.map_err(|source| failed(&self.dir, source))?;
        self.check()?;
        let path = self.path(&held.cell);
        let unfinished = self
            .dir
            .join(format!("{}.{}{UNFINISHED}", held.cell, std::process::id()));
        let written = write(&unfinished, entry).and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(|source| failed(&path, source))?;
        Ok(Source::File(path))
    }

    pub(super) fn find(&self, cell: &CellName) -> Result<Option<(Held, Source)>, StoreError> {
        if !self.check()? {
            return Ok(None);
        }
        self.read(&self.path(cell))
    }

    pub(super) fn all(&self) -> Vec<Result<(Held, Source), StoreError>> {
        let listed = match self.check() {
            Ok(true) => fs::read_dir(&self.dir).map_err(|source| failed(&self.dir, source)),
            Ok(false) => return Vec::new(),
            Err(error) => Err(error),
        };
        let entries = match listed {
            Ok(entries) => entries.flatten(),
            Err(error) => return vec![Err(error)],
        };
        let paths = entries.map(|entry| entry.path());
        let finished = paths.filter(|path| !path.to_string_lossy().ends_with(UNFINISHED));
        finished
            .filter_map(|path| self.read(&path).transpose())
            .collect()
    }

    pub(super) fn remove(&self, cell: &CellName) -> Result<bool, StoreError> {
        if !self.check()? {
            return Ok(false);
        }
        let path = self.path(cell);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(failed(&path, source)),
        }
    }

    /// A cell's name has no slash and is neither `.` nor `..`.
    fn path(&self, cell: &CellName) -> PathBuf {
        self.dir.join(cell.as_str())
    }

    /// Whether the directory is there. It must be ours alone: in `/tmp` anybody may have made it.
    fn check(&self) -> Result<bool, StoreError> {
        let found = match fs::symlink_metadata(&self.dir) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(failed(&self.dir, source)),
        };
        if !found.is_dir() {
            return Err(insecure(&self.dir, "it is a link or not a directory"));
        }
        self.check_owner(&self.dir, &found)?;
        Ok(true)
    }

    fn read(&self, path: &Path) -> Result<Option<(Held, Source)>, StoreError> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(path, source)),
        };
        let found = file.metadata().map_err(|source| failed(path, source))?;
        if !found.is_file() {
            return Err(insecure(path, "it is no file"));
        }
        self.check_owner(path, &found)?;
        let entry = read_all(file).map_err(|source| failed(path, source))?;
        read(&entry, Source::File(path.to_owned())).map(Some)
    }

    fn check_owner(&self, path: &Path, found: &fs::Metadata) -> Result<(), StoreError> {
        if found.uid() != self.uid {
            return Err(insecure(path, "it belongs to another user"));
        }
        if found.mode() & OTHERS != 0 {
            return Err(insecure(path, "others have rights to it"));
        }
        Ok(())
    }
}

fn read_all(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let limit = ENTRY_MAX as u64 + 1;
    // As large as it gets from the beginning: no key stays behind in a smaller buffer.
    let length = file.metadata()?.len().min(limit);
    let mut entry = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0)));
    file.take(length).read_to_end(&mut entry)?;
    Ok(entry)
}

fn write(path: &Path, entry: &[u8]) -> io::Result<()> {
    // What a process of this number left behind is nobody's.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(entry)
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::File {
        path: path.to_owned(),
        source,
    }
}

fn insecure(path: &Path, problem: &'static str) -> StoreError {
    StoreError::Unsafe {
        path: path.to_owned(),
        problem,
    }
}
