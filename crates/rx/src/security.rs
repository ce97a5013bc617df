//! Security classes: what rxnull, rxkad and rxgk do to packets and connections.
//!
//! The engine asks; a class answers. It sees each DATA packet's payload when it is sealed and
//! opened, and the bodies of CHALLENGE and RESPONSE. Only [`RxNull`] is here.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::packet::Header;
use crate::{AbortCode, Cid, Epoch, SecurityIndex};

/// Bytes a class adds to each DATA packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// In front of the payload.
    pub header: usize,
    /// Behind it, at the most (padding to a block).
    pub trailer: usize,
}

/// The authenticated identity of a connection's client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Nobody in particular: `anonymous`, a member of `system:anyuser` only.
    #[default]
    Anonymous,
    /// A user by this name of the protection database.
    User(Arc<str>),
    /// A user by this name who may administer servers as well (OpenAFS's `UserList`).
    Operator(Arc<str>),
    /// The cell's administration itself, as with `-localauth`: everything is allowed.
    Superuser,
}

impl Identity {
    /// Whether servers may be administered.
    #[must_use]
    pub const fn is_superuser(&self) -> bool {
        matches!(self, Self::Operator(_) | Self::Superuser)
    }

    /// The name in the protection database, of those who have one.
    #[must_use]
    pub const fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::User(name) | Self::Operator(name) => Some(name),
            Self::Anonymous | Self::Superuser => None,
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::User(name) | Self::Operator(name) => f.write_str(name),
            Self::Superuser => f.write_str("superuser"),
        }
    }
}

/// What is told of a connection's security by DEBUG, in the terms of OpenAFS's classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityStatus {
    /// The kind: 1 is rxnull, 3 rxkad.
    pub kind: u8,
    /// The level, of rxkad: 0 clear, 1 auth, 2 crypt.
    pub level: u8,
    /// Whether the client has proved who it is.
    pub authenticated: bool,
    /// Whether headers carry checksums.
    pub checksums: bool,
    /// When that ends, in seconds since 1970; 0 is unknown.
    pub expires: u32,
}

/// One packet to seal, in place.
#[derive(Debug)]
pub struct Sealing<'a> {
    /// Its header, into which the checksum goes.
    pub header: Header,
    /// [`PacketSecurity::sealed_len`] bytes: room for what goes in front, the payload, zeros.
    pub body: &'a mut [u8],
    /// Bytes of payload in it.
    pub payload: usize,
}

/// What both ends of a connection do to packets.
pub trait PacketSecurity: Debug + Send {
    /// What sealing adds.
    fn overhead(&self) -> Overhead;

    /// Whether sealing and opening leave payloads as they are, so that both can be left out.
    fn is_transparent(&self) -> bool {
        false
    }

    /// Whether a packet that can be opened was sealed by who holds the connection's key, but for a chance
    /// far too small to try. A checksum of 16 bits alone is none.
    fn authenticates(&self) -> bool {
        false
    }

    /// What is told of it by DEBUG.
    fn status(&self) -> SecurityStatus {
        SecurityStatus::default()
    }

    /// Bytes of the sealed body of a payload so long: no more than [`overhead`](Self::overhead)
    /// above it.
    fn sealed_len(&self, payload: usize) -> usize;

    /// Whether packets can be sealed now.
    ///
    /// # Errors
    /// The code to abort the connection with.
    fn ready(&self) -> Result<(), AbortCode>;

    /// Seals packets of this connection: as many at a time as there are, as a cipher that is serial
    /// within a packet is faster so.
    fn seal(&mut self, packets: &mut [Sealing<'_>]);

    /// Opens one packet and gives its plain payload.
    ///
    /// # Errors
    /// What is wrong with it, for the log. It is dropped: anybody can send one.
    fn open(&mut self, header: &Header, body: Bytes) -> Result<Bytes, AbortCode>;
}

/// A client's side of a class: makes the state of new connections.
pub trait ClientSecurity: Debug + Send + Sync {
    /// The class's number in packet headers.
    fn index(&self) -> SecurityIndex;

    /// The state of a new connection.
    fn connect(&self, epoch: Epoch, cid: Cid) -> Box<dyn ClientConnection>;
}

/// A class's state of one connection this side opened.
pub trait ClientConnection: PacketSecurity {
    /// Answers a CHALLENGE's body with a RESPONSE's. `calls` are the channels' call numbers: of the
    /// call that runs, or else of the next one; 0 of a channel that was never used.
    ///
    /// # Errors
    /// The code to fail the connection's calls with.
    fn respond(&mut self, calls: [u32; 4], challenge: &[u8]) -> Result<Bytes, AbortCode>;
}

/// A server's side of a class: makes the state of connections that clients open.
pub trait ServerSecurity: Debug + Send + Sync {
    /// The class's number in packet headers.
    fn index(&self) -> SecurityIndex;

    /// The state of a new connection.
    fn accept(&self, epoch: Epoch, cid: Cid) -> Box<dyn ServerConnection>;
}

/// A class's state of one connection a client opened.
pub trait ServerConnection: PacketSecurity {
    /// Whether the client has proved who it is, as far as this class wants it.
    fn is_authenticated(&self) -> bool;

    /// The body of a CHALLENGE to send now.
    fn challenge(&mut self) -> Bytes;

    /// Checks a RESPONSE's body. Gives the call numbers that the client says its channels have
    /// reached: calls before these are replays.
    ///
    /// # Errors
    /// The code to abort the connection with.
    fn check(&mut self, response: &[u8]) -> Result<[u32; 4], AbortCode>;

    /// The client's identity; anonymous until it has proved more.
    fn identity(&self) -> Identity;
}

/// Class 0: no identity, no integrity, no secrecy.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxNull;

impl PacketSecurity for RxNull {
    fn overhead(&self) -> Overhead {
        Overhead::default()
    }

    fn is_transparent(&self) -> bool {
        true
    }

    fn status(&self) -> SecurityStatus {
        SecurityStatus {
            kind: 1,
            ..SecurityStatus::default()
        }
    }

    fn sealed_len(&self, payload: usize) -> usize {
        payload
    }

    fn ready(&self) -> Result<(), AbortCode> {
        Ok(())
    }

    fn seal(&mut self, _: &mut [Sealing<'_>]) {}

    fn open(&mut self, _: &Header, body: Bytes) -> Result<Bytes, AbortCode> {
        Ok(body)
    }
}

impl ClientSecurity for RxNull {
    fn index(&self) -> SecurityIndex {
        SecurityIndex(0)
    }

    fn connect(&self, _: Epoch, _: Cid) -> Box<dyn ClientConnection> {
        Box::new(Self)
    }
}

impl ClientConnection for RxNull {
    fn respond(&mut self, _: [u32; 4], _: &[u8]) -> Result<Bytes, AbortCode> {
        Err(AbortCode::RX_PROTOCOL_ERROR)
    }
}

impl ServerSecurity for RxNull {
    fn index(&self) -> SecurityIndex {
        SecurityIndex(0)
    }

    fn accept(&self, _: Epoch, _: Cid) -> Box<dyn ServerConnection> {
        Box::new(Self)
    }
}

impl ServerConnection for RxNull {
    fn is_authenticated(&self) -> bool {
        true
    }

    fn challenge(&mut self) -> Bytes {
        Bytes::new()
    }

    fn check(&mut self, _: &[u8]) -> Result<[u32; 4], AbortCode> {
        Ok([0; 4])
    }

    fn identity(&self) -> Identity {
        Identity::Anonymous
    }
}
