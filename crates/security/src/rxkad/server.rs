//! The server's side of rxkad.

use std::sync::Arc;
use std::time::SystemTime;

use afar_rx::packet::Header;
use afar_rx::security::{
    Overhead, PacketSecurity, Sealing, SecurityStatus, ServerConnection, ServerSecurity,
};
use afar_rx::{AbortCode, Cid, Epoch, Identity, SecurityIndex};
use bytes::Bytes;
use tracing::debug;

use super::packet::{self, Protection};
use super::response::{Challenge, Response};
use super::{Clock, INDEX, Refusals};
use crate::fcrypt::Schedule;
use crate::identities::Identities;
use crate::keys::KeyRing;
use crate::ticket::{self, TicketPolicy};
use crate::{Level, RxkadError, random};

/// Connections from clients whose tickets these keys open.
#[derive(Clone, Debug)]
pub struct Server(Arc<Settings>);

#[derive(Clone, Debug)]
struct Settings {
    keys: Arc<KeyRing>,
    identities: Arc<Identities>,
    minimum: Level,
    policy: TicketPolicy,
    clock: Clock,
    refusals: Refusals,
}

impl Server {
    /// Clients with tickets for one of these keys, who then are whom `identities` says.
    #[must_use]
    pub fn new(keys: Arc<KeyRing>, identities: Arc<Identities>) -> Self {
        Self(Arc::new(Settings {
            keys,
            identities,
            minimum: Level::Clear,
            policy: TicketPolicy::default(),
            clock: SystemTime::now,
            refusals: Refusals::default(),
        }))
    }

    /// The least level. Clients that choose a lower one are refused with `RXKADLEVELFAIL`. Default:
    /// clear, as with peers: who is asked for more than it was told to use gives up.
    #[must_use]
    pub fn minimum(mut self, level: Level) -> Self {
        Arc::make_mut(&mut self.0).minimum = level;
        self
    }

    /// Which tickets are taken. Default: [`TicketPolicy::default`].
    #[must_use]
    pub fn policy(mut self, policy: TicketPolicy) -> Self {
        Arc::make_mut(&mut self.0).policy = policy;
        self
    }

    /// Tells the time by which tickets hold and expire. Default: the system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        Arc::make_mut(&mut self.0).clock = clock;
        self
    }

    /// What has been refused so far; goes on counting.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.0.refusals.clone()
    }
}

impl ServerSecurity for Server {
    fn index(&self) -> SecurityIndex {
        INDEX
    }

    fn accept(&self, epoch: Epoch, cid: Cid) -> Box<dyn ServerConnection> {
        Box::new(Connection {
            settings: Arc::clone(&self.0),
            epoch,
            cid: cid.connection(),
            challenge: u32::from_be_bytes(*random::octets()),
            proved: None,
        })
    }
}

/// A client's connection. Its challenge stays the same until it is answered, as it may have to be
/// sent more than once, and the answer may be to any of them.
#[derive(Debug)]
struct Connection {
    settings: Arc<Settings>,
    epoch: Epoch,
    cid: Cid,
    challenge: u32,
    proved: Option<Proved>,
}

/// What a client has proved, and what follows from it.
#[derive(Debug)]
struct Proved {
    identity: Identity,
    packets: Protection,
}

impl Connection {
    // spec: rxkad#response
    fn prove(&self, response: &[u8]) -> Result<(Proved, [u32; 4]), RxkadError> {
        let settings = &*self.settings;
        if self.proved.is_some() {
            return Err(RxkadError::OutOfSequence);
        }
        let response = Response::decode(response)?;
        let opened = ticket::open(
            response.kvno,
            response.ticket,
            &settings.keys,
            &settings.policy,
            (settings.clock)(),
        )?;
        let cipher = Schedule::new(&opened.key);
        let answer = response.open(&cipher)?;
        let place = (self.epoch, self.cid);
        if (answer.epoch, answer.cid) != place {
            return Err(RxkadError::SealedIncon);
        }
        if answer.challenge != self.challenge {
            return Err(RxkadError::OutOfSequence);
        }
        let level = Level::from_number(answer.level)
            .filter(|level| *level >= settings.minimum)
            .ok_or(RxkadError::LevelFail)?;
        let packets = Protection::new(cipher, level, place, opened.end, settings.clock);
        packets.ready()?;
        let identity = settings.identities.identity(&opened.client);
        let (epoch, cid, client) = (self.epoch.0, self.cid.0, &opened.client);
        debug!(epoch, cid, %client, %identity, %level, "a client has authenticated");
        Ok((Proved { identity, packets }, answer.calls))
    }

    fn packets(&self) -> Result<&Protection, RxkadError> {
        match &self.proved {
            Some(proved) => Ok(&proved.packets),
            // The engine holds packets back until the client has proved who it is.
            None => Err(RxkadError::Inconsistency),
        }
    }

    /// Before it is known, the level that adds the most.
    fn level(&self) -> Level {
        self.packets().map_or(Level::Crypt, Protection::level)
    }

    fn refuse(&self, cause: RxkadError) -> AbortCode {
        let (epoch, cid) = (self.epoch.0, self.cid.0);
        debug!(epoch, cid, %cause, "refused a client's packet");
        self.settings.refusals.add(cause);
        cause.code()
    }
}

impl ServerConnection for Connection {
    fn is_authenticated(&self) -> bool {
        self.proved.is_some()
    }

    fn challenge(&mut self) -> Bytes {
        let challenge = Challenge {
            id: self.challenge,
            minimum: self.settings.minimum.number(),
        };
        challenge.encode()
    }

    fn check(&mut self, response: &[u8]) -> Result<[u32; 4], AbortCode> {
        let (proved, calls) = self.prove(response).map_err(|cause| self.refuse(cause))?;
        self.proved = Some(proved);
        Ok(calls)
    }

    fn identity(&self) -> Identity {
        self.proved
            .as_ref()
            .map_or(Identity::Anonymous, |proved| proved.identity.clone())
    }
}

impl PacketSecurity for Connection {
    fn overhead(&self) -> Overhead {
        packet::overhead(self.level())
    }

    fn authenticates(&self) -> bool {
        self.packets().is_ok_and(Protection::authenticates)
    }

    fn status(&self) -> SecurityStatus {
        match self.packets() {
            Ok(packets) => SecurityStatus {
                authenticated: true,
                ..packets.status()
            },
            Err(_) => SecurityStatus {
                kind: packet::KIND,
                ..SecurityStatus::default()
            },
        }
    }

    fn sealed_len(&self, payload: usize) -> usize {
        packet::sealed_len(self.level(), payload)
    }

    fn ready(&self) -> Result<(), AbortCode> {
        self.packets()
            .and_then(Protection::ready)
            .map_err(|cause| self.refuse(cause))
    }

    fn seal(&mut self, packets: &mut [Sealing<'_>]) {
        // There is nothing to send before `ready` says so.
        if let Ok(protection) = self.packets() {
            protection.seal(packets);
        }
    }

    fn open(&mut self, header: &Header, body: Bytes) -> Result<Bytes, AbortCode> {
        self.packets()
            .and_then(|packets| packets.open(header, body))
            .map_err(|cause| self.refuse(cause))
    }
}
