//! What is known of one file, directory or symlink.

use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use afar_cell::Volume;
use afar_types::{
    CellName, DataVersion, FetchStatus, Fid, FileType, PtsId, Uniquifier, UnixTime, VnodeId,
};
use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::access::{Known, One, Short};
use crate::data::{Failed, Flight};
use crate::edit::{DirectoryCopy, Early};
use crate::error::Errno;
use crate::inodes::{self, Names, Number, Opened};
use crate::lock::Locks;
use crate::ranges::RangeSet;
use crate::storage::FileKey;
use crate::types::{Attr, Ino, Kind};
use crate::users::UserId;

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
    state: Mutex<State>,
}

/// What changes of a vnode.
#[derive(Debug)]
pub(crate) struct State {
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
        !self.gone && file && !cached && !used
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
        let last = self.work.users.fetch_sub(1, Ordering::Relaxed) == 1;
        let streams = self.work.streaming.load(Ordering::SeqCst);
        if last && !streams && self.work.locks.are_unused() {
            state.rare.work = None;
            state.rare.tidy();
        }
    }
}

/// A server's word that it will tell of changes.
///
/// In little memory: the server's number in the uppermost 16 bits, and in the others when it is over, in
/// milliseconds since [`start`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise(NonZeroU64);

/// A time before any promise that is kept.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

impl Promise {
    const TIME_BITS: u32 = 48;

    /// It may be over a moment early, and never late. None if it is over already.
    pub(crate) fn new(server: u16, until: Instant) -> Option<Self> {
        let time = until.checked_duration_since(start())?.as_millis();
        let time = u64::try_from(time).ok()?.min((1 << Self::TIME_BITS) - 1);
        let some = NonZeroU64::new(time)?;
        Some(Self(some | u64::from(server) << Self::TIME_BITS))
    }

    /// The number of the server that gave it.
    pub(crate) fn server(self) -> u16 {
        let [high, low, ..] = self.0.get().to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    fn until(self) -> Instant {
        let time = self.0.get() & ((1 << Self::TIME_BITS) - 1);
        start() + Duration::from_millis(time)
    }
}

/// What is kept of a status: what somebody uses later. What the caller may do is kept with users' rights.
#[derive(Debug, Clone, Copy)]
struct Brief {
    kind: Option<Kind>,
    anonymous_access: Short,
    /// The lower half, in which all bits with a meaning are.
    unix_mode_bits: u16,
    /// As servers count it; those that tell of more are not known.
    link_count: u16,
    length: u64,
    data_version: DataVersion,
    owner: PtsId,
    group: PtsId,
    parent_vnode: VnodeId,
    parent_uniquifier: Uniquifier,
    client_mod_time: UnixTime,
    server_mod_time: UnixTime,
}

impl From<FetchStatus> for Brief {
    fn from(status: FetchStatus) -> Self {
        let [_, _, high, low] = status.unix_mode_bits.to_be_bytes();
        Self {
            kind: match status.file_type {
                FileType::File => Some(Kind::File),
                FileType::Directory => Some(Kind::Dir),
                FileType::Symlink => Some(Kind::Symlink),
                FileType::Invalid | FileType::Other(_) => None,
            },
            anonymous_access: Short::of(status.anonymous_access),
            unix_mode_bits: u16::from_be_bytes([high, low]),
            link_count: u16::try_from(status.link_count).unwrap_or(u16::MAX),
            length: status.length,
            data_version: status.data_version,
            owner: status.owner,
            group: status.group,
            parent_vnode: status.parent_vnode,
            parent_uniquifier: status.parent_uniquifier,
            client_mod_time: status.client_mod_time,
            server_mod_time: status.server_mod_time,
        }
    }
}

impl From<Brief> for FetchStatus {
    fn from(brief: Brief) -> Self {
        Self {
            interface_version: Self::INTERFACE_VERSION,
            file_type: match brief.kind {
                Some(Kind::File) => FileType::File,
                Some(Kind::Dir) => FileType::Directory,
                Some(Kind::Symlink) => FileType::Symlink,
                None => FileType::Invalid,
            },
            anonymous_access: brief.anonymous_access.rights(),
            unix_mode_bits: brief.unix_mode_bits.into(),
            link_count: brief.link_count.into(),
            length: brief.length,
            data_version: brief.data_version,
            owner: brief.owner,
            group: brief.group,
            parent_vnode: brief.parent_vnode,
            parent_uniquifier: brief.parent_uniquifier,
            client_mod_time: brief.client_mod_time,
            server_mod_time: brief.server_mod_time,
            ..Self::default()
        }
    }
}

/// What was written to a file and is not stored yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dirty {
    /// The bytes written.
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
    /// The mode that was set since, which is stored with the bytes.
    pub(crate) mode: Option<u32>,
}

/// What was done to a file while what was written before is being stored.
#[derive(Debug, Clone)]
pub(crate) struct Since {
    /// The bytes written.
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
    /// Leaves only the first `most` bytes written, and makes the file no longer than those reach.
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
    pub(crate) fn new(volume: Arc<Volume>, fid: Fid) -> Self {
        Self {
            fid,
            volume,
            used: AtomicBool::new(true),
            dropped: AtomicBool::new(false),
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            status: None,
            promise: None,
            rights: Known::default(),
            rare: Rarely::default(),
            number: inodes::NONE,
            opened: Opened::default(),
        }
    }
}

impl State {
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

    /// Bytes written and not stored yet.
    pub(crate) fn written(&self) -> u64 {
        self.rare
            .dirty
            .as_ref()
            .map_or(0, |dirty| dirty.ranges.octets())
    }

    /// The length as programs here see it.
    pub(crate) fn length(&self) -> u64 {
        let stored = self.status.map_or(0, |status| status.length);
        self.rare
            .dirty
            .as_ref()
            .map_or(stored, |dirty| dirty.length)
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
        let newest = self.status().map(|known| known.data_version);
        let is_newest = newest == Some(status.data_version);
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

    /// What was written, if anything was.
    pub(crate) fn dirty_mut(&mut self) -> Option<&mut Dirty> {
        self.rare.if_any().and_then(|rare| rare.dirty.as_mut())
    }

    /// What was written, if only from now on.
    pub(crate) fn dirty(&mut self) -> &mut Dirty {
        let emptied = std::mem::take(&mut self.rare.emptied);
        let length = self.status.filter(|_| !emptied);
        let length = length.map_or(0, |status| status.length);
        self.rare.dirty.get_or_insert_with(|| Dirty {
            length,
            limit: length,
            resized: emptied,
            mtime: UnixTime::from(SystemTime::now()),
            ..Dirty::default()
        })
    }
}

/// The owner as programs are shown it. What is made with a cell's own key belongs to the group of its
/// administrators, who are to a cell what root is to a machine; some programs, such as git, do nothing
/// where they find an owner they do not know.
pub(crate) fn local_owner(owner: PtsId) -> u32 {
    match owner {
        PtsId::ADMINISTRATORS => 0,
        owner => owner.0.unsigned_abs(),
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
        let mut state = State::default();
        state.set_status(of_version(7));
        state.promise = Promise::new(1, Instant::now() + Duration::from_secs(60));
        let valid = |version| state.attr(Ino::ROOT, &of_version(version)).valid;
        assert!(valid(6).is_zero());
        assert!(!valid(7).is_zero());
    }

    #[test]
    fn owners_have_their_numbers_and_administrators_are_root() {
        for (owner, shown) in [(1001, 1001), (0, 0), (-204, 0), (204, 204)] {
            assert_eq!(local_owner(PtsId(owner)), shown);
        }
    }

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
