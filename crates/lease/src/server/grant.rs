//! Leases given: by a wish, or by birth below a leased directory; reserves.

use std::time::Duration;

use afar_types::{AfsUuid, Fid, VolumeId};

use super::{Action, Due, Heard, Held, Host, Reserve, Server, VisitId, of_volume};
use crate::wire::{self, Block, Lease, RECALLS, VERSION, Word};
use crate::{TERM, Time};

/// Blocks of a host in a volume at most.
const BLOCKS_OF_VOLUME: usize = 48;

/// Blocks of a host at most, as many as a claim takes.
const BLOCKS: usize = 64;

/// How soon after a row another one is written for the same host.
// spec: leases#restart-of-the-server
pub(super) const ROW_PAUSE: Duration = Duration::from_secs(1);

/// A wish of a note, with what the server's program knows.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What it is for. The call has entered it.
    pub fid: Fid,
    /// No other host has a promise on it, and the caller has the right to change it.
    pub alone: bool,
}

/// Why a reserved fid is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBorn {
    /// The directory's lease is over.
    #[error("the lease of the directory is over")]
    NoLease,
    /// The fid is not in a reserve of the host, or has been used.
    #[error("the fid is not in a reserve of the host")]
    NotReserved,
}

impl Server {
    /// What to say with the answer to a call that [`hear`](Self::hear) had a note of.
    /// Wishes are granted if nobody else was at the vnode during the call. To be called once all the call did is
    /// done, and before [`leave`](Self::leave).
    // spec: leases#grant
    pub fn answer(&mut self, now: Time, heard: Heard, visit: VisitId, wishes: &[Wish]) -> Word {
        let wishes = wishes.iter().filter(|_| self.fits(heard));
        let wishes: Vec<Wish> = wishes.copied().collect();
        let grants = wishes.into_iter();
        let grants = grants.filter_map(|wish| self.grant(now, heard, visit, wish));
        let grants: Vec<Lease> = grants.collect();
        let mut word = self.word(heard);
        word.grants = wire::some(grants);
        word
    }

    /// The same for a call that is at no vnode, such as a renewal.
    #[must_use]
    pub fn word(&self, heard: Heard) -> Word {
        let host = heard.host;
        let state = self.own(heard);
        let told = state.filter(|state| state.unheard.len() <= RECALLS);
        // A session that began with the call has not been unrenewed since.
        let renews = told.is_some_and(|state| heard.renewed || state.session == heard.fresh);
        let recalls = state.map(|_| self.unheard(host)).unwrap_or_default();
        Word {
            version: VERSION,
            instance: self.instance,
            session: state.map_or(0, |state| state.session),
            renews,
            claim: self.claims.expects(host, heard.said.1),
            told: told.map_or(0, |_| self.last),
            recalls: wire::some(recalls),
            ..Word::default()
        }
    }

    fn grant(&mut self, now: Time, heard: Heard, visit: VisitId, wish: Wish) -> Option<Lease> {
        let Wish { fid, alone } = wish;
        let host = heard.host;
        if let Some(held) = self.leases.get(&fid) {
            let number = held.number;
            let its = held.holder == host && held.recall.is_none() && self.own(heard).is_some();
            return its.then_some(Lease { fid, number });
        }
        let free = alone && fid.vnode.0 != 0 && self.visits.is_alone(visit, host, fid);
        let open = !self.closed.contains_key(&fid.volume)
            && !self.claims.pends(fid.volume)
            && !self.damping.holds(&fid, now)
            && !self.damping.holds(&host, now);
        if !free || !open || self.room(host) == 0 || !self.has_row(now, heard, fid.volume) {
            return None;
        }
        let number = self.next();
        self.insert(host, fid, number, None);
        Some(Lease { fid, number })
    }

    /// How many leases a host may have in addition; reserved fids count as leases.
    #[must_use]
    pub fn room(&self, host: AfsUuid) -> usize {
        let in_all = self.leases.len() + self.reserved;
        let (its, told) = self.hosts.get(&host).map_or((0, true), |state| {
            let reserved: u32 = state.blocks.iter().map(|reserve| reserve.left).sum();
            let its = state.leases.len() + reserved as usize;
            (its, state.unheard.is_empty())
        });
        if !told {
            return 0;
        }
        let of_host = self.limits.of_host.saturating_sub(its);
        of_host.min(self.limits.leases.saturating_sub(in_all))
    }

    /// Whether the host's row for a volume is durable. If not, that is begun.
    // spec: leases#restart-of-the-server
    fn has_row(&mut self, now: Time, heard: Heard, volume: VolumeId) -> bool {
        let host = heard.host;
        if !self.hosts.contains_key(&host)
            && heard.fresh != 0
            && self.hosts.len() < self.limits.hosts
        {
            self.begin(now, host, heard.fresh);
        }
        let Some(session) = self.own(heard).map(|state| state.session) else {
            return false;
        };
        let Some(state) = self.hosts.get_mut(&host) else {
            return false;
        };
        if let Some(durable) = state.rows.get(&volume) {
            return *durable;
        }
        // Each is written to the disk.
        if state.wrote.is_some_and(|wrote| now < wrote + ROW_PAUSE) {
            return false;
        }
        if state.rows.len() >= self.limits.volumes {
            // One that it has left, if there is any.
            let left = state.rows.iter().find(|&(&volume, &durable)| {
                let mut blocks = state.blocks.iter();
                durable
                    && state.leases.range(of_volume(volume)).next().is_none()
                    && !blocks.any(|reserve| reserve.block.volume == volume)
            });
            let Some(left) = left.map(|(&volume, _)| volume) else {
                return false;
            };
            state.rows.remove(&left);
            self.actions.push_back(Action::Forget {
                host,
                volume: left,
                session,
            });
        }
        state.wrote = Some(now);
        state.rows.insert(volume, false);
        self.actions.push_back(Action::Persist {
            host,
            volume,
            session,
        });
        false
    }

    /// Whether a host's row for a volume is on its way to the disk: a wish that is granted then is granted at once
    /// afterwards.
    #[must_use]
    pub fn awaits_row(&self, host: AfsUuid, volume: VolumeId) -> bool {
        let state = self.hosts.get(&host);
        state.is_some_and(|state| state.rows.get(&volume) == Some(&false))
    }

    /// A row is durable.
    pub fn persisted(&mut self, host: AfsUuid, volume: VolumeId, session: u64) {
        if let Some(state) = self.hosts.get_mut(&host)
            && state.session == session
            && let Some(durable) = state.rows.get_mut(&volume)
        {
            *durable = true;
        }
    }

    /// A host's session begins.
    pub(super) fn begin(&mut self, now: Time, host: AfsUuid, session: u64) {
        let state = Host {
            session,
            renewed: now,
            progress: now,
            leases: std::collections::BTreeSet::new(),
            unheard: std::collections::BTreeSet::new(),
            asked: false,
            rows: std::collections::BTreeMap::new(),
            wrote: None,
            blocks: Vec::new(),
            claimed: None,
        };
        self.hosts.insert(host, state);
        self.due.insert((now + TERM, Due::Host(host)));
    }

    pub(super) fn insert(&mut self, holder: AfsUuid, fid: Fid, number: u64, recall: Option<u64>) {
        if let Some(recall) = recall.and_then(|recall| self.recalls.get_mut(&recall)) {
            recall.left += 1;
        }
        let held = Held {
            holder,
            number,
            recall,
        };
        self.leases.insert(fid, held);
        if let Some(host) = self.hosts.get_mut(&holder) {
            host.leases.insert(fid);
        }
    }

    /// Whether a change that a host made under a lease is still covered by it. If not, it is made only on the
    /// version of the vnode that it expects.
    // spec: leases#late-changes
    #[must_use]
    pub fn covers(&self, heard: Heard, lease: Lease) -> bool {
        self.own(heard).is_some() && self.standing(heard.host, lease).is_some()
    }

    /// A reserved fid is about to be made below a leased directory, and is leased by that. The caller has seen that
    /// there is no such vnode yet.
    ///
    /// # Errors
    /// It must not be made. The lease that the host may have claimed of it is over: a lease of what never comes into
    /// being would cover later changes of it.
    // spec: leases#birth
    pub fn born(
        &mut self,
        now: Time,
        heard: Heard,
        parent: Lease,
        fid: Fid,
    ) -> Result<(), NotBorn> {
        if self.own(heard).is_none() {
            return Err(NotBorn::NoLease);
        }
        let host = heard.host;
        let its = self.leases.get(&fid);
        let claimed = its.is_some_and(|held| held.holder == host);
        let may = self.may_be_born(host, parent, fid);
        match may {
            Ok(recall) if !claimed => self.insert(host, fid, parent.number, recall),
            Err(_) if claimed => self.drop_lease(now, fid, false),
            _ => {}
        }
        may.map(|_| ())
    }

    /// Uses up the fid. Returns the recall that the new lease comes under.
    fn may_be_born(
        &mut self,
        host: AfsUuid,
        parent: Lease,
        fid: Fid,
    ) -> Result<Option<u64>, NotBorn> {
        let above = self.standing(host, parent).ok_or(NotBorn::NoLease)?.recall;
        if parent.fid.volume != fid.volume || !self.use_reserved(host, fid) {
            return Err(NotBorn::NotReserved);
        }
        // A recall of the volume concerns what is born behind it, too.
        Ok(above.filter(|sequence| {
            let recall = self.recalls.get(sequence);
            recall.is_some_and(|recall| recall.fid.vnode.0 == 0)
        }))
    }

    /// Takes a fid out of its block.
    fn use_reserved(&mut self, host: AfsUuid, fid: Fid) -> bool {
        let blocks = self.hosts.get_mut(&host).map(|state| &mut state.blocks);
        for reserve in blocks.into_iter().flatten() {
            let Some(place) = reserve.block.place(fid) else {
                continue;
            };
            let bit = 1 << (place % 64);
            let Some(word) = reserve.used.get_mut(place as usize / 64) else {
                return false;
            };
            let new = *word & bit == 0;
            *word |= bit;
            reserve.left -= u32::from(new);
            self.reserved -= usize::from(new);
            return new;
        }
        false
    }

    /// Gives a host fids and quota of a volume in which it has leases: the block with its number, for the word. None
    /// if it has no room for them; then the block stays the store's.
    // spec: leases#reserves
    #[must_use]
    pub fn reserve(&mut self, host: AfsUuid, block: Block) -> Option<Block> {
        let open = !self.closed.contains_key(&block.volume);
        let number = self.next();
        let block = Block { number, ..block };
        let fits = open && block.count as usize <= self.room(host);
        (fits && self.add_block(host, block)).then_some(block)
    }

    pub(super) fn add_block(&mut self, host: AfsUuid, block: Block) -> bool {
        let Some(state) = self.hosts.get_mut(&host) else {
            return false;
        };
        let its = state.blocks.iter();
        let its = its.filter(|known| known.block.volume == block.volume);
        let fits = block.is_sound()
            && state.blocks.len() < BLOCKS
            && its.count() < BLOCKS_OF_VOLUME
            && state.leases.range(of_volume(block.volume)).next().is_some();
        if fits {
            self.reserved += block.count as usize;
            let quota = self.quota.entry(block.volume).or_default();
            *quota = quota.saturating_add(block.quota);
            state.blocks.push(Reserve {
                block,
                used: [0; 4],
                left: block.count,
            });
        }
        fits
    }

    /// Takes what a batch stored from the quota that its host has in reserve. Returns how much of it that covers.
    pub fn spend(&mut self, host: AfsUuid, volume: VolumeId, bytes: u64) -> u64 {
        let mut left = bytes;
        let blocks = self.hosts.get_mut(&host).map(|state| &mut state.blocks);
        for reserve in blocks.into_iter().flatten() {
            if reserve.block.volume == volume {
                let taken = left.min(reserve.block.quota);
                reserve.block.quota -= taken;
                left -= taken;
            }
        }
        self.free_quota(volume, bytes - left);
        bytes - left
    }

    /// Some of a host's reserves end.
    pub(super) fn return_reserves(&mut self, host: AfsUuid, which: impl Fn(&Block) -> bool) {
        let Some(state) = self.hosts.get_mut(&host) else {
            return;
        };
        let ends = |reserve: &mut Reserve| which(&reserve.block);
        let ended: Vec<Reserve> = state.blocks.extract_if(.., ends).collect();
        for reserve in ended {
            self.reserved -= reserve.left as usize;
            let block = reserve.block;
            self.free_quota(block.volume, block.quota);
            self.actions.push_back(Action::Returned { host, block });
        }
    }

    fn free_quota(&mut self, volume: VolumeId, bytes: u64) {
        if let Some(quota) = self.quota.get_mut(&volume) {
            *quota = quota.saturating_sub(bytes);
            if *quota == 0 {
                self.quota.remove(&volume);
            }
        }
    }
}
