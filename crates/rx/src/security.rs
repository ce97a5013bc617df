//! Security classes: what rxnull, rxkad and rxgk do to packets and connections.
//!
//! The engine asks; a class answers. It sees each DATA packet's payload when it is sealed and
//! opened, and the bodies of CHALLENGE and RESPONSE. Only [`RxNull`] is here.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};

use crate::packet::Header;
use crate::{AbortCode, SecurityIndex};

/// Octets a class adds to each DATA packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// In front of the payload.
    pub header: usize,
    /// Behind it, at the most (padding to a block).
    pub trailer: usize,
}

/// What both ends of a connection do to packets.
pub trait PacketSecurity: Debug + Send {
    /// What sealing adds.
    fn overhead(&self) -> Overhead;

    /// Whether sealing and opening leave payloads as they are, so that both can be left out.
    fn is_transparent(&self) -> bool {
        false
    }

    /// Seals one packet: `payload` starts with [`Overhead::header`] octets of room. Sets the header's
    /// checksum field.
    ///
    /// # Errors
    /// The code to abort the connection with.
    fn seal(&mut self, header: &mut Header, payload: &mut BytesMut) -> Result<(), AbortCode>;

    /// Opens one packet and gives its plain payload.
    ///
    /// # Errors
    /// The code to abort the connection with.
    fn open(&mut self, header: &Header, payload: Bytes) -> Result<Bytes, AbortCode>;
}

/// A client's side of a class: makes the state of new connections.
pub trait ClientSecurity: Debug + Send + Sync {
    /// The class's number in packet headers.
    fn index(&self) -> SecurityIndex;

    /// The state of a new connection.
    fn connect(&self) -> Box<dyn ClientConnection>;
}

/// A class's state of one connection this side opened.
pub trait ClientConnection: PacketSecurity {
    /// Answers a CHALLENGE's body with a RESPONSE's.
    ///
    /// # Errors
    /// The code to fail the connection's calls with.
    fn respond(&mut self, header: &Header, challenge: &[u8]) -> Result<Bytes, AbortCode>;
}

/// A server's side of a class: makes the state of connections that clients open.
pub trait ServerSecurity: Debug + Send + Sync {
    /// The class's number in packet headers.
    fn index(&self) -> SecurityIndex;

    /// The state of a new connection.
    fn accept(&self) -> Box<dyn ServerConnection>;
}

/// A class's state of one connection a client opened.
pub trait ServerConnection: PacketSecurity {
    /// Whether the client has proved who it is, as far as this class wants it.
    fn is_authenticated(&self) -> bool;

    /// The body of a CHALLENGE to send now.
    fn challenge(&mut self) -> Bytes;

    /// Checks a RESPONSE's body.
    ///
    /// # Errors
    /// The code to abort the connection with.
    fn check(&mut self, header: &Header, response: &[u8]) -> Result<(), AbortCode>;
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

    fn seal(&mut self, _: &mut Header, _: &mut BytesMut) -> Result<(), AbortCode> {
        Ok(())
    }

    fn open(&mut self, _: &Header, payload: Bytes) -> Result<Bytes, AbortCode> {
        Ok(payload)
    }
}

impl ClientSecurity for RxNull {
    fn index(&self) -> SecurityIndex {
        SecurityIndex(0)
    }

    fn connect(&self) -> Box<dyn ClientConnection> {
        Box::new(Self)
    }
}

impl ClientConnection for RxNull {
    fn respond(&mut self, _: &Header, _: &[u8]) -> Result<Bytes, AbortCode> {
        Err(AbortCode::RX_PROTOCOL_ERROR)
    }
}

impl ServerSecurity for RxNull {
    fn index(&self) -> SecurityIndex {
        SecurityIndex(0)
    }

    fn accept(&self) -> Box<dyn ServerConnection> {
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

    fn check(&mut self, _: &Header, _: &[u8]) -> Result<(), AbortCode> {
        Ok(())
    }
}
