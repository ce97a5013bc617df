//! The server's end: the table of leases.
//!
//! - this module: calls at vnodes and volumes, and what they wait for
//! - `grant`: leases given, by a wish or by birth; reserves
//! - `recall`: leases taken back, and ended by time
//! - `claim`: what a restart leaves
//! - `damping`, `visits`: vnodes that are not leased for now
//! - `ask`: reading, and what a caller would get

mod ask;
mod claim;
mod damping;
mod grant;
mod recall;
mod visits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use afar_types::{AfsUuid, Fid, Uniquifier, VnodeId, VolumeId};

use crate::wire::{Block, CLAIMED, Lease};
use crate::{DAMPING, TERM, Time};

use claim::Claims;
use damping::Damping;
use visits::Visits;

pub use grant::{NotBorn, Wish};
pub use recall::Heard;
pub use visits::VisitId;

/// Lives of a server are this far apart in numbers.
const LIFE: u32 = 40;

/// How much a server has room for. A lease takes less than 200 bytes (`examples/lease_storm` measures it).
// spec: leases#bounds
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Leases in all, with those that reserves may become.
    pub leases: usize,
    /// Leases of a host, with those that its reserves may become; at most [`CLAIMED`].
    pub of_host: usize,
    /// Volumes in which a host has leases: each is a row on the disk.
    pub volumes: usize,
    /// Hosts that have leases.
    pub hosts: usize,
    /// How long a vnode is not leased after a first recall.
    pub damping: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            leases: 1_000_000,
            of_host: CLAIMED,
            volumes: 64,
            hosts: 20_000,
            damping: DAMPING,
        }
    }
}

/// What a call waits for is not leased for so many times the first pause: longer than the call waits.
// spec: leases#damping
pub(crate) const HELD: u32 = 3;

/// What the server's program has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Call this host with [`Server::recall_of`], now and not after a wait for other hosts.
    Recall(AfsUuid),
    /// Make a row durable and then call [`Server::persisted`].
    Persist {
        /// The host.
        host: AfsUuid,
        /// Where it is about to get its first lease.
        volume: VolumeId,
        /// The row's session. A row of the same host and volume that is there is replaced.
        session: u64,
    },
    /// Remove a row, when convenient, unless it is of another session by then.
    Forget {
        /// The host.
        host: AfsUuid,
        /// Where it has no lease any longer.
        volume: VolumeId,
        /// The row's session.
        session: u64,
    },
    /// Calls that wait for this vnode may ask again.
    Freed(Fid),
    /// Calls that wait for this volume may ask again.
    FreedVolume(VolumeId),
    /// A lease ended although its holder did not give it back, and somebody waited: worth a line in the log.
    Revoked {
        /// The holder.
        host: AfsUuid,
        /// What it had.
        fid: Fid,
    },
    /// Unused fids and quota of a reserve are free again.
    Returned {
        /// Whose it was.
        host: AfsUuid,
        /// With the quota that is left.
        block: Block,
    },
}

/// What is durable: a host may have leases in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The host.
    pub host: AfsUuid,
    /// The volume.
    pub volume: VolumeId,
    /// Its session.
    pub session: u64,
}

/// Whether a call may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Entry {
    /// Yes. Until [`Server::leave`], no other host gets a lease of what it is at.
    Proceed(VisitId),
    /// Not before something is freed; to be asked again then, and at this time at the latest.
    Wait(Time),
}

/// Whether an operation on a volume may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum VolumeEntry {
    /// Yes: nothing in it is leased.
    Proceed,
    /// Not before all of it is freed ([`Action::FreedVolume`]); to be asked again then, and at this time at the latest.
    Wait(Time),
}

/// A lease as the server knows it.
#[derive(Clone, Copy, Debug)]
struct Held {
    holder: AfsUuid,
    number: u64,
    /// The recall that takes it back.
    recall: Option<u64>,
}

/// A host with a session.
#[derive(Debug)]
struct Host {
    session: u64,
    /// When the last note that renewed was received.
    renewed: Time,
    /// When its last note or answer of any kind was received.
    progress: Time,
    leases: BTreeSet<Fid>,
    /// Recalls that it has not said to have heard; of some the leases are over.
    unheard: BTreeSet<u64>,
    /// Whether an [`Action::Recall`] is in the queue.
    asked: bool,
    /// Its rows, and which of them are durable.
    rows: BTreeMap<VolumeId, bool>,
    /// When the last row was written.
    wrote: Option<Time>,
    blocks: Vec<Reserve>,
    /// The number that a claim got.
    claimed: Option<u64>,
}

/// A block, and which of its fids were used.
#[derive(Debug)]
struct Reserve {
    block: Block,
    used: [u64; 4],
    /// Reserved fids that are not used.
    left: u32,
}

/// A recall under way.
#[derive(Debug)]
struct Recall {
    host: AfsUuid,
    /// Vnode 0: all of the volume.
    fid: Fid,
    number: u64,
    began: Time,
    /// When the leases are over if the holder does not hear of it.
    deadline: Time,
    /// When it did.
    heard: Option<Time>,
    /// Leases it takes back that are not given back yet.
    left: usize,
    /// Only calls of the holder's own host need them, which had no note: nobody else uses what they are of.
    by_own: bool,
}

/// What is to be looked at, at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Recall(u64),
    Host(AfsUuid),
    Claims,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    instance: u64,
    /// The last number given to anything.
    last: u64,
    leases: BTreeMap<Fid, Held>,
    hosts: BTreeMap<AfsUuid, Host>,
    recalls: BTreeMap<u64, Recall>,
    visits: Visits,
    /// Volumes that are needed as a whole, and by how many.
    closed: BTreeMap<VolumeId, u32>,
    claims: Claims,
    damping: Damping,
    /// Reserved fids that may become leases.
    reserved: usize,
    /// Bytes of quota that reserves hold.
    quota: BTreeMap<VolumeId, u64>,
    due: BTreeSet<(Time, Due)>,
    actions: VecDeque<Action>,
}

impl Server {
    /// A server that starts. `instance` is higher in each of its lives, durable before this, and below 2^24. `key` is
    /// random. `rows` are the durable ones: in their volumes all calls wait for the hosts' claims, for [`TERM`] at most.
    #[must_use]
    pub fn new(now: Time, instance: u64, key: u64, rows: Vec<Row>, limits: Limits) -> Self {
        let claims = Claims::new(rows, now + TERM);
        let mut due = BTreeSet::new();
        if !claims.is_over() {
            due.insert((now + TERM, Due::Claims));
        }
        Self {
            limits,
            instance,
            last: instance << LIFE,
            leases: BTreeMap::new(),
            hosts: BTreeMap::new(),
            recalls: BTreeMap::new(),
            visits: Visits::default(),
            closed: BTreeMap::new(),
            claims,
            damping: Damping::new(key, limits.damping),
            reserved: 0,
            quota: BTreeMap::new(),
            due,
            actions: VecDeque::new(),
        }
    }

    /// Asks for everything that a call of a host reads or changes. `heard` is of its note; calls without one have no
    /// leases. What others have leases of is recalled. A call with a note of another session or life counts as another's: it may
    /// be of another process of the host, or a copy of one that was answered long ago, by an earlier life of the server.
    // spec: leases#old-clients
    pub fn enter(
        &mut self,
        now: Time,
        caller: Option<AfsUuid>,
        heard: Option<Heard>,
        fids: &[Fid],
    ) -> Entry {
        let own = heard.filter(|heard| self.own(*heard).is_some());
        let host = own.map(|heard| heard.host);
        let (mut wait, mut for_own) = (None, true);
        for &fid in fids {
            match self.leases.get(&fid) {
                Some(held) if Some(held.holder) == host => {}
                Some(held) => {
                    let by_own = Some(held.holder) == caller;
                    for_own &= by_own;
                    self.recall(now, fid, by_own);
                    wait = Some(now + TERM);
                }
                None if self.claims.pends(fid.volume) => {
                    for_own = false;
                    wait = wait.max(Some(self.claims.until()));
                }
                None => {}
            }
        }
        let Some(until) = wait else {
            let by = heard.map(|heard| (heard.host, heard.said));
            return Entry::Proceed(self.visits.begin(by, fids));
        };
        // What is free of it would otherwise be leased while this waits for the rest.
        for &fid in fids.iter().filter(|_| !for_own) {
            self.damping.hold(&fid, now + HELD * self.limits.damping);
        }
        Entry::Wait(until)
    }

    /// Enters what of this nobody else has a lease of, for a call that tells of the rest that it is left out. Nothing is
    /// recalled.
    pub fn enter_free(&mut self, heard: Option<Heard>, fids: &[Fid]) -> (VisitId, Vec<Fid>) {
        let own = heard.filter(|heard| self.own(*heard).is_some());
        let host = own.map(|heard| heard.host);
        let free = fids.iter().copied().filter(|fid| {
            let held = self.leases.get(fid);
            held.is_none_or(|held| Some(held.holder) == host) && !self.claims.pends(fid.volume)
        });
        let free: Vec<Fid> = free.collect();
        let by = heard.map(|heard| (heard.host, heard.said));
        (self.visits.begin(by, &free), free)
    }

    /// A call that went on has ended, or has been given up.
    pub fn leave(&mut self, visit: VisitId) {
        self.visits.end(visit);
    }

    /// A volume is needed as a whole: from now until [`open_volume`](Self::open_volume) nothing in it is leased.
    pub fn close_volume(&mut self, volume: VolumeId) {
        *self.closed.entry(volume).or_default() += 1;
    }

    /// Asks whether a closed volume is free. What is leased in it is recalled.
    pub fn enter_volume(&mut self, now: Time, volume: VolumeId) -> VolumeEntry {
        if self.claims.pends(volume) {
            return VolumeEntry::Wait(self.claims.until());
        }
        if self.recall_volume(now, volume) {
            VolumeEntry::Wait(now + TERM)
        } else {
            self.recall_blocks(now, volume);
            VolumeEntry::Proceed
        }
    }

    /// The volume is no longer needed as a whole, or the operation gave up.
    pub fn open_volume(&mut self, volume: VolumeId) {
        if let Some(count) = self.closed.get_mut(&volume) {
            *count -= 1;
            if *count == 0 {
                self.closed.remove(&volume);
            }
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front()?;
        if let Action::Recall(host) = &action
            && let Some(host) = self.hosts.get_mut(host)
        {
            host.asked = false;
        }
        Some(action)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due.first().map(|&(time, _)| time)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&(time, due)) = self.due.first() {
            if time > now {
                return;
            }
            self.due.pop_first();
            match due {
                Due::Recall(sequence) => self.recall_due(now, sequence),
                Due::Host(host) => self.host_due(now, host),
                Due::Claims => self.end_claims(),
            }
        }
    }

    /// Leases standing.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Hosts with a session.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The holder of a vnode, and whether it is asked to give it back.
    #[must_use]
    pub fn holder(&self, fid: Fid) -> Option<(AfsUuid, bool)> {
        let held = self.leases.get(&fid)?;
        Some((held.holder, held.recall.is_some()))
    }

    /// Bytes of quota that reserves hold in a volume.
    #[must_use]
    pub fn reserved_quota(&self, volume: VolumeId) -> u64 {
        self.quota.get(&volume).copied().unwrap_or_default()
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes a lease out of the table.
    fn drop_lease(&mut self, now: Time, fid: Fid, revoked: bool) {
        let Some(held) = self.leases.remove(&fid) else {
            return;
        };
        if let Some(sequence) = held.recall {
            if revoked {
                let host = held.holder;
                self.actions.push_back(Action::Revoked { host, fid });
            }
            self.actions.push_back(Action::Freed(fid));
            if let Some(recall) = self.recalls.get_mut(&sequence) {
                if !recall.by_own {
                    self.damping.freed(&fid, now);
                }
                recall.left -= 1;
                if recall.left == 0 && recall.heard.is_some() {
                    self.recalls.remove(&sequence);
                }
            }
        }
        if let Some(host) = self.hosts.get_mut(&held.holder) {
            host.leases.remove(&fid);
        }
        let volume = fid.volume;
        if self.closed.contains_key(&volume)
            && self.leases.range(of_volume(volume)).next().is_none()
        {
            self.actions.push_back(Action::FreedVolume(volume));
        }
    }

    /// The state of a note's host, if the note is of its session or its call began it.
    // spec: leases#sessions
    fn own(&self, heard: Heard) -> Option<&Host> {
        let state = self.hosts.get(&heard.host)?;
        let its = heard.said == (self.instance, state.session) || heard.fresh == state.session;
        its.then_some(state)
    }

    /// A lease by its name, if it stands.
    fn standing(&self, host: AfsUuid, lease: Lease) -> Option<&Held> {
        let held = self.leases.get(&lease.fid)?;
        (held.holder == host && held.number == lease.number).then_some(held)
    }
}

/// All fids of a volume.
fn of_volume(volume: VolumeId) -> RangeInclusive<Fid> {
    let fid = |number| Fid {
        volume,
        vnode: VnodeId(number),
        uniquifier: Uniquifier(number),
    };
    fid(0)..=fid(u32::MAX)
}

#[cfg(test)]
mod tests;
