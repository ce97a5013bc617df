//! The acknowledgements of calls, PINGs among them, and how they leave.

use std::time::{Duration, Instant};

use super::batch::Batch;
use super::parts::Parts;
use super::{Control, Endpoint};
use crate::Transmit;
use crate::packet::ack::{Ack, Reason, Trailer};
use crate::packet::{CLASSIC_PACKET_SIZE, Flags, HEADER_SIZE, Header, PacketType};
use crate::peer::CLASSIC_SURE;
use crate::types::Key;

/// What became of an acknowledgement.
struct Written {
    serial: u32,
    is_ping: bool,
}

impl Endpoint {
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

    pub(super) fn poll_acks(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let mut batch = Batch::new(buf);
        let mut destination = None;
        while let Some(key) = self.acks.front().copied() {
            let Some(mut parts) = self.parts(now, key) else {
                self.acks.pop_front();
                continue;
            };
            let (address, local) = (parts.path.address, parts.path.local);
            if destination.is_some_and(|(before, _)| before != address) {
                break;
            }
            if !parts.call.receiver.wants_ack() {
                if parts.call.probe_size.is_some() && batch.count > 0 {
                    // A probe leaves alone, after this batch.
                    break;
                }
                parts.call.in_acks = false;
                let probe = parts.take_probe();
                if let Some(size) = probe {
                    parts.write_probe(batch.buf, size);
                }
                self.acks.pop_front();
                let Some(size) = probe else {
                    continue;
                };
                self.schedule_call(key);
                return Some(Transmit {
                    destination: address,
                    source: local,
                    ecn: None,
                    size,
                    segment_size: None,
                    dont_fragment: true,
                });
            }
            // Sizes differ by what there is to say, so the bytes are made first.
            let room = parts.room();
            let bytes = parts.ack_packet(room);
            let is_over = parts.call.probe_size.is_none() && !parts.call.receiver.wants_ack();
            parts.call.in_acks &= !is_over;
            if bytes.is_empty() {
                parts.stats.unproved += 1;
            } else if room.is_some() {
                parts.path.spend(bytes.len());
            }
            let afar = parts.path.afar;
            if is_over {
                self.acks.pop_front();
            }
            if bytes.is_empty() {
                continue;
            }
            if !batch.fits(bytes.len()) {
                // It leaves alone, right after this batch.
                self.control.push_front(Control {
                    destination: address,
                    source: local,
                    datagram: bytes,
                });
                break;
            }
            destination = Some((address, local));
            batch.buf.extend_from_slice(&bytes);
            batch.added(bytes.len());
            if !afar {
                // It may have opened the window, which an old peer is to be told again if this is lost.
                self.schedule_call(key);
            }
        }
        batch.into_transmit(destination?, None)
    }

    /// Sends a call's last acknowledgement though the call is about to be forgotten.
    pub(super) fn queue_ack_as_control(&mut self, now: Instant, key: Key) {
        let Some(mut parts) = self.parts(now, key) else {
            return;
        };
        // Only calls of ours linger.
        let datagram = parts.ack_packet(None);
        let (destination, source) = (parts.path.address, parts.path.local);
        self.control.push_back(Control {
            destination,
            source,
            datagram,
        });
    }
}

impl Parts<'_> {
    /// The size of the probe that the call is to send, if it may now.
    fn take_probe(&mut self) -> Option<usize> {
        // Calls that began together may all want to look; one probe at a time tells something. The peer
        // answers none for a call that is over.
        let may = self.call.expects_peer() && !self.path.mtu.is_probing();
        self.call.probe_size.take().filter(|_| may)
    }

    /// An ACK packet of the call, for whatever reason it wants one; empty if there is no room for it.
    fn ack_packet(&mut self, room: Option<u64>) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        let written = self.write_ack(room, &mut out);
        if out.is_empty() {
            return out;
        }
        self.path.acks_sent = self.path.acks_sent.saturating_add(1);
        if written.is_ping {
            self.path
                .on_ping_sent(self.now, self.call.connection, written.serial);
        }
        out
    }

    fn write_ack(&mut self, room: Option<u64>, out: &mut Vec<u8>) -> Written {
        let limits = self.window_limits();
        let Self {
            now,
            call,
            connection,
            path,
            config,
            stats,
            ..
        } = self;
        let now = *now;
        let mut report = call.receiver.take_report(now, limits);
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

    /// Writes a PING padded to `size`: if it is answered, packets of that size get through.
    fn write_probe(&mut self, out: &mut Vec<u8>, size: usize) {
        self.call.receiver.request_ack(Reason::Ping);
        out.clear();
        let serial = self.write_ack(None, out).serial;
        // spec: rx#probes-of-the-path
        out.resize(size, 0);
        let (path, connection) = (&mut *self.path, self.call.connection);
        let patience = path.rtt.rto(Duration::from_millis(50)) * 2;
        let beside = path.unanswered_ping(connection);
        path.mtu
            .on_sent(self.now, connection, serial, beside, size, patience);
    }
}
