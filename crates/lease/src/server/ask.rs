//! What a server's program asks beside: reading, and what it would get.

use afar_types::{AfsUuid, Fid};

use super::{HELD, Heard, Server};
use crate::{TERM, Time};

impl Server {
    /// Whether a call that changes nothing has to wait at a vnode, and until when at the latest. A host's own leases are
    /// not in the way of its reading, whatever its note, because its cache puts what it has not sent over what it reads.
    /// What another has a lease of is recalled. Nothing is kept of the call: the caller's host is promised word of
    /// changes before this, and [`answer`](Self::answer) is called with wishes for which promises were looked at below
    /// the same lock.
    #[must_use]
    pub fn read(&mut self, now: Time, host: Option<AfsUuid>, fid: Fid) -> Option<Time> {
        match self.leases.get(&fid) {
            Some(held) if Some(held.holder) == host => None,
            Some(_) => {
                self.recall(now, fid, false);
                self.damping.hold(&fid, now + HELD * self.limits.damping);
                Some(now + TERM)
            }
            None if self.claims.pends(fid.volume) => Some(self.claims.until()),
            None => None,
        }
    }

    /// Whether a host may be at a vnode without a wait or a recall.
    #[must_use]
    pub fn is_free(&self, host: AfsUuid, fid: Fid) -> bool {
        match self.leases.get(&fid) {
            Some(held) => held.holder == host,
            None => !self.claims.pends(fid.volume),
        }
    }

    /// Whether the server has restarted and waits for the claim of a host's session.
    #[must_use]
    pub fn awaits(&self, host: AfsUuid, session: u64) -> bool {
        self.claims.expects(host, session)
    }

    /// A reserved fid was not made after all: it may be made later, and is not leased before. There is no such vnode.
    // spec: leases#birth
    pub fn unborn(&mut self, now: Time, heard: Heard, fid: Fid) {
        if self.own(heard).is_none() {
            return;
        }
        let held = self.leases.get(&fid);
        if held.is_some_and(|held| held.holder == heard.host) {
            self.drop_lease(now, fid, false);
        }
        let blocks = self.hosts.get_mut(&heard.host);
        for reserve in blocks.into_iter().flat_map(|state| &mut state.blocks) {
            let Some(place) = reserve.block.place(fid) else {
                continue;
            };
            if let Some(word) = reserve.used.get_mut(place as usize / 64) {
                let bit = 1 << (place % 64);
                let was_used = *word & bit != 0;
                *word &= !bit;
                reserve.left += u32::from(was_used);
                self.reserved += usize::from(was_used);
            }
        }
    }
}
