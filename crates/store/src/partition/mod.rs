//! A partition: one directory with its database, its segments and the threads that tend them.
//!
//! ```text
//! /vicepa/format      "afar-store 1"
//! /vicepa/lock        held while a process has the partition open
//! /vicepa/meta/       the LMDB environment
//! /vicepa/seg/        segment files
//! ```

mod checkpoint;
mod commit;
mod format;
mod logged;
mod pending;
mod plain;
mod reaper;
mod space;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use afar_types::VolumeId;
use parking_lot::Mutex;

use crate::config::PartitionOptions;
use crate::error::{NoPartition, Result, StoreError};
use crate::meta::{Change, Env, Log, Rows, SegmentRow, Table, View};
use crate::segment::{
    DiskTimes, EpochGuard, Epochs, Extent, SegmentEnd, SegmentOptions, SegmentStats, Segments,
};

use checkpoint::{Backlog, Checkpoint, Checkpointer};
use commit::Committer;
use format::Lock;
use reaper::Reaper;
use usage::Usage;

pub use commit::CommitStats;
pub(crate) use pending::Pending;
pub(crate) use reaper::{doom_member, stretch_before};
pub use space::{Packed, Space, Survey};
pub(crate) use usage::roll;

/// An open partition.
///
/// All methods may be called from any thread. They block: on the disk when they read, on the
/// group commit when they change something.
pub struct Partition {
    core: Arc<Core>,
    committer: Committer,
    checkpointer: Checkpointer,
    reaper: Mutex<Option<Reaper>>,
    /// Given up last: another process may open the partition then.
    _lock: Lock,
}

/// What the partition's threads share.
pub(crate) struct Core {
    path: PathBuf,
    env: Env,
    segments: Segments,
    epochs: Epochs,
    usage: Usage,
    options: PartitionOptions,
    /// Tells it from other partitions, also from itself opened before.
    opened: u64,
    /// Trees that are being filled: doomed if that ends early, but not before.
    building: Mutex<BTreeSet<u64>>,
    /// Segments with records that are written and not yet committed.
    pinned: Mutex<BTreeMap<u32, u32>>,
    /// Records that are about to be shared: segment and offset.
    wanted: Mutex<BTreeMap<(u32, u32), u32>>,
    /// Records with the same bytes are to be stored once.
    dedup: AtomicBool,
    /// What is in the log only.
    backlog: Backlog,
    /// Why nothing is accepted any more.
    stopped: OnceLock<Arc<str>>,
}

/// A partition as of one commit, with the promise that what it refers to stays readable.
pub(crate) struct Reader {
    view: View,
    _epoch: EpochGuard,
}

impl std::ops::Deref for Reader {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Core {
    pub(crate) fn reader(&self) -> Result<Reader> {
        // The epoch comes first: what is freed in a commit after the view's cannot be punched
        // before the guard is gone.
        let epoch = self.epochs.enter();
        Ok(Reader {
            view: self.env.view()?,
            _epoch: epoch,
        })
    }

    fn stopped(&self) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(StoreError::Stopped {
                path: self.path.clone(),
                why: Arc::clone(why),
            }),
        }
    }

    /// Accepts nothing from now on.
    fn stop(&self, why: &StoreError) {
        let why: Arc<str> = why.to_string().into();
        if self.stopped.set(Arc::clone(&why)).is_ok() {
            tracing::error!(partition = %self.path.display(), %why, "partition stopped");
        }
    }
}

impl Partition {
    /// Makes a partition of a directory, which is created if need be.
    ///
    /// # Errors
    ///
    /// If there is something in the directory already, or it cannot be written.
    pub fn init(path: &Path, options: &PartitionOptions) -> Result<Self> {
        format::create(path)?;
        let lock = Lock::take(path)?;
        let env = open_env(path, options)?;
        let mut batch = env.begin()?;
        let version = format::VERSION.to_be_bytes().to_vec();
        Change::new(&mut batch, 0).put(Table::Settings, FORMAT_KEY, version);
        env.publish(batch);
        env.freeze();
        let log = open_log(&env, 1)?;
        let checkpoint = Checkpoint::first(&env, 0, &log)?;
        format::sync_dir(env.dir())?;
        // The mark is made last: a directory with it is complete.
        format::mark(path)?;
        Self::start(path, options, lock, env, log, checkpoint)
    }

    /// Opens a partition. Takes as long with a million volumes as with none.
    ///
    /// # Errors
    ///
    /// If it is no partition, of a newer format, or open elsewhere.
    pub fn open(path: &Path, options: &PartitionOptions) -> Result<Self> {
        let version = format::check(path)?;
        let lock = Lock::take(path)?;
        let base = checkpoint::prepare(path)?;
        if version < format::SUMS {
            checkpoint::forget_sums(path)?;
        }
        let env = open_env(path, options)?;
        checkpoint::replay(&env, &base)?;
        // Segments the database does not know are deleted: a database that is not ours, or lost
        // what it had, must not get that far.
        if env.view()?.get(Table::Settings, FORMAT_KEY)?.is_none() {
            return Err(StoreError::NotPartition {
                path: path.to_owned(),
                why: NoPartition::Empty,
            });
        }
        logged::restore(path, &env, &base)?;
        let log = open_log(&env, base.number + 1)?;
        let checkpoint = Checkpoint::first(&env, base.number, &log)?;
        let partition = Self::start(path, options, lock, env, log, checkpoint)?;
        if version != format::VERSION {
            partition.upgrade()?;
        }
        Ok(partition)
    }

    /// Keeps older versions of this program, which would not see all of a directory or write pages
    /// without their checksums, from opening the partition. Nothing else has to be done for what they wrote.
    fn upgrade(&self) -> Result<()> {
        let version = format::VERSION.to_be_bytes().to_vec();
        self.commit(move |change| {
            change.put(Table::Settings, FORMAT_KEY, version);
            Ok(())
        })?;
        format::mark(self.path())
    }

    fn start(
        path: &Path,
        options: &PartitionOptions,
        lock: Lock,
        env: Env,
        log: Log,
        checkpoint: Checkpoint,
    ) -> Result<Self> {
        let dedup = env.view()?.get(Table::Settings, DEDUP_KEY)?.is_some();
        let known = known_segments(&env)?;
        let segments = Segments::open(
            &path.join("seg"),
            &known,
            SegmentOptions {
                segment_size: options.segment_octets(),
                ..SegmentOptions::default()
            },
        )?
        .timed(log.times());
        for problem in segments.problems() {
            tracing::error!(partition = %path.display(), %problem, "segment");
        }
        let core = Arc::new(Core {
            path: path.to_owned(),
            env,
            segments,
            epochs: Epochs::new(),
            usage: Usage::default(),
            options: options.clone(),
            opened: plain::opened(),
            building: Mutex::default(),
            pinned: Mutex::default(),
            wanted: Mutex::default(),
            dedup: AtomicBool::new(dedup),
            backlog: Backlog::default(),
            stopped: OnceLock::new(),
        });
        let committer = Committer::start(Arc::clone(&core), log)?;
        let checkpointer = Checkpointer::start(Arc::clone(&core), committer.queue(), checkpoint)?;
        let reaper = Reaper::start(Arc::clone(&core), committer.queue())?;
        let partition = Self {
            core,
            committer,
            checkpointer,
            reaper: Mutex::new(Some(reaper)),
            _lock: lock,
        };
        partition.remove_unfinished()?;
        Ok(partition)
    }

    /// Removes volumes whose making was not finished when the partition was closed.
    fn remove_unfinished(&self) -> Result<()> {
        let mut unfinished = Vec::new();
        {
            let reader = self.reader()?;
            for row in reader.scan(Table::Unfinished, &[])? {
                let id = row?.0.try_into().map(u32::from_be_bytes);
                unfinished.push(id.map_err(|_| reader.env().corrupt("an unfinished volume"))?);
            }
        }
        for id in unfinished {
            tracing::info!(
                volume = id,
                "removing a volume whose making was not finished"
            );
            self.remove_volume(VolumeId(id))?;
        }
        Ok(())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// Whether records with the same bytes are stored once.
    #[must_use]
    pub fn dedup(&self) -> bool {
        self.core.dedup.load(Ordering::Relaxed)
    }

    /// Has records with the same bytes stored once from now on, or not. It stays so when the
    /// partition is opened again. Off in a new partition: it costs a hash and a row a record.
    ///
    /// # Errors
    ///
    /// If the setting cannot be written.
    pub fn set_dedup(&self, on: bool) -> Result<()> {
        self.commit(move |change| {
            match on {
                true => change.put(Table::Settings, DEDUP_KEY, Vec::new()),
                false => change.delete(Table::Settings, DEDUP_KEY)?,
            }
            Ok(())
        })?;
        self.core.dedup.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Counts of commits and of the operations in them.
    #[must_use]
    pub fn commit_stats(&self) -> CommitStats {
        self.committer.stats()
    }

    /// Counts of records read and written, and of failures.
    #[must_use]
    pub fn segment_stats(&self) -> SegmentStats {
        self.core.segments.stats()
    }

    /// How long the disk took to read, write and sync.
    #[must_use]
    pub fn disk_times(&self) -> &DiskTimes {
        self.core.segments.times()
    }

    /// How the partition was opened.
    #[must_use]
    pub fn options(&self) -> &PartitionOptions {
        &self.core.options
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.core.segments
    }

    /// Reads a part of a record, from memory if another reader had it just now.
    pub(crate) fn read_plain(
        &self,
        extent: &Extent,
        within: Range<u32>,
        out: &mut [u8],
    ) -> Result<()> {
        self.core.read_plain(extent, within, out)
    }

    pub(crate) fn reader(&self) -> Result<Reader> {
        self.core.reader()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.core.env
    }

    /// Keeps bytes of records from being given back as long as it is held.
    pub(crate) fn epoch(&self) -> EpochGuard {
        self.core.epochs.enter()
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.core.usage
    }

    /// Has the committer run an operation, and waits until it is durable.
    pub(crate) fn commit<T, F>(&self, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Change<'_>) -> Result<T> + Send + 'static,
    {
        self.committer.queue().commit(&self.core, operation)
    }

    /// Trees that are being filled.
    pub(crate) fn building(&self) -> &Mutex<BTreeSet<u64>> {
        &self.core.building
    }

    /// Wakes the reaper.
    pub(crate) fn reap(&self) {
        if let Some(reaper) = &*self.reaper.lock() {
            reaper.wake();
        }
    }

    /// Waits until all that was removed before the call is gone from the disk.
    ///
    /// # Errors
    ///
    /// If the partition has stopped.
    pub fn wait_reaped(&self) -> Result<()> {
        self.wait_for_reaper(false)
    }

    /// Waits until the rows of all that was removed before the call are gone.
    pub(crate) fn wait_cleared(&self) -> Result<()> {
        self.wait_for_reaper(true)
    }

    fn wait_for_reaper(&self, rows_only: bool) -> Result<()> {
        let waiter = self
            .reaper
            .lock()
            .as_ref()
            .map(|reaper| reaper.waiter(rows_only));
        match waiter {
            None => Ok(()),
            Some(waiter) => waiter.wait(&self.core),
        }
    }

    /// Bytes of the database's file and bytes allocated to segments.
    ///
    /// # Errors
    ///
    /// If the segments cannot be looked at.
    pub fn disk_usage(&self) -> Result<(u64, u64)> {
        Ok((
            self.core.env.file_len(),
            self.core.segments.allocated_bytes()?,
        ))
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        // The reaper commits, so it goes before the committer.
        drop(self.reaper.lock().take());
        let checkpoint = self.checkpointer.stop();
        let log = self.committer.stop();
        if let (Some(checkpoint), Some(mut log)) = (checkpoint, log)
            && self.core.stopped().is_ok()
        {
            let synced = self.core.segments.sync().map_err(StoreError::from);
            if let Err(error) = synced.and_then(|()| checkpoint.close(&mut log)) {
                tracing::error!(partition = %self.core.path.display(), %error, "closing");
            }
        }
    }
}

/// The row of the settings that is there if equal records are stored once.
const DEDUP_KEY: &[u8] = b"dedup";
/// The row of the settings that every database has.
const FORMAT_KEY: &[u8] = b"format";

fn open_log(env: &Env, run: u64) -> Result<Log> {
    Log::open(env.dir(), run).map_err(|e| env.io("opening the log", e))
}

fn open_env(path: &Path, options: &PartitionOptions) -> Result<Env> {
    let dir = checkpoint::directory(path);
    fs::create_dir_all(&dir).map_err(|e| StoreError::io(dir.display().to_string(), e))?;
    let mut map_size = options.map_octets();
    loop {
        match Env::open(path, &dir, map_size) {
            Err(StoreError::Database { source, .. })
                if map_size > 1 << 30
                    && matches!(&*source, heed::Error::Io(e) if e.kind() == std::io::ErrorKind::OutOfMemory) =>
            {
                map_size /= 2;
            }
            result => return result,
        }
    }
}

fn known_segments(env: &Env) -> Result<Vec<SegmentEnd>> {
    let view = env.view()?;
    let mut known = Vec::new();
    for row in view.scan(Table::Segments, &[])? {
        let (key, value) = row?;
        let number = key.try_into().map(u32::from_be_bytes);
        let (Ok(number), Some(SegmentRow { end, .. })) = (number, SegmentRow::from_bytes(value))
        else {
            return Err(env.corrupt("a segment's row"));
        };
        known.push(SegmentEnd { number, end });
    }
    Ok(known)
}
