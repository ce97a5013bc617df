//! From a datagram to the call it belongs to.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;

use super::timers::{CHALLENGE_EVERY, Timer};
use super::{ConnectionIndex, Endpoint, index_address, window_limits};
use crate::call::receive::Arrival;
use crate::call::send::Refused;
use crate::call::{Call, Role, Stage};
use crate::connection::{Connection, Security};
use crate::packet::ack::{Ack, Reason};
use crate::packet::jumbo::Parts;
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType, abort_code};
use crate::types::Key;
use crate::{AbortCode, CallError, CallId, CallNumber, Ecn, Event};

/// Packets kept of a connection that has not proved who it is; the rest is sent again by the peer.
const HELD_BACK_MAX: usize = 32;
/// Highest sequence that may begin a server call: what a peer sends before it hears of our window.
/// A higher one belongs to a call this endpoint has forgotten.
const FIRST_SEQUENCE_MAX: u32 = 64;
/// Acknowledgements that introduce us to a new peer at once.
const INTRODUCTIONS: u32 = 2;

impl Endpoint {
    /// Takes a datagram in.
    pub fn handle(&mut self, now: Instant, from: SocketAddr, ecn: Option<Ecn>, datagram: Bytes) {
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let Ok(header) = Header::decode(&datagram) else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.packets_received[header.packet_type.index()] += 1;
        match header.packet_type {
            PacketType::Version => return self.on_version(now, from, &header),
            PacketType::Debug => {
                return self.on_debug(now, from, &header, &datagram[HEADER_SIZE..]);
            }
            PacketType::Params => return,
            _ => {}
        }
        let Some(key) = self.connection_of(now, from, &header) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.security_index != header.security_index {
            self.stats.violations += 1;
            return;
        }
        connection.last_used = now;
        if let Some(code) = connection.error
            && header.packet_type != PacketType::Abort
        {
            return self.answer_connection_error(now, key, code);
        }
        self.roam(key, from, &header);
        self.count_arrival(key, now, ecn, &header, datagram.len());
        let body = datagram.slice(HEADER_SIZE..);
        if header.call_number.0 == 0 {
            self.on_connection_packet(now, key, &header, &body);
        } else {
            self.on_call_packet(now, key, header, body);
        }
    }

    /// The connection a packet belongs to, made if a client opens one.
    fn connection_of(&mut self, now: Instant, from: SocketAddr, header: &Header) -> Option<Key> {
        let ours = !header.from_client();
        let index = ConnectionIndex {
            epoch: header.epoch,
            cid: header.cid.connection(),
            ours,
            address: index_address(header.epoch, ours, from),
        };
        if let Some(key) = self.by_id.get(&index) {
            return Some(*key);
        }
        if ours || header.packet_type != PacketType::Data || header.call_number.0 == 0 {
            self.stats.unmatched += 1;
            return None;
        }
        self.accept_connection(now, from, header)
    }

    fn accept_connection(
        &mut self,
        now: Instant,
        from: SocketAddr,
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
            self.answer_stranger(now, from, header, AbortCode::RX_INVALID_OPERATION);
            return None;
        };
        if header.sequence == 0 || header.sequence > FIRST_SEQUENCE_MAX {
            self.stats.unmatched += 1;
            return None;
        }
        if self.server_connections >= self.config.server_connections_max
            && !self.evict_idle_connections(now)
        {
            self.stats.refused += 1;
            return None;
        }
        let path = self.path_to(from, now);
        let connection = Connection::new(
            (header.epoch, header.cid),
            path,
            header.service_id,
            header.security_index,
            Security::Server(security),
            now,
        );
        Some(self.insert_connection(connection, from))
    }

    /// Refuses a packet that belongs to nothing, at a limited rate; an ABORT is never answered.
    fn answer_stranger(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        code: AbortCode,
    ) {
        if header.packet_type == PacketType::Abort {
            return;
        }
        if !self.strangers.take(now) {
            self.stats.aborts_limited += 1;
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
        self.push_datagram(from, &answer, &code.0.to_be_bytes());
    }

    fn answer_connection_error(&mut self, now: Instant, key: Key, code: AbortCode) {
        if !self.strangers.take(now) {
            self.stats.aborts_limited += 1;
            return;
        }
        self.send_connection_abort(key, code);
    }

    fn send_connection_abort(&mut self, key: Key, code: AbortCode) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let header = connection.header(PacketType::Abort, 0, CallNumber(0));
        let path = connection.path;
        self.push_control(path, &header, &code.0.to_be_bytes());
    }

    /// A client whose NAT mapping changed goes on from its new address: packets newer than all
    /// before decide, as only who holds epoch and connection id can send them.
    fn roam(&mut self, key: Key, from: SocketAddr, header: &Header) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let newer = header.serial.wrapping_sub(connection.serial_received);
        let is_newer = newer != 0 && newer < u32::MAX / 2;
        let old_path = connection.path;
        if is_newer {
            connection.serial_received = header.serial;
        }
        let address = self.paths.get(old_path).map(|path| path.address);
        let may_roam = connection.role() == Role::Server
            && header.epoch.may_roam()
            && is_newer
            && matches!(header.packet_type, PacketType::Data | PacketType::Ack);
        if !may_roam || address == Some(from) {
            return;
        }
        let now_used = connection.last_used;
        let new_path = self.path_to(from, now_used);
        self.move_connection(key, old_path, new_path);
    }

    fn move_connection(&mut self, key: Key, old_path: Key, new_path: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.path = new_path;
        let calls: Vec<Key> = connection.channels.iter().filter_map(|c| c.call).collect();
        let known = self
            .paths
            .get(old_path)
            .map(|p| (p.afar, p.window_hint, p.window_told));
        if let Some(path) = self.paths.get_mut(new_path) {
            path.connections += 1;
            if let Some((afar, window, told)) = known {
                path.afar |= afar;
                path.window_hint = path.window_hint.max(window);
                path.window_told = path.window_told.max(told);
            }
        }
        for call in calls {
            let Some(call) = self.calls.get_mut(call) else {
                continue;
            };
            call.in_ready = false;
            if let Some(path) = self.paths.get_mut(old_path) {
                call.sender.leave_path(path);
            }
        }
        if let Some(path) = self.paths.get_mut(old_path) {
            path.connections -= 1;
        }
    }

    fn count_arrival(
        &mut self,
        key: Key,
        now: Instant,
        ecn: Option<Ecn>,
        header: &Header,
        len: usize,
    ) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let Some(path) = self.paths.get_mut(connection.path) else {
            return;
        };
        path.last_used = now;
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
            (PacketType::Challenge, Security::Client(client)) => {
                let answer = client.respond(calls, body);
                let active = connection
                    .channels
                    .iter()
                    .any(|channel| channel.call.is_some());
                match answer {
                    Ok(response) if active => {
                        let header = connection.header(PacketType::Response, 0, CallNumber(0));
                        let path = connection.path;
                        self.push_control(path, &header, &response);
                    }
                    Ok(_) => {}
                    Err(code) => self.fail_all(key, CallError::ConnectionAborted(code)),
                }
            }
            (PacketType::Response, Security::Server(server))
                if connection.challenge.tries > 0 && !server.is_authenticated() =>
            {
                match server.check(body) {
                    Ok(calls) => {
                        connection.adopt_call_numbers(calls);
                        self.release_held_back(now, key);
                    }
                    Err(code) => {
                        connection.error = Some(code);
                        self.held_back.remove(&key);
                        self.send_connection_abort(key, code);
                    }
                }
            }
            _ => self.stats.violations += 1,
        }
    }

    /// Ends all calls of a connection, and tells the peer why.
    pub(super) fn abort_connection(&mut self, key: Key, code: AbortCode) {
        self.send_connection_abort(key, code);
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
        self.push_control(path, &header, &body);
        self.timers
            .push(Reverse((now + CHALLENGE_EVERY, Timer::Challenge(key))));
    }

    /// Keeps a packet until its connection has proved who it is.
    fn hold_back(&mut self, now: Instant, key: Key, header: Header, body: Bytes) {
        let held = self.held_back.entry(key).or_default();
        let known = held.iter().any(|(other, _)| {
            (other.cid, other.call_number, other.sequence)
                == (header.cid, header.call_number, header.sequence)
        });
        if known || held.len() >= HELD_BACK_MAX {
            return;
        }
        held.push((header, body));
        if self
            .connections
            .get(key)
            .is_some_and(|c| c.challenge.tries == 0)
        {
            self.send_challenge(now, key);
        }
    }

    fn release_held_back(&mut self, now: Instant, key: Key) {
        for (header, body) in self.held_back.remove(&key).unwrap_or_default() {
            self.on_call_packet(now, key, header, body);
        }
    }

    fn on_call_packet(&mut self, now: Instant, key: Key, header: Header, body: Bytes) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if !connection.security.is_authenticated() {
            if header.packet_type == PacketType::Data {
                self.hold_back(now, key, header, body);
            }
            return;
        }
        let index = header.cid.channel();
        let channel = connection.channels[index];
        let current = channel.number;
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
            // The call is over here; a peer that still sends missed how it ended.
            let asks = match header.packet_type {
                PacketType::Data => true,
                PacketType::Ack => header.flags.has(Flags::REQUEST_ACK),
                _ => false,
            };
            if let (Some(code), true) = (channel.aborted, asks)
                && self.strangers.take(now)
            {
                self.resend_abort(key, index, header.call_number, code);
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
            PacketType::AckAll => self.on_ack_all(now, call),
            PacketType::Abort => self.fail(call, CallError::Aborted(abort_code(&body))),
            PacketType::Busy => {}
            _ => self.stats.violations += 1,
        }
        self.schedule_call(call);
    }

    fn resend_abort(&mut self, key: Key, index: usize, number: CallNumber, code: AbortCode) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let header = connection.header(PacketType::Abort, index, number);
        let path = connection.path;
        self.push_control(path, &header, &code.0.to_be_bytes());
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
        let call = Call::new(
            key,
            index,
            header.call_number,
            Role::Server,
            now,
            window.max(hint),
            &self.config,
        );
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
            self.admit(key);
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
                Ok(payload) => payload,
                Err(code) => {
                    let connection = call.connection;
                    self.stats.violations += 1;
                    self.abort_connection(connection, code);
                    return false;
                }
            }
        };
        if call.role == Role::Client {
            if !call.sender.is_last_sent() {
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
        let limits = window_limits(&self.config, &self.stats, path, call);
        let before = call.receiver.held();
        let arrival = call.receiver.on_data(
            now,
            header.sequence,
            header.serial,
            header.flags,
            payload,
            limits,
        );
        self.stats.receive_memory += call.receiver.held() - before;
        match arrival {
            Arrival::InOrder | Arrival::Early => call.progressed = now,
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
        let Some(path) = self.paths.get_mut(path_key) else {
            return;
        };
        let serial = connection.serial();
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
        }
        if ack.reason == Reason::Ping {
            call.receiver.on_ping(now, header.serial);
        }
        let newly_reached = ack.reason == Reason::PingResponse && path.reached_at.is_none();
        if ack.reason == Reason::PingResponse {
            path.reached_at = Some(now);
        }
        if effect.progress && call.sender.is_bulk() && path.afar && self.config.mtu_discovery {
            call.probe_size = call.probe_size.or_else(|| path.mtu.wanted(now));
        }
        let (waiting, done) = (call.stage == Stage::Waiting, call.sender.is_done());
        let server = call.role == Role::Server;
        if newly_reached && waiting {
            self.admit(key);
        }
        if server && done {
            return self.complete_server_call(key);
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
