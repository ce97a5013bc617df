//! The receiving half of a call: packets put in order, the window, and when to acknowledge.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::ranges::RangeSet;
use crate::Read;
use crate::packet::Flags;
use crate::packet::ack::{Extension, RANGES_MAX, Range, Reason, SoftAcks, WINDOW_MAX};

/// How long an acknowledgement waits for company: afar peers.
const DELAY: Duration = Duration::from_millis(5);
/// The same for old peers, well under their own 100 ms.
// spec: rx#when-acknowledgements-come
const CLASSIC_DELAY: Duration = Duration::from_millis(20);
/// The last packet of a reply: the next call on the channel acknowledges it as well.
// spec: rx#the-end-of-a-reply
const CLASSIC_LAST_DELAY: Duration = Duration::from_millis(100);
/// Packets after which an afar peer gets an acknowledgement at once; OpenAFS wants every second.
const AFAR_ACK_EVERY: u32 = 10;
// spec: rx#when-acknowledgements-come
const CLASSIC_ACK_EVERY: u32 = 2;
/// Bytes an afar peer may send between two acknowledgements.
const AFAR_ACK_BYTES: usize = 256 << 10;
/// Times an old peer is told again what has come when nothing more comes.
// spec: rx#when-acknowledgements-come
const REPEATS: u32 = 3;
/// A window begins at this size and grows with what the application takes in a round trip.
const WINDOW_INITIAL: u64 = 4 << 20;
/// A window of a peer whose windows have grown begins at this size at most: so much comes while the
/// application is still busy with the call before.
const WINDOW_KNOWN: u64 = 16 << 20;
/// The window in round trips' worth of what the application takes.
const WINDOW_ROUNDS: u64 = 6;
/// Payload size assumed before any packet was seen.
const PAYLOAD_GUESS: usize = 1412;

/// The receiving half of a call.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The lowest sequence that has not arrived.
    next: u32,
    highest: u32,
    /// Packets above `next`.
    early: BTreeMap<u32, Bytes>,
    early_ranges: RangeSet,
    early_bytes: usize,
    /// The last packet's sequence, once seen.
    last: Option<u32>,
    ready: VecDeque<Bytes>,
    /// Bytes in order that the application has not consumed, read or not.
    unconsumed: u64,
    waiting: bool,
    /// One past the highest sequence the peer has been allowed.
    edge: u32,
    /// Where the window ended as the peer was told last, which is where it stops.
    told: u32,
    payload: usize,
    window: u64,
    /// Bytes consumed since `round_began`, which tune the window.
    round_bytes: u64,
    round_began: Option<Instant>,
    duplicates: u32,
    ack: AckState,
}

#[derive(Debug, Default)]
struct AckState {
    due: Option<Instant>,
    now: Option<Reason>,
    /// Serial and arrival of a PING to answer; it is not lost among DATA that comes with it.
    ping: Option<(u32, Instant)>,
    packets: u32,
    bytes: usize,
    /// Times it was sent again since DATA came last.
    repeats: u32,
    /// Serial and arrival of the packet to name.
    serial: u32,
    arrived: Option<Instant>,
}

/// What became of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// New bytes are in order for the application.
    InOrder,
    /// Kept for later.
    Early,
    /// Known already.
    Duplicate,
    /// Outside the window: dropped.
    Beyond,
    /// Against the rules: past the last packet, or a second last one.
    Violation,
}

/// What to acknowledge.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) first: u32,
    pub(crate) previous: u32,
    pub(crate) serial: u32,
    pub(crate) reason: Reason,
    pub(crate) soft: SoftAcks,
    pub(crate) classic_window: u32,
    pub(crate) extension: Option<Extension>,
}

/// Limits that hold for the window now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowLimits {
    /// Bytes this call may hold.
    pub(crate) call: u64,
    /// Bytes this call could hold if it took all that is left for all calls.
    pub(crate) memory: u64,
    /// A reader that has less than this is given the next packet though memory is short.
    pub(crate) floor: u64,
    /// Packets towards old peers.
    pub(crate) classic: u32,
    /// Whether the peer is afar.
    pub(crate) afar: bool,
}

impl Receiver {
    pub(crate) fn new(classic_window: u32) -> Self {
        Self {
            next: 1,
            highest: 0,
            early: BTreeMap::new(),
            early_ranges: RangeSet::default(),
            early_bytes: 0,
            last: None,
            ready: VecDeque::new(),
            unconsumed: 0,
            waiting: true,
            // spec: rx#windows
            // A peer sends up to its own initial window before it has heard of ours.
            edge: 1 + classic_window.max(64),
            told: 1 + classic_window.max(64),
            payload: PAYLOAD_GUESS,
            window: WINDOW_INITIAL,
            round_bytes: 0,
            round_began: None,
            duplicates: 0,
            ack: AckState::default(),
        }
    }

    /// The peer was allowed so many packets in another call, and may begin with as many.
    pub(crate) fn allow(&mut self, window: u32) {
        self.edge = self.edge.max(window.saturating_add(1));
        self.told = self.edge;
        let octets = u64::from(window) * self.payload as u64;
        self.window = self.window.max(octets.min(WINDOW_KNOWN));
    }

    /// Whether the stream's end has arrived with all before it.
    pub(crate) fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| self.next > last)
    }

    /// Whether this packet has not arrived, and may.
    pub(crate) fn lacks(&self, sequence: u32) -> bool {
        let is_within = self.last.is_none_or(|last| sequence <= last) && sequence < self.edge;
        is_within && sequence >= self.next && !self.early.contains_key(&sequence)
    }

    /// The lowest sequence that has not arrived.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Whether the peer has more to send and is allowed to.
    pub(crate) fn waits_for_peer(&self) -> bool {
        !self.is_complete() && self.told > self.next
    }

    /// Whether any packet has arrived.
    pub(crate) const fn has_begun(&self) -> bool {
        self.highest > 0
    }

    /// Bytes held.
    pub(crate) const fn held(&self) -> u64 {
        self.unconsumed + self.early_bytes as u64
    }

    /// What was read counts no more: the application has it all. Gives what was held.
    pub(crate) const fn let_go(&mut self) -> u64 {
        let held = self.held();
        self.unconsumed = 0;
        held
    }

    /// Takes a DATA packet in.
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        sequence: u32,
        serial: u32,
        flags: Flags,
        payload: Bytes,
        limits: WindowLimits,
    ) -> Arrival {
        let last = flags.has(Flags::LAST_PACKET);
        if sequence >= self.edge {
            self.note(now, serial, Some(Reason::ExceedsWindow));
            return Arrival::Beyond;
        }
        // Windows are promises of more than there is. When all calls take what they were promised,
        // packets are dropped; never the one that a reader with nothing to read waits for.
        let held = self.held() + payload.len() as u64;
        let starves = sequence == self.next && self.unconsumed < limits.floor;
        if !starves && held > limits.memory.min(limits.call.saturating_mul(2)) {
            self.note(now, serial, Some(Reason::NoSpace));
            return Arrival::Beyond;
        }
        if sequence < self.next || self.early.contains_key(&sequence) {
            self.duplicates = self.duplicates.wrapping_add(1);
            self.note(now, serial, Some(Reason::Duplicate));
            return Arrival::Duplicate;
        }
        if self.last.is_some_and(|known| sequence > known || last)
            || (last && sequence < self.highest)
        {
            return Arrival::Violation;
        }
        if last {
            self.last = Some(sequence);
        }
        self.payload = self.payload.max(payload.len());
        self.highest = self.highest.max(sequence);
        self.ack.packets += 1;
        self.ack.bytes += payload.len();
        self.ack.repeats = 0;
        let arrival = if sequence == self.next {
            self.advance(payload);
            Arrival::InOrder
        } else {
            self.early_bytes += payload.len();
            self.early.insert(sequence, payload);
            self.early_ranges.insert(sequence);
            Arrival::Early
        };
        self.schedule_ack(now, serial, flags, arrival, limits);
        arrival
    }

    /// Takes the packet `next` and all that follow it without a gap.
    fn advance(&mut self, payload: Bytes) {
        self.deliver(payload);
        self.next += 1;
        if self.early.is_empty() {
            return;
        }
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() != self.next {
                break;
            }
            let payload = entry.remove();
            self.early_bytes -= payload.len();
            self.deliver(payload);
            self.next += 1;
        }
        self.early_ranges.remove_below(self.next);
    }

    fn deliver(&mut self, payload: Bytes) {
        if !payload.is_empty() {
            self.unconsumed += payload.len() as u64;
            self.ready.push_back(payload);
        }
    }

    fn schedule_ack(
        &mut self,
        now: Instant,
        serial: u32,
        flags: Flags,
        arrival: Arrival,
        limits: WindowLimits,
    ) {
        let gap = !self.early.is_empty();
        let (every, delay) = if limits.afar {
            (
                if gap {
                    AFAR_ACK_EVERY / 3
                } else {
                    AFAR_ACK_EVERY
                },
                DELAY,
            )
        } else if self.is_complete() {
            (CLASSIC_ACK_EVERY, CLASSIC_LAST_DELAY)
        } else {
            (CLASSIC_ACK_EVERY, CLASSIC_DELAY)
        };
        // A gap is told at once where it opens; afar peers hear of what follows it in small groups.
        let opens_gap =
            arrival == Arrival::Early && (!limits.afar || self.early_ranges.ends_in_single());
        let reason = if flags.has(Flags::REQUEST_ACK) {
            Some(Reason::Requested)
        } else if opens_gap {
            Some(Reason::OutOfSequence)
        } else if self.ack.packets >= every || self.ack.bytes >= AFAR_ACK_BYTES {
            Some(Reason::Idle)
        } else {
            None
        };
        self.note(now, serial, reason);
        if reason.is_none() && self.ack.due.is_none() {
            self.ack.due = Some(now + delay);
        }
    }

    fn note(&mut self, now: Instant, serial: u32, reason: Option<Reason>) {
        self.ack.serial = serial;
        self.ack.arrived = Some(now);
        if reason.is_some() {
            self.ack.now = reason;
        }
    }

    /// An acknowledgement is to go out at once, for a reason that does not come from DATA.
    ///
    /// A PING takes the place of other reasons, which say nothing that the peer must know.
    pub(crate) const fn request_ack(&mut self, reason: Reason) {
        let is_ping = matches!(reason, Reason::Ping);
        if self.ack.now.is_none() || is_ping && !matches!(self.ack.now, Some(Reason::PingResponse))
        {
            self.ack.now = Some(reason);
        }
    }

    /// A PING wants its answer.
    pub(crate) const fn on_ping(&mut self, now: Instant, serial: u32) {
        self.ack.ping = Some((serial, now));
    }

    /// Whether an acknowledgement is to go out now.
    pub(crate) const fn wants_ack(&self) -> bool {
        self.ack.now.is_some() || self.ack.ping.is_some()
    }

    /// Whether one is owed, now or later.
    pub(crate) const fn owes_ack(&self) -> bool {
        self.wants_ack() || self.ack.due.is_some()
    }

    /// When a delayed acknowledgement is due.
    pub(crate) const fn ack_due(&self) -> Option<Instant> {
        self.ack.due
    }

    /// The delay has passed.
    pub(crate) fn on_ack_due(&mut self, now: Instant) {
        if self.ack.due.is_some_and(|due| due <= now) {
            self.ack.due = None;
            if self.ack.now.is_none() {
                self.ack.now = Some(Reason::Delay);
            }
        }
    }

    /// Times an old peer has been told again what has come, if it is to be once more when nothing
    /// comes: it waits for long, as it does at the end of each of its windows, if an acknowledgement was lost.
    pub(crate) fn repeats(&self) -> Option<u32> {
        let owes = self.has_begun() && self.waits_for_peer();
        (owes && self.ack.repeats < REPEATS).then_some(self.ack.repeats)
    }

    /// Tells the peer again.
    pub(crate) fn repeat_ack(&mut self) {
        self.ack.repeats += 1;
        self.request_ack(Reason::Delay);
    }

    /// Our reply, or our next call, acknowledges all that arrived.
    pub(crate) const fn ack_is_implied(&mut self) {
        self.ack.due = None;
        self.ack.now = None;
        self.ack.packets = 0;
        self.ack.bytes = 0;
    }

    /// The next bytes for the application.
    pub(crate) fn read(&mut self) -> Read {
        if let Some(data) = self.ready.pop_front() {
            return Read::Data(data);
        }
        if self.is_complete() {
            return Read::End;
        }
        self.waiting = true;
        Read::Pending
    }

    /// Whether a waiting application has something to read now; says so once.
    pub(crate) fn take_readable(&mut self) -> bool {
        self.waiting && (!self.ready.is_empty() || self.is_complete()) && {
            self.waiting = false;
            true
        }
    }

    /// The application is done with so many bytes; `round_trip` tunes the window.
    pub(crate) fn consume(
        &mut self,
        now: Instant,
        bytes: u64,
        round_trip: Duration,
        limits: WindowLimits,
    ) {
        self.unconsumed = self.unconsumed.saturating_sub(bytes);
        self.round_bytes += bytes;
        let began = *self.round_began.get_or_insert(now);
        if now.saturating_duration_since(began) >= round_trip {
            // While one packet is sent again, or twice, all that was in flight with it is kept and
            // the sender goes on; in a full queue a round trip takes twice as long as before.
            self.window = (self.window.max(WINDOW_ROUNDS * self.round_bytes)).min(limits.call);
            self.round_bytes = 0;
            self.round_began = Some(now);
        }
        // Nothing comes any more that a larger window would be for.
        if self.is_complete() {
            return;
        }
        let allowed = self.told - self.next.min(self.told);
        let edge = self.next.saturating_add(self.window_packets(limits));
        let gain = edge.saturating_sub(self.told);
        let full = self.edge_full(limits);
        if gain > 0 && allowed < full / 4 && (gain >= full / 4 || gain >= 2) {
            self.request_ack(Reason::Delay);
        }
    }

    fn edge_full(&self, limits: WindowLimits) -> u32 {
        if limits.afar {
            self.packets(self.window.min(limits.call))
        } else {
            limits.classic
        }
    }

    fn packets(&self, bytes: u64) -> u32 {
        u32::try_from(bytes / self.payload as u64)
            .unwrap_or(WINDOW_MAX)
            .min(WINDOW_MAX)
    }

    /// Packets from `next` on that the peer may send.
    fn window_packets(&self, limits: WindowLimits) -> u32 {
        let room = self.window.min(limits.call).saturating_sub(self.unconsumed);
        let packets = self.packets(room);
        if limits.afar {
            packets
        } else {
            packets.min(limits.classic)
        }
    }

    /// Takes what there is to acknowledge.
    pub(crate) fn take_report(&mut self, now: Instant, limits: WindowLimits) -> Report {
        let window = self.window_packets(limits);
        self.told = self.next.saturating_add(window);
        // What the peer was allowed before it may have sent, though it is told of less now.
        self.edge = self.edge.max(self.told);
        let (reason, serial, arrived) = match self.ack.ping.take() {
            Some((serial, arrived)) => {
                // Our own PING is another packet.
                self.ack.now = self.ack.now.filter(|reason| *reason == Reason::Ping);
                (Reason::PingResponse, serial, Some(arrived))
            }
            None => {
                let reason = self.ack.now.take().unwrap_or(Reason::Idle);
                (reason, self.ack.serial, self.ack.arrived)
            }
        };
        self.ack.due = None;
        self.ack.packets = 0;
        self.ack.bytes = 0;
        let mut soft = SoftAcks::default();
        let mut ranges = Vec::new();
        if !self.early_ranges.is_empty() {
            for (start, end) in self.early_ranges.ascending() {
                let gap = self.next + u32::from(soft.len());
                if start > gap + 255 {
                    break;
                }
                (gap..start).for_each(|_| soft.push(false));
                // As many as the one byte of their number tells, however long the range is.
                // spec: rx#what-acknowledgements-may-say
                (start..end).take(256).for_each(|_| soft.push(true));
            }
            ranges.extend(
                self.early_ranges
                    .descending()
                    .take(RANGES_MAX)
                    .map(|(start, end)| Range {
                        start: start - self.next,
                        end: end - self.next,
                    }),
            );
        }
        let delay = arrived.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        Report {
            first: self.next,
            // spec: rx#what-acknowledgements-may-say
            previous: self.highest,
            serial,
            reason,
            soft,
            classic_window: window.clamp(1, limits.classic),
            extension: Some(Extension {
                shares: 0,
                window,
                datagram_max: 0,
                ack_delay_us: u32::try_from(delay.as_micros()).unwrap_or(u32::MAX),
                duplicates: self.duplicates,
                ecn_ect0: 0,
                ecn_ce: 0,
                ranges,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test's time begins now")]
    fn now() -> Instant {
        Instant::now()
    }

    /// A call may begin with the large window of the one before, and is told of a smaller one then. When
    /// all it holds is read at once, the sender, which has stopped, must hear of it.
    #[test]
    fn a_window_that_shrank_is_told_to_be_open_again() {
        let limits = WindowLimits {
            call: 64 << 20,
            memory: 512 << 20,
            floor: 64 << 10,
            classic: 64,
            afar: true,
        };
        let now = now();
        let mut receiver = Receiver::new(64);
        receiver.allow(40_000);
        let payload = Bytes::from(vec![0; 1400]);
        let packets = u32::try_from(WINDOW_KNOWN / 1400).unwrap() + 1;
        for sequence in 1..=packets {
            let flags = Flags::default();
            receiver.on_data(now, sequence, sequence, flags, payload.clone(), limits);
        }
        let report = receiver.take_report(now, limits);
        assert_eq!(report.extension.unwrap().window, 0);
        let all = u64::from(packets) * 1400;
        receiver.consume(now, all, Duration::from_millis(10), limits);
        assert!(receiver.wants_ack());
        let report = receiver.take_report(now, limits);
        assert!(report.extension.unwrap().window > 1000);
    }
}
