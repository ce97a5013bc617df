//! Files that are read again when they change.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zeroize::Zeroizing;

/// No file read here has more bytes than this.
const FILE_MAX: u64 = 1 << 20;

/// How often a file is looked at, at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a file says, read again after the file has changed. A file that cannot be read any more, or
/// makes no sense, changes nothing: what it said before stays, and the log tells.
pub(crate) struct Watched<T, E> {
    path: PathBuf,
    load: fn(&Path) -> Result<T, E>,
    interval: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// When the file was looked at.
    checked: Instant,
    /// The file `value` was read from; `None` if there was none.
    stamp: Option<Stamp>,
    /// The file about which the log was told that it cannot be used.
    refused: Option<Option<Stamp>>,
    value: Arc<T>,
}

impl<T, E: Error + 'static> Watched<T, E> {
    /// Reads a file for the first time.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) fn open(path: PathBuf, load: fn(&Path) -> Result<T, E>) -> Result<Self, E> {
        let stamp = Stamp::of(&path);
        let state = State {
            value: Arc::new(load(&path)?),
            checked: Instant::now(),
            stamp,
            refused: None,
        };
        Ok(Self {
            path,
            load,
            interval: INTERVAL,
            state: Mutex::new(state),
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file whenever it is asked.
    #[cfg(test)]
    pub(crate) fn always_look(mut self) -> Self {
        self.interval = Duration::ZERO;
        self
    }

    /// Looks at the file at once, as this process has changed it.
    pub(crate) fn look_now(&self) {
        let mut state = self.state.lock();
        self.look(&mut state);
        state.checked = Instant::now();
    }

    /// What the file says now, or said when it could last be read.
    pub(crate) fn get(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.checked.elapsed() >= self.interval {
            self.look(&mut state);
            state.checked = Instant::now();
        }
        Arc::clone(&state.value)
    }

    fn look(&self, state: &mut State<T>) {
        // Taken before the file is read, so that a change in between is seen the next time.
        let stamp = Stamp::of(&self.path);
        if stamp == state.stamp {
            state.refused = None;
            return;
        }
        match (self.load)(&self.path) {
            Ok(value) => {
                tracing::info!(path = %self.path.display(), "read again after a change");
                state.value = Arc::new(value);
                state.stamp = stamp;
                state.refused = None;
            }
            Err(error) if state.refused.as_ref() != Some(&stamp) => {
                tracing::warn!(
                    path = %self.path.display(),
                    error = chain(&error),
                    "has changed but cannot be used; keeping its previous content"
                );
                state.refused = Some(stamp);
            }
            Err(_) => {}
        }
    }
}

impl<T, E> fmt::Debug for Watched<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.path).finish()
    }
}

/// Tells one content of a file from the next.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Reads a whole file, if it is not bigger than files of settings are. Gives what it is, too.
pub(crate) fn read(path: &Path) -> io::Result<(Zeroizing<Vec<u8>>, Metadata)> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a file",
        ));
    }
    let too_big = || io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB");
    if metadata.len() > FILE_MAX {
        return Err(too_big());
    }
    // One more byte than the file has, so that the buffer never moves and leaves a copy behind.
    let room = usize::try_from(metadata.len()).unwrap_or(0) + 1;
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    file.by_ref().take(FILE_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_MAX {
        return Err(too_big());
    }
    Ok((content, metadata))
}

/// An error and what is behind it, in a line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> Result<u32, io::Error> {
        let (text, _) = read(path)?;
        std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| io::Error::other("not a number"))
    }

    #[test]
    fn a_change_is_seen_and_a_broken_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        assert!(Watched::open(path.clone(), number).is_err());
        fs::write(&path, "1").unwrap();
        let watched = Watched::open(path.clone(), number).unwrap().always_look();
        assert_eq!(*watched.get(), 1);
        fs::write(&path, "22").unwrap();
        assert_eq!(*watched.get(), 22);
        fs::write(&path, "three").unwrap();
        assert_eq!(*watched.get(), 22);
        fs::remove_file(&path).unwrap();
        assert_eq!(*watched.get(), 22);
        fs::write(&path, "4").unwrap();
        assert_eq!(*watched.get(), 4);
    }

    #[test]
    fn a_file_is_not_looked_at_all_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        fs::write(&path, "1").unwrap();
        let watched = Watched::open(path.clone(), number).unwrap();
        fs::write(&path, "22").unwrap();
        assert_eq!(*watched.get(), 1, "within a second of the last look");
        watched.state.lock().checked -= INTERVAL;
        assert_eq!(*watched.get(), 22);
    }

    #[test]
    fn what_is_no_small_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_err());
        let path = folder.path().join("big");
        File::create(&path).unwrap().set_len(FILE_MAX + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read(Path::new("/dev/zero")).is_err());
    }
}
