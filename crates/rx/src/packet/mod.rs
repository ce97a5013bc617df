//! Rx packets on the wire. Integers are big-endian; the header is 28 bytes.
//!
//! Decoders take any bytes and never panic; what they refuse, they name.

pub mod ack;
pub mod debug;
pub mod jumbo;

use crate::{CallNumber, Cid, Epoch, SecurityIndex, ServiceId};

/// Bytes of the packet header.
pub const HEADER_SIZE: usize = 28;

/// Rx packet size, header included, that every peer takes: what OpenAFS uses on Ethernet, 1500 less
/// the headers of IPv6, a fragment and UDP.
// spec: rx#packet-sizes
pub const CLASSIC_PACKET_SIZE: usize = 1444;

/// Packet types; the numbers in between are unassigned or were never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// Bytes of a call's stream.
    Data = 1,
    /// Acknowledgement of DATA, and the window.
    Ack = 2,
    /// The server still runs an older call on the channel.
    Busy = 3,
    /// The call, or with call number 0 the connection, is over with a code.
    Abort = 4,
    /// Everything sent in the call was received.
    AckAll = 5,
    /// A server asks who the client is.
    Challenge = 6,
    /// The client's answer.
    Response = 7,
    /// A question of `rxdebug`, or its answer.
    Debug = 8,
    /// Never used; ignored as peers do.
    Params = 9,
    /// Asks for, or gives, a version text; also keeps NAT mappings alive.
    Version = 13,
}

impl PacketType {
    /// The type with that number, where there is one.
    #[must_use]
    // spec: rx#packet-types
    pub const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Busy,
            4 => Self::Abort,
            5 => Self::AckAll,
            6 => Self::Challenge,
            7 => Self::Response,
            8 => Self::Debug,
            9..=11 => Self::Params,
            13 => Self::Version,
            _ => return None,
        })
    }

    /// Where this type is counted in [`Stats`](crate::Stats).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize - 1
    }
}

/// The flag byte of the header; which bits mean what depends on the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Sent by the side that opened the connection.
    pub const CLIENT_INITIATED: Self = Self(0x01);
    /// The receiver must acknowledge now.
    pub const REQUEST_ACK: Self = Self(0x02);
    /// The last DATA packet of this direction.
    pub const LAST_PACKET: Self = Self(0x04);
    /// More DATA follows at once.
    pub const MORE_PACKETS: Self = Self(0x08);
    /// On ACK: its sender does slow start. Always set.
    pub const SLOW_START_OK: Self = Self(0x20);
    /// On DATA: another packet of a jumbogram follows this one's 1,412 bytes.
    pub const JUMBO_PACKET: Self = Self(0x20);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These bits without the other ones.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The 28 bytes in front of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client endpoint's epoch.
    pub epoch: Epoch,
    /// Connection and channel.
    pub cid: Cid,
    /// The call on that channel, or 0 for the connection itself.
    pub call_number: CallNumber,
    /// DATA: 1, 2, 3… in each direction of a call; otherwise 0.
    pub sequence: u32,
    /// Counts every transmission of a connection in one direction, from 1.
    pub serial: u32,
    /// What the packet is.
    pub packet_type: PacketType,
    /// See [`Flags`].
    pub flags: Flags,
    /// Opaque to Rx; peers ask for a service upgrade with it, which is answered by ignoring it.
    pub user_status: u8,
    /// The connection's security class.
    pub security_index: SecurityIndex,
    /// For the security class: rxkad's header checksum, rxgk's key number.
    pub checksum: u16,
    /// The connection's service.
    pub service_id: ServiceId,
}

/// Why a datagram is not an Rx packet.
#[derive(thiserror::Error, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// Fewer bytes than its parts need.
    #[error("a packet of {0} bytes is too short")]
    Short(usize),
    /// A type that nobody uses.
    #[error("packet type {0} is unknown")]
    Type(u8),
    /// A jumbogram whose parts do not fit its length.
    #[error("the jumbogram's part {0} does not fit")]
    Jumbogram(usize),
}

impl Header {
    /// Reads a header; what follows it in `octets` is the body.
    ///
    /// # Errors
    /// [`PacketError`] if the bytes are too few or the type unknown.
    // spec: rx#header
    pub fn decode(octets: &[u8]) -> Result<Self, PacketError> {
        let Some(head) = octets.first_chunk::<HEADER_SIZE>() else {
            return Err(PacketError::Short(octets.len()));
        };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let packet_type = PacketType::from_wire(head[20]).ok_or(PacketError::Type(head[20]))?;
        Ok(Self {
            epoch: Epoch(word(0)),
            cid: Cid(word(4)),
            call_number: CallNumber(word(8)),
            sequence: word(12),
            serial: word(16),
            packet_type,
            flags: Flags(head[21]),
            user_status: head[22],
            security_index: SecurityIndex(head[23]),
            checksum: u16::from_be_bytes([head[24], head[25]]),
            service_id: ServiceId(u16::from_be_bytes([head[26], head[27]])),
        })
    }

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut head = [0; HEADER_SIZE];
        head[0..4].copy_from_slice(&self.epoch.0.to_be_bytes());
        head[4..8].copy_from_slice(&self.cid.0.to_be_bytes());
        head[8..12].copy_from_slice(&self.call_number.0.to_be_bytes());
        head[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        head[16..20].copy_from_slice(&self.serial.to_be_bytes());
        head[20] = self.packet_type as u8;
        head[21] = self.flags.0;
        head[22] = self.user_status;
        head[23] = self.security_index.0;
        head[24..26].copy_from_slice(&self.checksum.to_be_bytes());
        head[26..28].copy_from_slice(&self.service_id.0.to_be_bytes());
        head
    }

    /// Whether the packet comes from the side that opened the connection.
    #[must_use]
    pub const fn from_client(&self) -> bool {
        self.flags.has(Flags::CLIENT_INITIATED)
    }

    /// Whether the sender wants to hear how its call goes on: it sends data, or asks.
    pub(crate) fn asks(&self) -> bool {
        match self.packet_type {
            PacketType::Data => true,
            PacketType::Ack => self.flags.has(Flags::REQUEST_ACK),
            _ => false,
        }
    }
}

/// The code of an ABORT's body; a body without one counts as a protocol error, as peers take it.
#[must_use]
// spec: rx#aborts
pub fn abort_code(body: &[u8]) -> crate::AbortCode {
    match body.first_chunk::<4>() {
        Some(code) => crate::AbortCode(i32::from_be_bytes(*code)),
        None => crate::AbortCode::RX_PROTOCOL_ERROR,
    }
}
