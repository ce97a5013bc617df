//! A connection: four channels to one service of a peer, its serials and its security.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::call::Role;
use crate::endpoint::Source;
use crate::packet::{Flags, Header, PacketType};
use crate::security::{
    ClientConnection, ClientSecurity, Identity, Overhead, PacketSecurity, SecurityStatus,
    ServerConnection,
};
use crate::types::Key;
use crate::{AbortCode, CallNumber, Cid, Epoch, SecurityIndex, ServiceId};

/// Channels of a connection, and so calls at a time.
pub(crate) const CHANNELS: usize = 4;
/// Serials of late by which a peer proves that it receives. With more of them they could be guessed.
// spec: rx-strangers#proofs
const PROOFS: u32 = 4096;
/// How far serials may jump: far enough that they are not guessed, and near enough that peers, of whom
/// some compare them as they are, seldom see them begin again.
const SERIAL_JUMP: u32 = (1 << 24) - 1;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) epoch: Epoch,
    pub(crate) cid: Cid,
    pub(crate) path: Key,
    /// Where it came from, as shares go; it counts there also when it has moved.
    pub(crate) source: Source,
    pub(crate) service: ServiceId,
    pub(crate) security_index: SecurityIndex,
    pub(crate) security: Security,
    pub(crate) channels: [Channel; CHANNELS],
    pub(crate) challenge: Challenge,
    pub(crate) last_used: Instant,
    /// Calls on it are lost: the next one has a new connection in its place.
    pub(crate) is_lost: bool,
    /// Another has taken its place. It stays while calls run on it.
    pub(crate) is_retired: bool,
    /// The application waits for a channel.
    pub(crate) wants_channel: bool,
    /// Where else the client may be by now.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// DATA that the security class opened and sealed: packets and bytes.
    pub(crate) opened: (u64, u64),
    pub(crate) sealed: (u64, u64),
    /// The highest serial received, and how many below it were not.
    serial_received: u32,
    missing: u32,
    serial: u32,
    /// Serials given out since nobody but who is at the peer's address can know them.
    given: u32,
}

/// An address from which packets of a connection came, and that was asked to prove that it has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) address: SocketAddr,
    /// What it has to repeat one of: the serials of the PINGs it was sent, the last one and the one before.
    pub(crate) serials: [u32; 2],
    pub(crate) asked_at: Instant,
    pub(crate) answered: bool,
}

/// The security class's state, on the side we are.
#[derive(Debug)]
pub(crate) enum Security {
    /// With the class, for a connection that is to take its place.
    Client(Box<dyn ClientConnection>, Arc<dyn ClientSecurity>),
    Server(Box<dyn ServerConnection>),
}

impl Security {
    pub(crate) fn packets(&mut self) -> &mut dyn PacketSecurity {
        match self {
            Self::Client(client, _) => client.as_mut(),
            Self::Server(server) => server.as_mut(),
        }
    }

    fn shared(&self) -> &dyn PacketSecurity {
        match self {
            Self::Client(client, _) => client.as_ref(),
            Self::Server(server) => server.as_ref(),
        }
    }

    pub(crate) fn overhead(&self) -> Overhead {
        self.shared().overhead()
    }

    pub(crate) fn is_transparent(&self) -> bool {
        self.shared().is_transparent()
    }

    pub(crate) fn sealed_len(&self, payload: usize) -> usize {
        self.shared().sealed_len(payload)
    }

    pub(crate) fn ready(&self) -> Result<(), AbortCode> {
        self.shared().ready()
    }

    pub(crate) fn identity(&self) -> Identity {
        match self {
            Self::Client(..) => Identity::Anonymous,
            Self::Server(server) => server.identity(),
        }
    }

    /// Whether a packet that opens was sealed by the peer.
    pub(crate) fn authenticates(&self) -> bool {
        self.is_authenticated() && self.shared().authenticates()
    }

    pub(crate) fn status(&self) -> SecurityStatus {
        self.shared().status()
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        match self {
            Self::Client(..) => true,
            Self::Server(server) => server.is_authenticated(),
        }
    }
}

/// How far asking the client for its identity has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Challenge {
    pub(crate) tries: u32,
    pub(crate) next: Option<Instant>,
}

/// One channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Channel {
    /// The call that runs or lingers here.
    pub(crate) call: Option<Key>,
    /// The number of the last call begun.
    pub(crate) number: u32,
    /// The peer's window as the last call left it.
    pub(crate) window: u32,
    /// How the last call was aborted, for packets of it that come late.
    pub(crate) aborted: Option<AbortCode>,
    /// Orders free channels by how long they have rested.
    pub(crate) released: u64,
}

impl Connection {
    pub(crate) fn new(
        header: (Epoch, Cid),
        (path, source): (Key, Source),
        service: ServiceId,
        security_index: SecurityIndex,
        security: Security,
        serial: u32,
        now: Instant,
    ) -> Self {
        Self {
            epoch: header.0,
            cid: header.1.connection(),
            path,
            source,
            service,
            security_index,
            security,
            channels: [Channel::default(); CHANNELS],
            challenge: Challenge::default(),
            last_used: now,
            is_lost: false,
            is_retired: false,
            wants_channel: false,
            elsewhere: None,
            opened: (0, 0),
            sealed: (0, 0),
            serial_received: 0,
            missing: 0,
            serial,
            given: 0,
        }
    }

    pub(crate) const fn role(&self) -> Role {
        match self.security {
            Security::Client(..) => Role::Client,
            Security::Server(_) => Role::Server,
        }
    }

    /// Packets the peer has sent that have not come, as their serials tell.
    pub(crate) const fn missing(&self) -> u32 {
        self.missing
    }

    /// Notes the serial of a packet that came.
    pub(crate) const fn on_serial(&mut self, serial: u32) {
        let newer = serial.wrapping_sub(self.serial_received);
        if self.serial_received == 0 {
            self.serial_received = serial;
        } else if newer != 0 && newer < u32::MAX / 2 {
            self.serial_received = serial;
            self.missing = self.missing.wrapping_add(newer - 1);
        } else {
            // It was overtaken, or comes twice.
            self.missing = self.missing.wrapping_sub(1);
        }
    }

    pub(crate) const fn next_serial(&mut self) -> u32 {
        self.serial = match self.serial.wrapping_add(1) {
            0 => 1,
            serial => serial,
        };
        self.given = self.given.saturating_add(1);
        self.serial
    }

    /// Serials go on with others that cannot be guessed from those given out.
    pub(crate) const fn jump(&mut self, random: u32) {
        self.serial = self.serial.wrapping_add(1 + (random & SERIAL_JUMP));
        self.given = 0;
    }

    /// Whether a packet that names this serial comes from who got it: it was given out lately.
    pub(crate) fn is_proof(&self, serial: u32) -> bool {
        self.serial.wrapping_sub(serial) < self.given.min(PROOFS)
    }

    /// Serials given out.
    pub(crate) const fn serial(&self) -> u32 {
        self.serial
    }

    /// A header of this connection with a fresh serial; call number 0 is for the connection itself.
    pub(crate) const fn header(
        &mut self,
        packet_type: PacketType,
        channel: usize,
        number: CallNumber,
    ) -> Header {
        let flags = match self.role() {
            Role::Client => Flags::CLIENT_INITIATED,
            Role::Server => Flags(0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "there are four channels")]
        let channel = channel as u32;
        Header {
            epoch: self.epoch,
            cid: Cid(self.cid.0 | channel),
            call_number: number,
            sequence: 0,
            serial: self.next_serial(),
            packet_type,
            flags,
            // spec: rx#service-upgrade
            user_status: 0,
            security_index: self.security_index,
            checksum: 0,
            service_id: self.service,
        }
    }

    /// The call numbers a RESPONSE tells: of the call that runs, or of the next one, or 0 where there
    /// never was one.
    pub(crate) fn call_numbers(&self) -> [u32; CHANNELS] {
        self.channels
            .map(|channel| match (channel.number, channel.call) {
                (0, _) | (_, Some(_)) => channel.number,
                (last, None) => last.saturating_add(1),
            })
    }

    /// Takes over the call numbers of a RESPONSE: calls before these are replays.
    pub(crate) fn adopt_call_numbers(&mut self, numbers: [u32; CHANNELS]) {
        for (channel, number) in self.channels.iter_mut().zip(numbers) {
            channel.number = channel.number.max(number.saturating_sub(1));
        }
    }

    /// The free channel that has rested longest: its peer is surest to be done with the last call.
    pub(crate) fn free_channel(&self, is_free: impl Fn(&Channel) -> bool) -> Option<usize> {
        (0..CHANNELS)
            .filter(|index| is_free(&self.channels[*index]))
            .min_by_key(|index| self.channels[*index].released)
    }
}
