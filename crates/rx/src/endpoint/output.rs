//! Which datagrams leave next: answers and aborts, then acknowledgements, then DATA in turn.
//!
//! Datagrams of one size to one address leave together, as the kernel's segmentation offload
//! wants them: a run of one call's DATA as well as the small requests of many calls.

use std::time::{Duration, Instant};

use super::batch::{Batch, Unsealed};
use super::parts::Parts;
use super::{Control, Endpoint};
use crate::call::Role;
use crate::call::send::{Outgoing, Pick};
use crate::packet::ack::Reason;
use crate::packet::{Flags, HEADER_SIZE, PacketType};
use crate::types::Key;
use crate::{AbortCode, CallError, CallId, Ecn, Event, Transmit};

/// Packets one call sends before the next call on the path has its turn.
const TURN_PACKETS: u32 = 8;
/// When to look again at a path that is paced without saying until when.
const PACE_AGAIN: Duration = Duration::from_millis(1);
/// Packets of a request that counts as long.
const LONG_REQUEST: u32 = 4;

/// Why no more DATA went into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Empty,
    BatchFull,
    Window,
    Paced,
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

    /// Puts a call in its path's line of senders, and the path in the endpoint's.
    pub(super) fn make_ready(&mut self, now: Instant, key: Key) {
        let Some(parts) = self.parts(now, key) else {
            return;
        };
        if !parts.call.in_ready {
            parts.call.in_ready = true;
            parts.path.ready.push_back(key);
        }
        let path = parts.connection.path;
        self.list_path(path);
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
            batch.seal(&mut self.connections);
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

    /// Appends DATA of the path's calls to the batch, in turn, as far as window and pacing allow.
    fn fill(&mut self, now: Instant, path_key: Key, batch: &mut Batch<'_>) -> Stop {
        let Some(path) = self.paths.get_mut(path_key) else {
            return Stop::Empty;
        };
        let mut budget = path.budget(now);
        let mut turn = 0;
        let mut blocked = 0;
        loop {
            let Some(path) = self.paths.get_mut(path_key) else {
                return Stop::Empty;
            };
            let Some(&key) = path.ready.front() else {
                return Stop::Empty;
            };
            let parts = self.parts(now, key);
            let Some(mut parts) = parts.filter(|parts| parts.connection.path == path_key) else {
                self.pop_ready(path_key);
                continue;
            };
            let payload_max = parts.payload_max();
            let Some((pick, size)) = parts.pick(payload_max) else {
                parts.leave_line();
                turn = 0;
                // What was to be sent again has come meanwhile: now it may be the window that it waits for.
                self.schedule_call(key);
                continue;
            };
            if budget == 0 && parts.call.sender.peek_probe().is_none() {
                // Others may have a probe to send.
                blocked += 1;
                if blocked >= parts.path.ready.len() {
                    return if parts.path.controller.available() == 0 {
                        Stop::Window
                    } else {
                        Stop::Paced
                    };
                }
                parts.path.ready.rotate_left(1);
                continue;
            }
            let size = HEADER_SIZE + parts.connection.security.sealed_len(size);
            if !batch.fits(size) {
                return Stop::BatchFull;
            }
            // A client that has not proved that it receives gets a short reply, or has to prove it first.
            if let Some(room) = parts.room() {
                if !parts.call.sender.is_single(payload_max) || room < size as u64 {
                    parts.leave_line();
                    turn = 0;
                    parts.call.await_reach(now);
                    self.queue_ack(key);
                    continue;
                }
                parts.path.spend(size);
            } else {
                parts.call.reach_asked = None;
            }
            if parts.connection.security.ready().is_err() {
                parts.leave_line();
                turn = 0;
                let connection = parts.call.connection;
                self.refuse_to_seal(now, connection);
                continue;
            }
            let written = match parts.write_data(pick, payload_max, batch) {
                Ok(written) => written,
                Err(code) => {
                    self.fail(key, CallError::Cancelled(code));
                    continue;
                }
            };
            batch.added(written);
            budget = budget.saturating_sub(written as u64);
            parts.count_data(pick);
            let introduces = parts.call.receiver.wants_ack();
            turn += 1;
            if turn >= TURN_PACKETS {
                turn = 0;
                parts.path.ready.rotate_left(1);
            }
            if introduces {
                self.queue_ack(key);
            }
            self.schedule_call(key);
        }
    }

    fn pop_ready(&mut self, path: Key) {
        if let Some(path) = self.paths.get_mut(path) {
            path.ready.pop_front();
        }
    }
}

impl Parts<'_> {
    /// The payload of the call's largest packets.
    fn payload_max(&self) -> usize {
        let overhead = self.connection.security.overhead();
        self.path.payload_size(overhead.header + overhead.trailer)
    }

    /// What the call sends next, and its payload's size. A tail-loss probe may exceed the window by one packet.
    fn pick(&mut self, payload_max: usize) -> Option<(Pick, usize)> {
        let sender = &mut self.call.sender;
        sender.peek_probe().or_else(|| sender.peek(payload_max))
    }

    /// Appends one DATA packet, which [`Batch::seal`] has yet to seal if its connection is secured;
    /// gives its size.
    ///
    /// # Errors
    /// There is no such packet any more: the call cannot go on.
    fn write_data(
        &mut self,
        pick: Pick,
        payload_max: usize,
        batch: &mut Batch<'_>,
    ) -> Result<usize, AbortCode> {
        let mut outgoing =
            (self.call.sender.take(pick, payload_max)).ok_or(AbortCode::RX_PROTOCOL_ERROR)?;
        let more =
            self.path.ready.len() > 1 || self.call.sender.peek_after_take(payload_max, &outgoing);
        outgoing.flags = self.data_flags(&outgoing, more);
        let Self {
            now,
            call,
            connection,
            path,
            ..
        } = self;
        let now = *now;
        let buf = &mut *batch.buf;
        let start = buf.len();
        let mut header = connection.header(PacketType::Data, call.channel, call.number);
        header.sequence = outgoing.sequence;
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
    fn data_flags(&self, outgoing: &Outgoing, more: bool) -> Flags {
        let (call, path) = (&*self.call, &*self.path);
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

    /// A DATA packet was written: the application may go on, and it is the peer's turn.
    fn count_data(&mut self, pick: Pick) {
        self.stats.packets_sent[PacketType::Data.index()] += 1;
        if matches!(pick, Pick::Again(_)) {
            self.stats.data_resent += 1;
        }
        if self.call.sender.take_room() {
            self.events.push_back(Event::Writable(CallId(self.key)));
        }
        self.call.patience.turn(self.now, true);
    }
}
