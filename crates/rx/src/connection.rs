//! A connection: four channels to one service of a peer, its serials and its security.

use std::time::Instant;

use crate::call::Role;
use crate::packet::{Flags, Header, PacketType};
use crate::security::{ClientConnection, Identity, Overhead, PacketSecurity, ServerConnection};
use crate::types::Key;
use crate::{AbortCode, CallNumber, Cid, Epoch, SecurityIndex, ServiceId};

/// Channels of a connection, and so calls at a time.
pub(crate) const CHANNELS: usize = 4;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) epoch: Epoch,
    pub(crate) cid: Cid,
    pub(crate) path: Key,
    pub(crate) service: ServiceId,
    pub(crate) security_index: SecurityIndex,
    pub(crate) security: Security,
    pub(crate) channels: [Channel; CHANNELS],
    /// The connection was aborted: every further packet is answered with this.
    pub(crate) error: Option<AbortCode>,
    pub(crate) challenge: Challenge,
    pub(crate) last_used: Instant,
    /// The application waits for a channel.
    pub(crate) wants_channel: bool,
    /// The highest serial received; a roaming peer must show a newer one.
    pub(crate) serial_received: u32,
    serial: u32,
}

/// The security class's state, on the side we are.
#[derive(Debug)]
pub(crate) enum Security {
    Client(Box<dyn ClientConnection>),
    Server(Box<dyn ServerConnection>),
}

impl Security {
    pub(crate) fn packets(&mut self) -> &mut dyn PacketSecurity {
        match self {
            Self::Client(client) => client.as_mut(),
            Self::Server(server) => server.as_mut(),
        }
    }

    fn shared(&self) -> &dyn PacketSecurity {
        match self {
            Self::Client(client) => client.as_ref(),
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
            Self::Client(_) => Identity::Anonymous,
            Self::Server(server) => server.identity(),
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        match self {
            Self::Client(_) => true,
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
        path: Key,
        service: ServiceId,
        security_index: SecurityIndex,
        security: Security,
        now: Instant,
    ) -> Self {
        Self {
            epoch: header.0,
            cid: header.1.connection(),
            path,
            service,
            security_index,
            security,
            channels: [Channel::default(); CHANNELS],
            error: None,
            challenge: Challenge::default(),
            last_used: now,
            wants_channel: false,
            serial_received: 0,
            serial: 0,
        }
    }

    pub(crate) const fn role(&self) -> Role {
        match self.security {
            Security::Client(_) => Role::Client,
            Security::Server(_) => Role::Server,
        }
    }

    pub(crate) const fn next_serial(&mut self) -> u32 {
        self.serial = match self.serial.wrapping_add(1) {
            0 => 1,
            serial => serial,
        };
        self.serial
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
