//! From a datagram to the call it belongs to.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::account::Source;
use super::calls::window_limits;
use super::timers::{CHALLENGE_EVERY, CHALLENGE_TRIES, Timer};
use super::{ConnectionIndex, Endpoint, FIRST_SEQUENCE_MAX, index_address, is_same};
use crate::addresses::NOTE_EVERY;
use crate::call::receive::Arrival;
use crate::call::send::Refused;
use crate::call::{Call, Role, Stage};
use crate::connection::{Connection, Security};
use crate::packet::ack::{Ack, Reason};
use crate::packet::jumbo::Parts;
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType, abort_code};
use crate::types::Key;
use crate::{AbortCode, CallError, CallId, CallNumber, Ecn, Event};

/// Acknowledgements that introduce us to a new peer at once.
const INTRODUCTIONS: u32 = 2;
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

    fn send_connection_abort(&mut self, now: Instant, key: Key, code: AbortCode) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let header = connection.header(PacketType::Abort, 0, CallNumber(0));
        let path = connection.path;
        self.push_control(now, path, &header, &code.0.to_be_bytes());
    }

    /// Whether one more packet of a peer is answered that belongs to no call that runs.
    fn may_answer_peer(&mut self, now: Instant, key: Key) -> bool {
        let path = (self.connections.get(key)).and_then(|known| self.paths.get(known.path));
        let ip = path.map(|path| path.address.ip());
        ip.is_some_and(|ip| self.may_answer(now, ip))
    }

    /// Whether one more packet from an address is answered that belongs to no call that runs.
    pub(super) fn may_answer(&mut self, now: Instant, ip: IpAddr) -> bool {
        let may = self.config.private || self.addresses.may_answer(now, ip);
        self.stats.answers_limited += u64::from(!may);
        may
    }

    /// Whether a client is asked who it is, once more.
    fn may_challenge(&mut self, now: Instant, path: Key) -> bool {
        let Some(path) = self.paths.get(path) else {
            return false;
        };
        let may = self.config.private
            || path.is_reached(now)
            || self.addresses.may_challenge(now, path.address.ip());
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
            // spec: rx#challenges
            (PacketType::Response, Security::Server(server))
                if connection.challenge.tries > 0 && !server.is_authenticated() =>
            {
                match server.check(body) {
                    Ok(calls) => {
                        connection.adopt_call_numbers(calls);
                        // It repeats what the challenge said.
                        let path = connection.path;
                        self.on_proof(now, path);
                        self.release_held_back(now, key);
                    }
                    // The sender is not known. A client with a bad key gives up when it is told; if a third
                    // party wanted to end a client's call so, the right answer still counts.
                    Err(code) => {
                        let challenge = &mut connection.challenge;
                        challenge.tries = challenge.tries.max(CHALLENGE_TRIES - 1);
                        if self.may_answer_peer(now, key) {
                            self.send_connection_abort(now, key, code);
                        }
                    }
                }
            }
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

    /// Asks a client who it is.
    pub(super) fn send_challenge(&mut self, now: Instant, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Security::Server(server) = &mut connection.security else {
            return;
        };
        let body = server.challenge();
        connection.challenge.tries += 1;
        connection.challenge.next = Some(now + CHALLENGE_EVERY);
        let header = connection.header(PacketType::Challenge, 0, CallNumber(0));
        let path = connection.path;
        if self.may_challenge(now, path) {
            self.push_control(now, path, &header, &body);
        }
        self.timers
            .push(Reverse((now + CHALLENGE_EVERY, Timer::Challenge(key))));
    }

    /// Keeps a packet until its connection has proved who it is.
    fn hold_back(&mut self, now: Instant, key: Key, header: Header, body: &Bytes) {
        let Some(source) = self.connections.get(key).map(|c| c.source) else {
            return;
        };
        self.held_back.keep(key, source, header, body);
        if self
            .connections
            .get(key)
            .is_some_and(|c| c.challenge.tries == 0)
        {
            self.send_challenge(now, key);
        }
    }

    fn release_held_back(&mut self, now: Instant, key: Key) {
        for (header, body) in self.held_back.take(key) {
            self.on_call_packet(now, key, header, body);
        }
    }

    fn on_call_packet(&mut self, now: Instant, key: Key, header: Header, body: Bytes) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if !connection.security.is_authenticated() {
            if header.packet_type == PacketType::Data {
                self.hold_back(now, key, header, &body);
            }
            return;
        }
        let index = header.cid.channel();
        let channel = connection.channels[index];
        let current = channel.number;
        // spec: rx#calls
        if header.call_number.0 > current {
            if connection.role() == Role::Client {
                self.stats.violations += 1;
                return;
            }
            if header.packet_type != PacketType::Data
                || header.sequence == 0
                || header.sequence > FIRST_SEQUENCE_MAX
            {
                self.stats.unmatched += 1;
                return;
            }
            self.begin_server_call(now, key, &header);
        } else if header.call_number.0 < current {
            self.stats.unmatched += 1;
            return;
        }
        let call = self
            .connections
            .get(key)
            .and_then(|c| c.channels[index].call);
        let Some(call) = call.filter(|call| {
            self.calls
                .get(*call)
                .is_some_and(|call| call.number == header.call_number)
        }) else {
            if header.packet_type == PacketType::Ack {
                self.on_late_ack(now, key, &body);
            }
            // The call is over here; a peer that still sends missed how it ended.
            if let (Some(code), true) = (channel.aborted, header.asks())
                && self.may_answer_peer(now, key)
            {
                self.resend_abort(now, key, index, header.call_number, code);
            } else {
                self.stats.unmatched += 1;
            }
            return;
        };
        if let Some(known) = self.calls.get_mut(call) {
            known.heard = now;
        }
        match header.packet_type {
            PacketType::Data => self.on_data_parts(now, call, header, body),
            PacketType::Ack => self.on_ack(now, call, &header, &body),
            // spec: rx#packet-types
            PacketType::AckAll => self.on_ack_all(now, call),
            PacketType::Abort => self.fail(call, CallError::Aborted(abort_code(&body))),
            // spec: rx#busy-servers
            PacketType::Busy => {}
            _ => self.stats.violations += 1,
        }
        self.settle(now, call);
        self.schedule_call(call);
        self.schedule_calls_of_path(now, key);
    }

    /// An acknowledgement came for a call that is over: it may answer a probe of the path.
    fn on_late_ack(&mut self, now: Instant, key: Key, body: &[u8]) {
        let Some(ack) = Ack::decode(body).filter(|ack| ack.reason == Reason::PingResponse) else {
            return;
        };
        let path = self.connections.get(key).map(|c| c.path);
        if let Some(path) = path.and_then(|path| self.paths.get_mut(path)) {
            // How long it was held back counts for nothing here: it did not wait for company.
            path.on_ping_answer(now, key, ack.serial, Duration::ZERO);
        }
        self.schedule_calls_of_path(now, key);
    }

    fn resend_abort(
        &mut self,
        now: Instant,
        key: Key,
        index: usize,
        number: CallNumber,
        code: AbortCode,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let header = connection.header(PacketType::Abort, index, number);
        let path = connection.path;
        self.push_control(now, path, &header, &code.0.to_be_bytes());
    }

    /// A client begins a call. What ran on the channel before is over: a new call acknowledges the
    /// last one's reply, or shows that the client has given it up.
    fn begin_server_call(&mut self, now: Instant, key: Key, header: &Header) {
        let index = header.cid.channel();
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if let Some(old) = connection.channels[index].call {
            self.finish_server_call(now, old);
        }
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let Some(address) = self.paths.get(connection.path).map(|path| path.address) else {
            return;
        };
        let owners = (self.account).owners(address, &connection.security.identity());
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let channel = &mut connection.channels[index];
        channel.number = header.call_number.0;
        channel.aborted = None;
        let (window, path) = (channel.window, connection.path);
        let hint = self
            .paths
            .get(path)
            .filter(|path| path.afar)
            .map_or(0, |path| path.window_hint);
        let mut call = Call::new(
            key,
            index,
            header.call_number,
            Role::Server,
            now,
            window.max(hint),
            &self.config,
        );
        call.owners = Some(owners);
        self.insert_call(call);
    }

    /// The client has begun another call: this one has all its reply, or nobody wants it.
    fn finish_server_call(&mut self, now: Instant, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if call.sender.is_last_sent() {
            let path = self.connections.get(call.connection).map(|c| c.path);
            if let Some(path) = path.and_then(|path| self.paths.get_mut(path)) {
                call.sender.on_implicit_ack(now, path);
            }
            self.complete_server_call(key);
        } else {
            self.fail(key, CallError::Cancelled(AbortCode::RX_CALL_DEAD));
        }
    }

    fn complete_server_call(&mut self, key: Key) {
        self.stats.calls_completed += 1;
        self.events.push_back(Event::Completed(CallId(key)));
        self.remove_call(key);
    }

    fn on_data_parts(&mut self, now: Instant, key: Key, header: Header, body: Bytes) {
        for part in Parts::new(header, body) {
            let Ok((header, payload)) = part else {
                self.stats.malformed += 1;
                return;
            };
            if header.sequence == 0 {
                self.stats.violations += 1;
                return;
            }
            if !self.on_data(now, key, &header, payload) {
                return;
            }
        }
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if call.stage == Stage::Running && call.receiver.take_readable() {
            self.events.push_back(Event::Readable(CallId(key)));
        }
        if call.stage == Stage::Waiting {
            self.admit(now, key);
            // Its data is read after the application has heard of the call.
        }
        self.queue_ack(key);
    }

    /// Takes one DATA packet in; false if the call is no more.
    fn on_data(&mut self, now: Instant, key: Key, header: &Header, payload: Bytes) -> bool {
        let Some(call) = self.calls.get_mut(key) else {
            return false;
        };
        let Some(connection) = self.connections.get_mut(call.connection) else {
            return false;
        };
        let Some(path) = self.paths.get_mut(connection.path) else {
            return false;
        };
        let payload = if connection.security.is_transparent() {
            payload
        } else {
            match connection.security.packets().open(header, payload) {
                Ok(payload) => {
                    connection.opened.0 += 1;
                    connection.opened.1 += payload.len() as u64;
                    payload
                }
                Err(_) => {
                    self.stats.unsealed += 1;
                    let connection_key = call.connection;
                    // spec: rx-strangers#bad-packets
                    // Anybody could end the connection if a bad packet did.
                    if let Err(code) = connection.security.ready() {
                        self.abort_connection(now, connection_key, code);
                    }
                    return false;
                }
            }
        };
        if call.role == Role::Client {
            if !call.sender.is_last_sent() {
                // spec: rx#request-and-reply
                // A reply before the whole request was sent: peers may end a call so, and an ABORT
                // follows; until then the data is of no use.
                self.stats.violations += 1;
                return true;
            }
            if !call.receiver.has_begun() {
                call.sender.on_implicit_ack(now, path);
            }
        }
        let path_key = connection.path;
        let limits = window_limits(&self.config, &self.account, path, call);
        let before = call.receiver.held();
        let arrival = call.receiver.on_data(
            now,
            header.sequence,
            header.serial,
            header.flags,
            payload,
            limits,
        );
        let gained = call.receiver.held() - before;
        self.stats.receive_memory += gained;
        match arrival {
            Arrival::InOrder | Arrival::Early => {
                call.progressed = now;
                call.missing = connection.missing();
                call.patience.gain(now, gained);
            }
            Arrival::Duplicate => self.stats.duplicates += 1,
            Arrival::Beyond | Arrival::Violation => self.stats.violations += 1,
        }
        if path.acks_sent < INTRODUCTIONS && self.config.extension && !path.afar {
            call.receiver.request_ack(Reason::Requested);
        }
        self.list_path(path_key);
        true
    }

    fn on_ack(&mut self, now: Instant, key: Key, header: &Header, body: &[u8]) {
        let Some(ack) = Ack::decode(body) else {
            self.stats.malformed += 1;
            return;
        };
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Some(connection) = self.connections.get(call.connection) else {
            return;
        };
        let (connection_key, path_key) = (call.connection, connection.path);
        // Serials never given out are lies, or belong to an endpoint that was here before.
        if ack.serial.wrapping_sub(connection.serial()).wrapping_sub(1) < u32::MAX / 2 {
            self.stats.violations += 1;
            return;
        }
        let serial = connection.serial();
        let (is_ours, is_proof) = (call.role == Role::Client, connection.is_proof(ack.serial));
        if !is_ours && is_proof {
            self.on_proof(now, path_key);
        }
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Some(path) = self.paths.get_mut(path_key) else {
            return;
        };
        let held_before = call.sender.held();
        if call.is_forgotten(&ack, path.afar) {
            self.send_abort(now, key, AbortCode::RX_CALL_DEAD);
            return self.fail(key, CallError::Dead);
        }
        let effect = match call
            .sender
            .on_ack(now, &ack, header.serial, connection_key, path)
        {
            Ok(effect) => {
                if effect.progress {
                    call.on_told(&ack, serial);
                }
                effect
            }
            Err(Refused::Stale) => {
                self.stats.acks_stale += 1;
                return;
            }
            Err(Refused::Impossible) => {
                self.stats.violations += 1;
                return;
            }
        };
        let answers_ping = ack.reason == Reason::PingResponse;
        path.on_ack_info(
            now,
            &self.config,
            &ack.trailer,
            ack.extension.as_ref(),
            answers_ping,
        );
        self.stats.spurious_losses += u64::from(effect.spurious);
        self.stats.rtt_samples += u64::from(effect.sampled);
        if effect.progress {
            call.progressed = now;
            let taken = held_before.saturating_sub(call.sender.held());
            call.patience.gain(now, taken as u64);
        }
        if ack.reason == Reason::Ping {
            call.receiver.on_ping(now, header.serial);
        }
        call.look_for_size(now, path);
        let (waiting, done) = (call.stage == Stage::Waiting, call.sender.is_done());
        let server = call.role == Role::Server;
        let source = call.owners.as_ref().map(|owners| owners.source);
        let awaited = call.reach_asked.is_some();
        if awaited && waiting {
            self.admit(now, key);
        }
        // spec: rx#the-end-of-a-reply
        if server && done {
            if let Some(source) = source {
                self.account.learn(source, now);
            }
            return self.complete_server_call(key);
        }
        if effect.progress {
            self.on_answer_taken(now, key);
        }
        if self.look_at_size(now, key) {
            return;
        }
        self.make_ready(key);
        self.list_path(path_key);
        self.queue_ack(key);
    }

    fn on_ack_all(&mut self, now: Instant, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let path = self
            .connections
            .get(call.connection)
            .map(|connection| connection.path);
        if let Some(path) = path.and_then(|path| self.paths.get_mut(path)) {
            call.sender.on_implicit_ack(now, path);
        }
        if call.role == Role::Server && call.sender.is_done() {
            self.complete_server_call(key);
        }
    }
}
