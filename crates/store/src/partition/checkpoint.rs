//! Checkpoints: bringing the database's file up to what the log has, so that the log stays short.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Core;
use super::commit::Queue;
use crate::error::{NoPartition, Result, StoreError};
use crate::meta::{Base, Change, Env, LOGGED_RECORD, Log, Pin, Position, Replay, logged_rows};

/// Bytes of log after which a checkpoint is made. Until then its rows are in memory too.
const LOG: u64 = 16 << 20;
/// Bytes of log at which commits wait for the checkpoint that is being made.
pub(super) const LOG_MOST: u64 = 2 * LOG;
/// How long a change may be in the log only.
const AGE: Duration = Duration::from_secs(2);
/// Bytes of replayed frames that are written to the database in one transaction.
const REPLAY: usize = 16 << 20;

/// The state a checkpoint is of, taken between two commits.
pub(super) struct Cut {
    log: Position,
    /// Whether the log before has records that may not be in their segments yet.
    records: bool,
}

impl Cut {
    /// The last one has to be in the database.
    pub(super) fn take(env: &Env, log: &mut Log) -> Self {
        env.freeze();
        Self {
            records: log.has_records(),
            log: log.switch(),
        }
    }
}

/// The checkpoint that counts, and how to make the next.
pub(super) struct Checkpoint {
    env: Env,
    number: u64,
    /// Keeps the pages of the state that is on the disk from being used again.
    _pin: Pin,
}

impl Checkpoint {
    /// The first one of a run: the database is as the last run left it, or as replayed.
    pub(super) fn first(env: &Env, number: u64, log: &Log) -> Result<Self> {
        let mut first = Self {
            env: env.clone(),
            number,
            _pin: env.pin()?,
        };
        // In a new partition both files are made at once: later ones fail for no lack of space.
        for _ in 0..if number == 0 { 2 } else { 1 } {
            let cut = Cut {
                log: log.start(),
                records: false,
            };
            first.complete(&cut, false)?;
        }
        Ok(first)
    }

    /// Makes the state of a cut the one to start from. If there was no space for that, it can be
    /// tried again.
    fn complete(&mut self, cut: &Cut, clean: bool) -> Result<()> {
        let failed = |e| self.env.io("checkpoint", e);
        self.env.flush()?;
        self.env.sync()?;
        let base = Base {
            number: self.number + 1,
            log: cut.log,
            clean,
            head: Base::head(self.env.dir(), self.env.page_size()).map_err(failed)?,
        };
        base.write(self.env.dir()).map_err(failed)?;
        self.number = base.number;
        // Only now may the pages of the one before be used again.
        self._pin = self.env.pin()?;
        Ok(())
    }

    /// Notes that the run ended well.
    pub(super) fn close(mut self, log: &mut Log) -> Result<()> {
        // What the last cut was of, if there was no space for it.
        self.env.flush()?;
        let cut = Cut::take(&self.env, log);
        self.complete(&cut, true)
    }
}

/// Brings the database's file into a state that can be opened, and says what is left to replay.
pub(super) fn prepare(path: &Path) -> Result<Base> {
    let dir = directory(path);
    let failed = |e| StoreError::io(format!("reading the base in {}", dir.display()), e);
    let base = Base::read(&dir)
        .map_err(failed)?
        .ok_or_else(|| StoreError::NotPartition {
            path: path.to_owned(),
            why: NoPartition::Base,
        })?;
    // Also after a run that ended well: its pages are as they were, unless they are damaged.
    base.restore(&dir)
        .map_err(|error| StoreError::NotPartition {
            path: path.to_owned(),
            why: NoPartition::Database(Arc::new(error)),
        })?;
    Ok(base)
}

/// Removes checksums of pages, so that they are made from the pages: an older version of this program, which
/// knows of none, may have written to the database since.
pub(super) fn forget_sums(path: &Path) -> Result<()> {
    let sums = directory(path).join(afar_lmdb::SUMS);
    match std::fs::remove_file(&sums) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io(sums.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Does again what the log has beyond the base. Returns how many commits that were.
pub(super) fn replay(env: &Env, base: &Base) -> Result<u64> {
    if base.clean {
        return Ok(0);
    }
    // A second failure must find the base's pages as they are.
    let _base = env.pin()?;
    let failed = |e| env.io("replaying the log", e);
    let mut log = Replay::open(env.dir(), base.log).map_err(failed)?;
    let mut commits = 0;
    let mut more = true;
    while more {
        let mut batch = env.begin()?;
        let mut change = Change::new(&mut batch, 0);
        let mut octets = 0;
        while octets < REPLAY {
            let Some(payload) = log.next().map_err(failed)? else {
                more = false;
                break;
            };
            for row in logged_rows(&payload) {
                let (table, key, sealed) = row.ok_or_else(|| env.corrupt("a frame of the log"))?;
                if table != LOGGED_RECORD {
                    change.put_logged(table, key, sealed)?;
                }
            }
            octets += payload.len();
            commits += 1;
        }
        drop(change);
        env.publish(batch);
        env.freeze();
        env.flush()?;
    }
    if commits > 0 {
        tracing::info!(partition = %env.partition().display(), commits, "log replayed");
    }
    Ok(commits)
}

/// How much is in the log only.
#[derive(Default)]
pub(super) struct Backlog {
    state: Mutex<BacklogState>,
    changed: Condvar,
}

#[derive(Default)]
struct BacklogState {
    octets: u64,
    since: Option<Instant>,
    writing: Writing,
    stop: bool,
}

/// What becomes of the last cut.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Writing {
    #[default]
    Done,
    UnderWay,
    /// There is no space for it.
    NoSpace,
}

impl Backlog {
    /// Notes the log's length after a commit.
    pub(super) fn grew(&self, octets: u64) {
        let mut state = self.state.lock();
        state.octets = octets;
        if state.since.is_none() {
            state.since = Some(Instant::now());
            self.changed.notify_all();
        } else if octets >= LOG {
            self.changed.notify_all();
        }
    }

    /// Waits until the last cut is made a checkpoint; `false` if there is no space for it.
    pub(super) fn written(&self) -> bool {
        let mut state = self.state.lock();
        while state.writing == Writing::UnderWay {
            self.changed.wait(&mut state);
        }
        state.writing == Writing::Done
    }

    fn set_writing(&self, writing: Writing) {
        self.state.lock().writing = writing;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits until a checkpoint is due; `false` at the end.
    fn due(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return false;
            }
            match state.since {
                None => self.changed.wait(&mut state),
                Some(since) => {
                    let left = AGE.saturating_sub(since.elapsed());
                    if state.octets >= LOG || left.is_zero() {
                        state.since = None;
                        state.octets = 0;
                        return true;
                    }
                    self.changed.wait_for(&mut state, left);
                }
            }
        }
    }

    /// Waits before something is tried again; `false` at the end.
    fn pause(&self) -> bool {
        let until = Instant::now() + AGE;
        let mut state = self.state.lock();
        while !state.stop {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return true;
            }
        }
        false
    }
}

/// The thread that makes checkpoints.
pub(super) struct Checkpointer {
    core: Arc<Core>,
    thread: Option<JoinHandle<Checkpoint>>,
}

impl Checkpointer {
    pub(super) fn start(core: Arc<Core>, queue: Queue, mut last: Checkpoint) -> Result<Self> {
        let theirs = Arc::clone(&core);
        let thread = std::thread::Builder::new()
            .name("afar-checkpoint".to_owned())
            .spawn(move || {
                while theirs.backlog.due() {
                    match queue
                        .cut(&theirs)
                        .and_then(|cut| make(&theirs, &mut last, &cut))
                    {
                        Ok(()) | Err(StoreError::Stopped { .. }) => {}
                        // What the log has is safe, but it could not be kept short any more.
                        Err(error) => theirs.stop(&error),
                    }
                    theirs.backlog.set_writing(Writing::Done);
                }
                last
            })
            .map_err(|e| StoreError::io("starting the checkpoints", e))?;
        Ok(Self {
            core,
            thread: Some(thread),
        })
    }

    /// Ends it, and returns the last checkpoint it made.
    pub(super) fn stop(&mut self) -> Option<Checkpoint> {
        self.core.backlog.stop();
        let ended = self.thread.take()?.join();
        if ended.is_err() {
            tracing::error!("the checkpoints' thread panicked");
        }
        ended.ok()
    }
}

/// Makes a checkpoint of a cut, as soon as there is space for it.
fn make(core: &Core, last: &mut Checkpoint, cut: &Cut) -> Result<()> {
    core.backlog.set_writing(Writing::UnderWay);
    if cut.records {
        core.segments.sync()?;
    }
    let mut told = false;
    loop {
        match last.complete(cut, false) {
            Err(error @ StoreError::NoSpace(_)) => {
                if !told {
                    tracing::warn!(%error, "cannot shorten the log: not enough space");
                    core.backlog.set_writing(Writing::NoSpace);
                    told = true;
                }
                if !core.backlog.pause() {
                    return Ok(());
                }
            }
            made => return made,
        }
    }
}

/// Where a partition's database is.
pub(super) fn directory(path: &Path) -> PathBuf {
    path.join("meta")
}
