//! Transactions on volumes, and what is sent along with a dump.

use std::net::Ipv4Addr;

use afar_xdr::{CharArray, Decode, Encode, List};

use crate::{PartitionId, TransactionId, UnixTime, VolumeId};

use super::VolintName;

/// How a transaction takes hold of its volume (AFS-3 IT flags).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AttachFlags(pub u32);

impl AttachFlags {
    /// Clients are told VOFFLINE.
    // spec: volumes#transactions
    pub const OFFLINE: Self = Self(0x01);
    /// Clients that write are told VBUSY; others may go on.
    pub const BUSY: Self = Self(0x02);
    /// The volume is read only. Not used.
    pub const READ_ONLY: Self = Self(0x08);
    /// The transaction made the volume, which is not whole yet. Set by the server.
    pub const CREATE: Self = Self(0x10);

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What becomes of a transaction's volume (AFS-3 VT flags). SetFlags replaces them all: none
/// brings the volume on line when the transaction ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct TransactionFlags(pub u32);

impl TransactionFlags {
    /// The volume is removed if nobody says otherwise before the server restarts.
    // spec: volumes#flags-of-a-volume
    pub const DELETE_ON_SALVAGE: Self = Self(1);
    /// The volume does not come on line.
    pub const OUT_OF_SERVICE: Self = Self(2);
    /// The volume is gone. Set by the server.
    pub const DELETED: Self = Self(4);

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A transaction as Monitor shows it (AFS-3 transDebugInfo, 44 words).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct TransDebugInfo {
    /// Its id.
    pub transaction: TransactionId,
    /// When it was last used.
    pub time: UnixTime,
    /// When it began.
    pub creation_time: UnixTime,
    /// What EndTrans will return.
    pub return_code: i32,
    /// Its volume.
    pub volume: VolumeId,
    /// The volume's partition.
    pub partition: PartitionId,
    /// How it holds the volume.
    pub attach_flags: AttachFlags,
    /// What becomes of the volume.
    pub flags: TransactionFlags,
    /// 1 once it was ended while a call still used it.
    pub deleted: u8,
    /// The operation that used it last, without the interface's name.
    pub last_procedure: CharArray<30>,
    /// Whether a call uses it now, so that the rest means something.
    pub call_valid: bool,
    /// The sequence number of the next packet to be read.
    pub read_next: i32,
    /// The sequence number of the next packet to be sent.
    pub transmit_next: i32,
    /// When a packet was last sent.
    pub last_send_time: UnixTime,
    /// When a packet was last received.
    pub last_receive_time: UnixTime,
}

/// What a restored volume is called and belongs to, whatever the dump says (AFS-3
/// restoreCookie, 35 words).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct RestoreCookie {
    /// Its name.
    pub name: VolintName,
    /// Which member of its group it is.
    pub kind: i32,
    /// The last clone made of it.
    pub clone_id: VolumeId,
    /// The group's read-write volume.
    pub parent_id: VolumeId,
}

/// The volume server a dump is forwarded to (AFS-3 destServer, 3 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DestServer {
    /// Its IPv4 address as a number: 0x7f000001 is the loopback address.
    pub host: u32,
    /// Its port.
    pub port: u32,
    /// 1. It stood for a security class once and is ignored.
    pub ssid: u32,
}

impl DestServer {
    /// The volume server at this address, at its usual port.
    #[must_use]
    // spec: volumes#sending-a-volume
    pub fn new(address: Ipv4Addr) -> Self {
        Self {
            host: address.into(),
            port: 7005,
            ssid: 1,
        }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.host.into()
    }
}

/// One of several destinations of a dump (AFS-3 replica, 4 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReplicaDest {
    /// The transaction there.
    pub transaction: TransactionId,
    /// The server.
    pub server: DestServer,
}

/// The destinations of a dump, as many as a VLDB entry has sites (AFS-3 manyDests).
pub type Destinations = List<ReplicaDest, 13>;
/// A code for each of the [`Destinations`], 0 where all went well (AFS-3 manyResults).
pub type ForwardResults = List<i32, 13>;
