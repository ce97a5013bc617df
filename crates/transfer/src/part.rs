//! A local file in the making that outlives an interruption.
//!
//! It is a file `.afar-part.HASH` beside the one it is to become, as long as that; behind its end, for
//! as long as it is not complete, stands a record: which version of which file it is of, and which
//! bytes are there. What the record says is on the disk before the record is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use afar_cell::{Node, Sink};
use afar_types::FetchStatus;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Context, Result, bail};
use crate::extents::Extents;
use crate::progress::Meter;
use crate::target::Target;

/// How the names of files in the making begin, here and in AFS.
const PREFIX: &[u8] = b".afar-part.";
/// Of less than this nothing is kept: it is copied again.
pub(crate) const KEEP_LEAST: u64 = 1 << 20;
/// After so many bytes more the record is written again, for those who pull plugs.
const RECORD_EVERY: u64 = 64 << 20;
/// Ranges in a record, and bytes of the longest there can be.
const RANGES_MOST: usize = 1000;
const RECORD_MOST: u64 = 128 << 10;

/// The name under which a file is made.
pub(crate) fn part_name(name: &[u8]) -> String {
    let prefix = String::from_utf8_lossy(PREFIX);
    format!("{prefix}{:016x}", xxh3_64(name))
}

/// The name under which a file is made in AFS out of one that these words tell from all others.
pub(crate) fn part_name_of(name: &[u8], source: &str) -> String {
    format!("{}.{:016x}", part_name(name), xxh3_64(source.as_bytes()))
}

/// Of the name of a file in the making, what [`part_name`] gives; `None` for all other names.
pub(crate) fn part_of(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(PREFIX)?;
    let digits = rest.split(|&byte| byte == b'.').next()?;
    let end = PREFIX.len() + digits.len();
    let is_hash = digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit);
    is_hash.then(|| &name[..end])
}

/// A version of a file in AFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    cell: String,
    fid: String,
    data_version: u64,
    length: u64,
}

impl From<&Node> for Version {
    fn from(node: &Node) -> Self {
        Self {
            cell: node.volume.cell_name().to_string(),
            fid: node.fid.to_string(),
            data_version: node.status.data_version.0,
            length: node.status.length,
        }
    }
}

/// What stands behind the data.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    of: Version,
    there: Vec<(u64, u64)>,
}

/// A file in the making, locked against others.
#[derive(Debug)]
pub(crate) struct Part {
    target: Target,
    recorder: Arc<Recorder>,
}

#[derive(Debug)]
struct Recorder {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    of: Version,
    there: Extents,
    /// Bytes that came since the record was written.
    unrecorded: u64,
    /// Times it was restarted.
    begun: u64,
}

impl Part {
    /// Makes the file in the making for `name`, or goes on with one that an interrupted run left of
    /// the same version.
    ///
    /// # Errors
    /// When it cannot be made, or another process is at it.
    pub(crate) fn open(
        directory: &Path,
        name: &[u8],
        path: &Path,
        of: Version,
        progress: Arc<Meter>,
    ) -> Result<Self> {
        let temporary = directory.join(part_name(name));
        let file = open_or_create(&temporary)?;
        let there = match recorded(&file, &of) {
            Some(there) => there,
            None => {
                file.set_len(0)?;
                Extents::default()
            }
        };
        let recorder = Recorder {
            file: file.try_clone()?,
            state: Mutex::new(State {
                of,
                there,
                unrecorded: 0,
                begun: 0,
            }),
        };
        Ok(Self {
            target: Target::new(file, temporary, path.to_owned(), progress),
            recorder: Arc::new(recorder),
        })
    }

    /// Bytes that are there.
    pub(crate) fn there(&self) -> u64 {
        self.recorder.lock().there.total()
    }

    /// What is missing.
    pub(crate) fn gaps(&self) -> Vec<Range<u64>> {
        let state = self.recorder.lock();
        state.there.gaps(state.of.length)
    }

    /// Gives the file, which is complete, its name; if `preserve`, with the mode and time it has in AFS, else with
    /// the mode of what it replaces, or that one less the umask.
    pub(crate) fn publish(
        &mut self,
        status: &FetchStatus,
        preserve: bool,
        fsync: bool,
    ) -> io::Result<()> {
        self.recorder.file.set_len(status.length)?;
        if !preserve {
            self.target.take_mode(status.unix_mode_bits)?;
        }
        self.target.publish(status, preserve, fsync)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.target.is_published()
            && self.there() >= KEEP_LEAST
            && self.recorder.write().is_ok()
        {
            self.target.keep();
        }
    }
}

impl Sink for Part {
    fn begin(&self, status: &FetchStatus) -> io::Result<()> {
        {
            let mut state = self.recorder.lock();
            state.there = Extents::default();
            state.unrecorded = 0;
            state.begun += 1;
            state.of.data_version = status.data_version.0;
            state.of.length = status.length;
        }
        self.recorder.file.set_len(0)?;
        self.target.begin(status)
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let length: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let begun = self.recorder.lock().begun;
        self.target.write(offset, chunks).await?;
        let due = {
            let mut state = self.recorder.lock();
            if state.begun != begun {
                // It is of a version that is void.
                return Ok(());
            }
            state.there.insert(offset..offset + length);
            state.unrecorded += length;
            let due = state.unrecorded >= RECORD_EVERY;
            if due {
                state.unrecorded = 0;
            }
            due
        };
        if due {
            let recorder = Arc::clone(&self.recorder);
            let writing = tokio::task::spawn_blocking(move || recorder.write());
            writing.await.map_err(io::Error::other)??;
        }
        Ok(())
    }
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Writes what is there, which is on the disk then.
    fn write(&self) -> io::Result<()> {
        let (record, begun) = {
            let state = self.lock();
            let record = Record {
                of: state.of.clone(),
                there: state.there.list(RANGES_MOST),
            };
            (record, state.begun)
        };
        self.file.sync_data()?;
        // Only one thread at a time may write it, and none of what is void by now.
        let state = self.lock();
        if state.begun != begun {
            return Ok(());
        }
        let text = serde_json::to_vec(&record)?;
        self.file.set_len(record.of.length)?;
        self.file.write_all_at(&text, record.of.length)
    }
}

/// What the record of a file in the making says is there of this version.
fn recorded(file: &File, of: &Version) -> Option<Extents> {
    let end = file.metadata().ok()?.len();
    let length = end
        .checked_sub(of.length)
        .filter(|&left| left <= RECORD_MOST)?;
    let mut text = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut text, of.length).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.of == *of).then(|| Extents::from_list(&record.there, of.length))?
}

/// Opens a file of ours, or makes it, and locks it.
fn open_or_create(path: &Path) -> Result<File> {
    let cannot_write = || format!("cannot write {}", path.display());
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = match options.open(path) {
        Ok(file) if is_ours(&file)? => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = options.create_new(true).open(path);
            made.with_context(cannot_write)?
        }
        // What somebody else has put there is none of ours to go on with.
        Ok(_) | Err(_) => {
            fs::remove_file(path).with_context(cannot_write)?;
            let made = options.create_new(true).open(path);
            made.with_context(cannot_write)?
        }
    };
    let busy = match file.try_lock() {
        Ok(()) => !is_at(&file, path),
        Err(TryLockError::WouldBlock) => true,
        // A file system without locks.
        Err(TryLockError::Error(_)) => false,
    };
    if busy {
        bail!(AgainLater => "another afar is copying it");
    }
    Ok(file)
}

fn is_ours(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    Ok(metadata.is_file() && metadata.uid() == user && metadata.nlink() == 1)
}

/// Whether a file still has this name, which another process may have taken from it.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(one), Ok(other)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use afar_types::DataVersion;

    use super::*;

    const LENGTH: u64 = 3 * KEEP_LEAST;

    fn version(data_version: u64) -> Version {
        Version {
            cell: "a.org".to_owned(),
            fid: "1.2.3".to_owned(),
            data_version,
            length: LENGTH,
        }
    }

    fn status(data_version: u64) -> FetchStatus {
        FetchStatus {
            length: LENGTH,
            data_version: DataVersion(data_version),
            unix_mode_bits: 0o640,
            client_mod_time: 1_000_000_000.into(),
            ..FetchStatus::default()
        }
    }

    fn open(directory: &Path, data_version: u64) -> Result<Part> {
        let progress = Arc::new(Meter::new(Arc::new(())));
        let path = directory.join("file");
        Part::open(directory, b"file", &path, version(data_version), progress)
    }

    /// Two thirds of a file, which are written as the end and the beginning.
    async fn begun(directory: &Path) -> Part {
        let part = open(directory, 5).unwrap();
        assert_eq!(part.there(), 0);
        part.begin(&status(5)).unwrap();
        for third in [2, 0] {
            let data = vec![b'0' + u8::try_from(third).unwrap(); 1 << 20];
            let chunks = vec![Bytes::from(data)];
            part.write(third * KEEP_LEAST, chunks).await.unwrap();
        }
        part
    }

    #[tokio::test]
    async fn an_interrupted_copy_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        drop(begun(dir.path()).await);
        let mut part = open(dir.path(), 5).unwrap();
        let gap = KEEP_LEAST..2 * KEEP_LEAST;
        assert_eq!(
            (part.there(), part.gaps()),
            (2 * KEEP_LEAST, vec![gap.clone()])
        );
        assert!(
            open(dir.path(), 5)
                .unwrap_err()
                .to_string()
                .contains("another afar")
        );
        let chunks = vec![Bytes::from(vec![b'1'; 1 << 20])];
        part.write(gap.start, chunks).await.unwrap();
        assert!(part.gaps().is_empty());
        part.publish(&status(5), true, true).unwrap();
        drop(part);
        let data = fs::read(dir.path().join("file")).unwrap();
        let expected = ["0", "1", "2"].map(|third| third.repeat(1 << 20)).concat();
        assert!(data == expected.as_bytes());
        let mode = fs::metadata(dir.path().join("file")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn what_is_of_another_version_or_somebody_else_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join(part_name(b"file"));
        drop(begun(dir.path()).await);
        // A link to it is one of somebody else, who could change it.
        fs::hard_link(&name, dir.path().join("link")).unwrap();
        assert_eq!(open(dir.path(), 5).unwrap().there(), 0);
        drop(begun(dir.path()).await);
        assert_eq!(open(dir.path(), 6).unwrap().there(), 0);
        // Of little nothing is kept.
        assert!(!name.exists());
        // The file changes while it is copied.
        let part = begun(dir.path()).await;
        part.begin(&status(6)).unwrap();
        assert_eq!(part.there(), 0);
        drop(part);
        drop(begun(dir.path()).await);
        // A record cut off.
        let file = OpenOptions::new().write(true).open(&name).unwrap();
        file.set_len(LENGTH + 9).unwrap();
        assert_eq!(open(dir.path(), 5).unwrap().there(), 0);
        std::os::unix::fs::symlink("elsewhere", &name).unwrap();
        assert_eq!(open(dir.path(), 5).unwrap().there(), 0);
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn names_tell_files_in_the_making() {
        let (here, there) = (part_name(b"x"), part_name_of(b"x", "version"));
        assert_eq!(part_of(here.as_bytes()), Some(here.as_bytes()));
        assert_eq!(part_of(there.as_bytes()), Some(here.as_bytes()));
        assert_ne!(there, part_name_of(b"x", "other"));
        for other in [
            "x",
            ".afar-part.",
            ".afar-part.notes",
            ".afar-part.0123456789abcdeg",
        ] {
            assert_eq!(part_of(other.as_bytes()), None);
        }
    }
}
