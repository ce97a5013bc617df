//! Fetching what is missing, once for all who want it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use afar_cell::{Class, Client, Error, Sink, Waits};
use afar_types::{DataVersion, FetchStatus};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;

use super::{Refetch, storage_failed};
use crate::model::ahead::Turn;
use crate::model::flight::Flight;
use crate::model::ranges::RangeSet;
use crate::model::types::Invalidation;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::storage::{Pieces, Storage, Wait};

/// Fetches begin and end at multiples of this, for which checksums are kept.
const ALIGN: u64 = 64 << 10;
/// Bytes fetched at least when there are as many.
pub(crate) const LEAST: u64 = 128 << 10;
/// Fetches that may end without what was wanted being there, before it is fetched past the cache.
const TRIES: u32 = 3;

/// Puts fetched data where it is kept, and wakes those who wait.
struct Landing {
    storage: Arc<dyn Storage>,
    vnode: Arc<Vnode>,
    version: DataVersion,
    length: u64,
    turn: Mutex<Turning>,
}

/// What the next fetch waits for.
#[derive(Default)]
struct Turning {
    guard: Option<OwnedMutexGuard<()>>,
    /// Bytes to come before this one has ended.
    left: u64,
    /// The next one need not wait when so few are.
    enough: Option<u64>,
}

impl Sink for Landing {
    fn begin(&self, _: &FetchStatus) -> io::Result<()> {
        Ok(())
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let mut at = offset;
        // What cannot be kept is not there for readers, who fetch it past the cache then.
        for chunk in chunks {
            let (key, version) = (&self.vnode.key(), self.version);
            self.storage
                .write_clean(key, version, at, &chunk, self.length);
            at += chunk.len() as u64;
        }
        self.turn().came(at - offset);
        tracing::trace!(fid = %self.vnode.fid, at, "data came");
        // After it is kept: those who wait look for it at once.
        self.vnode.work().arrived.notify_waiters();
        Ok(())
    }

    fn asked(&self, left: u64) {
        self.turn().asked(left);
    }
}

impl Landing {
    fn turn(&self) -> MutexGuard<'_, Turning> {
        self.turn.lock()
    }
}

impl Turning {
    fn came(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        self.pass_on();
    }

    fn asked(&mut self, enough: u64) {
        self.enough = Some(enough);
        self.pass_on();
    }

    fn pass_on(&mut self) {
        if self.enough.is_some_and(|enough| self.left <= enough) {
            self.guard = None;
        }
    }
}

/// Chunks as one, without copying if it is one.
fn joined(mut chunks: Vec<Bytes>) -> Bytes {
    match chunks.len() {
        1 => chunks.swap_remove(0),
        _ => Bytes::from(chunks.concat()),
    }
}

/// Takes what is fetched past the cache.
#[derive(Default)]
struct Direct(Mutex<Pieces>);

impl Sink for Direct {
    fn begin(&self, _: &FetchStatus) -> io::Result<()> {
        Ok(())
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let mut pieces = self.0.lock();
        pieces.push((offset, joined(chunks)));
        Ok(())
    }
}

impl Cache {
    /// Bytes of a version a server has, all of which are in it.
    pub(crate) async fn fetched(
        &self,
        user: &Arc<User>,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        range: Range<u64>,
        class: Class,
    ) -> Result<Pieces, Refetch> {
        let version = status.data_version;
        let work = vnode.work();
        let mut landed = 0;
        loop {
            let arrived = work.arrived.notified();
            tokio::pin!(arrived);
            // Before the look: what comes after it must wake this one.
            arrived.as_mut().enable();
            let pieces = self.cached(vnode, version, range.clone()).await;
            let pieces = pieces.map_err(|error| Refetch::Failed(storage_failed(vnode, &error)))?;
            let Some(missing) = first_missing(&pieces, &range) else {
                return Ok(pieces);
            };
            let flight = match flight_for(vnode, version, missing.start, class) {
                Some(flight) => flight,
                None if landed == TRIES => {
                    let pieces = self.past_the_cache(user, vnode, status, range, class);
                    return pieces.await;
                }
                None => {
                    landed += 1;
                    let end = missing.end.max(missing.start + LEAST);
                    self.launch(user, vnode, status, missing.start..end, (class, None))
                }
            };
            loop {
                if let Some(end) = flight.ended() {
                    // What another user's tokens do not get, this one's may.
                    if flight.user == user.id || landed == TRIES {
                        self.check(vnode, &end)?;
                    }
                    break;
                }
                // The flight's task may be that of another request: what it waits for, this one does too.
                Waits::follow(&flight.waits);
                arrived.as_mut().await;
                arrived.set(work.arrived.notified());
                arrived.as_mut().enable();
                if flight.ended().is_none() {
                    // Some of it has come: look whether it is what is wanted.
                    break;
                }
            }
        }
    }

    /// The clean bytes that are there. Threads of the runtime do not wait for the disk.
    async fn cached(
        &self,
        vnode: &Vnode,
        version: DataVersion,
        range: Range<u64>,
    ) -> io::Result<Pieces> {
        let (storage, key) = (&self.0.storage, &vnode.key());
        match storage.read(key, version, range.clone(), Wait::No) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (storage, key) = (Arc::clone(storage), key.clone());
                let read = move || storage.read(&key, version, range, Wait::Yes);
                tokio::task::spawn_blocking(read)
                    .await
                    .map_err(io::Error::other)?
            }
            read => read,
        }
    }

    /// What became of a fetch.
    fn check(&self, vnode: &Arc<Vnode>, end: &Result<(), Error>) -> Result<(), Refetch> {
        match end {
            Ok(()) => Ok(()),
            Err(Error::Changing(_)) => Err(Refetch::Changed),
            Err(error) => Err(Refetch::Failed(self.failed(vnode, "reading a file", error))),
        }
    }

    async fn past_the_cache(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        range: Range<u64>,
        class: Class,
    ) -> Result<Pieces, Refetch> {
        self.in_order(vnode).await;
        let sink = Arc::new(Direct::default());
        let (client, fid) = (user.client.in_class(class), vnode.fid);
        let fetched = client.fetch_range(&vnode.volume, fid, *status, range, &sink);
        self.check(vnode, &fetched.await.map(drop))?;
        let mut pieces = sink.0.lock();
        Ok(std::mem::take(&mut *pieces))
    }

    /// Begins to fetch what is missing of a range, made as large as suits, in its turn if there is one.
    /// Returns the fetch of its beginning.
    pub(super) fn launch(
        &self,
        user: &Arc<User>,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        range: Range<u64>,
        (class, turn): (Class, Option<Turn>),
    ) -> Arc<Flight> {
        let start = range.start / ALIGN * ALIGN;
        let end = range.end.next_multiple_of(ALIGN).min(status.length);
        let flight = Flight::new(user.id, class, status.data_version, start..end);
        // Not made by the task: a runtime that shuts down drops tasks before they have run.
        let landing = Landed::of(vnode, flight);
        let flight = Arc::clone(&landing.flight);
        let (cache, vnode, status) = (self.clone(), Arc::clone(vnode), *status);
        let user = Arc::clone(user);
        let waits = Arc::clone(&flight.waits);
        let work = async move {
            let turn = match turn {
                Some(turn) => Some(turn.lock_owned().await),
                None => None,
            };
            let client = user.client.in_class(class);
            let result = cache.fly(&client, &vnode, &status, start..end, turn).await;
            landing.flight.set(result);
        };
        tokio::spawn(async move { waits.during(work).await });
        flight
    }

    async fn fly(
        &self,
        client: &Client,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        range: Range<u64>,
        mut turn: Option<OwnedMutexGuard<()>>,
    ) -> Result<(), Error> {
        let version = status.data_version;
        self.in_order(vnode).await;
        // Now that it is its turn: what went before it may have brought some.
        let present = self.0.storage.present(&vnode.key(), version, range.clone());
        let gaps = present.unwrap_or_default().gaps(range.clone());
        let sink = Arc::new(Landing {
            storage: Arc::clone(&self.0.storage),
            vnode: Arc::clone(vnode),
            version,
            length: status.length,
            turn: Mutex::default(),
        });
        let mut gaps = gaps.into_iter().peekable();
        while let Some(gap) = gaps.next() {
            // Only the last: the next in turn would share the path with what is wanted earlier.
            if gaps.peek().is_none() {
                *sink.turn() = Turning {
                    guard: turn.take(),
                    left: gap.end - gap.start,
                    enough: None,
                };
            }
            let fetched = client.fetch_range(&vnode.volume, vnode.fid, *status, gap, &sink);
            if let Err(error) = fetched.await {
                // A server says what version data is of when all of it has been sent, and what came
                // before that is here.
                if matches!(error, Error::Changing(_)) {
                    self.0.storage.drop_clean(&vnode.key());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Tells the kernel that a file's data is not what it was.
    pub(crate) fn data_changed(&self, vnode: &Vnode) {
        let numbers: Vec<_> = vnode.lock().numbers().collect();
        for ino in numbers {
            self.0.breaks.tell(Invalidation::Inode { ino, data: true });
        }
    }
}

/// Ends a flight even if its task is dropped.
pub(crate) struct Landed {
    vnode: Arc<Vnode>,
    flight: Arc<Flight>,
}

impl Landed {
    /// Of a flight that begins now: all who want what it brings wait for it.
    fn of(vnode: &Arc<Vnode>, flight: Flight) -> Self {
        let flight = Arc::new(flight);
        vnode.lock().rare.flights.push(Arc::clone(&flight));
        let vnode = Arc::clone(vnode);
        Self { vnode, flight }
    }

    /// Of all of a small file that comes with an answer of many, which is got while `waits` is followed. What it does not
    /// bring is fetched when it has [`landed`](Self::landed).
    pub(crate) fn of_many(
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        (user, class, waits): (&User, Class, &Arc<Waits>),
    ) -> Self {
        let mut flight = Flight::new(user.id, class, status.data_version, 0..status.length);
        flight.waits = Arc::clone(waits);
        Self::of(vnode, flight)
    }

    /// What came is there.
    pub(crate) fn landed(self) {
        self.flight.set(Ok(()));
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.flight
            .set(Err(Error::Nonsense("a fetch was abandoned")));
        let mut state = self.vnode.lock();
        let flights = &mut state.rare.flights;
        let before = flights.len();
        flights.retain(|other| !Arc::ptr_eq(other, &self.flight));
        debug_assert_eq!(flights.len() + 1, before, "a flight is listed once");
        state.rare.tidy();
        drop(state);
        self.vnode.work().arrived.notify_waiters();
    }
}

/// The fetch under way that will bring this byte in time.
fn flight_for(
    vnode: &Vnode,
    version: DataVersion,
    place: u64,
    class: Class,
) -> Option<Arc<Flight>> {
    let state = vnode.lock();
    let mut flights = state.rare.flights.iter();
    let flight = flights.find(|flight| flight.brings(version, place, class));
    flight.cloned()
}

fn gaps_of(pieces: &Pieces, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut present = RangeSet::default();
    for (at, data) in pieces {
        present.insert(*at..at + data.len() as u64);
    }
    present.gaps(range.clone())
}

fn first_missing(pieces: &Pieces, range: &Range<u64>) -> Option<Range<u64>> {
    gaps_of(pieces, range).into_iter().next()
}
