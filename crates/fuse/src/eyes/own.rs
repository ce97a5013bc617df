//! The files that a mount adds to those of AFS: a folder `.afar` at its top, which listings do not show, with what the
//! mount tells of itself.
//!
//! Only the user who mounted and root see it. They see it even if AFS has the same name there: what they read
//! is never what somebody with rights to the top directory has put in its place, and no server need answer for it.
//! All others see what AFS has. So the kernel must ask again at each look-up, and is given no time with the name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use afar_cache::{Errno, Ino};
use fuser::{FileAttr, FileType, FopenFlags, INodeNo};
use parking_lot::Mutex;

use super::Eyes;

/// The name of the folder.
const FOLDER: &[u8] = b".afar";
/// The name of the file with a line for each request.
const LOG: &str = "accesslog";
/// Marks numbers of ours. Those of the cache count from 1, and [listings](crate::requests) mark some with the bit
/// above.
const MARK: u64 = 1 << 62;
/// Numbers of the folder and of its files.
const FOLDER_NUMBER: u64 = MARK | 1;
const LOG_NUMBER: u64 = MARK | 2;
const REPORTS: u64 = MARK | 16;
/// Files that are open at a time.
const OPEN_MOST: usize = 64;
/// The user who may do everything on this machine.
const ROOT_USER: u32 = 0;
/// How long attributes hold.
const VALID: Duration = Duration::from_secs(1);

/// Makes the text of an open report as it is now.
pub type Text = Box<dyn Fn() -> String + Send + Sync>;

/// A file in the folder `.afar` of a mount.
pub struct Report {
    /// Its name.
    pub name: &'static str,
    /// Called when it is opened. What it returns is called by each reader who begins to read, and dropped
    /// when the file is closed.
    pub open: Box<dyn Fn() -> Text + Send + Sync>,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Report").field(&self.name).finish()
    }
}

/// One of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnFile {
    /// The folder.
    Folder,
    /// A line for each request.
    Log,
    /// A text.
    Report(usize),
}

impl OwnFile {
    /// Which one has this number, if it is one of ours.
    pub(crate) fn of(number: INodeNo) -> Option<Self> {
        let number = number.0;
        if number & (MARK << 1 | MARK) != MARK {
            return None;
        }
        Some(match number {
            FOLDER_NUMBER => Self::Folder,
            LOG_NUMBER => Self::Log,
            number => Self::Report(usize::try_from(number.checked_sub(REPORTS)?).ok()?),
        })
    }

    pub(crate) fn number(self) -> INodeNo {
        INodeNo(match self {
            Self::Folder => FOLDER_NUMBER,
            Self::Log => LOG_NUMBER,
            Self::Report(index) => REPORTS + index as u64,
        })
    }
}

/// The files of a mount of its own.
#[derive(Debug)]
pub(crate) struct Own {
    eyes: Arc<Eyes>,
    /// The user who mounted.
    owner: u32,
    reports: Vec<Report>,
    began: SystemTime,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    last: u64,
    by_handle: BTreeMap<u64, Option<OpenReport>>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened")
            .field(&self.by_handle.len())
            .finish()
    }
}

/// A report that is read.
#[derive(Clone)]
struct OpenReport {
    make: Arc<Text>,
    /// As it was when reading began.
    text: Arc<[u8]>,
}

impl Own {
    pub(crate) fn new(eyes: &Arc<Eyes>, owner: u32, reports: Vec<Report>) -> Self {
        Self {
            eyes: Arc::clone(eyes),
            owner,
            reports,
            began: SystemTime::now(),
            opened: Mutex::default(),
        }
    }

    /// Whether a name in this directory may be that of the folder.
    pub(crate) fn is_name(parent: INodeNo, name: &[u8]) -> bool {
        parent.0 == Ino::ROOT.0 && Self::is_folder_name(name)
    }

    /// Whether this is the name of the folder, in whatever directory.
    pub(crate) fn is_folder_name(name: &[u8]) -> bool {
        name == FOLDER
    }

    /// Whether this user sees the folder.
    pub(crate) fn is_for(&self, uid: u32) -> bool {
        uid == ROOT_USER || uid == self.owner
    }

    /// What a name in the folder stands for.
    pub(crate) fn named(&self, name: &[u8]) -> Option<OwnFile> {
        let mut all = self.listed();
        all.find(|(known, _)| known.as_bytes() == name)
            .map(|(_, file)| file)
    }

    /// What is in the folder.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (&'static str, OwnFile)> {
        let reports = self.reports.iter().enumerate();
        let reports = reports.map(|(index, report)| (report.name, OwnFile::Report(index)));
        [(LOG, OwnFile::Log)].into_iter().chain(reports)
    }

    pub(crate) fn attr(&self, file: OwnFile) -> FileAttr {
        let is_folder = file == OwnFile::Folder;
        FileAttr {
            ino: file.number(),
            // What they have is made when it is read.
            size: 0,
            blocks: 0,
            atime: self.began,
            mtime: self.began,
            ctime: self.began,
            crtime: self.began,
            kind: match is_folder {
                true => FileType::Directory,
                false => FileType::RegularFile,
            },
            perm: if is_folder { 0o500 } else { 0o400 },
            nlink: if is_folder { 2 } else { 1 },
            uid: self.owner,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// How long attributes may be used without asking.
    pub(crate) fn valid(&self) -> Duration {
        VALID
    }

    /// Opens a file for reading; returns its handle, and how the kernel is to treat it.
    pub(crate) fn open(&self, file: OwnFile) -> Result<(u64, FopenFlags), Errno> {
        let report = match file {
            OwnFile::Folder => return Err(Errno(libc::EISDIR)),
            OwnFile::Log => None,
            OwnFile::Report(index) => {
                let report = self.reports.get(index).ok_or(Errno::ENOENT)?;
                Some(OpenReport {
                    make: Arc::new((report.open)()),
                    text: Arc::from([]),
                })
            }
        };
        let is_log = report.is_none();
        let mut opened = self.opened.lock();
        if opened.by_handle.len() >= OPEN_MOST {
            return Err(Errno(libc::EMFILE));
        }
        opened.last += 1;
        let handle = opened.last;
        if is_log {
            self.eyes.log.open(handle)?;
        }
        opened.by_handle.insert(handle, report);
        // The kernel keeps nothing of it. Lines have no places, and two may read them at a time.
        let mut flags = FopenFlags::FOPEN_DIRECT_IO;
        if is_log {
            flags |= FopenFlags::FOPEN_STREAM | FopenFlags::FOPEN_NONSEEKABLE;
        }
        Ok((handle, flags))
    }

    /// Closes a file.
    pub(crate) fn close(&self, handle: u64) {
        let closed = self.opened.lock().by_handle.remove(&handle);
        if let Some(None) = closed {
            self.eyes.log.close(handle);
        }
    }

    /// Reads from a file; `waits` says whether to wait for something to read.
    pub(crate) async fn read(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        waits: bool,
    ) -> Result<Vec<u8>, Errno> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let opened = self.opened.lock().by_handle.get(&handle).cloned();
        let Some(report) = opened.ok_or(Errno::EBADF)? else {
            return self.eyes.log.read(handle, size, waits).await;
        };
        let mut text = report.text;
        if offset == 0 {
            let make = report.make;
            let made = tokio::task::spawn_blocking(move || make());
            text = made.await.map_err(|_| Errno::EIO)?.into_bytes().into();
            let mut opened = self.opened.lock();
            if let Some(Some(report)) = opened.by_handle.get_mut(&handle) {
                report.text = Arc::clone(&text);
            }
        }
        let rest = usize::try_from(offset).ok().and_then(|at| text.get(at..));
        let rest = rest.unwrap_or_default();
        Ok(rest[..rest.len().min(size)].to_vec())
    }

    /// Tells those who read lines that none come any more: for ever, or while the mount goes on.
    pub(crate) fn end_readers(&self, for_ever: bool) {
        self.eyes.log.end(for_ever);
    }

    /// Whether anybody waits for lines.
    pub(crate) fn has_readers(&self) -> bool {
        self.eyes.log.is_read()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use afar_telemetry::Registry;

    use super::*;

    fn own(counter: &Arc<AtomicUsize>) -> Own {
        let eyes = Eyes::new(&Registry::default(), false);
        let counter = Arc::clone(counter);
        let open = move || -> Text {
            let counter = Arc::clone(&counter);
            Box::new(move || format!("look {}\n", counter.fetch_add(1, Ordering::Relaxed)))
        };
        let open = Box::new(open);
        Own::new(
            &eyes,
            1000,
            vec![Report {
                name: "stats",
                open,
            }],
        )
    }

    #[test]
    fn numbers_stand_for_our_files_only() {
        for file in [OwnFile::Folder, OwnFile::Log, OwnFile::Report(0)] {
            assert_eq!(OwnFile::of(file.number()), Some(file));
        }
        for number in [0, 1, 2, 77, 1 << 63, 1 << 63 | FOLDER_NUMBER, MARK] {
            assert_eq!(OwnFile::of(INodeNo(number)), None, "{number:x}");
        }
    }

    #[test]
    fn the_folder_is_at_the_top_and_for_two_users() {
        let own = own(&Arc::default());
        assert!(Own::is_name(INodeNo(1), b".afar"));
        assert!(!Own::is_name(INodeNo(2), b".afar") && !Own::is_name(INodeNo(1), b".afa"));
        assert!(own.is_for(0) && own.is_for(1000) && !own.is_for(1001));
        assert_eq!(own.named(b"stats"), Some(OwnFile::Report(0)));
        assert_eq!(own.named(b"accesslog"), Some(OwnFile::Log));
        assert_eq!(own.named(b""), None);
    }

    #[tokio::test]
    async fn a_report_is_made_again_for_each_reader_from_the_start() {
        let looks = Arc::default();
        let own = own(&looks);
        let (one, _) = own.open(OwnFile::Report(0)).unwrap();
        let (other, _) = own.open(OwnFile::Report(0)).unwrap();
        let read = async |handle, offset, size| {
            let bytes = own.read(handle, offset, size, true).await.unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(read(one, 0, 6).await, "look 0");
        assert_eq!(read(other, 0, 100).await, "look 1\n");
        assert_eq!(read(one, 5, 100).await, "0\n");
        assert_eq!(read(one, 7, 100).await, "");
        assert_eq!(read(one, u64::MAX, 100).await, "");
        assert_eq!(read(one, 0, 100).await, "look 2\n");
        own.close(one);
        assert_eq!(own.read(one, 0, 1, true).await, Err(Errno::EBADF));
        // What it held goes when it is closed.
        own.close(other);
        drop(own);
        assert_eq!(Arc::strong_count(&looks), 1);
    }

    #[tokio::test]
    async fn open_files_are_bounded_and_closing_lets_the_next_in() {
        let own = own(&Arc::default());
        let handles: Vec<u64> = (0..OPEN_MOST)
            .map(|_| own.open(OwnFile::Report(0)).unwrap().0)
            .collect();
        assert_eq!(own.open(OwnFile::Log), Err(Errno(libc::EMFILE)));
        assert!(!own.has_readers());
        own.close(handles[0]);
        let (log, _) = own.open(OwnFile::Log).unwrap();
        assert!(own.has_readers());
        own.end_readers(false);
        assert_eq!(own.read(log, 0, 100, true).await, Ok(Vec::new()));
        own.close(log);
        assert!(!own.has_readers());
    }
}
