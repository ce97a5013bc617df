//! What must hold.
//!
//! - While a client believes in its lease of a vnode, no other does, and no call of another on that vnode is done.
//! - A call of another is done only when the server has all changes that the holder's programs were told are made, or
//!   the lease ended because its time or its limit was over.
//! - What a client reads under a lease is what was written last.
//! - What fsync answered for is at the server, or was told as a conflict.
//! - No call waits longer than a lease lasts; after a restart of the server, twice as long.
//! - Recalls of a vnode are as far apart as damping says.

use std::collections::{BTreeMap, BTreeSet};

use afar_lease::{DAMPING, DAMPING_DOUBLINGS, Time};
use afar_types::{AfsUuid, Fid, VolumeId};

use crate::world::{World, uuid};

#[derive(Default)]
pub(crate) struct Check {
    pub(crate) twins: bool,
    /// Of each client and vnode, the values that programs were told are written and that the server has not.
    pub(crate) pending: BTreeMap<(usize, Fid), Vec<u64>>,
    /// Leases that ended by time: what is pending is late.
    pub(crate) late: BTreeSet<(usize, Fid)>,
    /// Every value that the server ever had.
    pub(crate) history: BTreeSet<u64>,
    /// The last recall of a vnode, and the least number of it in its row.
    pub(crate) recalled: BTreeMap<Fid, (Time, u8)>,
    /// The last value written: each is another.
    pub(crate) values: u64,
}

impl Check {
    pub(crate) fn wrote(&mut self, client: usize, fid: Fid, value: u64) {
        self.pending.entry((client, fid)).or_default().push(value);
    }

    /// The server has a value, or a conflict was told.
    pub(crate) fn done(&mut self, client: usize, fid: Fid, value: u64) {
        if let Some(values) = self.pending.get_mut(&(client, fid)) {
            values.retain(|&other| other != value);
            if values.is_empty() {
                self.pending.remove(&(client, fid));
                self.late.remove(&(client, fid));
            }
        }
    }

    pub(crate) fn late(&mut self, host: AfsUuid, which: impl Fn(Fid) -> bool) {
        for &(client, fid) in self.pending.keys() {
            if uuid(client, self.twins) == host && which(fid) {
                self.late.insert((client, fid));
            }
        }
    }

    pub(crate) fn late_in(&mut self, host: AfsUuid, volume: VolumeId) {
        self.late(host, |fid| fid.volume == volume);
    }
}

impl World {
    /// A client does something here, or a call of it is done. Of a vnode that is made but not sent yet nobody knows:
    /// a caller that guesses its fid hears that there is none.
    pub(crate) fn check_alone(&mut self, caller: Option<usize>, fid: Fid, what: &str) {
        if !self.server.store.contains_key(&fid) {
            return;
        }
        let now = self.now;
        let mut found = None;
        for (index, client) in self.clients.iter().enumerate() {
            let believes = client.up && client.holder.lease(client.clock.local(now), fid).is_some();
            if Some(index) != caller && believes {
                found = Some(index);
            }
        }
        if let Some(other) = found {
            self.fail(format!(
                "{what} of {fid} by {caller:?} while {other} has it"
            ));
        }
    }

    /// A call of a client is done: it may not have overlooked what others were told is done.
    pub(crate) fn check_nothing_overlooked(&mut self, caller: Option<usize>, fid: Fid) {
        if !self.server.store.contains_key(&fid) {
            return;
        }
        for client in 0..self.clients.len() {
            self.client_timer_now(client);
            let key = (client, fid);
            let pending = self.check.pending.contains_key(&key);
            if Some(client) != caller && pending && !self.check.late.contains(&key) {
                self.fail(format!("{caller:?} overlooks what {client} wrote to {fid}"));
            }
        }
    }

    /// What a client sees under its lease is what was written last.
    pub(crate) fn check_sight(&mut self, client: usize, fid: Fid) {
        let seen = self.clients[client].cached[&fid].0;
        let pending = self.check.pending.get(&(client, fid));
        let stored = || self.server.store.get(&fid).map_or(0, |vnode| vnode.0);
        let truth = pending
            .and_then(|values| values.last().copied())
            .unwrap_or_else(stored);
        if seen != truth {
            self.fail(format!("{client} sees {seen} of {fid} instead of {truth}"));
        }
    }

    pub(crate) fn check_wait(&mut self, began: Time, now: Time) {
        let waited = now.saturating_sub(began);
        self.counts.longest_wait_ms = self.counts.longest_wait_ms.max(waited.as_millis());
        let lives = if self.server.instance > 1 { 2 } else { 1 };
        if waited > afar_lease::TERM * lives + Time::from_millis(1) {
            self.fail(format!("a call waited for {waited:?}"));
        }
    }

    pub(crate) fn check_recall(&mut self, now: Time, fid: Fid) {
        self.counts.recalls += 1;
        let last = self.check.recalled.get(&fid).copied();
        let mut row = 1;
        if let Some((before, number)) = last {
            let pause = DAMPING * (1 << (number - 1));
            let gap = now.saturating_sub(before);
            if gap < pause {
                self.fail(format!(
                    "{fid} is recalled {gap:?} after recall {number} of a row"
                ));
            }
            if gap < pause * 9 {
                row = (number + 1).min(DAMPING_DOUBLINGS + 1);
            }
        }
        self.check.recalled.insert(fid, (now, row));
    }
}
