//! Packets of calls, and what they do to them: DATA and what acknowledges it, and how calls begin and end.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::parts::Parts;
use super::{Endpoint, FIRST_SEQUENCE_MAX};
use crate::call::receive::Arrival;
use crate::call::send::{Effect, Refused};
use crate::call::{Call, Role, Stage};
use crate::packet::ack::{Ack, Reason};
use crate::packet::{Header, PacketType, abort_code, jumbo};
use crate::types::Key;
use crate::{AbortCode, CallError, CallId, CallNumber, Event};

/// Acknowledgements that introduce us to a new peer at once.
const INTRODUCTIONS: u32 = 2;

impl Endpoint {
    pub(super) fn on_call_packet(&mut self, now: Instant, key: Key, header: Header, body: Bytes) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if !connection.security.is_authenticated() {
            if header.packet_type == PacketType::Data {
                // Dropped, it would come again only after a timeout.
                self.hold_back(now, key, header, &body);
            }
            return;
        }
        let index = header.cid.channel();
        let channel = connection.channels[index];
        let current = channel.number;
        // spec: rx#calls
        // A higher number is a new call, whatever is open on this channel.
        if header.call_number.0 > current {
            if connection.role() == Role::Client {
                // Clients number the calls: a server cannot be ahead of us.
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
        let Some(address) = self.path_of(key).map(|path| path.address) else {
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
        // Nothing tells the window of a call that has only begun; what its client granted others is the best guess.
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
        let Some(parts) = self.parts(now, key) else {
            return;
        };
        if parts.call.sender.is_last_sent() {
            parts.call.sender.on_implicit_ack(now, parts.path);
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
        for part in jumbo::Parts::new(header, body) {
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
        // Once for all parts of a datagram.
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
        let Some(mut parts) = self.parts(now, key) else {
            return false;
        };
        let (connection, path) = (parts.call.connection, parts.connection.path);
        let Some(payload) = parts.open(header, payload) else {
            // spec: rx-strangers#bad-packets
            // Anybody could end the connection if a bad packet did.
            if let Err(code) = parts.connection.security.ready() {
                self.abort_connection(now, connection, code);
            }
            return false;
        };
        if parts.call.role == Role::Client && !parts.call.sender.is_last_sent() {
            // spec: rx#request-and-reply
            // A reply before the whole request was sent: peers may end a call so, and an ABORT
            // follows; until then the data is of no use.
            parts.stats.violations += 1;
            return true;
        }
        parts.on_data(header, payload);
        self.list_path(path);
        true
    }

    fn on_ack(&mut self, now: Instant, key: Key, header: &Header, body: &[u8]) {
        let Some(ack) = Ack::decode(body) else {
            self.stats.malformed += 1;
            return;
        };
        let Some(parts) = self.parts(now, key) else {
            return;
        };
        let (serial, path) = (parts.connection.serial(), parts.connection.path);
        // Serials never given out are lies, or belong to an endpoint that was here before.
        if ack.serial.wrapping_sub(serial).wrapping_sub(1) < u32::MAX / 2 {
            parts.stats.violations += 1;
            return;
        }
        // A serial that was sent there and comes back shows that the peer receives at its address.
        if parts.call.role == Role::Server && parts.connection.is_proof(ack.serial) {
            self.on_proof(now, path);
        }
        let Some(mut parts) = self.parts(now, key) else {
            return;
        };
        if parts.call.is_forgotten(&ack, parts.path.afar) {
            self.send_abort(now, key, AbortCode::RX_CALL_DEAD);
            return self.fail(key, CallError::Dead);
        }
        let Some(effect) = parts.on_ack(&ack, header.serial) else {
            return;
        };
        let call = parts.call;
        let (waiting, done) = (call.stage == Stage::Waiting, call.sender.is_done());
        let server = call.role == Role::Server;
        let source = call.owners.as_ref().map(|owners| owners.source);
        let awaited = call.reach_asked.is_some();
        // It may be the sign of life that the call waits for.
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
        self.make_ready(now, key);
        self.list_path(path);
        self.queue_ack(key);
    }

    fn on_ack_all(&mut self, now: Instant, key: Key) {
        let Some(parts) = self.parts(now, key) else {
            return;
        };
        parts.call.sender.on_implicit_ack(now, parts.path);
        if parts.call.role == Role::Server && parts.call.sender.is_done() {
            self.complete_server_call(key);
        }
    }
}

impl Parts<'_> {
    /// The payload of a DATA packet; `None` if the connection's security class refuses it.
    fn open(&mut self, header: &Header, payload: Bytes) -> Option<Bytes> {
        if self.connection.security.is_transparent() {
            return Some(payload);
        }
        let Ok(payload) = self.connection.security.packets().open(header, payload) else {
            self.stats.unsealed += 1;
            return None;
        };
        self.connection.opened.0 += 1;
        self.connection.opened.1 += payload.len() as u64;
        Some(payload)
    }

    /// Takes the payload of a DATA packet in.
    fn on_data(&mut self, header: &Header, payload: Bytes) {
        let limits = self.window_limits();
        let (now, call) = (self.now, &mut *self.call);
        // spec: rx#request-and-reply
        // The first packet of a reply acknowledges all of the request.
        if call.role == Role::Client && !call.receiver.has_begun() {
            call.sender.on_implicit_ack(now, self.path);
        }
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
                call.missing = self.connection.missing();
                call.patience.gain(now, gained);
            }
            Arrival::Duplicate => self.stats.duplicates += 1,
            Arrival::Beyond | Arrival::Violation => self.stats.violations += 1,
        }
        // A peer that learns late what we are has sent by the old rules meanwhile.
        if self.path.acks_sent < INTRODUCTIONS && self.config.extension && !self.path.afar {
            call.receiver.request_ack(Reason::Requested);
        }
    }

    /// Processes an acknowledgement, `ack_serial` being the ACK packet's own serial; `None` if it says nothing.
    fn on_ack(&mut self, ack: &Ack, ack_serial: u32) -> Option<Effect> {
        let (now, call, path) = (self.now, &mut *self.call, &mut *self.path);
        let held_before = call.sender.held();
        let done = (call.sender).on_ack(now, ack, ack_serial, call.connection, path);
        let effect = match done {
            Ok(effect) => effect,
            Err(Refused::Stale) => {
                self.stats.acks_stale += 1;
                return None;
            }
            Err(Refused::Impossible) => {
                self.stats.violations += 1;
                return None;
            }
        };
        let answers_ping = ack.reason == Reason::PingResponse;
        let extension = ack.extension.as_ref();
        path.on_ack_info(now, self.config, &ack.trailer, extension, answers_ping);
        self.stats.spurious_losses += u64::from(effect.spurious);
        self.stats.rtt_samples += u64::from(effect.sampled);
        if effect.progress {
            call.on_told(ack, self.connection.serial());
            call.progressed = now;
            let taken = held_before.saturating_sub(call.sender.held());
            call.patience.gain(now, taken as u64);
        }
        if ack.reason == Reason::Ping {
            call.receiver.on_ping(now, ack_serial);
        }
        call.look_for_size(now, path);
        Some(effect)
    }
}
