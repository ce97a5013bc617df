//! Data of files kept on a disk.
//!
//! Clean bytes are cut into blocks of 64 KiB, each in a slot of one of a few sparse files, whose
//! record tells what it is. The records are read once, when the cache is opened: from then on the index
//! is in memory, and records are only written. Nothing is synced for that. A block is checked against
//! its checksum whenever it is read, so that it does not matter what of a record and a block a crash
//! has left: what does not match is not there.
//!
//! Dirty bytes have a sparse file for each file they were written to, and are synced when somebody
//! was told that they could not be stored. See docs/formats/cache.md.
//!
//! - `directory`: whose it is; `open`: finding what is there
//! - `slots`, `record`, `index`: places on the disk, what is in them, and which goes first
//! - `arriving`: blocks in memory; `clean`: from there to the disk; `read`: and back; `recent`: without
//!   the way back
//! - `written`, `kept`: dirty bytes and their records; `dirty`: what is done to them
//! - `instances`: volumes that were restored are others
//! - `worker`: what nobody waits for

mod arriving;
mod clean;
mod directory;
mod dirty;
mod index;
mod instances;
mod kept;
mod open;
mod read;
mod recent;
mod record;
mod slots;
mod worker;
mod written;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use afar_types::{CellName, DataVersion, UnixTime, VolumeId};
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::arriving::Arriving;
use self::directory::Directory;
use self::index::Index;
use self::instances::Instances;
use self::recent::Recent;
use self::record::FileId;
use self::slots::{Slot, Slots, Space};
use self::worker::Job;
use self::written::Written;
use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;
use crate::storage::{Kept, Left, Pieces, Storage, Usage, Wait};

/// The part of the limit, over it, that may be taken by what was put aside while the cache was in use.
const LOST_SHARE: u64 = 16;
/// A failing disk is told of in the log so often.
const TELL: Duration = Duration::from_secs(30);

/// Keeps data below a directory, up to a limit: the blocks used longest ago go first.
#[derive(Debug)]
pub(crate) struct Disk {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// What is shared with the worker.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    slots: Slots,
    /// Bytes.
    limit: AtomicU64,
    /// Files at most.
    files: usize,
    state: Mutex<State>,
    /// There is a job, or no more will come.
    work: Condvar,
    /// Blocks that were not what they should be.
    damaged: AtomicU64,
    _directory: Directory,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Files.
    pub(crate) files: usize,
}

#[derive(Debug)]
struct State {
    index: Index,
    space: Space,
    arriving: Arriving,
    recent: Recent,
    instances: Instances,
    written: Written,
    jobs: BTreeSet<Job>,
    /// No more jobs will come.
    closed: bool,
    /// When the log was told last that the disk fails.
    told: Option<Instant>,
}

impl State {
    /// The file as the index knows it, if its volume is known.
    fn id(&self, key: &FileKey) -> Option<FileId> {
        let instance = self.instances.number(&key.cell, key.fid.volume)?;
        Some(id(instance, key))
    }

    fn id_or_new(&mut self, key: &FileKey) -> FileId {
        let instance = self.instances.number_or_new(&key.cell, key.fid.volume);
        id(instance, key)
    }
}

fn id(instance: u32, key: &FileKey) -> FileId {
    FileId {
        instance,
        vnode: key.fid.vnode.0,
        uniquifier: key.fid.uniquifier.0,
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Says in the log, now and then, that the disk fails.
    fn failing(&self, state: &mut State, error: &io::Error) {
        let now = Instant::now();
        if state.told.is_some_and(|told| now - told < TELL) {
            return;
        }
        state.told = Some(now);
        tracing::error!(
            dir = %self.dir.display(),
            %error,
            "the disk of the cache fails; reading and writing without it where possible"
        );
    }

    /// A block on the disk is not what it should be.
    fn damaged(&self, slot: Slot, fid: FileId) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            place = %self.slots.place(slot),
            vnode = fid.vnode,
            uniquifier = fid.uniquifier,
            "dropping a damaged block of the cache, and fetching it again"
        );
    }
}

impl Storage for Disk {
    fn read(
        &self,
        key: &FileKey,
        version: DataVersion,
        range: Range<u64>,
        wait: Wait,
    ) -> io::Result<Pieces> {
        self.shared.read(key, version, range, wait)
    }

    fn knows(&self, key: &FileKey) -> bool {
        let state = self.shared.lock();
        let file = state.id(key);
        file.is_some_and(|file| state.index.file(file).is_some())
    }

    fn present(
        &self,
        key: &FileKey,
        version: DataVersion,
        range: Range<u64>,
    ) -> io::Result<RangeSet> {
        Ok(self.shared.present(key, version, &range))
    }

    fn write_clean(
        &self,
        key: &FileKey,
        version: DataVersion,
        offset: u64,
        data: &[u8],
        length: u64,
    ) {
        self.shared.write_clean(key, version, offset, data, length);
    }

    fn read_dirty(&self, key: &FileKey, range: Range<u64>) -> io::Result<Pieces> {
        self.shared.read_dirty(key, range)
    }

    fn write_dirty(&self, key: &FileKey, offset: u64, data: &[u8]) -> io::Result<()> {
        self.shared.write_dirty(key, offset, data)
    }

    fn cut_dirty(&self, key: &FileKey, length: u64) -> io::Result<()> {
        self.shared.lock().written.cut(key, length..u64::MAX);
        Ok(())
    }

    fn keep(&self, key: &FileKey, kept: &Kept) -> io::Result<()> {
        self.shared.keep(key, kept)
    }

    fn left(&self) -> Vec<Left> {
        self.shared.lock().written.left().to_vec()
    }

    fn adopt(&self, left: &Left) -> io::Result<bool> {
        Ok(self.shared.lock().written.adopt(left))
    }

    fn put_aside(&self, left: &Left) -> io::Result<PathBuf> {
        self.shared.lock().written.put_aside(left)
    }

    fn set_aside(&self, key: &FileKey, length: u64) -> io::Result<Option<PathBuf>> {
        let most = self.shared.limit() / LOST_SHARE;
        self.shared.lock().written.set_aside(key, length, most)
    }

    fn save(&self, key: &FileKey, data: &[u8]) -> io::Result<Option<PathBuf>> {
        let most = self.shared.limit() / LOST_SHARE;
        self.shared.lock().written.save(key, data, most)
    }

    fn stored(
        &self,
        key: &FileKey,
        ranges: &RangeSet,
        from: Option<(DataVersion, u64)>,
        to: DataVersion,
    ) -> io::Result<()> {
        self.shared.stored(key, ranges, from, to);
        Ok(())
    }

    fn drop_clean(&self, key: &FileKey) {
        let mut state = self.shared.lock();
        if let Some(file) = state.id(key) {
            self.shared.drop_clean(&mut state, file, key);
        }
    }

    fn forget(&self, key: &FileKey) {
        self.shared.forget(key);
    }

    fn instance(&self, cell: &CellName, volume: VolumeId, made: UnixTime) {
        self.shared.instance(cell, volume, made);
    }

    fn usage(&self) -> Usage {
        self.shared.usage()
    }

    fn set_limit(&self, bytes: u64) {
        self.shared.set_limit(bytes);
    }

    fn close(&self) {
        self.end();
    }
}
