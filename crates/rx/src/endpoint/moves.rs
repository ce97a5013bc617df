//! Clients that go on from another address: because a NAT gave them another port, or they another network.
//!
//! Epoch and connection id say which connection a packet belongs to, not whose it is: DEBUG of old servers tells
//! them, and no acknowledgement is protected. So a connection follows its client only
//!
//! - at once, for DATA that its security class has authenticated and that is no repetition, or
//! - when the new address has repeated the serial of a PING, while the old one, asked too, keeps silent.
//!
//! Nothing else that comes from elsewhere has an effect. A connection that this side opened follows nobody.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::timers::Timer;
use super::{Endpoint, FIRST_SEQUENCE_MAX, is_same};
use crate::call::Role;
use crate::connection::Elsewhere;
use crate::packet::ack::{Ack, Reason, SoftAcks, Trailer};
use crate::packet::jumbo::Parts;
use crate::packet::{CLASSIC_PACKET_SIZE, Flags, Header, PacketType};
use crate::types::Key;
use crate::{CallNumber, Cid, Epoch, SecurityIndex, ServiceId};

/// How long the old address must keep silent after it was asked.
const SILENCE: Duration = Duration::from_secs(1);
/// How often an address is asked, and how long one that does not answer keeps others from being asked.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// The epoch of packets that belong to no connection.
const NO_EPOCH: Epoch = Epoch(999);

impl Endpoint {
    /// A packet of a connection came from elsewhere. Says whether the connection has followed it there.
    // spec: rx-strangers#connections-of-clients-to-servers
    pub(super) fn follow(
        &mut self,
        now: Instant,
        key: Key,
        from: SocketAddr,
        header: &Header,
        body: &Bytes,
    ) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        if connection.role() == Role::Client || header.call_number.0 == 0 {
            return false;
        }
        if self.config.private {
            self.move_to(now, key, from);
            return true;
        }
        match header.packet_type {
            PacketType::Data if self.is_authentic(key, header, body) => {
                self.move_to(now, key, from);
                true
            }
            PacketType::Data => {
                self.ask(now, key, from, header);
                false
            }
            PacketType::Ack => {
                if !self.is_answer(now, key, from, body) {
                    self.ask(now, key, from, header);
                }
                false
            }
            _ => false,
        }
    }

    /// Whether a packet was made by who holds the connection's key, and is none that came before.
    fn is_authentic(&mut self, key: Key, header: &Header, body: &Bytes) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        let channel = &connection.channels[header.cid.channel()];
        let call = channel.call.and_then(|call| self.calls.get(call));
        let is_new = match header.call_number.0.cmp(&channel.number) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => {
                call.is_some_and(|call| call.receiver.lacks(header.sequence))
            }
            std::cmp::Ordering::Greater => (1..=FIRST_SEQUENCE_MAX).contains(&header.sequence),
        };
        // A repetition is authentic wherever it comes from, and proves nothing.
        if !is_new || !connection.security.authenticates() {
            return false;
        }
        match Parts::new(*header, body.clone()).next() {
            Some(Ok((header, payload))) => {
                connection.security.packets().open(&header, payload).is_ok()
            }
            _ => false,
        }
    }

    /// Whether this is the answer of an address that was asked.
    fn is_answer(&mut self, now: Instant, key: Key, from: SocketAddr, body: &[u8]) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        let Some(asked) = &mut connection.elsewhere else {
            return false;
        };
        let answers =
            |ack: Ack| ack.reason == Reason::PingResponse && asked.serials.contains(&ack.serial);
        let is_its = is_same(asked.address, from) && Ack::decode(body).is_some_and(answers);
        if is_its && !asked.answered {
            asked.answered = true;
            // The old address may have had its time already.
            let at = now.max(asked.asked_at + SILENCE);
            self.timers.push(Reverse((at, Timer::Elsewhere(key))));
        }
        is_its
    }

    /// Asks an address to prove that the client is there, and the old one whether it still is.
    fn ask(&mut self, now: Instant, key: Key, from: SocketAddr, header: &Header) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let (index, number) = (header.cid.channel(), header.call_number);
        let ended = &connection.channels[index];
        if let (Some(code), None, true) = (ended.aborted, ended.call, ended.number == number.0) {
            // It missed how its call ended. A PING for that would be an old acknowledgement, which nobody answers.
            let abort = connection.header(PacketType::Abort, index, number);
            if header.asks() && self.may_answer(now, from.ip()) {
                self.push_datagram(from, None, &abort, &code.0.to_be_bytes());
            }
            return;
        }
        let asked = connection.elsewhere;
        if asked.is_some_and(|asked| asked.answered || now < asked.asked_at + ASK_EVERY) {
            return;
        }
        let (channel, old_path) = (header.cid.channel(), connection.path);
        let call = connection.channels[channel].call;
        let call = (call.and_then(|key| self.calls.get(key)))
            .filter(|call| call.number == header.call_number);
        let first = call.map_or(1, |call| call.receiver.next());
        connection.jump(self.random.u32());
        let mut ping = connection.header(PacketType::Ack, channel, header.call_number);
        ping.flags = ping
            .flags
            .with(Flags::SLOW_START_OK)
            .with(Flags::REQUEST_ACK);
        // The answer to the last question may take longer than the wait before the next.
        let last = asked.filter(|asked| is_same(asked.address, from));
        let last = last.map_or(ping.serial, |asked| asked.serials[0]);
        connection.elsewhere = Some(Elsewhere {
            address: from,
            serials: [ping.serial, last],
            asked_at: now,
            answered: false,
        });
        let mut body = Vec::new();
        self.ping_body(first).encode(&mut body);
        // Less than three times any packet that asks for it.
        self.push_datagram(from, None, &ping, &body);
        // To somebody who has no call there a PING says nothing, but everybody answers this.
        self.push_control(now, old_path, &version_request(), &[0]);
    }

    /// An acknowledgement that says what one said before, for the sake of its answer.
    fn ping_body(&self, first: u32) -> Ack {
        let size = u32::try_from(CLASSIC_PACKET_SIZE).unwrap_or(u32::MAX);
        Ack {
            first,
            previous: first - 1,
            serial: 0,
            reason: Reason::Ping,
            soft: SoftAcks::default(),
            trailer: Trailer {
                max_mtu: Some(size),
                interface_mtu: Some(size),
                window: Some(self.config.classic_window.max(1).into()),
                max_datagram_packets: Some(1),
            },
            extension: None,
        }
    }

    /// The old address had its time to say something.
    pub(super) fn on_elsewhere_timer(&mut self, now: Instant, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(asked) = connection
            .elsewhere
            .filter(|asked| asked.asked_at + SILENCE <= now)
        else {
            return;
        };
        let heard = (self.paths.get(connection.path)).map(|path| path.last_used);
        let is_silent = heard.is_none_or(|heard| heard < asked.asked_at);
        if asked.answered && is_silent {
            self.move_to(now, key, asked.address);
            if let Some(path) = self.connections.get(key).map(|known| known.path) {
                self.on_proof(now, path);
            }
        } else if asked.answered {
            // Two say they are the client. It is where it was.
            connection.elsewhere = Some(Elsewhere {
                answered: false,
                ..asked
            });
        }
    }

    fn move_to(&mut self, now: Instant, key: Key, address: SocketAddr) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.elsewhere = None;
        // What was sent to the old address proves nothing for this one.
        connection.jump(self.random.u32());
        let old_path = connection.path;
        let new_path = self.path_to(address, now);
        self.stats.moved += 1;
        self.move_connection(now, key, (old_path, new_path));
    }

    fn move_connection(&mut self, now: Instant, key: Key, (old_path, new_path): (Key, Key)) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.path = new_path;
        self.by_path.remove(&(old_path, key));
        self.by_path.insert((new_path, key));
        let calls: Vec<Key> = connection.channels.iter().filter_map(|c| c.call).collect();
        let known = self
            .paths
            .get(old_path)
            .map(|p| (p.afar, p.window_hint, p.window_told));
        if let Some(path) = self.paths.get_mut(new_path) {
            path.connections += 1;
            if let Some((afar, window, told)) = known {
                // It is the same peer at the end of another path.
                path.afar |= afar;
                path.window_hint = path.window_hint.max(window);
                path.window_told = path.window_told.max(told);
            }
        }
        for key in calls {
            let Some(call) = self.calls.get_mut(key) else {
                continue;
            };
            call.in_ready = false;
            if let Some(path) = self.paths.get_mut(old_path) {
                call.sender.leave_path(path);
            }
            self.make_ready(now, key);
            // Its timer was set by what the old path was like.
            self.schedule_call(key);
        }
        if let Some(path) = self.paths.get_mut(old_path) {
            path.connections -= 1;
        }
    }
}

/// Asks an address for its version, which old peers tell too.
fn version_request() -> Header {
    Header {
        epoch: NO_EPOCH,
        cid: Cid(0),
        call_number: CallNumber(0),
        sequence: 0,
        serial: 0,
        packet_type: PacketType::Version,
        flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
        user_status: 0,
        security_index: SecurityIndex(0),
        checksum: 0,
        service_id: ServiceId(0),
    }
}
