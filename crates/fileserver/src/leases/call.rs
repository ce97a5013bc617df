//! A call of a client at the vnodes it comes to.
//!
//! A step of a call asks at each vnode, when it has seen that there is one. If another host has a lease, the step ends
//! without having done anything ([`LeaseCall::is_stopped`]); the call waits ([`LeaseCall::wait`]), holding nothing, and
//! the step is done again. What a call changes it stays at until it ends, when all others know of the change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_lease::wire::{self, Block, Claim, Claimed, Lease, Note, Word};
use afar_lease::{Entry, Heard, Time, VisitId, Wish};
use afar_net::AbortCode;
use afar_store::Volume;
use afar_types::error::VBUSY;
use afar_types::{AfsUuid, Fid, VolumeId};
use afar_xdr::List;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::counts::count;
use super::{Leases, random};
use crate::abort::errno;
use crate::hosts::{Host, Hosts};

/// How often a call waits for what it finds behind what it waited for.
const ROUNDS: u32 = 16;
/// How long a wish waits for the disk.
const ROW_WAIT: Duration = Duration::from_millis(500);

/// What a call does to a vnode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It looks whether something may be done, and tells nobody what it saw.
    Nothing,
    /// It reads.
    Read,
    /// It changes something, or locks it.
    Change,
}

/// A call. Dropped, it has left.
#[derive(Debug)]
pub(crate) struct LeaseCall {
    /// None where no leases are given.
    leases: Option<Arc<Leases>>,
    host: Option<AfsUuid>,
    /// Where it comes from.
    address: IpAddr,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of its note.
    heard: Option<Heard>,
    /// What it changes.
    at: BTreeMap<Fid, VisitId>,
    visits: Vec<VisitId>,
    /// Where it had to stop, and to do what.
    stopped: BTreeMap<Fid, Touch>,
    /// What it is about to make, by fids of its host's reserve.
    born: BTreeSet<Fid>,
    rounds: u32,
}

impl LeaseCall {
    /// A call of this host, from there.
    pub(crate) fn new(
        leases: Option<&Arc<Leases>>,
        host: Option<AfsUuid>,
        address: IpAddr,
    ) -> Self {
        Self {
            leases: leases.cloned(),
            host,
            address,
            state: Mutex::default(),
        }
    }

    /// The call has a note. Nothing comes of it if there are no leases here, or none for its host.
    pub(crate) fn hear(&self, note: &Note) {
        let (Some(leases), Some(host)) = (&self.leases, self.host) else {
            return;
        };
        let fresh = random();
        let heard = leases.ending(|state, now| state.server.hear(now, host, note, fresh));
        self.state.lock().heard = Some(heard);
    }

    fn heard(&self) -> Option<(&Arc<Leases>, Heard)> {
        let heard = self.state.lock().heard;
        self.leases.as_ref().zip(heard)
    }

    /// What to answer at once to a batch whose note is of another session.
    // spec: leases#batches
    pub(crate) fn unfit(&self) -> Option<Word> {
        let (leases, heard) = self.heard()?;
        leases.with(|state, _| {
            let fits = state.server.fits(heard);
            (!fits).then(|| state.server.word(heard))
        })
    }

    /// Counts what may have ended leases: what was read before may not be what is there now.
    pub(crate) fn epoch(&self) -> u64 {
        self.leases.as_ref().map_or(0, |leases| leases.epoch())
    }

    /// Whether there are leases here at all.
    pub(crate) fn is_on(&self) -> bool {
        self.leases.is_some()
    }

    /// Asks at a vnode that is there.
    ///
    /// # Errors
    /// The step must not go on.
    pub(crate) fn ask(&self, fid: Fid, touch: Touch) -> Result<(), AbortCode> {
        let Some(leases) = &self.leases else {
            return Ok(());
        };
        let mut state = self.state.lock();
        let goes_on = match touch {
            Touch::Nothing => true,
            Touch::Read => state.at.contains_key(&fid) || self.read(leases, fid),
            Touch::Change => state.at.contains_key(&fid) || state.enter(leases, self.host, &[fid]),
        };
        if goes_on {
            return Ok(());
        }
        let wanted = state.stopped.entry(fid).or_insert(touch);
        if touch == Touch::Change {
            *wanted = touch;
        }
        Err(AbortCode(VBUSY))
    }

    fn read(&self, leases: &Leases, fid: Fid) -> bool {
        let wait = leases.with(|state, now| state.server.read(now, self.host, fid));
        wait.is_none()
    }

    /// Whether reading a vnode would recall somebody's lease.
    pub(crate) fn is_anothers(&self, fid: Fid) -> bool {
        let Some(leases) = &self.leases else {
            return false;
        };
        leases.with(|state, _| {
            let holder = state.server.holder(fid);
            holder.is_some_and(|(holder, _)| Some(holder) != self.host)
        })
    }

    /// Whether a step had to stop. If what it did counts all the same, it is not done again.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.state.lock().stopped.is_empty()
    }

    /// The step is not done again.
    pub(crate) fn go_on(&self) {
        self.state.lock().stopped.clear();
    }

    /// Waits for what the last step had to stop at; then that can be done again.
    ///
    /// # Errors
    /// VBUSY, if that was so too often, or too many wait.
    pub(crate) async fn wait(&self) -> Result<(), AbortCode> {
        let Some(leases) = &self.leases else {
            return Ok(());
        };
        let (stopped, rounds) = {
            let mut state = self.state.lock();
            state.rounds += 1;
            (std::mem::take(&mut state.stopped), state.rounds)
        };
        if rounds > ROUNDS {
            return Err(AbortCode(VBUSY));
        }
        let _waiting = leases.waits.begin(self.address)?;
        count(&leases.counts.waited, 1);
        let volumes: BTreeSet<VolumeId> = stopped.keys().map(|fid| fid.volume).collect();
        for volume in volumes {
            let of_volume = stopped.iter().filter(|(fid, _)| fid.volume == volume);
            let (changed, read): (Vec<_>, Vec<_>) =
                of_volume.partition(|(_, touch)| **touch == Touch::Change);
            let [changed, read] = [changed, read].map(|fids| {
                let fids = fids.into_iter().map(|(fid, _)| *fid);
                fids.collect::<Vec<Fid>>()
            });
            let freed = leases.freed(volume);
            loop {
                let told = freed.notify.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                let left = {
                    let mut state = self.state.lock();
                    let left = read.iter().filter_map(|fid| {
                        leases.with(|state, now| {
                            let until = state.server.read(now, self.host, *fid)?;
                            Some(until.saturating_sub(now))
                        })
                    });
                    let left = left.max();
                    left.max(state.wait_to_change(leases, self.host, &changed))
                };
                let Some(left) = left else {
                    break;
                };
                // Whether it was told or the time is over, it asks again.
                drop(timeout(left.max(Duration::from_millis(1)), told).await);
            }
        }
        Ok(())
    }

    /// Whether a change that the client made under a lease is covered by it.
    // spec: leases#late-changes
    pub(crate) fn covers(&self, lease: Lease) -> bool {
        let Some((leases, heard)) = self.heard() else {
            return false;
        };
        leases.with(|state, _| state.server.covers(heard, lease))
    }

    /// A change is refused, as its lease is over and the vnode is another by now.
    pub(crate) fn count_late(&self) {
        if let Some(leases) = &self.leases {
            count(&leases.counts.late, 1);
        }
    }

    /// A vnode is about to be made, of which there is none yet, by a fid of the host's reserve.
    ///
    /// # Errors
    /// ESTALE: it must not be made.
    // spec: leases#birth
    pub(crate) fn bear(&self, parent: Lease, fid: Fid) -> Result<(), AbortCode> {
        let stale = AbortCode(errno::ESTALE);
        let (leases, heard) = self.heard().ok_or(stale)?;
        let mut call = self.state.lock();
        leases.with(|state, now| {
            let born = state.server.born(now, heard, parent, fid);
            born.map_err(|_| stale)?;
            state.reserves.use_fid(fid, true);
            call.born.insert(fid);
            Ok(())
        })
    }

    /// It was not made after all, and there is no such vnode.
    pub(crate) fn unbear(&self, fid: Fid) {
        let Some((leases, heard)) = self.heard() else {
            return;
        };
        let was_born = self.state.lock().born.remove(&fid);
        leases.ending(|state, now| {
            state.server.unborn(now, heard, fid);
            if was_born {
                state.reserves.use_fid(fid, false);
            }
        });
    }

    /// What it bore is there to stay, or nothing of it is.
    pub(crate) fn end_births(&self, done: bool) {
        let born = std::mem::take(&mut self.state.lock().born);
        if done {
            return;
        }
        for fid in born {
            self.unbear(fid);
        }
    }

    /// Takes so many bytes out of what the host has in reserve of the volume's quota.
    pub(crate) fn spend(&self, volume: &Volume, bytes: u64) {
        let (Some((leases, heard)), Some(host)) = (self.heard(), self.host) else {
            return;
        };
        leases.with(|state, _| {
            if state.server.fits(heard) && state.server.spend(host, volume.id(), bytes) > 0 {
                state.promise(volume);
            }
        });
    }

    /// Comes to a vnode for the sake of a wish, unless it would have to wait.
    pub(crate) fn enter_freely(&self, fid: Fid) -> bool {
        let (Some((leases, heard)), Some(host)) = (self.heard(), self.host) else {
            return false;
        };
        let mut call = self.state.lock();
        if call.at.contains_key(&fid) {
            return true;
        }
        let entry = leases.with(|state, now| {
            let is_free = state.server.fits(heard) && state.server.is_free(host, fid);
            is_free.then(|| state.server.enter(now, Some(host), Some(heard), &[fid]))
        });
        let Some(Entry::Proceed(visit)) = entry else {
            return false;
        };
        call.visits.push(visit);
        call.at.insert(fid, visit);
        true
    }

    /// What to say with the answer; nothing to a call without a note. Of each wish the caller has looked whether it may be
    /// granted to its user.
    // spec: leases#grant
    pub(crate) fn answer(
        &self,
        hosts: &Hosts,
        host: &Arc<Host>,
        wishes: &[(Fid, bool)],
    ) -> Option<Word> {
        let (leases, heard) = self.heard()?;
        let call = self.state.lock();
        let (word, new) = leases.with(|state, now| {
            let (mut grants, before) = (Vec::new(), state.server.leases());
            for &(fid, may) in wishes {
                let Some(visit) = call.at.get(&fid) else {
                    continue;
                };
                // Promises are entered before their hosts ask for leases, which is below this lock, too.
                let alone = may && !hosts.is_promised_to_others(host, fid);
                let wish = Wish { fid, alone };
                let word = state.server.answer(now, heard, *visit, &[wish]);
                grants.extend(word.grants);
            }
            let mut word = state.server.word(heard);
            word.grants = List::new(grants).unwrap_or_default();
            (word, state.server.leases().saturating_sub(before))
        });
        count(&leases.counts.granted, new);
        Some(word)
    }

    /// Waits until it is durable that the host has leases in a volume, if that has just been begun: a wish for one there
    /// is granted then. Returns whether it waited.
    // spec: leases#grant
    pub(crate) async fn row_is_durable(&self, volume: VolumeId) -> bool {
        let (Some(leases), Some(host)) = (&self.leases, self.host) else {
            return false;
        };
        let mut waited = false;
        let durable = async {
            loop {
                let durable = leases.durable.notified();
                tokio::pin!(durable);
                // Before the look: a row that is written after it is heard of.
                durable.as_mut().enable();
                if !leases.with(|state, _| state.server.awaits_row(host, volume)) {
                    return;
                }
                waited = true;
                durable.await;
            }
        };
        // A disk that takes longer grants the next wish.
        let in_time = timeout(ROW_WAIT, durable).await;
        in_time.is_ok() && waited
    }

    /// Adds blocks of so many fids to a word that has granted something in this volume. Blocks.
    // spec: leases#reserves
    pub(crate) fn reserve(&self, volume: &Volume, wanted: u32, word: &mut Word) {
        let (Some(leases), Some(host)) = (&self.leases, self.host) else {
            return;
        };
        let mut given = Vec::new();
        for of_one in parts(wanted) {
            let Some(block) = leases.set_aside(volume, of_one) else {
                break;
            };
            let one = leases.with(|state, _| {
                let given = state.server.reserve(host, block);
                match given {
                    Some(given) => {
                        state.reserves.gave(given);
                        state.promise(volume);
                        // Below the lock: nobody takes it back before.
                        leases.rows.put_block(host, word.session, given);
                    }
                    None => state.reserves.keep(block, [0; 4]),
                }
                given
            });
            let Some(one) = one else {
                break;
            };
            given.push(one);
        }
        if !given.is_empty()
            && let Err(error) = leases.rows.write()
        {
            // Nobody uses them, and they end with the session.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what is set aside for a client is not on the disk"
            );
            return;
        }
        word.blocks = List::new(given).unwrap_or_default();
    }

    /// Whether the server has restarted and waits for the claim of this host's session.
    pub(crate) fn is_awaited(&self, session: u64) -> bool {
        let (Some(leases), Some(host)) = (&self.leases, self.host) else {
            return false;
        };
        leases.with(|state, _| state.server.awaits(host, session))
    }

    /// Takes a claim, of which the caller has left out what its user may not have. Of its blocks these are the volumes.
    ///
    /// # Errors
    /// RXGEN_OPCODE where there are no leases, or none for this host.
    // spec: leases#restart-of-the-server
    pub(crate) fn claim(
        &self,
        claim: &Claim,
        volumes: &BTreeMap<VolumeId, Volume>,
    ) -> Result<Claimed, AbortCode> {
        let none = AbortCode::RXGEN_OPCODE;
        let (leases, host) = self.leases.as_ref().zip(self.host).ok_or(none)?;
        Ok(leases.with(|state, now| {
            let claimed = state.server.claim(now, host, claim);
            for volume in volumes.values() {
                state.promise(volume);
            }
            claimed
        }))
    }

    /// A claimed block as it may be granted: one that was set aside for the session, with as much quota as there is now.
    pub(crate) fn claimable(
        &self,
        session: u64,
        volume: &Volume,
        claimed: &Block,
    ) -> Option<Block> {
        let leases = self.leases.as_ref()?;
        let block = leases.rows.block(self.host?, session, claimed)?;
        let last = block.fid(block.count.checked_sub(1)?)?;
        // The volume may be an older copy of itself.
        if !volume.has_set_aside(last).ok()? {
            return None;
        }
        let reserved = leases.with(|state, _| state.server.reserved_quota(volume.id()));
        let most = super::reserve::quota(volume, reserved)?;
        Some(Block {
            quota: claimed.quota.min(block.quota).min(most),
            ..block
        })
    }
}

impl State {
    fn enter(&mut self, leases: &Leases, host: Option<AfsUuid>, fids: &[Fid]) -> bool {
        self.wait_to_change(leases, host, fids).is_none()
    }

    /// Comes to vnodes to change them, to all at once; or how long it has to wait at most.
    fn wait_to_change(
        &mut self,
        leases: &Leases,
        host: Option<AfsUuid>,
        fids: &[Fid],
    ) -> Option<Time> {
        if fids.is_empty() {
            return None;
        }
        let entry = leases.with(|state, now| {
            let entry = state.server.enter(now, host, self.heard, fids);
            (entry, now)
        });
        match entry {
            (Entry::Proceed(visit), _) => {
                self.visits.push(visit);
                self.at.extend(fids.iter().map(|fid| (*fid, visit)));
                None
            }
            (Entry::Wait(until), now) => Some(until.saturating_sub(now)),
        }
    }
}

impl Drop for LeaseCall {
    fn drop(&mut self) {
        let visits = std::mem::take(&mut self.state.get_mut().visits);
        if let Some(leases) = &self.leases
            && !visits.is_empty()
        {
            leases.with(|state, _| {
                for visit in visits {
                    state.server.leave(visit);
                }
            });
        }
    }
}

/// A note as it came with a call.
///
/// # Errors
/// RXGEN_SS_UNMARSHAL.
pub(crate) fn read_note(bytes: &[u8]) -> Result<Option<Note>, AbortCode> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let note = wire::decode(bytes).map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)?;
    Ok(Some(note))
}

/// How many fids each of the blocks has that are wanted: as many blocks as a word tells of.
fn parts(wanted: u32) -> impl Iterator<Item = u32> {
    let mut left = wanted;
    std::iter::from_fn(move || {
        let part = left.min(Block::FIDS);
        left -= part;
        (part > 0).then_some(part)
    })
    .take(wire::BLOCKS)
}
