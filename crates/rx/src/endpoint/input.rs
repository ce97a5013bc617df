//! From a datagram to the connection it belongs to.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;

use super::account::Source;
use super::{ConnectionIndex, Endpoint, FIRST_SEQUENCE_MAX, index_address, is_same};
use crate::addresses::NOTE_EVERY;
use crate::call::Role;
use crate::connection::{Connection, Security};
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType, abort_code};
use crate::types::Key;
use crate::{AbortCode, CallError, CallNumber, Ecn};

/// The first serials of a connection to a client lie between, and cannot be guessed: an acknowledgement
/// that names one was made by who got the packet. Peers that compare serials as they are have room above.
// spec: rx#serials
const FIRST_SERIAL_MIN: u32 = 1 << 16;
const FIRST_SERIAL_MAX: u32 = (1 << 30) - 1;

impl Endpoint {
    /// Takes a datagram in, that came from that address to this one of ours, if that is known.
    pub fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: Bytes,
    ) {
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let Ok(header) = Header::decode(&datagram) else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.packets_received[header.packet_type.index()] += 1;
        let known = self.known_connection(from, &header);
        let is_home = known.is_some_and(|key| self.is_home(key, from));
        match header.packet_type {
            PacketType::Version => return self.on_version(now, from, to, &header),
            PacketType::Debug => {
                return self.on_debug(now, from, to, &header, &datagram[HEADER_SIZE..]);
            }
            // spec: rx#packet-types
            PacketType::Params => return,
            _ => {}
        }
        let (key, is_home) = match known {
            Some(key) => (key, is_home),
            None => match self.open_connection(now, (from, to), &header) {
                Some(key) => (key, true),
                None => return,
            },
        };
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        // spec: rx#connections
        if connection.security_index != header.security_index {
            self.stats.violations += 1;
            return;
        }
        let mut body = datagram.slice(HEADER_SIZE..);
        if self.account.is_tight() {
            // What arrived together lies in one large piece, which any part of it that is kept keeps.
            body = Bytes::copy_from_slice(&body);
        }
        if !is_home && !self.follow(now, key, from, &header, &body) {
            self.stats.elsewhere += 1;
            return;
        }
        self.count_arrival(key, now, to, ecn, &header, datagram.len());
        if header.call_number.0 == 0 {
            self.on_connection_packet(now, key, &header, &body);
        } else {
            self.on_call_packet(now, key, header, body);
        }
    }

    fn known_connection(&self, from: SocketAddr, header: &Header) -> Option<Key> {
        let ours = !header.from_client();
        let index = ConnectionIndex {
            epoch: header.epoch,
            cid: header.cid.connection(),
            ours,
            address: index_address(header.epoch, ours, from),
        };
        self.by_id.get(&index).copied()
    }

    /// Whether a connection's packets are to come from that address: where we called, or where its client is.
    // spec: rx-strangers#connections-that-this-side-opened
    fn is_home(&self, key: Key, from: SocketAddr) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let is_believed = self.config.private && connection.role() == Role::Client;
        let path = self.paths.get(connection.path);
        is_believed || path.is_some_and(|path| is_same(path.address, from))
    }

    /// The connection a client opens with a packet, if it does.
    // spec: rx#packets-that-belong-to-nothing
    fn open_connection(
        &mut self,
        now: Instant,
        addresses: (SocketAddr, Option<IpAddr>),
        header: &Header,
    ) -> Option<Key> {
        let ours = !header.from_client();
        if ours || header.packet_type != PacketType::Data || header.call_number.0 == 0 {
            self.stats.unmatched += 1;
            return None;
        }
        self.accept_connection(now, addresses, header)
    }

    fn accept_connection(
        &mut self,
        now: Instant,
        (from, to): (SocketAddr, Option<IpAddr>),
        header: &Header,
    ) -> Option<Key> {
        let security = self
            .services
            .get(&header.service_id)
            .and_then(|s| {
                s.security
                    .iter()
                    .find(|class| class.index() == header.security_index)
            })
            .map(|class| class.accept(header.epoch, header.cid.connection()));
        let Some(security) = security else {
            self.stats.unmatched += 1;
            self.answer_stranger(now, (from, to), header, AbortCode::RX_INVALID_OPERATION);
            return None;
        };
        if header.sequence == 0 || header.sequence > FIRST_SEQUENCE_MAX {
            self.stats.unmatched += 1;
            return None;
        }
        let source = Source::from(from);
        if !self.may_connect(now, source) {
            self.stats.refused += 1;
            return None;
        }
        let path = self.path_to(from, now);
        let connection = Connection::new(
            (header.epoch, header.cid),
            (path, source),
            header.service_id,
            header.security_index,
            Security::Server(security),
            self.random.u32() & FIRST_SERIAL_MAX | FIRST_SERIAL_MIN,
            now,
        );
        Some(self.insert_connection(connection, from))
    }

    /// Refuses a packet that belongs to nothing, at a limited rate; an ABORT is never answered.
    fn answer_stranger(
        &mut self,
        now: Instant,
        (from, to): (SocketAddr, Option<IpAddr>),
        header: &Header,
        code: AbortCode,
    ) {
        // spec: rx#packets-that-belong-to-nothing
        if header.packet_type == PacketType::Abort {
            return;
        }
        if !self.may_answer(now, from.ip()) {
            return;
        }
        let flags = if header.from_client() {
            Flags(0)
        } else {
            Flags::CLIENT_INITIATED
        };
        let answer = Header {
            packet_type: PacketType::Abort,
            flags,
            serial: 0,
            sequence: 0,
            user_status: 0,
            checksum: 0,
            ..*header
        };
        self.push_datagram(from, to, &answer, &code.0.to_be_bytes());
    }

    pub(super) fn send_connection_abort(&mut self, now: Instant, key: Key, code: AbortCode) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let header = connection.header(PacketType::Abort, 0, CallNumber(0));
        let path = connection.path;
        self.push_control(now, path, &header, &code.0.to_be_bytes());
    }

    /// Whether one more packet of a peer is answered that belongs to no call that runs.
    pub(super) fn may_answer_peer(&mut self, now: Instant, key: Key) -> bool {
        let ip = self.path_of(key).map(|path| path.address.ip());
        ip.is_some_and(|ip| self.may_answer(now, ip))
    }

    /// Whether one more packet from an address is answered that belongs to no call that runs.
    pub(super) fn may_answer(&mut self, now: Instant, ip: IpAddr) -> bool {
        let may = self.config.private || self.addresses.may_answer(now, ip);
        self.stats.answers_limited += u64::from(!may);
        may
    }

    /// The peer of a connection has proved that it receives where it is.
    pub(super) fn on_proof(&mut self, now: Instant, path: Key) {
        let Some(path) = self.paths.get_mut(path) else {
            return;
        };
        // Each packet would prove it once more.
        if path.reached_at.is_none_or(|at| at + NOTE_EVERY <= now) {
            path.reached_at = Some(now);
            self.addresses.on_reached(path.address.ip(), now);
        }
    }

    fn count_arrival(
        &mut self,
        key: Key,
        now: Instant,
        to: Option<IpAddr>,
        ecn: Option<Ecn>,
        header: &Header,
        len: usize,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.last_used = now;
        connection.on_serial(header.serial);
        let (path_key, role) = (connection.path, connection.role());
        if role == Role::Client {
            // A peer that knows epoch and connection id got what we sent to where we called.
            self.on_proof(now, path_key);
        }
        let Some(path) = self.paths.get_mut(path_key) else {
            return;
        };
        path.last_used = now;
        path.credit(len);
        if role == Role::Server {
            path.local = to;
        }
        path.counters.bytes_received += len as u64;
        if header.packet_type == PacketType::Data {
            match ecn {
                Some(Ecn::Ce) => path.ecn.received_ce = path.ecn.received_ce.wrapping_add(1),
                Some(Ecn::Ect0 | Ecn::Ect1) => {
                    path.ecn.received_ect0 = path.ecn.received_ect0.wrapping_add(1);
                }
                None => {}
            }
        }
    }

    fn on_connection_packet(&mut self, now: Instant, key: Key, header: &Header, body: &Bytes) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let calls = connection.call_numbers();
        match (header.packet_type, &mut connection.security) {
            (PacketType::Abort, _) => {
                let code = abort_code(body);
                self.fail_all(key, CallError::ConnectionAborted(code));
            }
            (PacketType::Challenge, Security::Client(client, _)) => {
                let answer = client.respond(calls, body);
                let active = connection
                    .channels
                    .iter()
                    .any(|channel| channel.call.is_some());
                match answer {
                    Ok(response) if active => {
                        let header = connection.header(PacketType::Response, 0, CallNumber(0));
                        let path = connection.path;
                        self.push_control(now, path, &header, &response);
                    }
                    Ok(_) => {}
                    Err(code) => self.fail_all(key, CallError::ConnectionAborted(code)),
                }
            }
            (PacketType::Response, Security::Server(_)) => self.on_response(now, key, body),
            _ => self.stats.violations += 1,
        }
    }

    /// Ends all calls of a connection, and tells the peer why.
    pub(super) fn abort_connection(&mut self, now: Instant, key: Key, code: AbortCode) {
        self.send_connection_abort(now, key, code);
        self.fail_all(key, CallError::ConnectionAborted(code));
    }

    fn fail_all(&mut self, key: Key, error: CallError) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        for call in connection
            .channels
            .iter()
            .filter_map(|c| c.call)
            .collect::<Vec<_>>()
        {
            self.fail(call, error);
        }
    }
}
