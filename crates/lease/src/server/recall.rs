//! Leases taken back, and ended by time.

use afar_types::{AfsUuid, Fid, VolumeId};

use super::grant::ROW_PAUSE;
use super::{Action, Due, Recall, Server, of_volume};
use crate::wire::{self, EVERYTHING, Item, Note, RECALLS, RecallAnswer, Standing, VERSION};
use crate::{FLUSH_LIMIT, RESEND, STALL, TERM, Time};

/// What became of a note, for the answer to its call.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Heard {
    pub(super) host: AfsUuid,
    /// The life and the session of the note.
    pub(super) said: (u64, u64),
    /// The session that may begin with the call.
    pub(super) fresh: u64,
    /// The note renewed.
    pub(super) renewed: bool,
}

impl Server {
    /// A note came with a call. To be called when the call is received: its leases last from now. `fresh` is a random
    /// number, for the session that may begin: nobody guesses it, and no server that was set back gives it twice.
    // spec: leases#time, leases#numbers
    pub fn hear(&mut self, now: Time, host: AfsUuid, note: &Note, fresh: u64) -> Heard {
        let mut heard = Heard {
            host,
            said: (note.instance, note.session),
            fresh,
            renewed: false,
        };
        if self.own(heard).is_none() {
            return heard;
        }
        if let Some(state) = self.hosts.get_mut(&host) {
            state.progress = now.max(state.progress);
        }
        self.take_back(now, host, note);
        // A host that has given everything back is not there any longer.
        if let Some(state) = self.hosts.get_mut(&host)
            && state.unheard.len() <= RECALLS
        {
            state.renewed = now.max(state.renewed);
            heard.renewed = true;
        }
        heard
    }

    /// Whether a note was of the host's session, or of none. A batch of another session is answered and not run: its
    /// changes have numbers that mean nothing now, and waiting for anything would make its host wait for itself.
    // spec: leases#batches
    #[must_use]
    pub fn fits(&self, heard: Heard) -> bool {
        heard.said.1 == 0 || self.own(heard).is_some()
    }

    /// What a note of the current session says of recalls and leases.
    fn take_back(&mut self, now: Time, host: AfsUuid, note: &Note) {
        let Some(state) = self.hosts.get(&host) else {
            return;
        };
        let heard: Vec<u64> = state.unheard.range(..=note.heard).copied().collect();
        for sequence in heard {
            self.heard(now, sequence);
        }
        for &lease in &note.given {
            if lease == EVERYTHING {
                self.end(now, host, false);
                // Its next session writes rows again.
                self.damping.hold(&host, now + ROW_PAUSE);
                return;
            }
            if lease.fid.vnode.0 == 0 {
                self.return_reserves(host, |block| block.name() == lease);
            } else if self.standing(host, lease).is_some() {
                self.drop_lease(now, lease.fid, false);
            }
        }
    }

    /// What to call a host with: the oldest recalls that it has not heard, if there are any.
    #[must_use]
    pub fn recall_of(&self, host: AfsUuid) -> Option<wire::Recall> {
        let session = self.hosts.get(&host)?.session;
        let items = self.unheard(host);
        (!items.is_empty()).then(|| wire::Recall {
            version: VERSION,
            session,
            items: wire::some(items),
        })
    }

    /// A host has answered a call with this recall. What the answer has in addition counts for nothing.
    pub fn recall_answered(
        &mut self,
        now: Time,
        host: AfsUuid,
        recall: &wire::Recall,
        answer: &RecallAnswer,
    ) {
        for (item, standing) in recall.items.iter().zip(&answer.standings) {
            let known = self.recalls.get(&item.sequence);
            let its = known.is_some_and(|recall| recall.host == host);
            if !its || *standing == Standing::Stranger {
                continue;
            }
            if let Some(state) = self.hosts.get_mut(&host) {
                state.progress = now.max(state.progress);
            }
            if *standing == Standing::Released {
                self.drop_recalled(now, item.sequence, false);
            }
            self.heard(now, item.sequence);
        }
    }

    /// The first recalls that a host has not heard.
    pub(super) fn unheard(&self, host: AfsUuid) -> Vec<Item> {
        let sequences = self.hosts.get(&host).map(|host| &host.unheard);
        let sequences = sequences.into_iter().flatten().take(RECALLS);
        let recalls = sequences.filter_map(|sequence| {
            let recall = self.recalls.get(sequence)?;
            Some(Item {
                fid: recall.fid,
                number: recall.number,
                sequence: *sequence,
            })
        });
        recalls.collect()
    }

    /// Asks the holder of this vnode to give it back, unless it has been asked. `by_own`: for a call of its own host.
    pub(super) fn recall(&mut self, now: Time, fid: Fid, by_own: bool) {
        let Some(held) = self.leases.get(&fid) else {
            return;
        };
        if let Some(sequence) = held.recall {
            let recall = self.recalls.get_mut(&sequence);
            if let Some(recall) = recall.filter(|recall| recall.by_own && !by_own) {
                recall.by_own = false;
                self.damping.recalled(&fid, now);
            }
            return;
        }
        let (host, number) = (held.holder, held.number);
        self.begin_recall(now, host, fid, number, (&[fid], by_own));
    }

    /// The same of everything in a volume. Whether anything in it is leased.
    // spec: leases#storms
    pub(super) fn recall_volume(&mut self, now: Time, volume: VolumeId) -> bool {
        let leases = self.leases.range(of_volume(volume));
        let mut of_hosts: Vec<(AfsUuid, Fid)> = Vec::new();
        let mut leased = false;
        for (&fid, held) in leases {
            leased = true;
            if held.recall.is_none() {
                of_hosts.push((held.holder, fid));
            }
        }
        of_hosts.sort_unstable();
        for of_host in of_hosts.chunk_by(|one, other| one.0 == other.0) {
            let Some(&(host, _)) = of_host.first() else {
                continue;
            };
            let fids: Vec<Fid> = of_host.iter().map(|&(_, fid)| fid).collect();
            self.begin_recall(now, host, wire::whole(volume), self.last, (&fids, false));
        }
        leased
    }

    /// Reserves in a volume end. Their hosts get no leases before they have heard of it.
    pub(super) fn recall_blocks(&mut self, now: Time, volume: VolumeId) {
        let of_volume = |state: &super::Host| {
            let mut blocks = state.blocks.iter();
            blocks.any(|reserve| reserve.block.volume == volume)
        };
        let hosts = self.hosts.iter().filter(|(_, state)| of_volume(state));
        let hosts: Vec<AfsUuid> = hosts.map(|(&host, _)| host).collect();
        for host in hosts {
            self.begin_recall(now, host, wire::whole(volume), self.last, (&[], false));
            self.return_reserves(host, |block| block.volume == volume);
        }
    }

    fn begin_recall(
        &mut self,
        now: Time,
        host: AfsUuid,
        fid: Fid,
        number: u64,
        (fids, by_own): (&[Fid], bool),
    ) {
        let sequence = self.next();
        let Some(state) = self.hosts.get_mut(&host) else {
            return;
        };
        let recall = Recall {
            host,
            fid,
            number,
            began: now,
            // No later renewal counts: whatever tells the holder of one tells it of this recall.
            deadline: state.renewed + TERM,
            heard: None,
            left: fids.len(),
            by_own,
        };
        state.unheard.insert(sequence);
        self.recalls.insert(sequence, recall);
        for fid in fids {
            if let Some(held) = self.leases.get_mut(fid) {
                held.recall = Some(sequence);
            }
            if !by_own {
                self.damping.recalled(fid, now);
            }
        }
        self.recall_due(now, sequence);
    }

    /// The host has heard of a recall.
    fn heard(&mut self, now: Time, sequence: u64) {
        let Some(recall) = self.recalls.get_mut(&sequence) else {
            return;
        };
        if let Some(host) = self.hosts.get_mut(&recall.host) {
            host.unheard.remove(&sequence);
        }
        recall.heard.get_or_insert(now);
        if recall.left == 0 {
            self.recalls.remove(&sequence);
        } else {
            self.recall_due(now, sequence);
        }
    }

    /// Ends what a recall takes back, or asks again.
    // spec: leases#recall
    pub(super) fn recall_due(&mut self, now: Time, sequence: u64) {
        let Some(recall) = self.recalls.get(&sequence) else {
            return;
        };
        if recall.left == 0 {
            // It stays until the host has heard of it, so that no later word renews what is over.
            return;
        }
        let host = recall.host;
        let Some(state) = self.hosts.get_mut(&host) else {
            return;
        };
        let (end, next) = match recall.heard {
            Some(heard) => {
                let stalled = state.progress.max(heard) + STALL;
                let end = stalled.min(recall.began + FLUSH_LIMIT);
                (end, end)
            }
            None => (recall.deadline, recall.deadline.min(now + RESEND)),
        };
        if now >= end {
            self.drop_recalled(now, sequence, true);
            self.recall_host(now, host);
            return;
        }
        if recall.heard.is_none() && !std::mem::replace(&mut state.asked, true) {
            self.actions.push_back(Action::Recall(host));
        }
        self.due.insert((next, Due::Recall(sequence)));
    }

    /// A host did not give a lease back in time: all others it has are recalled, lest each of them makes somebody wait
    /// for as long, and it gets none for a while.
    // spec: leases#attacks
    fn recall_host(&mut self, now: Time, host: AfsUuid) {
        self.damping.recalled(&host, now);
        let leases = self.hosts.get(&host).map(|state| &state.leases);
        let standing = leases.into_iter().flatten().filter(|fid| {
            let held = self.leases.get(fid);
            held.is_some_and(|held| held.recall.is_none())
        });
        let standing: Vec<Fid> = standing.copied().collect();
        for of_volume in standing.chunk_by(|one, other| one.volume == other.volume) {
            if let Some(fid) = of_volume.first() {
                let whole = wire::whole(fid.volume);
                self.begin_recall(now, host, whole, self.last, (of_volume, false));
            }
        }
    }

    fn drop_recalled(&mut self, now: Time, sequence: u64, revoked: bool) {
        let Some(recall) = self.recalls.get(&sequence) else {
            return;
        };
        let fids = if recall.fid.vnode.0 == 0 {
            of_volume(recall.fid.volume)
        } else {
            recall.fid..=recall.fid
        };
        // Those of the host only: a volume may be recalled from thousands.
        let Some(host) = self.hosts.get(&recall.host) else {
            return;
        };
        let taken = host.leases.range(fids).filter(|fid| {
            let held = self.leases.get(fid);
            held.is_some_and(|held| held.recall == Some(sequence))
        });
        for fid in taken.copied().collect::<Vec<Fid>>() {
            self.drop_lease(now, fid, revoked);
        }
    }

    /// A host whose notes have stopped has no leases any longer.
    pub(super) fn host_due(&mut self, now: Time, host: AfsUuid) {
        let Some(state) = self.hosts.get(&host) else {
            return;
        };
        let end = state.renewed + TERM;
        if now < end {
            self.due.insert((end, Due::Host(host)));
            return;
        }
        self.end_host(now, host);
    }

    /// The host has nothing any longer: its notes have stopped, or the server's program knows that its process has
    /// ended and that no call of it is left.
    pub fn end_host(&mut self, now: Time, host: AfsUuid) {
        self.end(now, host, true);
    }

    fn end(&mut self, now: Time, host: AfsUuid, revoked: bool) {
        let Some(state) = self.hosts.get(&host) else {
            return;
        };
        let session = state.session;
        for fid in state.leases.clone() {
            self.drop_lease(now, fid, revoked);
        }
        self.return_reserves(host, |_| true);
        let Some(state) = self.hosts.remove(&host) else {
            return;
        };
        for sequence in state.unheard {
            self.recalls.remove(&sequence);
        }
        for &volume in state.rows.keys() {
            self.actions.push_back(Action::Forget {
                host,
                volume,
                session,
            });
        }
    }
}
