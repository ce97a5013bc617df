//! Advisory locks of files (AFS-3 RXAFS SetLock, ExtendLock, ReleaseLock).
//!
//! A lock is a host's and a user's: n readers, or one writer. OpenAFS's server only counts them, so that anyone
//! can give up or keep what another has. A host keeps and gives up its own locks, for whichever of its users:
//! OpenAFS's client keeps them as nobody in particular, and one lock serves all users of a machine, of whom the
//! last one gives it up. What another user of the same host took is given up only by one who may lock the file.
//!
//! A lock ends 300 s after it was taken or extended last; a client that keeps one extends it in time. Locks are not
//! kept over a restart: clients that extend one are told that it is gone.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use afar_types::{AfsUuid, Fid, PtsId};
use parking_lot::Mutex;

/// How long a lock holds if it is not extended (AFS-3: AFS_LOCKWAIT).
// spec: afs-rpc#locks
const LIFE: Duration = Duration::from_secs(300);
/// Locks at once, of all hosts and users.
const MAX_LOCKS: usize = 1 << 20;
/// Of one machine, that is one address whatever the port.
const MAX_OF_MACHINE: usize = 1 << 16;
/// Hosts and users that hold a lock of one file.
const MAX_OF_FILE: usize = 4096;
/// How often locks that are over are looked for when there are too many.
const SWEEP: Duration = Duration::from_secs(5);

/// Why a lock is not given or kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Others hold one that excludes it.
    Held,
    /// There is none to extend.
    NotHeld,
    /// More is locked than the server keeps track of.
    TooMany,
    /// It is another's, and the caller may not lock the file.
    Denied,
}

/// Whose a lock is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// The host's identity, if it has one.
    pub(crate) host: Option<AfsUuid>,
    /// Where it calls from.
    pub(crate) address: SocketAddr,
    pub(crate) user: PtsId,
}

impl Owner {
    /// Whether they are the same host: by its identity, as its address may change; by its address if it has not
    /// told one.
    fn is_at(&self, other: &Self) -> bool {
        match (self.host, other.host) {
            (Some(one), Some(other)) => one == other,
            _ => self.address == other.address,
        }
    }

    fn machine(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }
}

/// Which locks of others at its host a caller may give up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MayRelease {
    pub(crate) shared: bool,
    pub(crate) exclusive: bool,
}

#[derive(Debug)]
struct Holder {
    owner: Owner,
    times: u32,
    until: Instant,
}

#[derive(Debug)]
struct Lock {
    exclusive: bool,
    /// Never none.
    holders: Vec<Holder>,
}

impl Lock {
    fn drop_ended(&mut self, now: Instant, machines: &mut Machines) {
        self.holders.retain(|holder| {
            let holds = now <= holder.until;
            if !holds {
                machines.forget(&holder.owner);
            }
            holds
        });
    }
}

/// How many locks the hosts of each machine hold.
#[derive(Debug, Default)]
struct Machines {
    locks: HashMap<IpAddr, usize>,
    all: usize,
}

impl Machines {
    fn are_full(&self, owner: &Owner) -> bool {
        let of_one = self.locks.get(&owner.machine());
        self.all >= MAX_LOCKS || of_one.is_some_and(|&locks| locks >= MAX_OF_MACHINE)
    }

    fn add(&mut self, owner: &Owner) {
        *self.locks.entry(owner.machine()).or_insert(0) += 1;
        self.all += 1;
        debug_assert!(self.all <= MAX_LOCKS, "{} locks", self.all);
        debug_assert!(self.locks.len() <= self.all, "a machine without locks");
    }

    fn forget(&mut self, owner: &Owner) {
        debug_assert!(self.locks.contains_key(&owner.machine()), "{owner:?}");
        if let Some(locks) = self.locks.get_mut(&owner.machine()) {
            *locks -= 1;
            self.all -= 1;
            if *locks == 0 {
                self.locks.remove(&owner.machine());
            }
        }
        debug_assert_eq!(self.all == 0, self.locks.is_empty(), "{self:?}");
    }
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<Fid, Lock>,
    machines: Machines,
    swept: Option<Instant>,
}

/// The locks of a server.
#[derive(Debug, Default)]
pub(crate) struct FileLocks(Mutex<State>);

impl FileLocks {
    /// Takes a lock, for writing or for reading.
    pub(crate) fn set(
        &self,
        fid: Fid,
        owner: Owner,
        exclusive: bool,
        now: Instant,
    ) -> Result<(), LockError> {
        let mut state = self.0.lock();
        if state.machines.are_full(&owner) {
            state.sweep(now);
        }
        let State {
            files, machines, ..
        } = &mut *state;
        let lock = files.entry(fid).or_insert(Lock {
            exclusive,
            holders: Vec::new(),
        });
        lock.drop_ended(now, machines);
        let until = now + LIFE;
        let result = if lock.holders.is_empty() {
            lock.exclusive = exclusive;
            Ok(())
        } else if exclusive || lock.exclusive {
            Err(LockError::Held)
        } else {
            Ok(())
        };
        let own =
            |holder: &&mut Holder| holder.owner.is_at(&owner) && holder.owner.user == owner.user;
        let result = result.and_then(|()| {
            // A client that locks a file twice gives it up twice.
            if let Some(own) = lock.holders.iter_mut().find(own) {
                (own.times, own.until) = (own.times.saturating_add(1), until);
                return Ok(());
            }
            if machines.are_full(&owner) || lock.holders.len() >= MAX_OF_FILE {
                return Err(LockError::TooMany);
            }
            machines.add(&owner);
            lock.holders.push(Holder {
                owner,
                times: 1,
                until,
            });
            Ok(())
        });
        if lock.holders.is_empty() {
            // The entry was made for a lock that is not given.
            files.remove(&fid);
        }
        result
    }

    /// Lets the locks of a host hold for another while. One that is over and that nobody else took
    /// since is there again, as with OpenAFS.
    pub(crate) fn extend(&self, fid: Fid, owner: &Owner, now: Instant) -> Result<(), LockError> {
        let mut state = self.0.lock();
        let lock = state.files.get_mut(&fid).ok_or(LockError::NotHeld)?;
        let mut held = false;
        for holder in &mut lock.holders {
            if holder.owner.is_at(owner) {
                (holder.until, held) = (now + LIFE, true);
            }
        }
        held.then_some(()).ok_or(LockError::NotHeld)
    }

    /// Gives one lock up: the caller's own, or else one of its host that it may give up. Whether the
    /// file is without any because of that. Where the caller has none there is nothing to do.
    pub(crate) fn release(
        &self,
        fid: Fid,
        owner: &Owner,
        may: MayRelease,
    ) -> Result<bool, LockError> {
        let mut state = self.0.lock();
        let State {
            files, machines, ..
        } = &mut *state;
        let nothing = if may.shared {
            Ok(false)
        } else {
            Err(LockError::Denied)
        };
        let Some(lock) = files.get_mut(&fid) else {
            return nothing;
        };
        let own = |holder: &Holder| holder.owner.is_at(owner) && holder.owner.user == owner.user;
        let allowed = if lock.exclusive {
            may.exclusive
        } else {
            may.shared
        };
        let there = |holder: &Holder| allowed && holder.owner.is_at(owner);
        let holders = &mut lock.holders;
        let place = holders.iter().position(own);
        let Some(place) = place.or_else(|| holders.iter().position(there)) else {
            return nothing;
        };
        debug_assert!(holders[place].times > 0, "{:?}", holders[place]);
        holders[place].times -= 1;
        if holders[place].times > 0 {
            return Ok(false);
        }
        machines.forget(&holders.swap_remove(place).owner);
        let free = holders.is_empty();
        if free {
            files.remove(&fid);
        }
        Ok(free)
    }

    /// What a status shows: readers, or -1 for a writer.
    // spec: afs-rpc#status
    pub(crate) fn count(&self, fid: Fid, now: Instant) -> i32 {
        let state = self.0.lock();
        let Some(lock) = state.files.get(&fid) else {
            return 0;
        };
        let hold = lock.holders.iter().filter(|holder| now <= holder.until);
        let times = hold.fold(0u32, |all, holder| all.saturating_add(holder.times));
        match (times, lock.exclusive) {
            (0, _) => 0,
            (_, true) => -1,
            (readers, false) => i32::try_from(readers).unwrap_or(i32::MAX),
        }
    }

    /// The file is gone.
    pub(crate) fn discard(&self, fid: Fid) {
        let mut state = self.0.lock();
        if let Some(lock) = state.files.remove(&fid) {
            let State { machines, .. } = &mut *state;
            lock.holders
                .iter()
                .for_each(|holder| machines.forget(&holder.owner));
        }
    }
}

impl State {
    /// Forgets all locks that are over, though not for every caller that wants one more.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now < swept + SWEEP) {
            return;
        }
        self.swept = Some(now);
        let machines = &mut self.machines;
        self.files.retain(|_, lock| {
            lock.drop_ended(now, machines);
            !lock.holders.is_empty()
        });
    }
}

#[cfg(test)]
mod tests;
