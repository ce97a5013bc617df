//! What is known of one file, directory or symlink.
//!
//! - `rights`: what users may do to it; `numbers`: by which the kernel knows it
//! - `written`: what was written to it; `changes`: our own changes of a directory

mod changes;
mod numbers;
mod rights;
mod written;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use afar_cell::Volume;
use afar_types::{CellName, DataVersion, FetchStatus, Fid, FileType};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::model::brief::Brief;
use crate::model::directory::{DirectoryCopy, Early};
use crate::model::dirty::Dirty;
use crate::model::error::Errno;
use crate::model::flight::Flight;
use crate::model::key::FileKey;
use crate::model::locks::Locks;
use crate::model::numbers::{NONE, Names, Number, Opened};
use crate::model::owner::local_owner;
use crate::model::promise::Promise;
use crate::model::rights::{Known, One};
use crate::model::types::{Attr, Ino, Kind};
use crate::model::user::UserId;

/// The longest the kernel may use something without asking.
const VALID_MOST: Duration = Duration::from_secs(3600);

/// A file, directory or symlink, by whatever names it is reached.
///
/// There may be a million of these that were only listed, so what is needed of a file that is opened or
/// changed is kept apart, in [`Rare`] and [`Work`], as long as it is needed.
#[derive(Debug)]
pub(crate) struct Vnode {
    pub(crate) fid: Fid,
    pub(crate) volume: Arc<Volume>,
    /// Whether it was used since the table looked last.
    pub(crate) used: AtomicBool,
    /// A promise was broken, and so the kernel told to drop what it has; nothing was taken from a server since. It
    /// changes with the state locked only.
    pub(crate) dropped: AtomicBool,
    /// What of it was prefetched and is not used yet, a bit for each kind.
    pub(crate) prefetched: AtomicU8,
    state: Mutex<VnodeState>,
}

/// What changes of a vnode.
#[derive(Debug)]
pub(crate) struct VnodeState {
    /// As the server told it last.
    status: Option<Brief>,
    /// While this is there and not over, the status is as it is on the server.
    pub(crate) promise: Option<Promise>,
    /// What users may do, as the server told them with the status.
    pub(crate) rights: Known,
    pub(crate) rare: Rarely,
    /// The first of the numbers by which the kernel knows it, and what was opened by that.
    pub(crate) number: Ino,
    pub(crate) opened: Opened,
}

/// What few vnodes have.
#[derive(Debug)]
pub(crate) struct Rare {
    /// The server has it no more.
    pub(crate) gone: bool,
    /// A directory's pages.
    pub(crate) pages: Option<DirectoryCopy>,
    /// A symlink's target or a mount point's text.
    pub(crate) link: Option<(DataVersion, Bytes)>,
    /// Changes of the directory that servers have not answered yet.
    pub(crate) changing: u32,
    /// Changes answered before those they follow.
    pub(crate) early: Vec<Early>,
    /// Calls that set its attributes, store it or name it again, and that servers have not answered yet.
    pub(crate) calls: u32,
    /// The last change of it that was made here and that its server does not have yet; 0 if it has all.
    pub(crate) unsent: u64,
    /// A lease of it was asked for, and is not asked for again before this.
    pub(crate) wish: Option<Instant>,
    /// The first answer to that is on its way.
    pub(crate) wishing: bool,
    /// What was written and is not stored yet.
    pub(crate) dirty: Option<Dirty>,
    /// It was opened to be replaced when it was empty: what is written first is to be the whole file
    /// even if somebody else, who replaces it as well, stores before. A mixture would be nobody's.
    pub(crate) emptied: bool,
    /// Bytes a second that were stored last time.
    pub(crate) store_pace: u64,
    /// Why storing failed last, until the one who closes the file is told.
    pub(crate) failed: Option<Errno>,
    /// Handles that are open.
    pub(crate) opens: u32,
    /// Of these, those for writing.
    pub(crate) writers: u32,
    /// The name to remove when it is closed last, as it was removed while open.
    pub(crate) hidden: Option<(Arc<Vnode>, Vec<u8>)>,
    /// Fetches under way.
    pub(crate) flights: Vec<Arc<Flight>>,
    /// What users may do besides the one who asked last.
    pub(crate) rights: Vec<One>,
    /// Users whose cached rights were not enough and were asked for again, and when.
    pub(crate) asked_again: Option<(UserId, Instant)>,
    /// Numbers besides the first one.
    pub(crate) numbers: Vec<Number>,
    /// Names in it that the kernel may know, if it is a directory.
    pub(crate) names: Names,
    work: Option<Arc<Work>>,
}

static NOTHING_RARE: Rare = Rare::new();

impl Rare {
    const fn new() -> Self {
        Self {
            gone: false,
            pages: None,
            link: None,
            changing: 0,
            early: Vec::new(),
            calls: 0,
            unsent: 0,
            wish: None,
            wishing: false,
            dirty: None,
            emptied: false,
            store_pace: 0,
            failed: None,
            opens: 0,
            writers: 0,
            hidden: None,
            flights: Vec::new(),
            rights: Vec::new(),
            asked_again: None,
            numbers: Vec::new(),
            names: Names::new(),
            work: None,
        }
    }

    /// Whether it need not be kept.
    fn is_nothing(&self) -> bool {
        let file = self.dirty.is_none()
            && self.failed.is_none()
            && self.hidden.is_none()
            && self.flights.is_empty()
            && (self.opens, self.writers, self.store_pace) == (0, 0, 0)
            && !self.emptied;
        let rights = !self.rights.is_empty() || self.asked_again.is_some();
        let known = !self.numbers.is_empty() || !self.names.is_empty() || rights;
        let cached = self.pages.is_some() || self.link.is_some() || known;
        let used = self.work.is_some() || self.changing > 0 || !self.early.is_empty();
        let leased = self.calls > 0 || self.unsent > 0 || self.wish.is_some() || self.wishing;
        !self.gone && file && !cached && !used && !leased
    }
}

/// A [`Rare`] that takes no memory before something in it is changed.
#[derive(Debug, Default)]
pub(crate) struct Rarely(Option<Box<Rare>>);

impl Rarely {
    /// It, if anything in it was ever changed: to take something away, nothing need be made.
    pub(crate) fn if_any(&mut self) -> Option<&mut Rare> {
        self.0.as_deref_mut()
    }

    /// Gives the memory back if there is nothing in it.
    pub(crate) fn tidy(&mut self) {
        self.0.take_if(|rare| rare.is_nothing());
    }
}

impl Deref for Rarely {
    type Target = Rare;

    fn deref(&self) -> &Rare {
        self.0.as_deref().unwrap_or(&NOTHING_RARE)
    }
}

impl DerefMut for Rarely {
    fn deref_mut(&mut self) -> &mut Rare {
        self.0.get_or_insert_with(|| Box::new(Rare::new()))
    }
}

/// What those share who do something with a vnode at the same time.
#[derive(Debug, Default)]
pub(crate) struct Work {
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
    /// A lease has come, or will not.
    pub(crate) leased: Notify,
    pub(crate) locks: Locks,
    /// How many have this; it changes under the vnode's lock only.
    users: AtomicUsize,
}

/// A vnode's [`Work`] for as long as somebody has this. It must not be dropped by one who has locked the
/// vnode.
#[derive(Debug)]
pub(crate) struct Working<'a> {
    vnode: &'a Vnode,
    work: Arc<Work>,
}

impl Deref for Working<'_> {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut state = self.vnode.lock();
        let work = state.rare.work.as_ref();
        debug_assert!(work.is_some_and(|work| Arc::ptr_eq(work, &self.work)));
        debug_assert!(self.work.users.load(Ordering::Relaxed) > 0);
        let last = self.work.users.fetch_sub(1, Ordering::Relaxed) == 1;
        // A stream borrows this only now and then; in between, its mark must not be lost.
        let streams = self.work.streaming.load(Ordering::SeqCst);
        if last && !streams && self.work.locks.are_unused() {
            state.rare.work = None;
            state.rare.tidy();
        }
    }
}

impl Vnode {
    pub(crate) fn new(volume: Arc<Volume>, fid: Fid) -> Self {
        Self {
            fid,
            volume,
            used: AtomicBool::new(true),
            dropped: AtomicBool::new(false),
            prefetched: AtomicU8::new(0),
            state: Mutex::default(),
        }
    }

    /// The cell it is in.
    pub(crate) fn cell(&self) -> &CellName {
        self.volume.cell_name()
    }

    /// Names it in all cells.
    pub(crate) fn key(&self) -> FileKey {
        FileKey {
            fid: self.fid,
            cell: self.cell().clone(),
        }
    }

    /// What is shared with others who do something with it now.
    pub(crate) fn work(&self) -> Working<'_> {
        let mut state = self.lock();
        let work = Arc::clone(state.rare.work.get_or_insert_default());
        work.users.fetch_add(1, Ordering::Relaxed);
        Working { vnode: self, work }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, VnodeState> {
        self.state.lock()
    }
}

impl Default for VnodeState {
    fn default() -> Self {
        Self {
            status: None,
            promise: None,
            rights: Known::default(),
            rare: Rarely::default(),
            number: NONE,
            opened: Opened::default(),
        }
    }
}

impl VnodeState {
    /// As the server told it last, but for what the caller may do.
    pub(crate) fn status(&self) -> Option<FetchStatus> {
        self.status.map(FetchStatus::from)
    }

    pub(crate) fn set_status(&mut self, status: FetchStatus) {
        self.status = Some(status.into());
    }

    /// The status, if it is promised. That of a directory is not right as long as a change that was
    /// answered waits for one before it: who made it must see it.
    pub(crate) fn promised(&self) -> Option<FetchStatus> {
        self.status()
            .filter(|_| self.holds() && self.rare.early.is_empty())
    }

    /// Whether a server's word holds.
    pub(crate) fn holds(&self) -> bool {
        self.promise
            .is_some_and(|promise| promise.until() > Instant::now())
    }

    /// Takes a status a server told. What is cached of another version goes.
    pub(crate) fn take_status(&mut self, status: FetchStatus) {
        self.set_status(status);
        let Some(rare) = self.rare.if_any() else {
            return;
        };
        let version = status.data_version;
        // While changes are under way the copy may be of a version before this one: their answers carry it on.
        if rare.changing == 0 {
            rare.pages.take_if(|copy| copy.version != version);
        }
        if rare.link.as_ref().is_some_and(|(of, _)| *of != version) {
            rare.link = None;
        }
        if let Some(dirty) = &mut rare.dirty
            && !dirty.resized
        {
            dirty.limit = status.length;
            dirty.length = status.length.max(dirty.ranges.end());
            dirty.check();
        }
        // Changes that waited for those before them are in it.
        rare.early.retain(|early| early.version() > version);
    }

    /// How long the status will be told to be over when it is.
    pub(crate) fn valid(&self) -> Duration {
        let promise = self.promise.filter(|_| self.rare.early.is_empty());
        let left = promise.map_or(Duration::ZERO, |promise| {
            promise.until().saturating_duration_since(Instant::now())
        });
        left.min(VALID_MOST)
    }

    /// The attributes, under this number.
    pub(crate) fn attr(&self, ino: Ino, status: &FetchStatus) -> Attr {
        let kind = match status.file_type {
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::File,
        };
        // What was asked for before something newer was known, such as what was stored meanwhile, is not what is
        // promised.
        let is_newest = self.status == Some(Brief::from(*status));
        let (mut size, mut mtime) = (status.length, status.client_mod_time);
        let mut ctime = status.server_mod_time;
        let mut mode = status.unix_mode_bits;
        if let Some(dirty) = &self.rare.dirty {
            (size, mtime) = (dirty.length, dirty.mtime);
            ctime = ctime.max(dirty.mtime);
            mode = dirty.mode.unwrap_or(mode);
        }
        Attr {
            ino,
            file: ino,
            kind,
            size,
            blocks: size.div_ceil(512),
            mtime: mtime.to_system_time(),
            ctime: ctime.to_system_time(),
            mode: mode & 0o7777,
            // The name it has at the server is not one of those programs see.
            nlink: match self.rare.hidden {
                Some(_) => 0,
                None => status.link_count,
            },
            uid: local_owner(status.owner),
            gid: status.group.0.unsigned_abs(),
            data_version: status.data_version,
            valid: if is_newest {
                self.valid()
            } else {
                Duration::ZERO
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vnode_that_was_only_listed_takes_little() {
        // With the counts before it and the allocator's word it fills 144 bytes.
        assert!(size_of::<Vnode>() <= 120, "{}", size_of::<Vnode>());
    }

    #[test]
    fn attributes_from_before_what_is_promised_are_not_promised() {
        let of_version = |version| FetchStatus {
            data_version: DataVersion(version),
            ..FetchStatus::default()
        };
        let mut state = VnodeState::default();
        state.set_status(of_version(7));
        state.promise = Promise::new(1, Instant::now() + Duration::from_secs(60));
        let valid = |status| state.attr(Ino::ROOT, &status).valid;
        assert!(valid(of_version(6)).is_zero());
        assert!(!valid(of_version(7)).is_zero());
        // A mode has no version.
        let other_mode = FetchStatus {
            unix_mode_bits: 0o600,
            ..of_version(7)
        };
        assert!(valid(other_mode).is_zero());
    }
}
