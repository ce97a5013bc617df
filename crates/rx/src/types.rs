//! The small identifiers of Rx.

use std::fmt;

/// A service on a port: 1 RXAFS, 4 AFSVol, 52 VL, 73 PR, 147 rxperf, 409 statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// spec: afs-rpc#services-and-ports
pub struct ServiceId(pub u16);

/// A security class's number in the packet header: 0 rxnull, 2 rxkad, 4 rxgk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// spec: security#security-classes
pub struct SecurityIndex(pub u8);

/// Chosen by the client endpoint when it starts. With bit 31 set the connection may roam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Whether packets of this epoch are matched without regard to the sender's address.
    #[must_use]
    // spec: rx#epochs-and-connection-ids
    pub const fn may_roam(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// A connection's number and, in its low two bits, a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(pub u32);

impl Cid {
    /// The channel, 0 to 3.
    #[must_use]
    pub const fn channel(self) -> usize {
        (self.0 & 3) as usize
    }

    /// The connection's own number: channel bits cleared.
    #[must_use]
    pub const fn connection(self) -> Self {
        Self(self.0 & !3)
    }
}

/// A call's number on its channel; the first is 1, and 0 addresses the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNumber(pub u32);

/// Names a connection of one [`Endpoint`](crate::Endpoint); never used again after it is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) Key);

/// Names a call of one [`Endpoint`](crate::Endpoint); never used again after it has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) Key);

/// A slot and the number of the use of that slot, so that a stale name is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// Before and behind all others, for ranges.
    pub(crate) const LEAST: Self = Self {
        slot: 0,
        generation: 0,
    };
    pub(crate) const MOST: Self = Self {
        slot: u32::MAX,
        generation: u32::MAX,
    };
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}.{}", self.0.slot, self.0.generation)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}.{}", self.0.slot, self.0.generation)
    }
}

impl CallId {
    /// A dense small number for tables indexed by call; reused after the call has ended.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.0.slot as usize
    }
}
