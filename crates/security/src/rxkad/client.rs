//! The client's side of rxkad.

use std::sync::Arc;
use std::time::SystemTime;

use afar_rx::packet::Header;
use afar_rx::security::{
    ClientConnection, ClientSecurity, Overhead, PacketSecurity, Sealing, SecurityStatus,
};
use afar_rx::{AbortCode, Cid, Epoch, SecurityIndex};
use bytes::Bytes;
use tracing::debug;

use super::packet::{self, Protection};
use super::response::{Answer, Challenge};
use super::{Clock, INDEX};
use crate::fcrypt::Schedule;
use crate::{Level, RxkadError, Token};

/// Connections with a token.
///
/// When the token has expired they fail with `RXKADEXPIRED`, and there must be new ones with a new
/// token.
#[derive(Clone, Debug)]
pub struct Client {
    token: Arc<Token>,
    level: Level,
    clock: Clock,
}

impl Client {
    /// Connections with this token and level. A server that asks for a higher level is refused with
    /// `RXKADLEVELFAIL`; none can make it lower.
    #[must_use]
    pub fn new(token: Arc<Token>, level: Level) -> Self {
        Self {
            token,
            level,
            clock: SystemTime::now,
        }
    }

    /// Tells the time by which the token expires. Default: the system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

impl ClientSecurity for Client {
    fn index(&self) -> SecurityIndex {
        INDEX
    }

    fn connect(&self, epoch: Epoch, cid: Cid) -> Box<dyn ClientConnection> {
        let Token { key, end, .. } = &*self.token;
        let cipher = Schedule::new(key);
        Box::new(Connection {
            token: Arc::clone(&self.token),
            epoch,
            cid,
            packets: Protection::new(cipher, self.level, (epoch, cid), *end, self.clock),
        })
    }
}

/// The key is known from the start, so that the very first packet has its checksum: peers take one
/// without as a sign of a client that knows only the old challenge.
#[derive(Debug)]
struct Connection {
    token: Arc<Token>,
    epoch: Epoch,
    cid: Cid,
    packets: Protection,
}

impl Connection {
    fn answer(&self, calls: [u32; 4], challenge: &[u8]) -> Result<Bytes, RxkadError> {
        self.packets.ready()?;
        let challenge = Challenge::decode(challenge)?;
        let level = self.packets.level().number();
        if challenge.minimum > level {
            return Err(RxkadError::LevelFail);
        }
        // Servers take call numbers as signed and refuse negative ones.
        if calls.iter().any(|call| i32::try_from(*call).is_err()) {
            return Err(RxkadError::Inconsistency);
        }
        let answer = Answer {
            epoch: self.epoch,
            cid: self.cid,
            calls,
            challenge: challenge.id,
            level,
        };
        let Token { kvno, ticket, .. } = &*self.token;
        answer.seal(self.packets.cipher(), *kvno, ticket)
    }

    fn refuse(&self, cause: RxkadError) -> AbortCode {
        let (epoch, cid) = (self.epoch.0, self.cid.0);
        debug!(epoch, cid, %cause, "refused a server's packet");
        cause.code()
    }
}

impl ClientConnection for Connection {
    fn respond(&mut self, calls: [u32; 4], challenge: &[u8]) -> Result<Bytes, AbortCode> {
        self.answer(calls, challenge)
            .map_err(|cause| self.refuse(cause))
    }
}

impl PacketSecurity for Connection {
    fn overhead(&self) -> Overhead {
        packet::overhead(self.packets.level())
    }

    fn authenticates(&self) -> bool {
        self.packets.authenticates()
    }

    fn status(&self) -> SecurityStatus {
        self.packets.status()
    }

    fn sealed_len(&self, payload: usize) -> usize {
        packet::sealed_len(self.packets.level(), payload)
    }

    fn ready(&self) -> Result<(), AbortCode> {
        self.packets.ready().map_err(RxkadError::code)
    }

    fn seal(&mut self, packets: &mut [Sealing<'_>]) {
        self.packets.seal(packets);
    }

    fn open(&mut self, header: &Header, body: Bytes) -> Result<Bytes, AbortCode> {
        self.packets
            .open(header, body)
            .map_err(|cause| self.refuse(cause))
    }
}
