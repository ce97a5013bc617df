//! What a restart leaves: volumes whose calls wait until the hosts that had leases there have said which.
// spec: leases#restarts, leases#restart-of-the-server

use std::collections::BTreeMap;

use afar_types::{AfsUuid, Fid, VolumeId};

use super::{Action, Row, Server};
use crate::Time;
use crate::wire::{self, Block, Claim, Claimed, VERSION};

/// The hosts that have yet to claim.
#[derive(Debug)]
pub(super) struct Claims {
    until: Time,
    /// And their sessions.
    pending: BTreeMap<VolumeId, BTreeMap<AfsUuid, u64>>,
}

impl Claims {
    pub(super) fn new(rows: Vec<Row>, until: Time) -> Self {
        let mut pending: BTreeMap<VolumeId, BTreeMap<AfsUuid, u64>> = BTreeMap::new();
        for row in rows {
            let hosts = pending.entry(row.volume).or_default();
            hosts.insert(row.host, row.session);
        }
        Self { until, pending }
    }

    pub(super) fn is_over(&self) -> bool {
        self.pending.is_empty()
    }

    /// When nobody may claim any longer.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// Whether somebody may still claim something in a volume.
    pub(super) fn pends(&self, volume: VolumeId) -> bool {
        self.pending.contains_key(&volume)
    }

    /// Whether a host's session may still be claimed.
    pub(super) fn expects(&self, host: AfsUuid, session: u64) -> bool {
        let mut pending = self.pending.values();
        pending.any(|hosts| hosts.get(&host) == Some(&session))
    }

    /// The hosts that others wait for, with their sessions.
    pub(super) fn awaited(&self) -> BTreeMap<AfsUuid, u64> {
        let pending = self.pending.values().flatten();
        pending.map(|(&host, &session)| (host, session)).collect()
    }

    /// A host has claimed: in which volumes it could, and in which of these nobody is left that may.
    fn take(&mut self, host: AfsUuid, session: u64) -> (Vec<VolumeId>, Vec<VolumeId>) {
        let (mut its, mut done) = (Vec::new(), Vec::new());
        self.pending.retain(|&volume, hosts| {
            if hosts.get(&host) == Some(&session) {
                hosts.remove(&host);
                its.push(volume);
                if hosts.is_empty() {
                    done.push(volume);
                }
            }
            !hosts.is_empty()
        });
        (its, done)
    }
}

impl Server {
    /// The hosts for whose claims calls wait, with their sessions. Each is asked by a recall without items.
    #[must_use]
    pub fn awaited(&self) -> BTreeMap<AfsUuid, u64> {
        self.claims.awaited()
    }

    /// A host says what it had before the server restarted. The server's program has put the blocks that the store has
    /// noted for the session in the place of those that the claim names, and has left out the leases of what the caller
    /// has no right to change. Of what is not there it leaves those that are in such a block: they may be about to be made.
    /// A claim that is made again gets the same answer.
    pub fn claim(&mut self, now: Time, host: AfsUuid, claim: &Claim) -> Claimed {
        let session = claim.session;
        let state = self.hosts.get(&host);
        let its = state.filter(|state| state.session == session && claim.instance == self.instance);
        if let Some(number) = its.and_then(|state| state.claimed) {
            return self.claimed(host, number, claim);
        }
        let timely = claim.instance == self.instance && now < self.claims.until;
        // Another process of the host may have begun a session already.
        let new = state.is_none() && self.hosts.len() < self.limits.hosts;
        if !timely || !new || !self.claims.expects(host, session) {
            return self.claimed(host, 0, claim);
        }
        let (volumes, done) = self.claims.take(host, session);
        let number = self.next();
        if claim.leases.is_empty() {
            for &volume in &volumes {
                self.actions.push_back(Action::Forget {
                    host,
                    volume,
                    session,
                });
            }
        } else {
            self.begin(now, host, session);
            if let Some(state) = self.hosts.get_mut(&host) {
                state.claimed = Some(number);
                let durable = volumes.iter().map(|&volume| (volume, true));
                state.rows.extend(durable);
            }
            for lease in &claim.leases {
                let fid = lease.fid;
                let may = volumes.contains(&fid.volume) && fid.vnode.0 != 0;
                if may && !self.leases.contains_key(&fid) && self.room(host) > 0 {
                    self.insert(host, fid, number, None);
                }
            }
            for &block in &claim.blocks {
                let block = Block { number, ..block };
                if volumes.contains(&block.volume) {
                    self.add_block(host, block);
                }
            }
        }
        for volume in done {
            self.actions.push_back(Action::FreedVolume(volume));
        }
        self.claimed(host, number, claim)
    }

    fn claimed(&self, host: AfsUuid, number: u64, claim: &Claim) -> Claimed {
        let granted = |fid: Fid| {
            let held = self.leases.get(&fid);
            held.is_some_and(|held| held.holder == host && held.number == number)
        };
        let refused = (0_u32..).zip(&claim.leases);
        let refused = refused.filter(|(_, lease)| !granted(lease.fid));
        Claimed {
            version: VERSION,
            session: if number == 0 || claim.leases.is_empty() {
                0
            } else {
                self.hosts.get(&host).map_or(0, |state| state.session)
            },
            number,
            refused: wire::some(refused.map(|(place, _)| place)),
        }
    }

    /// A host that has not claimed has nothing.
    pub(super) fn end_claims(&mut self) {
        for (volume, hosts) in std::mem::take(&mut self.claims.pending) {
            for (host, session) in hosts {
                self.actions.push_back(Action::Forget {
                    host,
                    volume,
                    session,
                });
            }
            self.actions.push_back(Action::FreedVolume(volume));
        }
    }
}
