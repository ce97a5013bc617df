//! What the two ends say to each other, in XDR (RFC 4506).
// spec: leases#messages

use afar_types::{Fid, Uniquifier, VnodeId, VolumeId};
use afar_xdr::{Decode, DecodeError, Decoder, Encode, List};

/// The version of all messages.
pub const VERSION: u32 = 1;

/// Recalls in a message at most. A reply that would have to tell of more does not renew.
pub const RECALLS: usize = 64;
/// Wishes in a note, and grants in a word.
pub const WISHES: usize = 64;

/// Blocks in a word at most.
pub const BLOCKS: usize = 4;

/// Leases in a claim at most, and so leases of a host.
pub const CLAIMED: usize = 16_384;

/// Given back, it ends the session with all that is in it.
// spec: leases#giving-back
pub const EVERYTHING: Lease = Lease {
    fid: Fid {
        volume: VolumeId(0),
        vnode: VnodeId(0),
        uniquifier: Uniquifier(0),
    },
    number: 0,
};

/// A lease: of what, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Lease {
    /// The directory or file.
    pub fid: Fid,
    /// Numbers only grow, over all fids and all restarts of a server. 0 is no lease's.
    pub number: u64,
}

/// One recall: every grant of `fid` with this number or a lower one is void. Vnode 0 stands for all of the volume.
// spec: leases#recall
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Item {
    /// What is recalled.
    pub fid: Fid,
    /// The highest number it concerns.
    pub number: u64,
    /// The recall's own number, by which the holder says that it has heard.
    pub sequence: u64,
}

/// Fids that a holder may use for what it makes: of `count` vnodes from `vnode`, the one at place N has the
/// uniquifier `uniquifier` + N.
// spec: leases#reserves
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Block {
    /// The volume.
    pub volume: VolumeId,
    /// The first vnode.
    pub vnode: u32,
    /// The first uniquifier.
    pub uniquifier: u32,
    /// How many, at most [`Block::FIDS`].
    pub count: u32,
    /// Bytes of quota that come with it.
    pub quota: u64,
    /// From the server's numbers: names the block, with its volume, as a lease is named.
    pub number: u64,
}

impl Block {
    /// Fids in a block at most.
    pub const FIDS: u32 = 256;

    /// The fid at a place, if the block has it.
    #[must_use]
    pub fn fid(&self, place: u32) -> Option<Fid> {
        let vnode = self.vnode.checked_add(place)?;
        let uniquifier = self.uniquifier.checked_add(place)?;
        (place < self.count).then(|| Fid::new(self.volume.0, vnode, uniquifier))
    }

    /// Its name where it is given back: vnode 0 of its volume, and its own first vnode in the place of the uniquifier: all
    /// blocks of a claim have the same number.
    #[must_use]
    pub fn name(&self) -> Lease {
        Lease {
            fid: Fid::new(self.volume.0, 0, self.vnode),
            number: self.number,
        }
    }

    /// The place of a fid of this block.
    #[must_use]
    pub fn place(&self, fid: Fid) -> Option<u32> {
        let place = fid.vnode.0.checked_sub(self.vnode)?;
        (self.fid(place) == Some(fid)).then_some(place)
    }

    /// Whether it can be: it has fids, not too many, and none of them is vnode 0 or beyond the last number.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let last = self.count.checked_sub(1);
        self.count <= Self::FIDS
            && self.vnode > 0
            && last.is_some_and(|last| self.fid(last).is_some())
    }
}

/// What a holder says with a call.
// spec: leases#messages
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Note {
    /// [`VERSION`].
    pub version: u32,
    /// The server's life in which the holder has leases.
    pub instance: u64,
    /// The holder's session with this server, 0 if it has none.
    pub session: u64,
    /// It has heard all recalls up to this one.
    pub heard: u64,
    /// What it would like to have leases of. The call has to touch it.
    pub wishes: List<Fid, WISHES>,
    /// Fids that it would like to have in reserve in the volume of the first wish.
    pub reserve: u32,
    /// Leases that it gives back, because nothing unsent is left of them; with vnode 0, blocks; [`EVERYTHING`].
    pub given: List<Lease, 1024>,
}

/// What a server says with its answer to a call that had a [`Note`].
// spec: leases#messages
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Word {
    /// [`VERSION`].
    pub version: u32,
    /// The server's life: another one after each of its starts.
    pub instance: u64,
    /// The session that the note was of or that began with its call, 0 if there is none such.
    pub session: u64,
    /// All leases of the session last until 20 s after the server received the note.
    pub renews: bool,
    /// The server has restarted and waits for this host's claim.
    pub claim: bool,
    /// `recalls` has all recalls up to this one that the holder has not said to have heard. 0: it has not.
    pub told: u64,
    /// Recalls, whether or not they were also told by calls.
    pub recalls: List<Item, RECALLS>,
    /// Granted wishes.
    pub grants: List<Lease, WISHES>,
    /// Fids in reserve.
    pub blocks: List<Block, BLOCKS>,
}

/// A server recalls leases (RXAFSCB).
// spec: leases#recall
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Recall {
    /// [`VERSION`].
    pub version: u32,
    /// The holder's session: another process there knows nothing of its leases.
    pub session: u64,
    /// What it recalls.
    pub items: List<Item, RECALLS>,
}

/// What is left of a recalled lease at its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Standing {
    /// Nothing: it is given back.
    #[xdr(case = 0)]
    Released,
    /// Changes that are being sent. The holder no longer uses the lease for new ones.
    #[xdr(case = 1)]
    Flushing,
    /// The session is not the holder's: the answer says nothing.
    #[xdr(case = 2)]
    Stranger,
}

/// A holder's answer, as long as the recall's list.
// spec: leases#recall
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct RecallAnswer {
    /// What is left of each.
    pub standings: List<Standing, RECALLS>,
}

/// What a holder had of a server that has restarted. Without leases it says that the host has none.
// spec: leases#restart-of-the-server
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Claim {
    /// [`VERSION`].
    pub version: u32,
    /// The server's life that is asked: a claim of an earlier one is void.
    pub instance: u64,
    /// The session, which goes on.
    pub session: u64,
    /// The leases.
    pub leases: List<Lease, CLAIMED>,
    /// The reserves.
    pub blocks: List<Block, 64>,
}

/// The answer to a [`Claim`].
// spec: leases#restart-of-the-server
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Claimed {
    /// [`VERSION`].
    pub version: u32,
    /// The session, 0 if nothing is granted: then it is over.
    pub session: u64,
    /// The new number of all claimed leases.
    pub number: u64,
    /// Places in the claim's list of leases that are refused, ascending.
    pub refused: List<u32, CLAIMED>,
}

/// Reads a message. What follows it is of a later version and ignored.
///
/// # Errors
/// The bytes are no such message.
pub fn decode<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::decode(&mut Decoder::new(bytes))
}

/// The fid that stands for all of a volume.
pub(crate) fn whole(volume: VolumeId) -> Fid {
    Fid::new(volume.0, 0, 0)
}

/// As many of these as a list takes.
pub(crate) fn some<T, const MAX: usize>(items: impl IntoIterator<Item = T>) -> List<T, MAX> {
    let some: Vec<T> = items.into_iter().take(MAX).collect();
    List::new(some).unwrap_or_default()
}

#[cfg(test)]
mod tests;
