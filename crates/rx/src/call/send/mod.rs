//! The sending half of a call: its stream cut into packets, what of them arrived, what was lost.
//!
//! - `queue`: bytes that no packet carries yet
//! - `sent`: packets that are not acknowledged for good
//! - `loss`: which of them are lost, and when they are sent again
//! - `timeouts`: how long the peer may be silent about them
//! - `ack`: what the peer says of them
//!
//! Loss detection is RACK-TLP (RFC 8985), per call, because acknowledgements are per call. Window, pacing and
//! RTT belong to the path.

mod ack;
mod loss;
mod queue;
mod sent;
mod timeouts;

use std::time::Instant;

use bytes::Bytes;

use self::ack::AckOrder;
pub(crate) use self::ack::{Effect, Refused};
use self::loss::{LossDetection, PROMPT_RESENDS, Transmission};
pub(crate) use self::queue::Limit;
use self::queue::Queue;
use self::sent::{Departure, SentPackets};
use self::timeouts::Timeouts;
use crate::packet::Flags;
use crate::peer::Path;

/// Window assumed of a peer that has not told one: what OpenAFS and Linux assume of us.
// spec: rx#windows
const INITIAL_WINDOW: u32 = 16;
/// Packets sent before larger sizes are looked for.
const BULK_PACKETS: u32 = 24;
/// A stream this close to the end of sequence numbers cannot go on.
const SEQUENCE_MAX: u32 = u32::MAX - (1 << 21);

/// The sending half of a call.
#[derive(Debug)]
pub(crate) struct Sender {
    queue: Queue,
    sent: SentPackets,
    loss: LossDetection,
    timeouts: Timeouts,
    acks: AckOrder,
    /// The peer's window in packets from the first that is not acknowledged for good.
    window: u32,
}

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// That packet again.
    Again(u32),
    /// A new one.
    Fresh,
}

/// A packet ready to be sealed and sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) sequence: u32,
    pub(crate) flags: Flags,
    pub(crate) payload: Bytes,
    pub(crate) resent: bool,
}

impl Sender {
    pub(crate) fn new(now: Instant, window: u32, is_reply: bool) -> Self {
        Self {
            queue: Queue::new(),
            sent: SentPackets::new(),
            loss: LossDetection::new(),
            timeouts: Timeouts::new(now, is_reply),
            acks: AckOrder::default(),
            window: window.max(INITIAL_WINDOW),
        }
    }

    /// Queues bytes; false if the application should wait before it writes more.
    pub(crate) fn write(&mut self, data: Bytes) -> bool {
        self.queue.write(data, self.sent.kept())
    }

    /// Sets from how many bytes on the application waits. Says whether it need not.
    pub(crate) const fn set_limit(&mut self, limit: Limit) -> bool {
        self.queue.set_limit(limit, self.sent.kept())
    }

    /// Whether the application was told to wait.
    pub(crate) const fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Whether the application, told to wait, may go on; says so once.
    pub(crate) const fn take_room(&mut self) -> bool {
        self.queue.take_room(self.sent.kept())
    }

    pub(crate) const fn finish(&mut self) {
        self.queue.finish();
    }

    /// Whether anything was queued or sent, or the end was told.
    pub(crate) const fn has_any(&self) -> bool {
        self.has_begun() || self.queue.has_any()
    }

    /// Bytes that are queued, or sent and kept until they are acknowledged.
    pub(crate) const fn held(&self) -> usize {
        self.queue.bytes() + self.sent.kept()
    }

    /// Whether it is the peer that has to do something for the stream to go on.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.sent.kept() > 0 || self.is_last_sent() || self.is_window_blocked()
    }

    /// Whether the last packet has been sent at least once.
    pub(crate) const fn is_last_sent(&self) -> bool {
        self.queue.is_ended()
    }

    /// Whether everything, the last packet included, is known to have arrived.
    pub(crate) const fn is_done(&self) -> bool {
        self.is_last_sent() && self.sent.unacknowledged() == 0
    }

    /// Whether any packet was sent.
    pub(crate) const fn has_begun(&self) -> bool {
        self.sent.next() > 1
    }

    /// Whether more than one packet was sent, so that their size matters.
    pub(crate) const fn is_long(&self) -> bool {
        self.sent.next() > 2
    }

    /// Whether enough was sent that larger packets would pay.
    pub(crate) const fn is_bulk(&self) -> bool {
        self.sent.next() > BULK_PACKETS
    }

    /// Whether the whole stream is one packet, and known.
    pub(crate) const fn is_single(&self, payload_max: usize) -> bool {
        match self.sent.next() {
            1 => self.queue.is_single(payload_max),
            2 => self.is_last_sent(),
            _ => false,
        }
    }

    /// The window the peer last gave.
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    /// One past the last sequence that the peer's window has room for.
    const fn window_end(&self) -> u32 {
        self.sent.first().saturating_add(self.window)
    }

    const fn window_open(&self) -> bool {
        self.sent.next() < self.window_end() && self.sent.next() < SEQUENCE_MAX
    }

    /// Whether DATA waits only for the peer's window.
    pub(crate) fn is_window_blocked(&self) -> bool {
        !self.window_open() && !self.loss.has_lost() && self.fresh_size(1).is_some()
    }

    /// Whether the peer's window has no room behind that packet.
    pub(crate) const fn is_window_full_after(&self, sequence: u32) -> bool {
        sequence + 1 >= self.window_end()
    }

    /// The size of the next new packet, if one may be cut.
    const fn fresh_size(&self, payload_max: usize) -> Option<usize> {
        self.queue.next_size(payload_max, self.sent.kept())
    }

    /// What to send next and its payload's size; probes may go though the window is full.
    pub(crate) fn peek(&mut self, payload_max: usize) -> Option<(Pick, usize)> {
        if let Some((sequence, size)) = self.loss.next_lost(&self.sent) {
            return Some((Pick::Again(sequence), size));
        }
        if !self.window_open() {
            return None;
        }
        self.fresh_size(payload_max).map(|size| (Pick::Fresh, size))
    }

    /// A tail-loss probe that is due, and its payload's size.
    pub(crate) fn peek_probe(&mut self) -> Option<(Pick, usize)> {
        let (sequence, size) = self.timeouts.next_probe(&self.sent)?;
        Some((Pick::Again(sequence), size))
    }

    /// Whether another packet could follow the one taken.
    pub(crate) fn peek_after_take(&self, payload_max: usize, taken: &Outgoing) -> bool {
        self.loss.lost() > usize::from(taken.resent)
            || (self.fresh_size(payload_max).is_some() && self.sent.next() + 1 < self.window_end())
    }

    /// Takes the packet that was peeked at. [`Self::sent`] must follow.
    pub(crate) fn take(&mut self, pick: Pick, payload_max: usize) -> Option<Outgoing> {
        match pick {
            Pick::Again(sequence) => {
                let packet = self.sent.get(sequence)?;
                let mut flags = Flags::REQUEST_ACK;
                if packet.last {
                    flags = flags.with(Flags::LAST_PACKET);
                }
                Some(Outgoing {
                    sequence,
                    flags,
                    payload: packet.payload.clone(),
                    resent: true,
                })
            }
            Pick::Fresh => {
                let (payload, last) = self.queue.cut(payload_max, self.sent.kept())?;
                let flags = match last {
                    true => Flags::LAST_PACKET,
                    false => Flags::default(),
                };
                Some(Outgoing {
                    sequence: self.sent.next(),
                    flags,
                    payload,
                    resent: false,
                })
            }
        }
    }

    /// Notes that the packet taken has left.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        serial: u32,
        size: usize,
        path: &mut Path,
        app_limited: bool,
    ) {
        let sequence = outgoing.sequence;
        // A probe's earlier transmission is still counted as in flight.
        if outgoing.resent
            && let Some(packet) = self.sent.get(sequence)
            && packet.is_in_flight()
        {
            path.controller
                .on_discarded(packet.newest.token, packet.newest.size);
        }
        let departure = Departure {
            serial,
            time: now,
            token: path.on_data_sent(now, size, app_limited, outgoing.resent),
            size,
        };
        if outgoing.resent {
            self.sent.resend(sequence, departure);
        } else {
            let last = outgoing.flags.has(Flags::LAST_PACKET);
            self.sent.push(outgoing.payload.clone(), last, departure);
        }
        let asked = outgoing.flags.has(Flags::REQUEST_ACK);
        self.timeouts.on_sent(now, sequence, asked);
        self.loss.on_sent(Transmission {
            serial,
            sequence,
            time: now,
        });
    }

    /// The size of the packet that the peer waits for, if it was sent in vain again and again though the
    /// peer, of which was heard last at `heard`, is there.
    pub(crate) fn stuck(&self, heard: Instant) -> Option<usize> {
        let packet = self.sent.oldest()?;
        let is_stuck = self.timeouts.is_stuck(heard) || packet.losses > PROMPT_RESENDS;
        is_stuck.then_some(packet.newest.size)
    }

    /// The size of the packet that the peer waits for.
    pub(crate) fn oldest(&self) -> Option<usize> {
        self.sent.oldest().map(|packet| packet.newest.size)
    }

    /// Whether the peer was heard of since the timeouts in a row began.
    pub(crate) fn is_heard(&self, heard: Instant) -> bool {
        self.timeouts.is_heard(heard)
    }

    /// When something must be done about packets that are not acknowledged.
    pub(crate) fn deadline(&self, path: &Path) -> Option<Instant> {
        let timeout = self.loss.is_waiting().then(|| self.timeout_at(path));
        [self.loss.deadline(), timeout].into_iter().flatten().min()
    }

    fn timeout_at(&self, path: &Path) -> Instant {
        let unacknowledged = self.sent.unacknowledged();
        self.timeouts
            .deadline(path, unacknowledged, self.is_last_sent())
    }

    /// Acts on a deadline that has passed; if it was a timeout, gives their number in a row.
    pub(crate) fn on_deadline(&mut self, now: Instant, path: &mut Path) -> Option<u32> {
        self.loss.wake_rested(now);
        if self.loss.is_due(now) {
            self.loss.detect(now, &mut self.sent, path);
            return None;
        }
        if !self.loss.is_waiting() || self.timeout_at(path) > now {
            return None;
        }
        let count = self.timeouts.expire(now, path);
        if count == 1 {
            // The tail is probed first: its acknowledgement shows what else is missing.
            let tail = self.loss.tail(&self.sent);
            self.timeouts.probe(tail);
            return tail.map(|_| count);
        }
        self.loss.lose_all(&mut self.sent, path);
        path.controller.on_persistent_timeout(now, &path.rtt);
        Some(count)
    }

    /// The call moves to another path: what is in flight on this one is sent again on that.
    pub(crate) fn leave_path(&mut self, path: &mut Path) {
        self.loss.leave_path(&mut self.sent, path);
        self.timeouts.clear();
    }

    /// The call ends: what is in flight is nobody's any more.
    pub(crate) fn discard(&mut self, path: &mut Path) {
        self.sent.clear(|departure| {
            path.controller
                .on_discarded(departure.token, departure.size);
        });
        self.loss.clear();
        self.timeouts.clear();
        self.queue.clear();
    }
}

#[cfg(test)]
impl Sender {
    /// Since when what is in flight waits for an answer.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.loss.is_waiting().then(|| self.timeouts.base())
    }

    /// Looks whether the sums are those of what is queued and sent.
    ///
    /// # Panics
    /// If they are not.
    pub(crate) fn check(&self) {
        self.queue.check();
        self.sent.check();
        self.loss.check(&self.sent);
    }

    /// Bytes in flight on the call's path.
    pub(crate) fn in_flight(&self) -> u64 {
        let packets = self.sent.iter().map(|(_, packet)| packet);
        let in_flight = packets.filter(|packet| packet.is_in_flight());
        in_flight.map(|packet| packet.newest.size as u64).sum()
    }
}
