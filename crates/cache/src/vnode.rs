//! What is known of one file, directory or symlink.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use afar_cell::Volume;
use afar_types::{DataVersion, FetchStatus, FileType, UnixTime};
use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::access::Known;
use crate::data::{Failed, Flight};
use crate::edit::Early;
use crate::error::Errno;
use crate::lock::Locks;
use crate::ranges::RangeSet;
use crate::storage::FileKey;
use crate::types::{Attr, Ino, Kind};

/// The longest the kernel may use something without asking.
const VALID_MOST: Duration = Duration::from_secs(3600);

/// A file, directory or symlink, by whatever names it is reached.
#[derive(Debug)]
pub(crate) struct Vnode {
    pub(crate) key: FileKey,
    pub(crate) volume: Arc<Volume>,
    /// Whether it was used since the table looked last.
    pub(crate) used: AtomicBool,
    /// One asks a server at a time, and the others use the answer.
    pub(crate) asking: AsyncMutex<()>,
    /// One stores at a time, for file servers do no more either.
    pub(crate) storing: AsyncMutex<()>,
    /// Whether what is written is being stored while more is written.
    pub(crate) streaming: AtomicBool,
    /// Some of what was written is stored, or will not be.
    pub(crate) stored: Notify,
    /// Data has come, or will not.
    pub(crate) arrived: Notify,
    pub(crate) locks: Locks,
    state: Mutex<State>,
}

/// What changes of a vnode.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// As the server told it last.
    pub(crate) status: Option<FetchStatus>,
    /// While this is there and not over, `status` is as it is on the server.
    pub(crate) promise: Option<Promise>,
    /// What users may do, as the server told them with the status.
    pub(crate) rights: Known,
    /// A directory's pages.
    pub(crate) pages: Option<(DataVersion, Arc<Vec<u8>>)>,
    /// A symlink's target or a mount point's text.
    pub(crate) link: Option<(DataVersion, Bytes)>,
    /// Changes of the directory that servers have not answered yet.
    pub(crate) changing: u32,
    /// Changes answered before those they follow.
    pub(crate) early: Vec<Early>,
    /// What was written and is not stored yet.
    pub(crate) dirty: Option<Dirty>,
    /// Octets a second that were stored last time.
    pub(crate) store_pace: u64,
    /// Why storing failed last, until the one who closes the file is told.
    pub(crate) failed: Option<Errno>,
    /// Handles that are open.
    pub(crate) opens: u32,
    /// Of these, those for writing.
    pub(crate) writers: u32,
    /// The name to remove when it is closed last, as it was removed while open.
    pub(crate) hidden: Option<(Arc<Vnode>, Vec<u8>)>,
    /// The server has it no more.
    pub(crate) gone: bool,
    /// Fetches under way.
    pub(crate) flights: Vec<Arc<Flight>>,
}

/// A server's word that it will tell of changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) server: SocketAddr,
    pub(crate) until: Instant,
}

/// What was written to a file and is not stored yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dirty {
    /// The octets written.
    pub(crate) ranges: RangeSet,
    /// Those written while others are being stored, if so.
    pub(crate) since: Option<Since>,
    /// The file's length.
    pub(crate) length: u64,
    /// The least length it was cut to; behind it nothing is left of what the server has.
    pub(crate) limit: u64,
    /// Whether the length was set, and is no longer the server's if that changes.
    pub(crate) resized: bool,
    /// Whether that is to be stored even if nothing was written.
    pub(crate) unstored: bool,
    /// When it was changed.
    pub(crate) mtime: UnixTime,
    /// The time with which it was tried to be stored last.
    pub(crate) tried: UnixTime,
    /// Whether all of it survives a crash.
    pub(crate) kept: bool,
    /// The user of this machine who wrote it last, and as whom it is stored when nobody asks for it.
    pub(crate) writer: u32,
    /// How storing it failed last, if it did.
    pub(crate) failed: Option<Failed>,
    /// The mode that was set since, which is stored with the octets.
    pub(crate) mode: Option<u32>,
}

/// What was done to a file while what was written before is being stored.
#[derive(Debug, Clone)]
pub(crate) struct Since {
    /// The octets written.
    pub(crate) ranges: RangeSet,
    /// The least length it was cut to.
    pub(crate) limit: u64,
}

impl Default for Since {
    fn default() -> Self {
        Self {
            ranges: RangeSet::default(),
            limit: u64::MAX,
        }
    }
}

impl Dirty {
    /// Leaves only the first `most` octets written, and makes the file no longer than those reach.
    /// Returns false if that is all, as it was.
    pub(crate) fn trim(&mut self, most: u64, base: &FetchStatus) -> bool {
        let Some(end) = self.ranges.first(most) else {
            return false;
        };
        self.ranges.remove(end..u64::MAX);
        // What is cut off is cut off first.
        let before = base.length.min(self.limit);
        self.length = self.length.min(before.max(end));
        self.mode = None;
        true
    }
}

impl Vnode {
    pub(crate) fn new(key: FileKey, volume: Arc<Volume>) -> Self {
        Self {
            key,
            volume,
            used: AtomicBool::new(true),
            asking: AsyncMutex::default(),
            storing: AsyncMutex::default(),
            streaming: AtomicBool::new(false),
            stored: Notify::new(),
            arrived: Notify::new(),
            locks: Locks::default(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The status, if it is promised. That of a directory is not right as long as a change that was
    /// answered waits for one before it: who made it must see it.
    pub(crate) fn promised(&self) -> Option<FetchStatus> {
        self.status
            .filter(|_| self.holds() && self.early.is_empty())
    }

    /// Whether a server's word holds.
    pub(crate) fn holds(&self) -> bool {
        self.promise
            .is_some_and(|promise| promise.until > Instant::now())
    }

    /// Takes a status a server told. What is cached of another version goes.
    pub(crate) fn take_status(&mut self, status: FetchStatus) {
        let version = status.data_version;
        if self.pages.as_ref().is_some_and(|(of, _)| *of != version) && self.changing == 0 {
            self.pages = None;
        }
        if self.link.as_ref().is_some_and(|(of, _)| *of != version) {
            self.link = None;
        }
        if let Some(dirty) = &mut self.dirty
            && !dirty.resized
        {
            dirty.limit = status.length;
            dirty.length = status.length.max(dirty.ranges.end());
        }
        self.status = Some(status);
        // Changes that waited for those before them are in it.
        self.early.retain(|early| early.version() > version);
    }

    /// How long the status will be told to be over when it is.
    pub(crate) fn valid(&self) -> Duration {
        let promise = self.promise.filter(|_| self.early.is_empty());
        let left = promise.map_or(Duration::ZERO, |promise| {
            promise.until.saturating_duration_since(Instant::now())
        });
        left.min(VALID_MOST)
    }

    /// Octets written and not stored yet.
    pub(crate) fn written(&self) -> u64 {
        self.dirty.as_ref().map_or(0, |dirty| dirty.ranges.octets())
    }

    /// The length as programs here see it.
    pub(crate) fn length(&self) -> u64 {
        let stored = self.status.map_or(0, |status| status.length);
        self.dirty.as_ref().map_or(stored, |dirty| dirty.length)
    }

    /// The attributes, under this number.
    pub(crate) fn attr(&self, ino: Ino, status: &FetchStatus) -> Attr {
        let kind = match status.file_type {
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::File,
        };
        let (mut size, mut mtime) = (status.length, status.client_mod_time);
        let mut ctime = status.server_mod_time;
        let mut mode = status.unix_mode_bits;
        if let Some(dirty) = &self.dirty {
            (size, mtime) = (dirty.length, dirty.mtime);
            ctime = ctime.max(dirty.mtime);
            mode = dirty.mode.unwrap_or(mode);
        }
        Attr {
            ino,
            kind,
            size,
            blocks: size.div_ceil(512),
            mtime: mtime.to_system_time(),
            ctime: ctime.to_system_time(),
            mode: mode & 0o7777,
            nlink: status.link_count,
            uid: status.owner.0.unsigned_abs(),
            gid: status.group.0.unsigned_abs(),
            data_version: status.data_version,
            valid: self.valid(),
        }
    }

    /// What was written, if only from now on.
    pub(crate) fn dirty(&mut self) -> &mut Dirty {
        let length = self.status.map_or(0, |status| status.length);
        self.dirty.get_or_insert_with(|| Dirty {
            length,
            limit: length,
            mtime: UnixTime::from(SystemTime::now()),
            ..Dirty::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_first_makes_the_file_no_longer_than_it_reaches() {
        let base = FetchStatus {
            length: 1000,
            ..FetchStatus::default()
        };
        let mut dirty = Dirty {
            length: 5000,
            limit: 100,
            mode: Some(0o600),
            ..Dirty::default()
        };
        dirty.ranges.insert(0..50);
        dirty.ranges.insert(200..300);
        let mut whole = dirty.clone();
        assert!(!whole.trim(150, &base));
        assert_eq!((whole.length, whole.mode), (5000, Some(0o600)));
        let mut some = dirty.clone();
        assert!(some.trim(120, &base));
        assert_eq!((some.length, some.ranges.octets()), (270, 120));
        assert_eq!(some.mode, None, "it comes with the last");
        let mut little = dirty;
        assert!(little.trim(30, &base));
        assert_eq!((little.length, little.ranges.end()), (100, 30));
    }
}
