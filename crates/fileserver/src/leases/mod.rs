//! Leases: a host's word from this server that nobody else comes to a file or directory before the host was asked.
//!
//! The rules are those of [`afar_lease::Server`]; here it meets clocks, threads, the disk and the network. Its one
//! instance is below one lock, which is taken for moments.
//!
//! - this module: the lock, and what wakes calls that wait
//! - `call`: one call of a client at the vnodes it comes to
//! - `volume`: a volume that is needed as a whole
//! - `reserve`: fids and quota for hosts that make things by themselves
//! - `waits`: how many calls wait at a time
//! - `work`: calling holders, writing rows, telling the operator
//! - `rows`: what outlives the server

mod call;
mod counts;
mod reserve;
mod rows;
mod volume;
mod waits;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_lease::{Action, Limits, Server, TERM, Time};
use afar_telemetry::Registry;
use afar_types::{AfsUuid, Fid, VolumeId};
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, mpsc};

use crate::hosts::Hosts;
use crate::volumes::Volumes;

pub(crate) use call::{LeaseCall, Touch, read_note};
pub(crate) use counts::Counts;
pub use rows::RowsError;
pub use volume::ClosedVolume;

use reserve::Reserves;
use rows::Rows;
use waits::Waits;

/// The leases of a file server. See the [module](self).
pub struct Leases {
    state: Mutex<State>,
    /// Leases that have ended: what was read before may not be what is there now.
    ended: AtomicU64,
    /// Calls that wait for something in a volume.
    waiting: Mutex<HashMap<VolumeId, Arc<Notify>>>,
    /// What the worker has to do.
    work: mpsc::UnboundedSender<Action>,
    /// Told when something is due earlier than it was.
    earlier: Notify,
    /// Told when rows are durable.
    durable: Notify,
    pub(crate) counts: Counts,
    rows: Rows,
    waits: Waits,
    /// Until the worker takes it.
    begin: Mutex<Option<mpsc::UnboundedReceiver<Action>>>,
}

/// What is below the lock.
struct State {
    server: Server,
    reserves: Reserves,
    due: Option<Time>,
}

impl Leases {
    /// Those of a server with this UUID, which keeps what outlives it in this file; so many calls may wait for leases at a
    /// time. If it does not know what an earlier life left, it waits here until all of that is over. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(
        path: &Path,
        server: AfsUuid,
        waits: usize,
        registry: &Registry,
    ) -> Result<Arc<Self>, RowsError> {
        Self::open_limited(path, server, waits, registry, Limits::default())
    }

    /// The same with other limits. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open_limited(
        path: &Path,
        server: AfsUuid,
        waits: usize,
        registry: &Registry,
        limits: Limits,
    ) -> Result<Arc<Self>, RowsError> {
        let mut rows = load_or_wait(path, server);
        if !rows.has_number() {
            rows = Rows::empty(path, server);
        }
        // Before anything is numbered by it.
        rows.write()?;
        let (instance, left) = (rows.instance, rows.all());
        if !left.is_empty() {
            let count = left.len();
            tracing::info!(
                rows = count,
                "hosts had leases: their volumes wait for them"
            );
        }
        let engine = Server::new(now(), instance, random(), left, limits);
        let (work, actions) = mpsc::unbounded_channel();
        let leases = Arc::new(Self {
            state: Mutex::new(State {
                server: engine,
                reserves: Reserves::default(),
                due: None,
            }),
            ended: AtomicU64::new(0),
            waiting: Mutex::default(),
            work,
            earlier: Notify::new(),
            durable: Notify::new(),
            counts: Counts::default(),
            rows,
            waits: Waits::new(waits),
            begin: Mutex::new(Some(actions)),
        });
        registry.collector(counts::Shown(Arc::downgrade(&leases)));
        Ok(leases)
    }

    /// Has no leases of an earlier life left, for a server that gives none: waits until they are over, if there were
    /// any, and removes the file. Blocks.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn end_earlier(path: &Path, server: AfsUuid) -> Result<(), RowsError> {
        if !path.exists() {
            return Ok(());
        }
        let rows = load_or_wait(path, server);
        if !rows.all().is_empty() {
            tracing::info!("leases are off: waiting until those of before are over");
            std::thread::sleep(TERM);
        }
        std::fs::remove_file(path).map_err(|source| RowsError::Io {
            path: path.to_owned(),
            done: "removed",
            source,
        })
    }

    /// Begins to work, with these hosts and volumes.
    pub(crate) fn start(self: &Arc<Self>, hosts: &Arc<Hosts>, volumes: &Arc<Volumes>) {
        if let Some(actions) = self.begin.lock().take() {
            let places = (Arc::clone(hosts), Arc::clone(volumes));
            tokio::spawn(work::work(Arc::downgrade(self), places, actions));
        }
    }

    /// Does something with the engine at this moment, and sees to what follows from it.
    fn with<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> T {
        let mut freed = Vec::new();
        let (done, is_earlier) = {
            let mut state = self.state.lock();
            let now = now();
            if state.server.poll_timeout().is_some_and(|due| due <= now) {
                self.ended.fetch_add(1, Ordering::Release);
                state.server.handle_timeout(now);
            }
            let done = work(&mut state, now);
            while let Some(action) = state.server.poll_action() {
                match action {
                    Action::Freed(fid) => freed.push(fid.volume),
                    Action::FreedVolume(volume) => freed.push(volume),
                    // In their order: below the lock. The worker ends with the server.
                    other => drop(self.work.send(other)),
                }
            }
            let due = state.server.poll_timeout();
            let before = std::mem::replace(&mut state.due, due);
            (
                done,
                due.is_some_and(|due| before.is_none_or(|before| due < before)),
            )
        };
        if is_earlier {
            self.earlier.notify_one();
        }
        freed.sort_unstable();
        freed.dedup();
        if !freed.is_empty() {
            let waiting = self.waiting.lock();
            for volume in freed {
                if let Some(waiting) = waiting.get(&volume) {
                    waiting.notify_waiters();
                }
            }
        }
        done
    }

    /// The same where leases may end by it.
    fn ending<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> T {
        self.with(|state, now| {
            let done = work(state, now);
            self.ended.fetch_add(1, Ordering::Release);
            done
        })
    }

    /// Counts what may have ended leases.
    fn epoch(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// What is told when something in a volume is free.
    fn freed(&self, volume: VolumeId) -> Freed<'_> {
        let mut waiting = self.waiting.lock();
        let notify = Arc::clone(waiting.entry(volume).or_default());
        Freed {
            leases: self,
            volume,
            notify,
        }
    }

    /// Leases that stand, and hosts with a session.
    #[must_use]
    pub fn standing(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.server.leases(), state.server.hosts())
    }

    /// Whether anybody has a lease of a vnode.
    #[must_use]
    pub fn is_leased(&self, fid: Fid) -> bool {
        self.state.lock().server.holder(fid).is_some()
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (leases, hosts) = self.standing();
        f.debug_struct("Leases")
            .field("leases", &leases)
            .field("hosts", &hosts)
            .finish_non_exhaustive()
    }
}

/// Waits for a volume; nothing is left in the table behind the last one.
struct Freed<'l> {
    leases: &'l Leases,
    volume: VolumeId,
    notify: Arc<Notify>,
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        let mut waiting = self.leases.waiting.lock();
        // The table's and this one.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.volume);
        }
    }
}

/// The rows of an earlier life. If they cannot be read, all leases of it are over when this returns.
fn load_or_wait(path: &Path, server: AfsUuid) -> Rows {
    Rows::load(path, server).unwrap_or_else(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "waiting until all leases from before the restart are over"
        );
        std::thread::sleep(TERM);
        Rows::empty(path, server)
    })
}

/// The moment, on a clock that counts the time that the machine was suspended.
fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

/// A number that nobody guesses; never 0.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // Small requests are answered whole, and Linux has the call.
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    debug_assert_eq!(filled, Ok(bytes.len()));
    u64::from_ne_bytes(bytes).max(1)
}
