//! The bodies of CHALLENGE and RESPONSE.

use afar_rx::{Cid, Epoch};
use bytes::{BufMut, Bytes, BytesMut};
use subtle::ConstantTimeEq;

use super::{INDEX, TICKET_SIZES};
use crate::RxkadError;
use crate::fcrypt::Schedule;

/// The only version there is; what came before it had no number, and is not spoken here.
const VERSION: u32 = 2;
const CHALLENGE_SIZE: usize = 16;
/// Bytes of a RESPONSE in front of its ticket.
const FIXED_SIZE: usize = 56;
/// Of these, what is encrypted.
const SEALED: std::ops::Range<usize> = 8..48;
const CHECKSUM: std::ops::Range<usize> = 16..20;

/// What a server asks.
// spec: rxkad#challenge
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    /// What the answer must refer to.
    pub(super) id: u32,
    /// The least level, as a number: peers may know more of them.
    pub(super) minimum: i32,
}

impl Challenge {
    pub(super) fn encode(self) -> Bytes {
        let mut body = BytesMut::with_capacity(CHALLENGE_SIZE);
        body.put_u32(VERSION);
        body.put_u32(self.id);
        body.put_i32(self.minimum);
        body.put_u32(0);
        body.freeze()
    }

    /// # Errors
    /// - [`RxkadError::PacketShort`]: no whole challenge, or one of the old form without a version.
    ///   An answer to that one would not be bound to its connection, and only peers that saw no
    ///   checksum in our packets have a reason to send it.
    /// - [`RxkadError::Inconsistency`]: an unknown version.
    pub(super) fn decode(body: &[u8]) -> Result<Self, RxkadError> {
        if body.len() < CHALLENGE_SIZE {
            return Err(RxkadError::PacketShort);
        }
        if word(body, 0) != VERSION {
            return Err(RxkadError::Inconsistency);
        }
        Ok(Self {
            id: word(body, 4),
            minimum: word(body, 8).cast_signed(),
        })
    }
}

/// What a client answers under the session key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) epoch: Epoch,
    pub(super) cid: Cid,
    /// The call numbers its channels have reached.
    pub(super) calls: [u32; 4],
    /// The challenge's number.
    pub(super) challenge: u32,
    /// The level it wants, as a number.
    pub(super) level: i32,
}

/// A whole RESPONSE, of which the answer is still sealed.
// spec: rxkad#response
#[derive(Clone, Copy, Debug)]
pub(super) struct Response<'a> {
    fixed: &'a [u8; FIXED_SIZE],
    pub(super) kvno: u32,
    pub(super) ticket: &'a [u8],
}

impl Answer {
    /// The RESPONSE with this answer and ticket.
    ///
    /// # Errors
    /// [`RxkadError::TicketLen`] if servers would not take so long or short a ticket.
    pub(super) fn seal(
        &self,
        cipher: &Schedule,
        kvno: u32,
        ticket: &[u8],
    ) -> Result<Bytes, RxkadError> {
        let size = u32::try_from(ticket.len()).map_err(|_| RxkadError::TicketLen)?;
        if !TICKET_SIZES.contains(&ticket.len()) {
            return Err(RxkadError::TicketLen);
        }
        let mut body = BytesMut::with_capacity(FIXED_SIZE + ticket.len());
        body.put_u32(VERSION);
        body.put_u32(0);
        body.put_u32(self.epoch.0);
        body.put_u32(self.cid.connection().0);
        body.put_u32(0);
        body.put_u32(INDEX.0.into());
        self.calls.iter().for_each(|call| body.put_u32(*call));
        body.put_u32(self.challenge.wrapping_add(1));
        body.put_i32(self.level);
        body.put_u32(kvno);
        body.put_u32(size);
        let sum = checksum(&body);
        body[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        cipher.seal(&mut body[SEALED]);
        body.put_slice(ticket);
        Ok(body.freeze())
    }
}

impl<'a> Response<'a> {
    /// # Errors
    /// - [`RxkadError::PacketShort`]: less than the fixed part, or than that and the ticket.
    /// - [`RxkadError::Inconsistency`]: an unknown version.
    /// - [`RxkadError::TicketLen`]: no ticket is so long or short.
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, RxkadError> {
        let (fixed, rest) = body.split_first_chunk().ok_or(RxkadError::PacketShort)?;
        if word(fixed, 0) != VERSION {
            return Err(RxkadError::Inconsistency);
        }
        let size = usize::try_from(word(fixed, 52))
            .ok()
            .filter(|size| TICKET_SIZES.contains(size))
            .ok_or(RxkadError::TicketLen)?;
        Ok(Self {
            fixed,
            kvno: word(fixed, 48),
            // What follows the ticket is left alone: peers may pad.
            ticket: rest.get(..size).ok_or(RxkadError::PacketShort)?,
        })
    }

    /// Opens the answer with the ticket's key. What it says is still to be compared with what is
    /// expected of it, except that it is of this class and that its call numbers are such.
    ///
    /// # Errors
    /// [`RxkadError::SealedIncon`] if it was not sealed so with this key.
    pub(super) fn open(&self, cipher: &Schedule) -> Result<Answer, RxkadError> {
        let mut plain = *self.fixed;
        cipher.open(&mut plain[SEALED]);
        let sum = word(&plain, CHECKSUM.start);
        plain[CHECKSUM].fill(0);
        let calls = [24, 28, 32, 36].map(|at| word(&plain, at));
        let is_sound = checksum(&plain).ct_eq(&sum);
        if !bool::from(is_sound)
            || word(&plain, 20) != INDEX.0.into()
            || calls.iter().any(|call| i32::try_from(*call).is_err())
        {
            return Err(RxkadError::SealedIncon);
        }
        Ok(Answer {
            epoch: Epoch(word(&plain, 8)),
            cid: Cid(word(&plain, 12)),
            calls,
            challenge: word(&plain, 40).wrapping_sub(1),
            level: word(&plain, 44).cast_signed(),
        })
    }
}

/// The word at an offset that is within the fixed part.
fn word(octets: &[u8], at: usize) -> u32 {
    octets[at..]
        .first_chunk()
        .map_or(0, |word| u32::from_be_bytes(*word))
}

/// Over the fixed part in plain, with 0 where the sum will be.
fn checksum(fixed: &[u8]) -> u32 {
    fixed.iter().fold(1_000_003, |sum: u32, octet| {
        sum.wrapping_mul(0x1020_4081).wrapping_add((*octet).into())
    })
}
