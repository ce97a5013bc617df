//! The segments of a partition: opened, appended to, synced, reclaimed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::fstatvfs;
use parking_lot::Mutex;

use super::error::{SegmentError, SegmentProblem, is_no_space};
use super::files::Files;
use super::stats::{Counters, SegmentStats, add};
use super::times::DiskTimes;
use super::{BLOCK, Codec, Extent, MAX_RECORD, Stored};
use crate::writing;

/// Bytes of the disk that are not for data, and the part of a small disk that they are at most.
const MARGIN: u64 = 16 << 20;
const MARGIN_PART: u64 = 16;
/// Bytes of one store after which the system is told to begin to write them to the disk.
const AT_ONCE: u32 = 8 << 20;
/// The same between two commits, when nobody waits: what the disk has for longest to do, before it
/// takes the next commit's log.
const BETWEEN: u32 = 1 << 20;

/// A segment as the metadata has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Its number, from 1.
    pub number: u32,
    /// Where the last of its committed records ends.
    pub end: u32,
}

/// How segments are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// A new segment is begun when one would become longer than this many
    /// bytes; from 1 MiB to 4 GiB less 4 KiB. Existing ones stay as they are.
    pub segment_size: u32,
    /// Space is reserved in steps of this many bytes, so that the file's
    /// length changes seldom and the space is in one piece. 0 reserves none.
    pub preallocate: u32,
    /// At most this many files are kept open, from 2.
    pub open_files: usize,
    /// Nothing is written, not even what opening would clean up.
    pub read_only: bool,
}

impl SegmentOptions {
    /// The least `segment_size`: one record fits.
    pub const SIZE_MIN: u32 = MAX_RECORD;
    /// The greatest `segment_size`: offsets have 32 bits.
    pub const SIZE_MAX: u32 = u32::MAX - (BLOCK - 1);

    fn check(&self) -> Result<(), SegmentError> {
        let size = u64::from(self.segment_size);
        let (min, max) = (u64::from(Self::SIZE_MIN), u64::from(Self::SIZE_MAX));
        if !(min..=max).contains(&size) {
            return Err(SegmentError::Option {
                name: "segment_size",
                value: size,
                min,
                max,
            });
        }
        if self.open_files < 2 {
            return Err(SegmentError::Option {
                name: "open_files",
                value: self.open_files as u64,
                min: 2,
                max: u64::MAX,
            });
        }
        Ok(())
    }
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            segment_size: 1 << 30,
            preallocate: 16 << 20,
            open_files: 512,
            read_only: false,
        }
    }
}

/// The segments of one partition. Any number of threads may append and read
/// at a time.
#[derive(Debug)]
pub struct Segments {
    pub(super) files: Files,
    pub(super) counters: Counters,
    pub(super) times: DiskTimes,
    options: SegmentOptions,
    problems: Vec<SegmentProblem>,
    /// All segments that exist, or ought to.
    known: Mutex<BTreeSet<u32>>,
    writer: Mutex<Writer>,
    dirty: Mutex<Dirty>,
    /// Held for a whole sync: who finds nothing dirty must not return before
    /// the one that took it is done.
    syncing: Mutex<()>,
    poisoned: AtomicBool,
    cannot_punch: AtomicBool,
}

/// Where the next record goes.
#[derive(Debug)]
struct Writer {
    segment: u32,
    /// None until the first record of a segment in this run.
    file: Option<Arc<File>>,
    /// Whether that file was made already.
    exists: bool,
    end: u32,
    /// Up to here space is reserved.
    reserved: u32,
    /// Up to here the system was told to begin to write to the disk.
    begun: u32,
    can_reserve: bool,
}

/// A record that has its place, where nothing is written yet. Its bytes are kept until then.
#[derive(Debug)]
pub struct Placed {
    place: Reserved,
    record: Stored<'static>,
}

impl Placed {
    /// Where it is to lie.
    pub fn extent(&self) -> Extent {
        self.place.extent(&self.record)
    }

    /// The bytes as they are to be stored.
    pub fn bytes(&self) -> &[u8] {
        self.record.bytes()
    }
}

/// A place to write to, which nobody else has.
#[derive(Debug)]
struct Reserved {
    segment: u32,
    file: Arc<File>,
    offset: u32,
    /// The end of what was before it.
    before: u32,
}

impl Reserved {
    fn extent(&self, record: &Stored<'_>) -> Extent {
        Extent {
            segment: self.segment,
            offset: self.offset,
            stored: stored_len(record),
            plain: record.plain_len(),
            codec: record.codec(),
            checksum: record.checksum(),
        }
    }
}

fn stored_len(record: &Stored<'_>) -> u32 {
    u32::try_from(record.bytes().len()).expect("a record has at most 1 MiB")
}

/// What the next sync has to make durable.
#[derive(Debug, Default)]
struct Dirty {
    files: BTreeMap<u32, Arc<File>>,
    directory: bool,
}

impl Segments {
    /// Has the system's calls timed there.
    #[must_use]
    pub(crate) fn timed(mut self, times: &DiskTimes) -> Self {
        self.times = times.clone();
        self
    }

    /// How long the disk took.
    #[must_use]
    pub fn times(&self) -> &DiskTimes {
        &self.times
    }

    /// Opens the segments in `dir`, which exists. `known` are those the
    /// metadata has; all other segment files were never committed, or are left
    /// over from a removal, and are deleted, as is what lies behind the ends.
    ///
    /// A known segment that is missing or too short does not fail this: see
    /// [`problems`](Self::problems).
    ///
    /// # Errors
    ///
    /// [`SegmentError::Option`] for an option out of range,
    /// [`SegmentError::Io`] when the directory cannot be listed or cleaned up.
    pub fn open(
        dir: &Path,
        known: &[SegmentEnd],
        options: SegmentOptions,
    ) -> Result<Self, SegmentError> {
        options.check()?;
        let files = Files::new(dir, options.read_only, options.open_files);
        let found = files
            .list()
            .map_err(|source| failed("listing", dir.to_owned(), source))?;
        let known: BTreeMap<u32, u32> = known.iter().map(|s| (s.number, s.end)).collect();
        if !options.read_only {
            for &segment in found.keys().filter(|segment| !known.contains_key(segment)) {
                files
                    .remove(segment)
                    .map_err(|source| failed("deleting", files.path(segment), source))?;
            }
        }
        let mut problems = Vec::new();
        for (&segment, &end) in &known {
            match found.get(&segment) {
                None => problems.push(SegmentProblem::Missing { segment }),
                Some(&found) if found < u64::from(end) => problems.push(SegmentProblem::Short {
                    segment,
                    expected: end,
                    found,
                }),
                Some(&found) if found > u64::from(end) && !options.read_only => files
                    .get(segment)
                    .and_then(|file| file.set_len(u64::from(end)))
                    .map_err(|source| failed("truncating", files.path(segment), source))?,
                Some(_) => {}
            }
        }
        let writer = Writer::after(&known, &problems)?;
        Ok(Self {
            files,
            counters: Counters::default(),
            times: DiskTimes::default(),
            options,
            problems,
            known: Mutex::new(known.into_keys().collect()),
            writer: Mutex::new(writer),
            dirty: Mutex::default(),
            syncing: Mutex::default(),
            poisoned: AtomicBool::new(false),
            cannot_punch: AtomicBool::new(false),
        })
    }

    /// What was found wrong when the segments were opened.
    pub fn problems(&self) -> &[SegmentProblem] {
        &self.problems
    }

    /// Writes a record and returns where it lies. It is durable after the next
    /// [`sync`](Self::sync) that begins after this returned. A caller that gives
    /// the extent up again frees it with [`punch`](Self::punch).
    ///
    /// # Errors
    ///
    /// [`SegmentError::Io`], of which [`SegmentError::is_no_space`] tells
    /// whether the disk is full; the next append may succeed.
    /// [`SegmentError::Poisoned`] after a failed sync.
    pub fn append(&self, stored: &Stored<'_>) -> Result<Extent, SegmentError> {
        let place = self.find_place(stored)?;
        self.write(&place, stored)?;
        Ok(place.extent(stored))
    }

    /// Finds a place for a record, which [`fill`](Self::fill) writes it to. Until then nobody may
    /// read its extent.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn place(&self, record: Stored<'static>) -> Result<Placed, SegmentError> {
        let place = self.find_place(&record)?;
        Ok(Placed { place, record })
    }

    /// Writes a record to its place.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); the place is given back then.
    pub fn fill(&self, placed: &Placed) -> Result<(), SegmentError> {
        self.write(&placed.place, &placed.record)
    }

    fn find_place(&self, record: &Stored<'_>) -> Result<Reserved, SegmentError> {
        let len = stored_len(record);
        // A short one gains nothing from a block of its own.
        let align = match record.codec() {
            Codec::Raw if len >= BLOCK => BLOCK,
            Codec::Raw | Codec::Zstd | Codec::Lz4 => 1,
        };
        let place = self
            .check_writable()
            .and_then(|()| self.reserve(len, align));
        place.inspect_err(|_| add(&self.counters.append_errors, 1))
    }

    fn write(&self, place: &Reserved, record: &Stored<'_>) -> Result<(), SegmentError> {
        let offset = u64::from(place.offset);
        let write = || place.file.write_all_at(record.bytes(), offset);
        let written = self.times.write(write);
        if let Err(source) = written {
            add(&self.counters.append_errors, 1);
            self.give_back(place, stored_len(record));
            return Err(failed("writing to", self.files.path(place.segment), source));
        }
        self.begin_writing(AT_ONCE);
        let file = Arc::clone(&place.file);
        self.dirty.lock().files.insert(place.segment, file);
        let (stored, plain) = (stored_len(record), record.plain_len());
        self.counters.appended(record.codec(), stored, plain);
        Ok(())
    }

    /// Has the disk busy while nobody waits for it, so that the next sync finds little to do. For
    /// who has just told others that their records are durable.
    pub fn begin_writing_between(&self) {
        self.begin_writing(BETWEEN);
    }

    /// Has the disk busy while more is received, so that the sync at the end of a long store has little
    /// left to wait for.
    fn begin_writing(&self, least: u32) {
        let (file, range) = {
            let mut writer = self.writer.lock();
            // The last block is written to again.
            let range = writer.begun..writer.end - writer.end % BLOCK;
            let (Some(file), true) = (&writer.file, range.end >= range.start.saturating_add(least))
            else {
                return;
            };
            let file = Arc::clone(file);
            writer.begun = range.end;
            (file, range)
        };
        writing::begin(&file, range.start.into()..range.end.into());
    }

    fn reserve(&self, len: u32, align: u32) -> Result<Reserved, SegmentError> {
        let mut writer = self.writer.lock();
        let mut place = writer.place(len, align, self.options.segment_size);
        if place.is_none() {
            self.roll_over(&mut writer)?;
            place = writer.place(len, align, self.options.segment_size);
        }
        let (offset, end) = place.expect("a record fits in an empty segment");
        let file = self.writer_file(&mut writer)?;
        writer
            .preallocate(&file, end, &self.options)
            .map_err(|source| {
                failed(
                    "reserving space in",
                    self.files.path(writer.segment),
                    source,
                )
            })?;
        let before = std::mem::replace(&mut writer.end, end);
        Ok(Reserved {
            segment: writer.segment,
            file,
            offset,
            before,
        })
    }

    fn writer_file(&self, writer: &mut Writer) -> Result<Arc<File>, SegmentError> {
        if let Some(file) = &writer.file {
            return Ok(Arc::clone(file));
        }
        let segment = writer.segment;
        let file = if writer.exists {
            self.files.get(segment)
        } else {
            self.files.create(segment)
        };
        let file = file.map_err(|source| failed("opening", self.files.path(segment), source))?;
        if !writer.exists {
            writer.exists = true;
            self.known.lock().insert(segment);
            self.dirty.lock().directory = true;
        }
        writer.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Goes on to the next segment and cuts off what was reserved in this one
    /// and not used.
    fn roll_over(&self, writer: &mut Writer) -> Result<(), SegmentError> {
        let next = writer
            .segment
            .checked_add(1)
            .ok_or(SegmentError::Exhausted)?;
        let mut full = std::mem::replace(writer, Writer::new(next));
        writer.can_reserve = full.can_reserve;
        if let Err(error) = self.writer_file(writer) {
            *writer = full;
            return Err(error);
        }
        if let Some(file) = full.file.take()
            && full.reserved > full.end
            && let Err(error) = file.set_len(u64::from(full.end))
        {
            tracing::warn!(segment = full.segment, %error, "cannot cut off unused space");
        }
        Ok(())
    }

    /// After a failed write: nothing will point at the place.
    fn give_back(&self, place: &Reserved, len: u32) {
        let mut writer = self.writer.lock();
        if writer.segment == place.segment && writer.end == place.offset + len {
            writer.end = place.before;
            return;
        }
        drop(writer);
        if let Err(error) = self.punch(place.segment, place.offset, len) {
            tracing::warn!(segment = place.segment, %error, "cannot free space after a failed write");
        }
    }

    /// Makes every record durable whose append has returned.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Io`] once. What is on the disk is then unknown, and the
    /// system may not report it again: from then on this and every other
    /// write return [`SegmentError::Poisoned`].
    pub fn sync(&self) -> Result<(), SegmentError> {
        let _one_at_a_time = self.syncing.lock();
        self.check_writable()?;
        let dirty = std::mem::take(&mut *self.dirty.lock());
        {
            let mut writer = self.writer.lock();
            writer.begun = writer.end;
        }
        for (&segment, file) in &dirty.files {
            let synced = self.times.sync(|| file.sync_data());
            self.note_sync(synced, || self.files.path(segment))?;
        }
        if dirty.directory {
            let result = File::open(self.files.dir()).and_then(|dir| dir.sync_all());
            self.note_sync(result, || self.files.dir().to_owned())?;
        }
        Ok(())
    }

    fn note_sync(
        &self,
        result: io::Result<()>,
        path: impl FnOnce() -> PathBuf,
    ) -> Result<(), SegmentError> {
        add(&self.counters.syncs, 1);
        result.map_err(|source| {
            self.poisoned.store(true, Ordering::SeqCst);
            add(&self.counters.sync_errors, 1);
            failed("syncing", path(), source)
        })
    }

    /// Gives the blocks of a dead range back and returns how many bytes. Only
    /// whole blocks of 4 KiB are, so the caller merges neighbours first. Where
    /// the file system cannot, or the file is missing, nothing happens.
    ///
    /// No reader may hold an extent in the range: see
    /// [`Epochs`](super::Epochs).
    ///
    /// # Errors
    ///
    /// [`SegmentError::Io`], and as [`sync`](Self::sync) after it failed.
    pub fn punch(&self, segment: u32, offset: u32, len: u32) -> Result<u32, SegmentError> {
        self.check_writable()?;
        let start = u64::from(offset).next_multiple_of(u64::from(BLOCK));
        let end = u64::from(offset) + u64::from(len);
        let end = end - end % u64::from(BLOCK);
        let Some(len) = end.checked_sub(start).filter(|&len| len > 0) else {
            return Ok(0);
        };
        if self.cannot_punch.load(Ordering::Relaxed) {
            add(&self.counters.punches_unsupported, 1);
            return Ok(0);
        }
        let file = match self.files.get(segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            file => file.map_err(|source| failed("opening", self.files.path(segment), source))?,
        };
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match allocate(&file, mode, start, len) {
            Ok(()) => {
                add(&self.counters.bytes_punched, len);
                Ok(u32::try_from(len).expect("the range was shrunk"))
            }
            Err(error) if is_unsupported(&error) => {
                self.cannot_punch.store(true, Ordering::Relaxed);
                add(&self.counters.punches_unsupported, 1);
                Ok(0)
            }
            Err(source) => Err(failed("freeing space in", self.files.path(segment), source)),
        }
    }

    /// Deletes the file of a segment in which nothing is alive.
    ///
    /// An append may have returned an extent in it that is not yet committed:
    /// who appends holds an [`EpochGuard`](super::EpochGuard) until the extent
    /// is committed or given up, and who removes lets an epoch pass that began
    /// after the segment was no longer [`current`](Self::current), and looks
    /// for live records then.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Current`] for the one being written to, and
    /// [`SegmentError::Io`].
    pub fn remove(&self, segment: u32) -> Result<(), SegmentError> {
        self.check_writable()?;
        if segment == self.current() {
            return Err(SegmentError::Current(segment));
        }
        self.dirty.lock().files.remove(&segment);
        self.files
            .remove(segment)
            .map_err(|source| failed("deleting", self.files.path(segment), source))?;
        self.known.lock().remove(&segment);
        Ok(())
    }

    /// The segment being written to.
    pub fn current(&self) -> u32 {
        self.writer.lock().segment
    }

    /// All segments, also those whose file is missing.
    pub fn numbers(&self) -> Vec<u32> {
        self.known.lock().iter().copied().collect()
    }

    /// How many bytes all segments take on the disk, reserved space included.
    /// Asks the system about each file.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Io`] when one cannot be asked about; a missing file
    /// takes nothing.
    pub fn allocated_bytes(&self) -> Result<u64, SegmentError> {
        let mut bytes = 0;
        for segment in self.numbers() {
            let path = self.files.path(segment);
            match path.metadata() {
                Ok(metadata) => bytes += metadata.blocks() * 512,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(failed("examining", path, source)),
            }
        }
        Ok(bytes)
    }

    /// What was done since the segments were opened.
    pub fn stats(&self) -> SegmentStats {
        self.counters.snapshot()
    }

    /// Whether a sync failed, so that nothing can be written any more.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    /// Goes on in another file, such as a device that fails.
    #[cfg(test)]
    pub(super) fn write_to(&self, file: File) {
        let mut writer = self.writer.lock();
        writer.file = Some(Arc::new(file));
        writer.reserved = writer.end;
    }

    fn check_writable(&self) -> Result<(), SegmentError> {
        if self.options.read_only {
            Err(SegmentError::ReadOnly)
        } else if self.is_poisoned() {
            Err(SegmentError::Poisoned)
        } else {
            Ok(())
        }
    }
}

impl Writer {
    fn new(segment: u32) -> Self {
        Self {
            segment,
            file: None,
            exists: false,
            end: 0,
            reserved: 0,
            begun: 0,
            can_reserve: true,
        }
    }

    /// Goes on behind the last known segment, or in one after it if that one
    /// is damaged.
    fn after(
        known: &BTreeMap<u32, u32>,
        problems: &[SegmentProblem],
    ) -> Result<Self, SegmentError> {
        let Some((&last, &end)) = known.last_key_value() else {
            return Ok(Self::new(1));
        };
        if problems.iter().any(|problem| problem.segment() == last) {
            return Ok(Self::new(
                last.checked_add(1).ok_or(SegmentError::Exhausted)?,
            ));
        }
        Ok(Self {
            exists: true,
            end,
            reserved: end,
            begun: end,
            ..Self::new(last)
        })
    }

    /// Where a record begins and ends, if there is room for it.
    fn place(&self, len: u32, align: u32, segment_size: u32) -> Option<(u32, u32)> {
        let offset = self.end.checked_next_multiple_of(align)?;
        let end = offset.checked_add(len)?;
        (end <= segment_size).then_some((offset, end))
    }

    /// Sees to it that space is reserved up to `end`, and some more.
    fn preallocate(&mut self, file: &File, end: u32, options: &SegmentOptions) -> io::Result<()> {
        if end <= self.reserved || options.preallocate == 0 || !self.can_reserve {
            return Ok(());
        }
        let step = self.reserved.saturating_add(options.preallocate);
        let ample = step.min(options.segment_size).max(end);
        let mut result = self.allocate_to(file, ample);
        if result.as_ref().is_err_and(is_no_space) {
            result = self.allocate_to(file, end);
        }
        // Whatever else is wrong, the write will tell.
        match result {
            Err(error) if !is_no_space(&error) => {
                self.can_reserve = false;
                Ok(())
            }
            result => result,
        }
    }

    fn allocate_to(&mut self, file: &File, end: u32) -> io::Result<()> {
        let (from, to) = (u64::from(self.reserved), u64::from(end));
        leave_margin(file, to - from)?;
        allocate(file, FallocateFlags::empty(), from, to - from)?;
        self.reserved = end;
        Ok(())
    }
}

/// Refuses to take so many bytes if hardly anything would be left: removing files needs some space
/// too, for what it changes in the metadata.
fn leave_margin(file: &File, wanted: u64) -> io::Result<()> {
    // Without an answer there is no limit.
    let Ok(disk) = fstatvfs(file) else {
        return Ok(());
    };
    let fragment = disk.fragment_size();
    let margin = MARGIN.min(disk.blocks() * fragment / MARGIN_PART);
    if disk.blocks_available() * fragment < wanted.saturating_add(margin) {
        return Err(Errno::ENOSPC.into());
    }
    Ok(())
}

fn allocate(file: &File, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    let offset = i64::try_from(offset).map_err(io::Error::other)?;
    let len = i64::try_from(len).map_err(io::Error::other)?;
    loop {
        match fallocate(file, mode, offset, len) {
            Err(Errno::EINTR) => {}
            result => return result.map_err(io::Error::from),
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let codes = [Errno::EOPNOTSUPP as i32, Errno::ENOSYS as i32];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

fn failed(action: &'static str, path: PathBuf, source: io::Error) -> SegmentError {
    SegmentError::Io {
        action,
        path,
        source,
    }
}
