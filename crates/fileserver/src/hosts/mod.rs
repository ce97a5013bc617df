//! Hosts and callbacks: who the clients are, what they were promised, and how they hear of changes.
//!
//! A client keeps what it reads, because the server promises word before it changes. So a change
//! goes like this: it is committed in the store, [`Hosts::break_fids`] tells everybody who was
//! promised word, and then the one who made the change gets its reply.
//!
//! # Why no client reads what is out of date
//!
//! - A promise is entered before the status that goes with it is read from the store
//!   ([`Hosts::promise`]). A change that is committed later finds it in the table. If it is broken
//!   before the reply is made, the reply tells of no promise ([`Hosts::callback`]). If it is broken
//!   after that, the break may overtake the reply; clients know of that race since AFS has callbacks,
//!   and distrust a promise that comes with a reply to a call during which they got a break.
//! - A change is answered when all hosts concerned have said that they know. For a host that does not
//!   answer it waits a moment only, 500 ms, and not at all if it made changes wait before and
//!   has not made good for it (`punctuality`); no change waits for more than 2 s in all. Then it
//!   goes on, and the host is *late*: no call of it is served, and no call under way is answered,
//!   before it has answered. After 4 s it is *down*: by our account it has no promises any more, and
//!   when it calls it is told to drop all it has (InitCallBackState3) before that call is served, and before a call that
//!   was under way is answered. It is also told so when it does not call: it is tried again after a second, and then less
//!   and less often for an hour. So a client that can reach this server never learns anything new while it trusts something old.
//! - A client that cannot reach this server trusts its promises until they end, 4 h at most. That is
//!   how AFS has always been. It is the price of going on without the dead.
//! - The server remembers a promise for 3 minutes longer than it was given for.
//! - A server that starts knows no hosts. Each has to drop its promises when it calls first, unless
//!   the server stopped in good order and [saved](Hosts::save) what it had promised.
//! - A host that does not say who it is, or cannot be told to drop its promises, is served without
//!   getting any.
//!
//! # Layout
//!
//! - `table`: the promises, as plain data; `slab`: where they lie
//! - `host`, `registry`: the hosts, by number, address and identity
//! - `introduce`: who calls; `questions`: how many are asked that at a time
//! - `breaks`: telling hosts that promises are broken; `gate`: waiting until they know;
//!   `punctuality`: which hosts a change waits for
//! - `recalls`: what leases need of hosts
//! - `save`: keeping all of it while the server is restarted

mod breaks;
mod config;
mod gate;
mod host;
mod introduce;
mod punctuality;
mod questions;
mod recalls;
mod registry;
mod save;
mod slab;
mod table;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afar_net::{AbortCode, Endpoint};
use afar_types::{CallBack, CallBackType, Fid, VolumeId};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use config::{Counters, count};
use gate::{Gate, Underway};
use host::Standing;
use questions::Questions;
use registry::Registry;
use table::{Handle, HostIndex, TICK, Table, whole_volume};

pub(crate) use save::store as store_file;

pub use config::{HostStats, HostsConfig};
pub use host::Host;

/// Seconds that a promise is remembered for longer than it was given for.
// spec: afs-rpc#promises
const REMEMBERED: u32 = 180;

/// Seconds that a promise of a read-only or backup volume is given for.
// spec: afs-rpc#promises
const VOLUME_PROMISE: u32 = 2 * 3600;

/// How many holders an entry of a bulk call counts as beside those there are: programs that list a
/// directory seldom come back for each file.
// spec: afs-rpc#promises
const BULK_HOLDERS: u32 = 22;

/// Promises that ended and are cleared away whenever one is made.
const SWEPT_AT_ONCE: usize = 8;

/// Files of a volume whose promises are broken under one lock.
const FILES_AT_ONCE: usize = 256;

/// The clients of a file server and its promises to them. See the [module](self).
pub struct Hosts {
    shared: Arc<Shared>,
}

/// What all tasks share.
struct Shared {
    config: HostsConfig,
    started: Instant,
    /// An earlier life of this server ended in a crash, and nobody knows what it had promised.
    lost_promises: bool,
    state: Mutex<State>,
    /// The endpoint for hosts that have not called since the server was restarted.
    endpoint: Mutex<Option<Endpoint>>,
    /// One permit for each host that may be called at a time.
    slots: Semaphore,
    /// One permit for each host that is down and is tried again at a time. Otherwise thousands that were down when
    /// the server stopped would displace the questions to those that call.
    reminders: Semaphore,
    questions: Arc<Questions>,
    counters: Counters,
}

/// The tables. Locked for moments only.
struct State {
    table: Table,
    registry: Registry,
    underway: Underway,
    /// When idle hosts were last looked for.
    tidied: Instant,
    /// Everything has been written to a file: there will be no more promises.
    saved: bool,
}

/// A promise that is entered and may not have been told yet. Dropped untold, it never was.
pub struct Promise {
    shared: Arc<Shared>,
    /// None if the host gets no promises.
    handle: Option<Handle>,
    told: AtomicBool,
}

/// Breaks of a file are about to begin. See [`Hosts::about_to_break`].
#[must_use]
pub struct AboutToBreak(Arc<Gate>);

impl Drop for AboutToBreak {
    fn drop(&mut self) {
        self.0.arrive();
    }
}

impl Hosts {
    /// Nobody is known yet, unless [`HostsConfig::restore`] tells of a file to start from; reading
    /// that one blocks.
    #[must_use]
    pub fn new(config: HostsConfig) -> Arc<Self> {
        let now = Instant::now();
        let mut state = State {
            table: Table::new(),
            registry: Registry::default(),
            underway: Underway::default(),
            tidied: now,
            saved: false,
        };
        let lost_promises = (config.restore.as_ref())
            .is_some_and(|path| !save::restore_from(&mut state, &config, path));
        let at_once = config.breaks_at_once.clamp(1, Semaphore::MAX_PERMITS);
        let shared = Shared {
            started: now,
            lost_promises,
            state: Mutex::new(state),
            endpoint: Mutex::new(None),
            slots: Semaphore::new(at_once),
            reminders: Semaphore::new(at_once),
            questions: Arc::default(),
            counters: Counters::default(),
            config,
        };
        Arc::new(Self {
            shared: Arc::new(shared),
        })
    }

    /// Tells from where to call hosts that have not called since the server was restarted: the
    /// endpoint that the file service is served at. Those that were down are tried from now on.
    pub fn attach(&self, endpoint: &Endpoint) {
        *self.shared.endpoint.lock() = Some(endpoint.clone());
        let all: Vec<Arc<Host>> = self.shared.state.lock().registry.iter().cloned().collect();
        for host in &all {
            self.shared.start_reminding(host);
        }
    }

    /// The calling host. An unknown host is asked for its identity at the address it calls from; its first
    /// call waits for that, though not for long. A host that has missed breaks is told first.
    ///
    /// # Errors
    /// VBUSY if that host cannot be told: the client is to call again later. OpenAFS refuses such calls, too.
    // spec: afs-rpc#breaks
    pub async fn identify(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        peer: SocketAddr,
    ) -> Result<Arc<Host>, AbortCode> {
        self.shared.identify(endpoint, peer).await
    }

    /// Waits until a host has heard of all changes that were answered without waiting for it. To be
    /// called before the answer to a call of that host: what the call has read may be newer than such
    /// a change.
    ///
    /// # Errors
    /// `RX_CALL_DEAD` if it cannot be told: what was asked for may be done, and is not answered.
    pub async fn settle(&self, host: &Host) -> Result<(), AbortCode> {
        self.shared.settle(host).await;
        // It may have gone down while this call was under way, which may have waited long. Answered before it is told, it
        // would go on trusting what it has.
        let told = self.shared.tell_if_down(host).await;
        told.map(drop).map_err(|_| AbortCode::RX_CALL_DEAD)
    }

    /// A host for a caller that cannot be called back, such as one at a local socket. It is in no
    /// table and gets no promises.
    #[must_use]
    pub fn nobody(&self, peer: SocketAddr) -> Arc<Host> {
        let punctuality = punctuality::Punctuality::default();
        Host::new(HostIndex::MAX, vec![peer], punctuality, Instant::now())
    }

    /// Promises a host word of a change of a file. To be called before the file's status is read.
    /// `bulk`: as one of many, for which the time is shorter.
    #[must_use]
    pub fn promise(&self, host: &Arc<Host>, fid: Fid, bulk: bool) -> Promise {
        let extra = if bulk { BULK_HOLDERS } else { 0 };
        let lifetime = |holders: u32| lifetime(holders.saturating_add(extra));
        self.shared.promise(host, fid, lifetime)
    }

    /// Promises a host word of a change of a read-only or backup volume, which changes as a whole:
    /// there is one promise a volume.
    #[must_use]
    pub fn promise_volume(&self, host: &Arc<Host>, fid: Fid) -> Promise {
        let fid = whole_volume(fid.volume);
        self.shared.promise(host, fid, |_| VOLUME_PROMISE)
    }

    /// What to tell the host of a promise, when the reply is made: the promise if it still stands,
    /// otherwise that there is none.
    #[must_use]
    pub fn callback(&self, promise: &Promise) -> CallBack {
        let shared = &self.shared;
        let end = promise
            .handle
            .and_then(|handle| shared.state.lock().table.tell(handle));
        let end = end.map_or(0, |tick| tick.saturating_mul(TICK));
        let left = end.saturating_sub(REMEMBERED + shared.seconds());
        if left > 0 {
            promise.told.store(true, Ordering::Relaxed);
        }
        CallBack {
            version: 1,
            expires_in: left,
            kind: if left > 0 {
                CallBackType::Shared
            } else {
                CallBackType::Dropped
            },
        }
    }

    /// Breaks the promises of these files, but for those of the host `except`, which made the change
    /// and learns of it by the reply. Promises that are being made to that host at the moment are
    /// not told to it, as the status with them may be of the time before the change.
    ///
    /// Returns when all hosts have answered, or had their time: see the [module](self); how many promises
    /// there were.
    pub async fn break_fids(self: &Arc<Self>, fids: &[Fid], except: Option<&Arc<Host>>) -> usize {
        let now = self.shared.seconds();
        let (mut broken, mut earlier, gate) = (Vec::new(), Vec::new(), Gate::new());
        for &fid in fids {
            let mut hosts = Vec::new();
            {
                let mut state = self.shared.state.lock();
                earlier.extend(state.underway.of(fid));
                let except = except.filter(|host| state.registry.knows(host));
                let except = except.map(|host| host.index());
                state.table.break_fid(fid, except, now, &mut hosts);
                if !hosts.is_empty() {
                    state.underway.add(fid, &gate);
                }
            }
            broken.extend(hosts.into_iter().map(|host| (host, fid)));
        }
        let count = broken.len();
        self.shared.break_all(broken, gate, earlier).await;
        count
    }

    /// From now on [`heard_of`](Self::heard_of) waits, until what is returned is dropped: breaks of this file are about
    /// to begin.
    pub fn about_to_break(&self, fid: Fid) -> AboutToBreak {
        let gate = Gate::new();
        self.shared.state.lock().underway.add(fid, &gate);
        AboutToBreak(gate)
    }

    /// Waits until all hosts have heard of the breaks of a file that are under way, or had their time.
    pub async fn heard_of(&self, fid: Fid) {
        let underway = self.shared.state.lock().underway.of(fid);
        self.shared
            .break_all(Vec::new(), Gate::new(), underway)
            .await;
    }

    /// Breaks the promises of a volume and of everything in it: it was released, restored, moved,
    /// or taken out of service. Waits like [`break_fids`](Self::break_fids).
    pub async fn break_volume(self: &Arc<Self>, volume: VolumeId) {
        let now = self.shared.seconds();
        let mut hosts = Vec::new();
        let (fid, gate) = (whole_volume(volume), Gate::new());
        let (mut files, earlier) = {
            let mut state = self.shared.state.lock();
            let earlier = state.underway.of_volume(volume);
            state.underway.add(fid, &gate);
            (state.table.files_of(volume), earlier)
        };
        // Files come in at one end and are taken from the other, so that those that come in
        // meanwhile do not make this endless.
        while files > 0 {
            let some = files.min(FILES_AT_ONCE);
            let all_there = {
                let mut state = self.shared.state.lock();
                (0..some).all(|_| state.table.break_first_of(volume, now, &mut hosts))
            };
            if !all_there {
                break;
            }
            files -= some;
            // A volume may have a million of them.
            tokio::task::yield_now().await;
        }
        hosts.sort_unstable();
        hosts.dedup();
        let broken = hosts.into_iter().map(|host| (host, fid)).collect();
        self.shared.break_all(broken, gate, earlier).await;
    }

    /// Forgets the promises of a file without telling anybody: there is nothing left to be told of.
    pub fn discard(&self, fid: Fid) {
        self.shared.state.lock().table.discard(fid);
    }

    /// A host does not want to hear of these files any more (AFS-3 RXAFS GiveUpCallBacks).
    pub fn give_up(&self, host: &Arc<Host>, fids: &[Fid]) {
        for &fid in fids {
            let mut state = self.shared.state.lock();
            if state.registry.knows(host) && state.table.remove(host.index(), fid) {
                count(&self.shared.counters.given_up, 1);
            }
        }
    }

    /// A host does not want to hear of anything any more (AFS-3 RXAFS GiveUpAllCallBacks), most
    /// often because it shuts down.
    pub fn give_up_all(&self, host: &Arc<Host>) {
        loop {
            let mut state = self.shared.state.lock();
            if !state.registry.knows(host) {
                return;
            }
            let given_up = state.table.remove_some(host.index(), FILES_AT_ONCE);
            count(&self.shared.counters.given_up, given_up);
            if given_up < FILES_AT_ONCE {
                return;
            }
        }
    }

    /// Writes hosts and promises to a file, so that a server that starts from it
    /// ([`HostsConfig::restore`]) need not make every client drop what it has. From then on nothing
    /// is promised. To be called when the server stops, after its last call has been served: what is
    /// broken later is not in the file. Blocks until the file is on stable storage.
    ///
    /// # Errors
    /// The system's; then there is no such file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let contents = {
            let mut state = self.shared.state.lock();
            // Under one lock with the contents: a promise made in between would be in no file.
            state.saved = true;
            save::write(&state, &self.shared.config, self.shared.seconds())
        };
        save::store(path, &contents)
    }

    /// What there is and what has happened.
    #[must_use]
    pub fn stats(&self) -> HostStats {
        let mut stats = self.shared.counters.stats();
        let state = self.shared.state.lock();
        let standing = |standing: Standing| {
            let all = state.registry.iter();
            all.filter(|host| host.lock().standing == standing).count() as u64
        };
        stats.hosts = state.registry.len() as u64;
        stats.hosts_down = standing(Standing::Down);
        stats.hosts_unknown = standing(Standing::Unknown);
        stats.promises = state.table.len() as u64;
        stats.files = state.table.files() as u64;
        stats
    }
}

impl Shared {
    /// Seconds since the server started.
    fn seconds(&self) -> u32 {
        let seconds = self.started.elapsed().as_secs();
        // A server runs for less than 136 years.
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.lock().clone()
    }

    /// Enters a promise whose lifetime in seconds depends on the number of holders.
    fn promise(
        self: &Arc<Self>,
        host: &Arc<Host>,
        fid: Fid,
        lifetime: impl FnOnce(u32) -> u32,
    ) -> Promise {
        let now = self.seconds();
        let (mut evicted, mut gate) = (Vec::new(), None);
        let handle = {
            let mut state = self.state.lock();
            let expired = state.table.expire(now, SWEPT_AT_ONCE);
            count(&self.counters.expired, expired);
            while state.table.len() >= self.config.promises_max
                && let Some(promise) = state.table.evict()
            {
                let gate = gate.get_or_insert_with(Gate::new);
                state.underway.add(promise.1, gate);
                evicted.push(promise);
            }
            let holders = state.table.holders(fid);
            let end = now.saturating_add(lifetime(holders)) + REMEMBERED;
            // What is promised after the save, the server that starts next would not know of.
            let known = state.registry.knows(host) && !state.saved;
            let tick = end.div_ceil(TICK);
            known
                .then(|| {
                    let handle = state.table.add(host.index(), fid, tick);
                    debug_assert!(state.table.len() <= self.config.promises_max.max(1));
                    handle
                })
                .flatten()
        };
        if let Some(gate) = gate {
            count(&self.counters.evicted, evicted.len());
            // Nothing has changed, so nobody waits.
            self.start_breaks(evicted, &gate);
        }
        if handle.is_some() {
            count(&self.counters.promised, 1);
        }
        Promise {
            shared: Arc::clone(self),
            handle,
            told: AtomicBool::new(false),
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(handle) = self.handle
            && !*self.told.get_mut()
        {
            self.shared.state.lock().table.drop_untold(handle);
        }
    }
}

/// Seconds that the promise of a file is given for which so many hosts hold already: the more there
/// are, the more a change costs (the intervals of OpenAFS).
fn lifetime(holders: u32) -> u32 {
    // spec: afs-rpc#promises
    const MINUTES: [u32; 8] = [240, 60, 30, 15, 15, 10, 10, 10];
    let minutes = MINUTES.get(holders as usize / 8).copied().unwrap_or(7);
    minutes * 60
}
