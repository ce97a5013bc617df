//! What travels, and how badly.

use afar_lease::wire::{Claim, Claimed, Note, Recall, RecallAnswer, Word};
use afar_types::Fid;

/// A change of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) fid: Fid,
    /// The number of the lease it was made under; None: it is late.
    pub(crate) lease: Option<u64>,
    /// The directory in which it makes the file.
    pub(crate) parent: Option<Fid>,
    pub(crate) value: u64,
    /// The version that it was made on.
    pub(crate) expected: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read(Fid, Note),
    Write(Fid, u64, Note),
    /// Its number, the changes with the lease of the directory of each.
    Batch(u64, Vec<(Change, Option<u64>)>, Note),
    Renew(Note),
    Claim(Claim),
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Value and version, 0 of what does not exist.
    Is(u64, u64, Word),
    /// Which changes are made; None: run nothing, as the session is another.
    Batch(Option<Vec<bool>>, Word),
    Renewed(Word),
    Claimed(Claimed),
}

#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Request {
        client: usize,
        life: u64,
        id: u64,
        request: Request,
    },
    Reply {
        client: usize,
        life: u64,
        id: u64,
        reply: Reply,
    },
    Recall {
        client: usize,
        recall: Recall,
    },
    Answer {
        client: usize,
        recall: Recall,
        answer: RecallAnswer,
    },
}

impl Packet {
    pub(crate) fn client(&self) -> usize {
        match self {
            Self::Request { client, .. }
            | Self::Reply { client, .. }
            | Self::Recall { client, .. }
            | Self::Answer { client, .. } => *client,
        }
    }

    pub(crate) fn to_server(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Answer { .. })
    }
}

/// How packets fare.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) loss: f64,
    /// Of each client, whether it is cut off to the server, and from it.
    pub(crate) cut: Vec<[bool; 2]>,
}

impl Network {
    /// When copies of a packet arrive, in microseconds from now.
    pub(crate) fn delays(&self, random: &mut fastrand::Rng, packet: &Packet) -> Vec<u64> {
        let direction = usize::from(!packet.to_server());
        if self.cut[packet.client()][direction] || random.f64() < self.loss {
            return Vec::new();
        }
        let copies = if random.u8(..20) == 0 { 2 } else { 1 };
        let delay = |_| match random.u8(..100) {
            0 => random.u64(0..40_000_000),
            1..=5 => random.u64(0..3_000_000),
            _ => random.u64(500..40_000),
        };
        (0..copies).map(delay).collect()
    }
}
