//! The packets of a connection, as both sides protect them once they have the key.

use std::fmt;
use std::time::{Duration, SystemTime};

use afar_rx::packet::Header;
use afar_rx::security::{Overhead, Sealing, SecurityStatus};
use afar_rx::{Cid, Epoch};
use bytes::{Buf, Bytes, BytesMut};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::{Clock, INDEX};
use crate::fcrypt::{BLOCK, Schedule};
use crate::{Level, RxkadError};

/// The most payload a packet's word for its length can tell; more does not fit a datagram either.
const PAYLOAD_MAX: usize = 0xffff;

/// rxkad among the kinds of security that DEBUG knows.
pub(super) const KIND: u8 = 3;

/// Seals and opens the packets of one connection. Secrets are wiped when it is dropped, and never
/// printed.
pub(super) struct Protection {
    cipher: Schedule,
    /// What goes into every header's checksum: epoch and connection under the key.
    mask: u64,
    level: Level,
    expires: SystemTime,
    clock: Clock,
}

impl Protection {
    /// For this connection, until `end` in seconds since 1970.
    // spec: rxkad#packets
    pub(super) fn new(
        cipher: Schedule,
        level: Level,
        (epoch, cid): (Epoch, Cid),
        end: u32,
        clock: Clock,
    ) -> Self {
        let mut connection = [0; 2 * BLOCK];
        connection[..4].copy_from_slice(&epoch.0.to_be_bytes());
        connection[4..8].copy_from_slice(&cid.connection().0.to_be_bytes());
        connection[15] = INDEX.0;
        cipher.seal(&mut connection);
        let [_, mask] = [0, 1].map(|n| connection.as_chunks().0[n]);
        Self {
            cipher,
            mask: u64::from_be_bytes(mask),
            level,
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(end.into()),
            clock,
        }
    }

    pub(super) const fn level(&self) -> Level {
        self.level
    }

    pub(super) const fn cipher(&self) -> &Schedule {
        &self.cipher
    }

    /// # Errors
    /// [`RxkadError::Expired`] from the token's end on. There is no grace for clocks that differ:
    /// peers give none for packets either.
    // spec: rxkad#times
    pub(super) fn ready(&self) -> Result<(), RxkadError> {
        match (self.clock)() < self.expires {
            true => Ok(()),
            false => Err(RxkadError::Expired),
        }
    }

    /// Whether what opens was sealed by who has the key. At *clear* there is only the header's checksum, of which
    /// one in 65,535 guesses is right.
    pub(super) fn authenticates(&self) -> bool {
        self.level != Level::Clear
    }

    /// What DEBUG tells.
    pub(super) fn status(&self) -> SecurityStatus {
        let expires = self.expires.duration_since(SystemTime::UNIX_EPOCH);
        SecurityStatus {
            kind: KIND,
            level: u8::try_from(self.level.number()).unwrap_or(0),
            authenticated: false,
            checksums: true,
            expires: expires.map_or(0, |time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
        }
    }

    /// What a header's checksum must be; never 0.
    pub(super) fn checksum(&self, header: &Header) -> u16 {
        let channel = header.cid.0 << 30;
        let place = u64::from(channel | header.sequence & 0x3fff_ffff);
        let block = u64::from(header.call_number.0) << 32 | place;
        let [.., high, low, _, _] = self.cipher.encrypt_block(block ^ self.mask).to_be_bytes();
        u16::from_be_bytes([high, low]).max(1)
    }

    pub(super) fn seal(&self, packets: &mut [Sealing<'_>]) {
        for Sealing {
            header,
            body,
            payload,
        } in &mut *packets
        {
            assert_eq!(
                body.len(),
                sealed_len(self.level, *payload),
                "the room of a packet is that of its payload"
            );
            header.checksum = self.checksum(header);
            if self.level != Level::Clear
                && let Some(head) = body.first_chunk_mut()
            {
                *head = first_word(header, *payload).to_be_bytes();
            }
        }
        match self.level {
            Level::Clear => {}
            Level::Auth => {
                for first in packets.iter_mut().filter_map(|p| p.body.first_chunk_mut()) {
                    let block = u64::from_be_bytes(*first);
                    *first = self.cipher.encrypt_block(block).to_be_bytes();
                }
            }
            Level::Crypt => {
                let bodies = packets.iter_mut().map(|packet| &mut *packet.body);
                self.cipher.seal_all(bodies);
            }
        }
    }

    /// # Errors
    /// [`RxkadError::Expired`], and what is wrong with the packet:
    ///
    /// - [`RxkadError::SealedIncon`]: the header's checksum (0 is none), a body that is no number of
    ///   blocks, or what it says of its header
    /// - [`RxkadError::PacketShort`]: less than a block
    /// - [`RxkadError::DataLen`]: less payload than it says
    // spec: rxkad#packets
    pub(super) fn open(&self, header: &Header, body: Bytes) -> Result<Bytes, RxkadError> {
        self.ready()?;
        if !bool::from(self.checksum(header).ct_eq(&header.checksum)) {
            return Err(RxkadError::SealedIncon);
        }
        if self.level == Level::Clear {
            return Ok(body);
        }
        if body.len() < BLOCK {
            return Err(RxkadError::PacketShort);
        }
        if self.level == Level::Crypt && !body.len().is_multiple_of(BLOCK) {
            return Err(RxkadError::SealedIncon);
        }
        // A body that shares its buffer with other packets has to be copied first.
        let mut body = body
            .try_into_mut()
            .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        match body.first_chunk_mut() {
            Some(first) if self.level == Level::Auth => {
                let block = u64::from_be_bytes(*first);
                *first = self.cipher.decrypt_block(block).to_be_bytes();
            }
            _ => self.cipher.open(&mut body),
        }
        let word = (&body[..]).get_u32();
        let mut body = body.freeze();
        body.advance(overhead(self.level).header);
        let payload = (word & 0xffff) as usize;
        if word != first_word(header, payload) {
            return Err(RxkadError::SealedIncon);
        }
        if payload > body.len() {
            return Err(RxkadError::DataLen);
        }
        body.truncate(payload);
        Ok(body)
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection")
            .field("level", &self.level)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        self.mask.zeroize();
    }
}

/// What a level adds to a packet.
// spec: rxkad#levels
pub(super) const fn overhead(level: Level) -> Overhead {
    let (header, trailer) = match level {
        Level::Clear => (0, 0),
        Level::Auth => (4, 4),
        Level::Crypt => (8, 7),
    };
    Overhead { header, trailer }
}

/// Bytes of the body of a payload so long.
pub(super) const fn sealed_len(level: Level, payload: usize) -> usize {
    let body = overhead(level).header + payload;
    match level {
        Level::Clear => body,
        Level::Auth if body < BLOCK => BLOCK,
        Level::Auth => body,
        Level::Crypt => body.next_multiple_of(BLOCK),
    }
}

/// What a sealed body begins with: something of the header, and the length of the payload.
fn first_word(header: &Header, payload: usize) -> u32 {
    assert!(payload <= PAYLOAD_MAX, "a payload fits a datagram");
    let place = (header.sequence ^ header.call_number.0) & 0xffff;
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let payload = payload as u32;
    place << 16 | payload
}
