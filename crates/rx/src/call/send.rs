//! The sending half of a call: its stream cut into packets, what of them arrived, what was lost.
//!
//! Loss detection is RACK-TLP (RFC 8985), per call, because acknowledgements are per call: a packet
//! is lost when one sent later has arrived and a reordering window has passed. Window, pacing and
//! RTT belong to the path.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::ranges::RangeSet;
use crate::packet::Flags;
use crate::packet::ack::{Ack, Reason};
use crate::peer::Path;
use crate::peer::congestion::{AckedPacket, LostPacket, SentToken};
use crate::types::Key;

/// Window assumed of a peer that has not told one: what OpenAFS and Linux assume of us.
// spec: rx#windows
const INITIAL_WINDOW: u32 = 16;
/// The reordering window's least size; finer than this, timers and batching look like reordering.
const REORDER_MIN: Duration = Duration::from_millis(1);
/// How far false losses may widen the reordering window, in quarters of the least RTT.
const REORDER_SCALE_MAX: u32 = 8;
/// Retransmission timeout's least value towards afar.
const AFAR_RTO_MIN: Duration = Duration::from_millis(10);
/// Packets that an old peer may leave without an acknowledgement for a while: it sends one for every
/// second or third.
// spec: rx#when-acknowledgements-come
const CLASSIC_UNASKED: usize = 3;
/// Retransmission timeout's least value towards old peers, as OpenAFS and Linux have it.
// spec: rx#retransmission
const CLASSIC_RTO_MIN: Duration = Duration::from_millis(200);
/// What OpenAFS adds for the last packet of a direction, whose acknowledgement it delays.
// spec: rx#retransmission
const CLASSIC_LAST_ALLOWANCE: Duration = Duration::from_millis(400);
/// Longest time between two tries, on paths with shorter round trips. TCP waits for up to a minute; but a call
/// is dead after some seconds, and somebody waits for it: of a thousand calls through a flood that
/// takes every second packet, one is lost ten times in a row.
const RTO_MAX: Duration = Duration::from_secs(1);
/// Times a packet is sent again as soon as it is found lost. One that is lost once more, while others
/// arrive, is lost for a reason of its own: it rests longer and longer.
const PROMPT_RESENDS: u8 = 4;
/// Timeouts in a row after which what is lost counts as stuck.
const STUCK_TIMEOUTS: u32 = 3;
/// Packets sent before larger sizes are looked for.
const BULK_PACKETS: u32 = 24;
/// PINGs or answers with older serials than one seen, after which the peer counts as restarted.
const RESTARTED_AFTER: u8 = 3;
/// A stream this close to the end of sequence numbers cannot go on.
pub(crate) const SEQUENCE_MAX: u32 = u32::MAX - (1 << 21);

/// A DATA packet that has a sequence number.
#[derive(Debug)]
struct Sent {
    payload: Bytes,
    last: bool,
    state: State,
    /// Of the newest transmission.
    serial: u32,
    time: Instant,
    token: SentToken,
    size: usize,
    /// When the transmission before the newest left, if there was one that was declared lost.
    lost_transmission: Option<Instant>,
    /// Times it was declared lost.
    losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Acked,
}

/// One transmission, in the order in which they left.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    serial: u32,
    sequence: u32,
    time: Instant,
}

/// Bytes from which an application waits with its next write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) bytes: usize,
    /// Whether what was sent and is not acknowledged counts, and not only what is queued.
    pub(crate) is_strict: bool,
}

/// The sending half of a call.
#[derive(Debug)]
pub(crate) struct Sender {
    /// A reply, and not a request, which its reply acknowledges.
    is_reply: bool,
    chunks: VecDeque<Bytes>,
    queued: usize,
    finishing: bool,
    last_assigned: bool,
    /// The application was told to wait.
    full: bool,
    /// Bytes from which the application waits.
    limit: Limit,
    /// The lowest sequence not acknowledged for good.
    first: u32,
    /// The next sequence to assign.
    next: u32,
    sent: VecDeque<Sent>,
    /// Bytes of payload kept in these.
    kept: usize,
    /// Of these, packets not known to have arrived.
    unacknowledged: usize,
    order: VecDeque<Transmission>,
    lost: VecDeque<u32>,
    /// Lost packets that are not sent again before a time.
    resting: BTreeSet<(Instant, u32)>,
    acked: RangeSet,
    /// The peer's window in packets from `first` on.
    window: u32,
    /// The newest transmission known to have arrived, and its round trip.
    newest_arrived: Option<(Instant, Duration)>,
    reorder_scale: u32,
    reorder_deadline: Option<Instant>,
    /// Timeouts without any acknowledgement in between.
    timeouts: u32,
    /// When the first of them was.
    silent_since: Instant,
    probe: Option<u32>,
    /// The newest transmission asked for an acknowledgement.
    asked: bool,
    /// When a timeout is counted from.
    timer_base: Instant,
    /// Serial of the newest ACK packet processed.
    newest_ack: u32,
    /// PINGs and answers since then that had older serials.
    older_pings: u8,
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

/// What an acknowledgement or a timer did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effect {
    /// Something was newly acknowledged.
    pub(crate) progress: bool,
    /// Losses that proved false.
    pub(crate) spurious: u32,
    /// An RTT sample was taken.
    pub(crate) sampled: bool,
}

/// Why an acknowledgement was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was overtaken by a newer one.
    Stale,
    /// It speaks of packets never sent.
    Impossible,
}

impl Sender {
    pub(crate) fn new(now: Instant, window: u32, is_reply: bool) -> Self {
        Self {
            is_reply,
            chunks: VecDeque::new(),
            queued: 0,
            finishing: false,
            last_assigned: false,
            full: false,
            limit: Limit {
                bytes: 0,
                is_strict: false,
            },
            first: 1,
            next: 1,
            sent: VecDeque::new(),
            kept: 0,
            unacknowledged: 0,
            order: VecDeque::new(),
            lost: VecDeque::new(),
            resting: BTreeSet::new(),
            acked: RangeSet::default(),
            window: window.max(INITIAL_WINDOW),
            newest_arrived: None,
            reorder_scale: 1,
            reorder_deadline: None,
            timeouts: 0,
            silent_since: now,
            probe: None,
            asked: false,
            timer_base: now,
            newest_ack: 0,
            older_pings: 0,
        }
    }

    /// Queues bytes; false if the application should wait before it writes more.
    pub(crate) fn write(&mut self, data: Bytes) -> bool {
        if !data.is_empty() && !self.finishing {
            self.queued += data.len();
            self.chunks.push_back(data);
        }
        self.full = self.counted() >= self.limit.bytes;
        !self.full
    }

    /// Sets from how many bytes on the application waits. Says whether it need not.
    pub(crate) const fn set_limit(&mut self, limit: Limit) -> bool {
        self.limit = limit;
        self.full = self.counted() >= limit.bytes;
        !self.full
    }

    /// Whether the application was told to wait.
    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    /// Whether so little is queued that the application should write more.
    const fn has_room(&self) -> bool {
        self.counted() < self.limit.bytes / 2
    }

    /// Bytes that count against the limit.
    const fn counted(&self) -> usize {
        match self.limit.is_strict {
            true => self.queued + self.kept,
            false => self.queued,
        }
    }

    /// Whether anything was queued or sent, or the end was told.
    pub(crate) const fn has_any(&self) -> bool {
        self.has_begun() || self.queued > 0 || self.finishing
    }

    /// Bytes that are queued, or sent and kept until they are acknowledged.
    pub(crate) const fn held(&self) -> usize {
        self.queued + self.kept
    }

    /// Whether it is the peer that has to do something for the stream to go on.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.kept > 0 || self.is_last_sent() || self.is_window_blocked()
    }

    pub(crate) const fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether the application, told to wait, may go on; says so once.
    pub(crate) const fn take_room(&mut self) -> bool {
        if self.full && self.has_room() {
            self.full = false;
            return true;
        }
        false
    }

    /// Whether the last packet has been sent at least once.
    pub(crate) const fn is_last_sent(&self) -> bool {
        self.last_assigned
    }

    /// Whether everything, the last packet included, is known to have arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.last_assigned && self.unacknowledged == 0
    }

    /// Whether any packet was sent.
    pub(crate) const fn has_begun(&self) -> bool {
        self.next > 1
    }

    /// The window the peer last gave.
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    /// Packets in flight or lost.
    fn has_unacknowledged(&self) -> bool {
        !self.order.is_empty() || !self.lost.is_empty() || !self.resting.is_empty()
    }

    /// Whether DATA waits only for the peer's window.
    pub(crate) fn is_window_blocked(&self) -> bool {
        !self.window_open() && self.lost.is_empty() && self.fresh_size(1).is_some()
    }

    const fn window_open(&self) -> bool {
        self.next < self.first.saturating_add(self.window) && self.next < SEQUENCE_MAX
    }

    /// The size of the next new packet, if one may be cut.
    fn fresh_size(&self, payload_max: usize) -> Option<usize> {
        if self.queued > payload_max {
            Some(payload_max)
        } else if self.finishing && !self.last_assigned {
            Some(self.queued)
        } else if self.queued > 0 && self.full && !self.has_room() {
            // The application may write no more before this is sent, however little of a packet it fills.
            Some(self.queued)
        } else {
            // A packet that fills up exactly is kept back as well: it may prove to be the last.
            None
        }
    }

    /// Whether the whole stream is one packet, and known.
    pub(crate) fn is_single(&self, payload_max: usize) -> bool {
        match self.next {
            1 => self.finishing && self.queued <= payload_max,
            2 => self.last_assigned,
            _ => false,
        }
    }

    /// What to send next and its payload's size; probes may go though the window is full.
    pub(crate) fn peek(&mut self, payload_max: usize) -> Option<(Pick, usize)> {
        while let Some(&sequence) = self.lost.front() {
            match self.get(sequence) {
                Some(packet) if packet.state == State::Lost => {
                    return Some((Pick::Again(sequence), packet.payload.len()));
                }
                _ => self.lost.pop_front(),
            };
        }
        if !self.window_open() {
            return None;
        }
        self.fresh_size(payload_max).map(|size| (Pick::Fresh, size))
    }

    /// A tail-loss probe that is due, and its payload's size.
    pub(crate) fn peek_probe(&mut self) -> Option<(Pick, usize)> {
        let sequence = self.probe?;
        match self.get(sequence) {
            Some(packet) if packet.state != State::Acked => {
                Some((Pick::Again(sequence), packet.payload.len()))
            }
            _ => {
                self.probe = None;
                None
            }
        }
    }

    /// Whether another packet could follow the one taken.
    pub(crate) fn peek_after_take(&self, payload_max: usize, taken: &Outgoing) -> bool {
        let spare = usize::from(taken.resent);
        self.lost.len() > spare
            || (self.fresh_size(payload_max).is_some()
                && self.next + 1 < self.first.saturating_add(self.window))
    }

    /// Whether the peer's window has no room behind that packet.
    pub(crate) const fn is_window_full_after(&self, sequence: u32) -> bool {
        sequence + 1 >= self.first.saturating_add(self.window)
    }

    /// Whether more than one packet was sent, so that their size matters.
    pub(crate) const fn is_long(&self) -> bool {
        self.next > 2
    }

    /// The size of the packet that the peer waits for, if it was sent in vain again and again though the
    /// peer, of which was heard last at `heard`, is there.
    pub(crate) fn stuck(&self, heard: Instant) -> Option<usize> {
        let packet = self.unacknowledged()?;
        let waits = self.timeouts >= STUCK_TIMEOUTS && heard > self.silent_since;
        (waits || packet.losses > PROMPT_RESENDS).then_some(packet.size)
    }

    /// The size of the packet that the peer waits for.
    pub(crate) fn oldest(&self) -> Option<usize> {
        self.unacknowledged().map(|packet| packet.size)
    }

    fn unacknowledged(&self) -> Option<&Sent> {
        let mut sent = self.sent.iter();
        sent.find(|packet| packet.state != State::Acked)
    }

    /// Whether the peer was heard of since the timeouts in a row began.
    pub(crate) fn is_heard(&self, heard: Instant) -> bool {
        heard > self.silent_since
    }

    /// Whether enough was sent that larger packets would pay.
    pub(crate) const fn is_bulk(&self) -> bool {
        self.next > BULK_PACKETS
    }

    /// The call moves to another path: what is in flight on this one is sent again on that.
    pub(crate) fn leave_path(&mut self, path: &mut Path) {
        for (sequence, packet) in (self.first..).zip(&mut self.sent) {
            if packet.state == State::InFlight {
                path.controller.on_discarded(packet.token, packet.size);
                packet.state = State::Lost;
                self.lost.push_back(sequence);
            }
        }
        self.wake_all();
        self.order.clear();
        self.newest_arrived = None;
        self.reorder_deadline = None;
        self.timeouts = 0;
        self.probe = None;
    }

    /// Takes the packet that was peeked at. [`Self::sent`] must follow.
    pub(crate) fn take(&mut self, pick: Pick, payload_max: usize) -> Option<Outgoing> {
        match pick {
            Pick::Again(sequence) => {
                let packet = self.get(sequence)?;
                let mut flags = Flags::REQUEST_ACK;
                if packet.last {
                    flags = flags.with(Flags::LAST_PACKET);
                }
                let payload = packet.payload.clone();
                Some(Outgoing {
                    sequence,
                    flags,
                    payload,
                    resent: true,
                })
            }
            Pick::Fresh => {
                let size = self.fresh_size(payload_max)?;
                let payload = self.cut(size);
                let last = self.finishing && self.queued == 0;
                let mut flags = Flags::default();
                if last {
                    self.last_assigned = true;
                    flags = flags.with(Flags::LAST_PACKET);
                }
                Some(Outgoing {
                    sequence: self.next,
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
        if outgoing.resent {
            // A probe's earlier transmission is still counted as in flight.
            if let Some(packet) = self.get(sequence)
                && packet.state == State::InFlight
            {
                path.controller.on_discarded(packet.token, packet.size);
            }
            if self.probe == Some(sequence) {
                self.probe = None;
            }
        }
        let token = path.on_data_sent(now, size, app_limited, outgoing.resent);
        if outgoing.resent {
            if let Some(packet) = self.get_mut(sequence) {
                packet.lost_transmission = Some(packet.time);
                packet.state = State::InFlight;
                packet.serial = serial;
                packet.time = now;
                packet.token = token;
                packet.size = size;
            }
        } else {
            if !self.has_unacknowledged() {
                self.timer_base = now;
            }
            self.next += 1;
            self.unacknowledged += 1;
            self.kept += outgoing.payload.len();
            self.sent.push_back(Sent {
                payload: outgoing.payload.clone(),
                last: outgoing.flags.has(Flags::LAST_PACKET),
                state: State::InFlight,
                serial,
                time: now,
                token,
                size,
                lost_transmission: None,
                losses: 0,
            });
        }
        self.timer_base = self.timer_base.max(now);
        self.asked = outgoing.flags.has(Flags::REQUEST_ACK);
        self.order.push_back(Transmission {
            serial,
            sequence,
            time: now,
        });
    }

    /// Takes `size` bytes off the queue, without copying where they lie in one piece.
    fn cut(&mut self, size: usize) -> Bytes {
        self.queued -= size;
        let Some(front) = self.chunks.front_mut() else {
            return Bytes::new();
        };
        if front.len() > size {
            return front.split_to(size);
        }
        if front.len() == size {
            return self.chunks.pop_front().unwrap_or_default();
        }
        let mut gathered = BytesMut::with_capacity(size);
        while gathered.len() < size {
            let Some(front) = self.chunks.front_mut() else {
                break;
            };
            let part = front.len().min(size - gathered.len());
            gathered.extend_from_slice(&front.split_to(part));
            if front.is_empty() {
                self.chunks.pop_front();
            }
        }
        gathered.freeze()
    }

    fn get(&self, sequence: u32) -> Option<&Sent> {
        self.sent.get(sequence.checked_sub(self.first)? as usize)
    }

    fn get_mut(&mut self, sequence: u32) -> Option<&mut Sent> {
        self.sent
            .get_mut(sequence.checked_sub(self.first)? as usize)
    }

    /// Everything sent has arrived: the peer's reply or its next call says so.
    pub(crate) fn on_implicit_ack(&mut self, now: Instant, path: &mut Path) {
        if self.sent.is_empty() {
            return;
        }
        path.controller.begin_ack();
        let mut round = AckRound::default();
        for sequence in self.first..self.next {
            self.mark_acked_packet(now, sequence, path, &mut round);
        }
        path.controller.end_ack(now, &path.rtt);
        self.release_below(self.next);
        self.order.clear();
        self.lost.clear();
        self.resting.clear();
        self.timeouts = 0;
        self.probe = None;
        self.reorder_deadline = None;
    }

    /// Processes an acknowledgement. `ack_serial` is the ACK packet's own serial.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        ack_serial: u32,
        connection: Key,
        path: &mut Path,
    ) -> Result<Effect, Refused> {
        // spec: rx#what-acknowledgements-may-say
        if ack.first.saturating_add(u32::from(ack.soft.len())) > self.next {
            return Err(Refused::Impossible);
        }
        if ack.first < self.first {
            return Err(Refused::Stale);
        }
        let newest = self.is_newest(ack, ack_serial);
        let mut round = AckRound::default();
        if ack.reason != Reason::Ping {
            round.echo = self.transmission(ack.serial);
        }
        // afar peers say how long they held the acknowledgement back; classic ones do not.
        let held = (ack.extension.as_ref().filter(|_| path.afar)).map_or(Duration::ZERO, |ext| {
            Duration::from_micros(u64::from(ext.ack_delay_us))
        });
        let pinged = ack.reason == Reason::PingResponse
            && path.on_ping_answer(now, connection, ack.serial, held);
        path.controller.begin_ack();
        for sequence in self.first..ack.first {
            self.mark_acked_packet(now, sequence, path, &mut round);
        }
        self.release_below(ack.first);
        let mut reneged = false;
        for (sequence, received) in (ack.first..self.next).zip(ack.soft.iter()) {
            if received {
                self.mark_acked(now, sequence, path, &mut round);
            } else if newest && !path.afar {
                reneged |= self.take_back(sequence);
            }
        }
        // spec: rx#hard-and-soft-acknowledgements
        if newest && !path.afar && ack.soft.len() < u8::MAX {
            // What an old peer does not speak of it does not have.
            let end = ack.first + u32::from(ack.soft.len());
            let highest = |acked: &RangeSet| acked.descending().next().map_or(0, |(_, end)| end);
            while highest(&self.acked) > end && self.take_back(highest(&self.acked) - 1) {
                reneged = true;
            }
        }
        if let Some(extension) = ack.extension.as_ref().filter(|_| path.afar) {
            for range in extension.ranges_from(ack.first) {
                self.mark_range(now, range.start, range.end.min(self.next), path, &mut round);
            }
            if newest {
                self.window = extension.window;
            }
            path.on_ecn_report(now, extension, round.newest_sent.unwrap_or(now));
        } else if let (Some(window), true) = (ack.trailer.window, newest) {
            // spec: rx#windows
            self.window = window.clamp(1, 255);
        }
        let sampled = self.sample_rtt(now, held, path, &round) || pinged;
        self.after_acks(now, path, &round);
        path.controller.end_ack(now, &path.rtt);
        if round.progress {
            if self.is_reply && self.is_done() && self.timeouts == 0 {
                let took = now.saturating_duration_since(self.timer_base);
                path.is_prompt = took <= path.rtt.min() * 2;
            }
            self.timeouts = 0;
            self.probe = None;
            self.timer_base = now;
        }
        if reneged {
            self.timer_base = now;
        }
        Ok(Effect {
            progress: round.progress,
            spurious: round.spurious,
            sampled,
        })
    }

    /// Whether an acknowledgement says that a packet is missing which was acknowledged before.
    pub(crate) fn contradicts(&self, ack: &Ack) -> bool {
        let known = |sequence| {
            self.get(sequence)
                .is_some_and(|sent| sent.state == State::Acked)
        };
        (ack.first..self.next)
            .zip(ack.soft.iter())
            .any(|(seq, received)| !received && known(seq))
    }

    /// Whether no newer ACK packet than this was seen; overtaken ones must not withdraw anything.
    ///
    /// PINGs and their answers are seconds apart, so several in a row with older serials were not
    /// overtaken: the peer was restarted and counts from 1 again.
    fn is_newest(&mut self, ack: &Ack, ack_serial: u32) -> bool {
        let is_newer = ack_serial.wrapping_sub(self.newest_ack) < u32::MAX / 2;
        if !is_newer {
            let counts = matches!(ack.reason, Reason::Ping | Reason::PingResponse);
            self.older_pings += u8::from(counts);
            if self.older_pings < RESTARTED_AFTER {
                return false;
            }
        }
        self.older_pings = 0;
        self.newest_ack = ack_serial;
        true
    }

    /// The transmission with that serial, if it is still remembered.
    fn transmission(&self, serial: u32) -> Option<Transmission> {
        let front = self.order.front()?.serial;
        let wanted = serial.wrapping_sub(front);
        let index = self
            .order
            .binary_search_by_key(&wanted, |transmission| {
                transmission.serial.wrapping_sub(front)
            })
            .ok()?;
        self.order.get(index).copied()
    }

    fn mark_range(
        &mut self,
        now: Instant,
        start: u32,
        end: u32,
        path: &mut Path,
        round: &mut AckRound,
    ) {
        if start >= end || start < self.first {
            return;
        }
        // Sub-ranges are noted first, because marking needs all of `self`. More of them than fit are
        // rare; from the first that does not, every packet is looked at.
        let (mut new, mut count, mut rest) = ([(0, 0); 8], 0, end);
        self.acked.insert_range(start, end, |from, to| {
            if count < new.len() {
                new[count] = (from, to);
                count += 1;
            } else {
                rest = rest.min(from);
            }
        });
        for sequence in new[..count]
            .iter()
            .flat_map(|(from, to)| *from..*to)
            .chain(rest..end)
        {
            self.mark_acked_packet(now, sequence, path, round);
        }
    }

    fn mark_acked(&mut self, now: Instant, sequence: u32, path: &mut Path, round: &mut AckRound) {
        if self.mark_acked_packet(now, sequence, path, round) {
            self.acked.insert(sequence);
        }
    }

    /// Marks one packet as arrived; false if it was already.
    fn mark_acked_packet(
        &mut self,
        now: Instant,
        sequence: u32,
        path: &mut Path,
        round: &mut AckRound,
    ) -> bool {
        let rtt_min = path.rtt.has_sample().then(|| path.rtt.min());
        let afar = path.afar;
        let Some(packet) = self.get_mut(sequence) else {
            return false;
        };
        if packet.state == State::Acked {
            return false;
        }
        let acked = AckedPacket {
            token: packet.token,
            time_sent: packet.time,
            bytes: packet.size,
        };
        let was_lost = packet.state == State::Lost;
        packet.state = State::Acked;
        round.progress = true;
        // The peer may take soft acknowledgements back unless it is afar.
        let freed = match afar {
            true => std::mem::take(&mut packet.payload).len(),
            false => 0,
        };
        // An acknowledgement that comes sooner than the path can bring one, or names an older
        // serial, is for the transmission that had been given up.
        let echo_is_older = round
            .echo
            .is_some_and(|echo| echo.sequence == sequence && echo.serial != packet.serial);
        let too_soon =
            rtt_min.is_some_and(|min| now.saturating_duration_since(packet.time) < min - min / 8);
        let original = match packet.lost_transmission {
            _ if was_lost => Some(packet.time),
            Some(earlier) if echo_is_older || too_soon => Some(earlier),
            _ => None,
        };
        let bytes = packet.size;
        self.kept -= freed;
        self.unacknowledged -= 1;
        if was_lost {
            // It left the flight when it was declared lost.
        } else {
            path.controller.on_packet_acked(now, &acked);
        }
        match original {
            Some(time) => {
                path.controller
                    .on_spurious_loss(now, acked.token, bytes, time);
                path.counters.spurious += 1;
                round.spurious += 1;
            }
            None => {
                if round
                    .newest_sent
                    .is_none_or(|newest| acked.time_sent > newest)
                {
                    round.newest_sent = Some(acked.time_sent);
                }
            }
        }
        true
    }

    /// A soft acknowledgement was taken back: the packet must be sent again, but not for congestion.
    fn take_back(&mut self, sequence: u32) -> bool {
        let Some(packet) = self.get_mut(sequence) else {
            return false;
        };
        if packet.state != State::Acked {
            return false;
        }
        packet.state = State::Lost;
        self.unacknowledged += 1;
        self.acked.remove(sequence);
        self.lost.push_back(sequence);
        true
    }

    fn release_below(&mut self, first: u32) {
        while self.first < first
            && let Some(packet) = self.sent.pop_front()
        {
            self.kept -= packet.payload.len();
            self.first += 1;
        }
        self.acked.remove_below(self.first);
    }

    fn sample_rtt(&self, now: Instant, held: Duration, path: &mut Path, round: &AckRound) -> bool {
        let (Some(echo), true) = (round.echo, round.progress) else {
            return false;
        };
        // A sample is good only for a packet that this acknowledgement is the first to report.
        let sample = now
            .saturating_duration_since(echo.time)
            .saturating_sub(held);
        path.sample_rtt(now, sample);
        true
    }

    /// Updates RACK's state and declares losses.
    fn after_acks(&mut self, now: Instant, path: &mut Path, round: &AckRound) {
        if round.spurious > 0 {
            self.reorder_scale = (self.reorder_scale + round.spurious).min(REORDER_SCALE_MAX);
        }
        if let Some(sent) = round.newest_sent
            && self.newest_arrived.is_none_or(|(newest, _)| sent >= newest)
        {
            self.newest_arrived = Some((sent, now.saturating_duration_since(sent)));
        }
        self.detect_losses(now, path);
    }

    /// Declares lost what was sent so long before something that arrived (RFC 8985 §6.2).
    fn detect_losses(&mut self, now: Instant, path: &mut Path) {
        self.reorder_deadline = None;
        let mut previous = None;
        while let Some(&transmission) = self.order.front() {
            let Some(packet) = self.get(transmission.sequence) else {
                self.order.pop_front();
                continue;
            };
            if packet.serial != transmission.serial || packet.state != State::InFlight {
                self.order.pop_front();
                continue;
            }
            let Some((newest, round_trip)) = self.newest_arrived else {
                break;
            };
            if transmission.time >= newest {
                break;
            }
            let window = (path.rtt.min() / 4 * self.reorder_scale)
                .clamp(REORDER_MIN, path.rtt.smoothed().max(REORDER_MIN));
            let deadline = transmission.time + round_trip + window;
            if now < deadline {
                self.reorder_deadline = Some(deadline);
                break;
            }
            self.order.pop_front();
            let sequence = transmission.sequence;
            let new_burst = previous.is_none_or(|before: u32| before.wrapping_add(1) != sequence);
            previous = Some(sequence);
            self.declare_lost(now, sequence, new_burst, path);
        }
    }

    fn declare_lost(&mut self, now: Instant, sequence: u32, new_burst: bool, path: &mut Path) {
        let Some(packet) = self.get_mut(sequence) else {
            return;
        };
        packet.state = State::Lost;
        let lost = LostPacket {
            token: packet.token,
            time_sent: packet.time,
            bytes: packet.size,
        };
        packet.losses = packet.losses.saturating_add(1);
        let losses = packet.losses;
        if losses > PROMPT_RESENDS {
            let doublings = u32::from(losses - PROMPT_RESENDS - 1).min(12);
            let rest = path.rtt.rto(AFAR_RTO_MIN).saturating_mul(1 << doublings);
            self.resting.insert((now + rest.min(RTO_MAX), sequence));
        } else {
            self.lost.push_back(sequence);
        }
        path.counters.lost += 1;
        afar_probes::rx_lost(path.address, 1);
        path.controller
            .on_loss(now, &lost, new_burst, false, &path.rtt);
    }

    /// When something must be done about packets that are not acknowledged.
    pub(crate) fn deadline(&self, path: &Path) -> Option<Instant> {
        let timeout = self
            .order
            .front()
            .map(|_| self.timer_base + self.timeout(path));
        let rested = self.resting.first().map(|(at, _)| *at);
        [self.reorder_deadline, timeout, rested]
            .into_iter()
            .flatten()
            .min()
    }

    /// Since when what is in flight waits for an answer.
    #[cfg(test)]
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.order.front().map(|_| self.timer_base)
    }

    /// What has rested long enough is sent again.
    fn wake_rested(&mut self, now: Instant) {
        while let Some((at, sequence)) = self.resting.first().copied()
            && at <= now
        {
            self.resting.pop_first();
            self.lost.push_back(sequence);
        }
    }

    /// Nothing rests any longer.
    fn wake_all(&mut self) {
        let resting = std::mem::take(&mut self.resting);
        self.lost
            .extend(resting.into_iter().map(|(_, sequence)| sequence));
    }

    fn timeout(&self, path: &Path) -> Duration {
        let rtt = &path.rtt;
        let first = if path.afar {
            rtt.rto(AFAR_RTO_MIN) + path.ack_allowance()
        } else if !self.is_answered_at_once() || !rtt.has_sample() {
            // The reply that acknowledges a request may take longer. One more packet costs less than to
            // wait for one that was lost.
            let soon = !self.is_reply || path.is_prompt;
            if self.timeouts == 0 && soon && rtt.has_sample() {
                return path.probe_timeout() + path.ack_allowance();
            }
            let last = if self.last_assigned {
                CLASSIC_LAST_ALLOWANCE
            } else {
                Duration::ZERO
            };
            rtt.rto(CLASSIC_RTO_MIN) + path.ack_allowance() + last
        } else if self.timeouts == 0 {
            return path.probe_timeout();
        } else {
            rtt.rto(CLASSIC_RTO_MIN)
        };
        first
            .saturating_mul(1 << self.timeouts.min(12))
            .min(RTO_MAX.max(first))
    }

    /// Whether an old peer that has what is in flight has no reason to hold the acknowledgement back.
    fn is_answered_at_once(&self) -> bool {
        self.asked || self.unacknowledged > CLASSIC_UNASKED
    }

    /// Acts on a deadline that has passed; if it was a timeout, gives their number in a row.
    pub(crate) fn on_deadline(&mut self, now: Instant, path: &mut Path) -> Option<u32> {
        self.wake_rested(now);
        if self
            .reorder_deadline
            .is_some_and(|deadline| deadline <= now)
        {
            self.detect_losses(now, path);
            return None;
        }
        if self.order.is_empty() || self.timer_base + self.timeout(path) > now {
            return None;
        }
        if self.timeouts == 0 {
            self.silent_since = now;
        }
        self.timeouts += 1;
        self.timer_base = now;
        // Whatever answers now does not tell whether it would have been said without being asked.
        path.is_prompt &= !self.is_reply;
        if self.timeouts == 1 {
            // The tail is probed first: its acknowledgement shows what else is missing.
            self.probe = self
                .order
                .iter()
                .rev()
                .find(|t| {
                    self.get(t.sequence)
                        .is_some_and(|p| p.state == State::InFlight)
                })
                .map(|t| t.sequence);
            return self.probe.is_some().then_some(1);
        }
        let mut lost = 0_u64;
        for transmission in std::mem::take(&mut self.order) {
            let Some(packet) = self.get_mut(transmission.sequence) else {
                continue;
            };
            if packet.serial == transmission.serial && packet.state == State::InFlight {
                packet.state = State::Lost;
                packet.losses = packet.losses.saturating_add(1);
                path.controller.on_discarded(packet.token, packet.size);
                self.lost.push_back(transmission.sequence);
                lost += 1;
            }
        }
        path.counters.lost += lost;
        afar_probes::rx_lost(path.address, lost);
        self.lost.make_contiguous().sort_unstable();
        path.controller.on_persistent_timeout(now, &path.rtt);
        Some(self.timeouts)
    }

    /// The call ends: what is in flight is nobody's any more.
    pub(crate) fn discard(&mut self, path: &mut Path) {
        for packet in self.sent.drain(..) {
            if packet.state == State::InFlight {
                path.controller.on_discarded(packet.token, packet.size);
            }
        }
        self.first = self.next;
        self.kept = 0;
        self.unacknowledged = 0;
        self.order.clear();
        self.lost.clear();
        self.resting.clear();
        self.chunks.clear();
        self.queued = 0;
        self.probe = None;
        self.reorder_deadline = None;
    }
}

/// What is gathered while one acknowledgement is processed.
#[derive(Debug, Default)]
struct AckRound {
    echo: Option<Transmission>,
    progress: bool,
    spurious: u32,
    newest_sent: Option<Instant>,
}
