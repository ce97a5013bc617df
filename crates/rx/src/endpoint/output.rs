//! Which datagrams leave next: answers and aborts, then acknowledgements, then DATA in turn.
//!
//! Datagrams of one size to one address leave together, as the kernel's segmentation offload
//! wants them: a run of one call's DATA as well as the small requests of many calls.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::account::Account;
use super::calls::window_limits;
use super::{Control, Endpoint};
use crate::call::send::{Outgoing, Pick};
use crate::call::{Call, Role};
use crate::connection::Connection;
use crate::packet::ack::{Ack, Reason, Trailer};
use crate::packet::{CLASSIC_PACKET_SIZE, Flags, HEADER_SIZE, Header, PacketType};
use crate::peer::{CLASSIC_SURE, Path};
use crate::security::Sealing;
use crate::types::Key;
use crate::{AbortCode, CallError, CallId, Config, Ecn, Event, Stats, Transmit};

/// Bytes and datagrams of one transmit: what the kernel takes in one segmented send.
const BATCH_SIZE: usize = 65_507;
const BATCH_DATAGRAMS: usize = 64;
/// Packets one call sends before the next call on the path has its turn.
const TURN_PACKETS: u32 = 8;
/// When to look again at a path that is paced without saying until when.
const PACE_AGAIN: Duration = Duration::from_millis(1);
/// Packets of a request that counts as long.
const LONG_REQUEST: u32 = 4;

/// Datagrams gathered for one address.
struct Batch<'a> {
    buf: &'a mut Vec<u8>,
    segment: usize,
    count: usize,
    closed: bool,
    /// What is still to be sealed, in the order of the buffer.
    open: Vec<Unsealed>,
}

/// A packet in the buffer that its security class has not seen yet.
struct Unsealed {
    connection: Key,
    header: Header,
    /// Where its header begins.
    start: usize,
    /// Bytes of its sealed body, and of the payload in that.
    sealed: usize,
    payload: usize,
}

impl<'a> Batch<'a> {
    fn new(buf: &'a mut Vec<u8>) -> Self {
        buf.clear();
        Self {
            buf,
            segment: 0,
            count: 0,
            closed: false,
            open: Vec::new(),
        }
    }

    /// Whether a datagram of that size can leave with those before it.
    fn fits(&self, size: usize) -> bool {
        self.count == 0
            || (!self.closed
                && size <= self.segment
                && self.count < BATCH_DATAGRAMS
                && self.buf.len() + size <= BATCH_SIZE)
    }

    /// Notes that a datagram of that size was appended.
    fn added(&mut self, size: usize) {
        if self.count == 0 {
            self.segment = size;
        }
        self.closed = size < self.segment;
        self.count += 1;
    }

    fn into_transmit(
        self,
        (destination, source): (SocketAddr, Option<IpAddr>),
        ecn: Option<Ecn>,
    ) -> Option<Transmit> {
        (self.count > 0).then(|| Transmit {
            destination,
            source,
            ecn,
            size: self.buf.len(),
            segment_size: (self.count > 1).then_some(self.segment),
            dont_fragment: false,
        })
    }
}

impl Endpoint {
    /// Fills `buf`, which is cleared first, with what is to be sent next; `None` if that is nothing.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self
            .poll_control(buf)
            .or_else(|| self.poll_acks(now, buf))
            .or_else(|| self.poll_data(now, buf));
        let Some(transmit) = transmit else {
            self.prune_timers();
            return None;
        };
        let count = transmit
            .segment_size
            .map_or(1, |size| transmit.size.div_ceil(size));
        self.stats.datagrams_sent += count as u64;
        self.stats.bytes_sent += transmit.size as u64;
        Some(transmit)
    }

    fn poll_control(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        let Control {
            destination,
            source,
            datagram,
        } = self.control.pop_front()?;
        buf.clear();
        buf.extend_from_slice(&datagram);
        Some(Transmit {
            destination,
            source,
            ecn: None,
            size: buf.len(),
            segment_size: None,
            dont_fragment: false,
        })
    }

    /// Puts a call in line if it has an acknowledgement, or a probe, to send now.
    pub(super) fn queue_ack(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if !call.in_acks && (call.receiver.wants_ack() || call.probe_size.is_some()) {
            call.in_acks = true;
            self.acks.push_back(key);
        }
        self.schedule_call(key);
    }

    fn poll_acks(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let mut batch = Batch::new(buf);
        let mut destination = None;
        while let Some(key) = self.acks.front().copied() {
            let Self {
                calls,
                connections,
                paths,
                stats,
                config,
                account,
                ..
            } = self;
            let Some(call) = calls.get_mut(key) else {
                self.acks.pop_front();
                continue;
            };
            let parts = connections.get_mut(call.connection).and_then(|connection| {
                paths
                    .get_mut(connection.path)
                    .map(|path| (connection, path))
            });
            let Some((connection, path)) = parts else {
                self.acks.pop_front();
                continue;
            };
            if destination.is_some_and(|(address, _)| address != path.address) {
                break;
            }
            if !call.receiver.wants_ack() {
                if call.probe_size.is_some() && batch.count > 0 {
                    // A probe leaves alone, after this batch.
                    break;
                }
                self.acks.pop_front();
                call.in_acks = false;
                // Calls that began together may all want to look; one probe at a time tells something. The peer
                // answers none for a call that is over.
                let may = call.expects_peer() && !path.mtu.is_probing();
                let probe = call.probe_size.take().filter(|_| may);
                if let Some(size) = probe {
                    let (destination, source) = (path.address, path.local);
                    write_probe(
                        now, call, connection, path, config, account, stats, batch.buf, size,
                    );
                    self.schedule_call(key);
                    return Some(Transmit {
                        destination,
                        source,
                        ecn: None,
                        size,
                        segment_size: None,
                        dont_fragment: true,
                    });
                }
                continue;
            }
            // Sizes differ by what there is to say, so the bytes are made first.
            let room = room_for(now, call, path, config);
            let octets = ack_packet(now, call, connection, path, config, account, stats, room);
            if call.probe_size.is_none() && !call.receiver.wants_ack() {
                call.in_acks = false;
                self.acks.pop_front();
            }
            if octets.is_empty() {
                stats.unproved += 1;
                continue;
            }
            if room.is_some() {
                path.spend(octets.len());
            }
            if !batch.fits(octets.len()) {
                // It leaves alone, right after this batch.
                self.control.push_front(Control {
                    destination: path.address,
                    source: path.local,
                    datagram: octets,
                });
                break;
            }
            destination = Some((path.address, path.local));
            batch.buf.extend_from_slice(&octets);
            batch.added(octets.len());
            if !path.afar {
                // It may have opened the window, which an old peer is to be told again if this is lost.
                self.schedule_call(key);
            }
        }
        batch.into_transmit(destination?, None)
    }

    /// Sends a call's last acknowledgement though the call is about to be forgotten.
    pub(super) fn queue_ack_as_control(&mut self, now: Instant, key: Key) {
        let Self {
            calls,
            connections,
            paths,
            stats,
            config,
            account,
            ..
        } = self;
        let Some(call) = calls.get_mut(key) else {
            return;
        };
        let Some(connection) = connections.get_mut(call.connection) else {
            return;
        };
        let Some(path) = paths.get_mut(connection.path) else {
            return;
        };
        // Only calls of ours linger.
        let datagram = ack_packet(now, call, connection, path, config, account, stats, None);
        self.control.push_back(Control {
            destination: path.address,
            source: path.local,
            datagram,
        });
    }

    /// Puts a call in its path's line of senders, and the path in the endpoint's.
    pub(super) fn make_ready(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Some(connection) = self.connections.get(call.connection) else {
            return;
        };
        let path_key = connection.path;
        let Some(path) = self.paths.get_mut(path_key) else {
            return;
        };
        if !call.in_ready {
            call.in_ready = true;
            path.ready.push_back(key);
        }
        self.list_path(path_key);
    }

    pub(super) fn list_path(&mut self, key: Key) {
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        if !path.listed && !path.ready.is_empty() {
            path.listed = true;
            self.sendable.push_back(key);
        }
    }

    fn poll_data(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(path_key) = self.sendable.pop_front() {
            let Some(path) = self.paths.get_mut(path_key) else {
                continue;
            };
            path.listed = false;
            let addresses = (path.address, path.local);
            let ecn = path.ecn.enabled.then_some(Ecn::Ect0);
            let mut batch = Batch::new(buf);
            let stop = self.fill(now, path_key, &mut batch);
            self.seal(&mut batch);
            if stop == Stop::BatchFull {
                self.list_path(path_key);
            }
            if stop == Stop::Paced {
                let release = self
                    .paths
                    .get_mut(path_key)
                    .and_then(|p| p.pacer.next_release(now));
                self.schedule_path(path_key, release.unwrap_or(now + PACE_AGAIN));
            }
            if let Some(transmit) = batch.into_transmit(addresses, ecn) {
                return Some(transmit);
            }
        }
        None
    }

    /// Seals what the batch holds, each connection's packets together.
    fn seal(&mut self, batch: &mut Batch<'_>) {
        if batch.open.is_empty() {
            return;
        }
        let mut rest = batch.buf.as_mut_slice();
        let mut offset = 0;
        let mut parts = Vec::with_capacity(batch.open.len());
        for packet in &batch.open {
            let (_, from_here) = rest.split_at_mut(packet.start - offset);
            let (head, after) = from_here.split_at_mut(HEADER_SIZE);
            let (body, after) = after.split_at_mut(packet.sealed);
            offset = packet.start + HEADER_SIZE + packet.sealed;
            rest = after;
            let sealing = Sealing {
                header: packet.header,
                body,
                payload: packet.payload,
            };
            parts.push((packet.connection, head, sealing));
        }
        // Stable, so that each connection's packets stay in order.
        parts.sort_by_key(|(connection, ..)| *connection);
        let (mut heads, mut packets) = (Vec::new(), Vec::new());
        let mut parts = parts.into_iter().peekable();
        while let Some((key, head, packet)) = parts.next() {
            heads.push(head);
            packets.push(packet);
            if parts.peek().is_some_and(|(next, ..)| *next == key) {
                continue;
            }
            if let Some(connection) = self.connections.get_mut(key) {
                connection.security.packets().seal(&mut packets);
            }
            for (head, packet) in heads.drain(..).zip(packets.drain(..)) {
                head.copy_from_slice(&packet.header.encode());
            }
        }
    }

    /// Appends DATA of the path's calls to the batch, in turn, as far as window and pacing allow.
    fn fill(&mut self, now: Instant, path_key: Key, batch: &mut Batch<'_>) -> Stop {
        let Some(path) = self.paths.get_mut(path_key) else {
            return Stop::Empty;
        };
        let mut budget = path.budget(now);
        let mut turn = 0;
        let mut blocked = 0;
        loop {
            let Self {
                calls,
                connections,
                paths,
                stats,
                events,
                config,
                ..
            } = self;
            let Some(path) = paths.get_mut(path_key) else {
                return Stop::Empty;
            };
            let Some(&key) = path.ready.front() else {
                return Stop::Empty;
            };
            let Some(call) = calls.get_mut(key) else {
                path.ready.pop_front();
                continue;
            };
            let Some(connection) = connections
                .get_mut(call.connection)
                .filter(|c| c.path == path_key)
            else {
                path.ready.pop_front();
                continue;
            };
            let overhead = connection.security.overhead();
            let extra = overhead.header + overhead.trailer;
            let payload_max = path.payload_size(extra);
            // A tail-loss probe may exceed the window by one packet.
            let picked = call
                .sender
                .peek_probe()
                .or_else(|| call.sender.peek(payload_max));
            let Some((pick, size)) = picked else {
                path.ready.pop_front();
                call.in_ready = false;
                turn = 0;
                // What was to be sent again has come meanwhile: now it may be the window that it waits for.
                self.schedule_call(key);
                continue;
            };
            if budget == 0 && call.sender.peek_probe().is_none() {
                // Others may have a probe to send.
                blocked += 1;
                if blocked >= path.ready.len() {
                    return if path.controller.available() == 0 {
                        Stop::Window
                    } else {
                        Stop::Paced
                    };
                }
                path.ready.rotate_left(1);
                continue;
            }
            let size = HEADER_SIZE + connection.security.sealed_len(size);
            if !batch.fits(size) {
                return Stop::BatchFull;
            }
            // A client that has not proved that it receives gets a short reply, or has to prove it first.
            if let Some(room) = room_for(now, call, path, config) {
                if !call.sender.is_single(payload_max) || room < size as u64 {
                    path.ready.pop_front();
                    call.in_ready = false;
                    turn = 0;
                    call.await_reach(now);
                    self.queue_ack(key);
                    continue;
                }
                path.spend(size);
            } else {
                call.reach_asked = None;
            }
            if connection.security.ready().is_err() {
                path.ready.pop_front();
                call.in_ready = false;
                turn = 0;
                let connection = call.connection;
                self.refuse_to_seal(now, connection);
                continue;
            }
            let written = match write_data(now, call, connection, path, pick, payload_max, batch) {
                Ok(written) => written,
                Err(code) => {
                    self.fail(key, CallError::Cancelled(code));
                    continue;
                }
            };
            batch.added(written);
            budget = budget.saturating_sub(written as u64);
            count_data(stats, pick);
            if call.sender.take_room() {
                events.push_back(Event::Writable(CallId(key)));
            }
            call.patience.turn(now, true);
            let introduces = call.receiver.wants_ack();
            turn += 1;
            if turn >= TURN_PACKETS {
                turn = 0;
                path.ready.rotate_left(1);
            }
            if introduces {
                self.queue_ack(key);
            }
            self.schedule_call(key);
        }
    }
}

/// Why no more DATA went into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Empty,
    BatchFull,
    Window,
    Paced,
}

const fn count_data(stats: &mut Stats, pick: Pick) {
    stats.packets_sent[PacketType::Data.index()] += 1;
    if matches!(pick, Pick::Again(_)) {
        stats.data_resent += 1;
    }
}

/// Appends one DATA packet, which [`Endpoint::seal`] has yet to seal if its connection is secured;
/// gives its size.
///
/// # Errors
/// There is no such packet any more: the call cannot go on.
fn write_data(
    now: Instant,
    call: &mut Call,
    connection: &mut Connection,
    path: &mut Path,
    pick: Pick,
    payload_max: usize,
    batch: &mut Batch<'_>,
) -> Result<usize, AbortCode> {
    let mut outgoing = call
        .sender
        .take(pick, payload_max)
        .ok_or(AbortCode::RX_PROTOCOL_ERROR)?;
    let buf = &mut *batch.buf;
    let start = buf.len();
    let mut header = connection.header(PacketType::Data, call.channel, call.number);
    header.sequence = outgoing.sequence;
    let more = path.ready.len() > 1 || call.sender.peek_after_take(payload_max, &outgoing);
    outgoing.flags = data_flags(call, path, &outgoing, more);
    header.flags = header.flags.with(outgoing.flags);
    if connection.security.is_transparent() {
        buf.extend_from_slice(&header.encode());
        buf.extend_from_slice(&outgoing.payload);
    } else {
        let payload = outgoing.payload.len();
        let sealed = connection.security.sealed_len(payload);
        // The header is written when the class has set its checksum.
        let room = connection.security.overhead().header;
        buf.resize(start + HEADER_SIZE + room, 0);
        buf.extend_from_slice(&outgoing.payload);
        buf.resize(start + HEADER_SIZE + sealed, 0);
        batch.open.push(Unsealed {
            connection: call.connection,
            header,
            start,
            sealed,
            payload,
        });
    }
    let size = batch.buf.len() - start;
    connection.sealed.0 += 1;
    connection.sealed.1 += outgoing.payload.len() as u64;
    path.counters.bytes_sent += size as u64;
    call.spoke = now;
    match call.role {
        // The first packet of the reply acknowledges the request.
        Role::Server if outgoing.sequence == 1 => call.receiver.ack_is_implied(),
        // A new peer hears at once what we are, so that its reply may begin with a full window, and
        // gives an RTT by its answer.
        Role::Client if outgoing.sequence == 1 => {
            // A server answers nothing before it knows who asks, nor when it has answered.
            let is_known = connection.security.is_transparent() || path.acks_sent > 0;
            if path.acks_sent == 0 {
                call.receiver.request_ack(Reason::Ping);
            }
            if is_known {
                call.look_for_size(now, path);
            }
        }
        _ => {}
    }
    call.sender
        .sent(now, &outgoing, header.serial, size, path, !more);
    Ok(size)
}

/// Flags of a DATA packet besides whose it is.
///
/// An acknowledgement is asked for where none would come by itself soon: for what is sent again,
/// for the first packets of an unknown path (they give an RTT), by the last packet that fits an
/// old peer's window, and by the last of a long request to one, which would hold it back for 400 ms.
/// Never for the last of a reply: OpenAFS would acknowledge it only softly.
// spec: rx#the-end-of-a-reply, rx#when-acknowledgements-come
fn data_flags(call: &Call, path: &Path, outgoing: &Outgoing, more: bool) -> Flags {
    let mut flags = outgoing.flags;
    let last = flags.has(Flags::LAST_PACKET);
    let last_of_reply = last && call.role == Role::Server;
    let (sequence, sender) = (outgoing.sequence, &call.sender);
    let ends = sender.is_window_full_after(sequence) || last && sequence >= LONG_REQUEST;
    if !path.rtt.has_sample() || !path.afar && ends {
        flags = flags.with(Flags::REQUEST_ACK);
    }
    if more && !flags.has(Flags::LAST_PACKET) {
        flags = flags.with(Flags::MORE_PACKETS);
    }
    if last_of_reply && !outgoing.resent {
        flags.without(Flags::REQUEST_ACK)
    } else {
        flags
    }
}

/// Bytes that a call's packets may have for want of a proof that its client receives them; `None` if there is
/// one.
// spec: rx-strangers#before-an-address-has-answered
fn room_for(now: Instant, call: &Call, path: &Path, config: &Config) -> Option<u64> {
    let is_free = call.role == Role::Client || config.private || path.is_reached(now);
    (!is_free).then(|| path.room())
}

/// An ACK packet of a call, for whatever reason it wants one; empty if there is no room for it.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts of an endpoint that one packet touches"
)]
fn ack_packet(
    now: Instant,
    call: &mut Call,
    connection: &mut Connection,
    path: &mut Path,
    config: &Config,
    account: &Account,
    stats: &mut Stats,
    room: Option<u64>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    let written = write_ack(
        now, call, connection, path, config, account, stats, room, &mut out,
    );
    if out.is_empty() {
        return out;
    }
    path.acks_sent = path.acks_sent.saturating_add(1);
    if written.is_ping {
        path.on_ping_sent(now, call.connection, written.serial);
    }
    out
}

/// What became of an acknowledgement.
struct Written {
    serial: u32,
    is_ping: bool,
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of an endpoint that one packet touches"
)]
fn write_ack(
    now: Instant,
    call: &mut Call,
    connection: &mut Connection,
    path: &mut Path,
    config: &Config,
    account: &Account,
    stats: &mut Stats,
    room: Option<u64>,
    out: &mut Vec<u8>,
) -> Written {
    let mut report = call
        .receiver
        .take_report(now, window_limits(config, account, path, call));
    let says_nothing = matches!(
        report.reason,
        Reason::Idle | Reason::Delay | Reason::Requested
    );
    // The answer to a PING is a proof that the client receives.
    if says_nothing && (path.wants_ping(now) || room.is_some()) {
        report.reason = Reason::Ping;
    }
    // spec: rx-extension#when-it-is-sent
    let introduce = path.afar || path.classic_acks < CLASSIC_SURE;
    let extension = report
        .extension
        .filter(|_| config.extension && introduce)
        .map(|mut ext| {
            ext.shares = path.shares_wanted;
            ext.datagram_max = u32::try_from(config.datagram_max).unwrap_or(u32::MAX);
            ext.ecn_ect0 = path.ecn.received_ect0;
            ext.ecn_ce = path.ecn.received_ce;
            path.window_told = path.window_told.max(ext.window);
            ext
        });
    // spec: rx#probes-of-the-path
    // Old peers do not look for sizes, but send what they are told: what does not get through from here will
    // hardly get through from there.
    let size = if path.mtu.is_narrow() {
        path.packet_size()
    } else {
        CLASSIC_PACKET_SIZE
    };
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let mut ack = Ack {
        first: report.first,
        previous: report.previous,
        serial: if report.reason == Reason::Ping {
            0
        } else {
            report.serial
        },
        reason: report.reason,
        soft: report.soft,
        trailer: Trailer {
            max_mtu: Some(size),
            interface_mtu: Some(size),
            window: Some(report.classic_window),
            // spec: rx#jumbograms
            // Jumbograms are received but not asked for: peers corrupted data in them.
            max_datagram_packets: Some(1),
        },
        extension,
    };
    if let Some(room) = room.map(|room| usize::try_from(room).unwrap_or(usize::MAX)) {
        // What else there is to say must not cost the PING that asks for the proof. By the answer to its own a peer
        // sees who we are.
        let spare = if ack.reason == Reason::PingResponse {
            1
        } else {
            2
        };
        if room < spare * (HEADER_SIZE + ack.size()) {
            ack.extension = None;
        }
        if room < HEADER_SIZE + ack.size() {
            return Written {
                serial: 0,
                is_ping: false,
            };
        }
    }
    let mut header: Header = connection.header(PacketType::Ack, call.channel, call.number);
    header.flags = header.flags.with(Flags::SLOW_START_OK);
    if ack.reason == Reason::Ping {
        header.flags = header.flags.with(Flags::REQUEST_ACK);
    }
    out.extend_from_slice(&header.encode());
    ack.encode(out);
    stats.packets_sent[PacketType::Ack.index()] += 1;
    call.spoke = now;
    Written {
        serial: header.serial,
        is_ping: report.reason == Reason::Ping,
    }
}

/// A PING padded to `size`: if it is answered, packets of that size get through.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts of an endpoint that one packet touches"
)]
fn write_probe(
    now: Instant,
    call: &mut Call,
    connection: &mut Connection,
    path: &mut Path,
    config: &Config,
    account: &Account,
    stats: &mut Stats,
    out: &mut Vec<u8>,
    size: usize,
) {
    call.receiver.request_ack(Reason::Ping);
    out.clear();
    let serial = write_ack(
        now, call, connection, path, config, account, stats, None, out,
    )
    .serial;
    // spec: rx#probes-of-the-path
    out.resize(size, 0);
    let patience = path.rtt.rto(Duration::from_millis(50)) * 2;
    let beside = path.unanswered_ping(call.connection);
    path.mtu
        .on_sent(now, call.connection, serial, beside, size, patience);
}
