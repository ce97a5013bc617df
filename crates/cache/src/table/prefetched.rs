//! What was prefetched, and whether it is used.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::budget::Budget;
use crate::model::vnode::Vnode;

/// What was not used after this time was for nothing, and so was what could not be had.
pub(crate) const WANTED: Duration = Duration::from_secs(10);
/// The least that a file's data counts: a file takes a call, however short it is.
pub(crate) const FILE_LEAST: u64 = 4 << 10;

/// What is prefetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The status of an entry, by one call with others.
    Status,
    /// A directory, with the statuses of its entries.
    Directory,
    /// Bytes of a file.
    Data,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Status, Self::Directory, Self::Data];

    /// Where it is in a vnode's mark.
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    const fn budget(self) -> Budget {
        match self {
            // At first as many as an OpenAFS server tells in one packet; at most as many as are asked for of a listing.
            // spec: rx#how-openafs-sends
            Self::Status => Budget::new(14, 400),
            // At most so many that their pages, of 16 KiB or so, do not push each other out.
            Self::Directory => Budget::new(8, 64),
            // At most what 100 Mbit/s bring in a second or two.
            Self::Data => Budget::new(256 << 10, 16 << 20),
        }
    }

    /// What counts for an amount.
    fn cost(self, amount: u64) -> u64 {
        match self {
            Self::Data => amount.max(FILE_LEAST),
            Self::Status | Self::Directory => amount,
        }
    }
}

/// How much of a kind was asked for before a program did, and how much of that one used: statuses, directories or
/// bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) asked: u64,
    pub(crate) used: u64,
}

/// What was prefetched and is not used yet.
#[derive(Debug)]
pub(crate) struct Prefetched(Mutex<[State; 3]>);

#[derive(Debug)]
struct State {
    kind: Kind,
    budget: Budget,
    tally: Tally,
    /// The oldest first.
    undecided: VecDeque<One>,
    /// What they cost.
    cost: u64,
}

#[derive(Debug)]
struct One {
    vnode: Weak<Vnode>,
    amount: u64,
    at: Instant,
}

impl Default for Prefetched {
    fn default() -> Self {
        Self(Mutex::new(Kind::ALL.map(|kind| State {
            kind,
            budget: kind.budget(),
            tally: Tally::default(),
            undecided: VecDeque::new(),
            cost: 0,
        })))
    }
}

impl Prefetched {
    fn with<T>(&self, kind: Kind, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock()[kind as usize])
    }

    /// How much of a kind may be prefetched now.
    pub(crate) fn room(&self, kind: Kind) -> u64 {
        self.with(kind, |state| {
            state.give_up(Instant::now());
            state.budget.room(state.cost)
        })
    }

    /// So much of something is prefetched, and costs what this returns; `None` if it is already.
    pub(crate) fn ask(&self, kind: Kind, vnode: &Arc<Vnode>, amount: u64) -> Option<u64> {
        let before = vnode.prefetched.fetch_or(kind.bit(), Ordering::Relaxed);
        let is_new = before & kind.bit() == 0;
        is_new.then(|| self.with(kind, |state| state.push(Arc::downgrade(vnode), amount)))
    }

    /// Whether it is prefetched, and not used yet.
    pub(crate) fn has(&self, kind: Kind, vnode: &Vnode) -> bool {
        vnode.prefetched.load(Ordering::Relaxed) & kind.bit() != 0
    }

    /// Something is used. Returns whether it had been prefetched.
    pub(crate) fn take(&self, kind: Kind, vnode: &Vnode) -> bool {
        // Most were not, and need no lock.
        if !self.has(kind, vnode) {
            return false;
        }
        let before = vnode.prefetched.fetch_and(!kind.bit(), Ordering::Relaxed);
        self.with(kind, |state| {
            // It is near the front, as what was asked for first is used first.
            let mut all = state.undecided.iter();
            let place = all.position(|one| std::ptr::eq(one.vnode.as_ptr(), vnode));
            if let Some(one) = place.and_then(|place| state.undecided.remove(place)) {
                let cost = kind.cost(one.amount);
                state.cost -= cost;
                state.tally.used += one.amount;
                state.budget.used(cost);
            }
        });
        before & kind.bit() != 0
    }

    /// How much was prefetched of each kind.
    pub(crate) fn tallies(&self) -> [(Kind, Tally); 3] {
        self.0
            .lock()
            .each_ref()
            .map(|state| (state.kind, state.tally))
    }
}

impl State {
    fn push(&mut self, vnode: Weak<Vnode>, amount: u64) -> u64 {
        let at = Instant::now();
        self.undecided.push_back(One { vnode, amount, at });
        self.tally.asked += amount;
        let cost = self.kind.cost(amount);
        self.cost += cost;
        cost
    }

    /// Gives up what is there for too long.
    fn give_up(&mut self, now: Instant) {
        let is_over = |one: &mut One| {
            now.saturating_duration_since(one.at) > WANTED || one.vnode.strong_count() == 0
        };
        while let Some(one) = self.undecided.pop_front_if(is_over) {
            if let Some(vnode) = one.vnode.upgrade() {
                let bit = self.kind.bit();
                vnode.prefetched.fetch_and(!bit, Ordering::Relaxed);
                tracing::debug!(fid = %vnode.fid, kind = ?self.kind, "prefetched for nothing");
            }
            let cost = self.kind.cost(one.amount);
            self.cost -= cost;
            self.budget.unused(cost);
        }
    }
}
