//! Which packets are lost: RACK (RFC 8985) over the transmissions of one call.
//!
//! A packet is lost when one sent later has arrived and a reordering window has passed. What is lost
//! is sent again at once, or rests for a while if it was lost again and again.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::sent::{Departure, SentPackets};
use super::timeouts::{AFAR_RTO_MIN, RTO_MAX};
use crate::peer::Path;
use crate::peer::congestion::LostPacket;

/// The reordering window's least size; finer than this, timers and batching look like reordering.
const REORDER_MIN: Duration = Duration::from_millis(1);
/// How far false losses may widen the reordering window, in quarters of the least RTT.
const REORDER_SCALE_MAX: u32 = 8;
/// Times a packet is sent again as soon as it is found lost. One that is lost once more, while others
/// arrive, is lost for a reason of its own: it rests longer and longer.
pub(super) const PROMPT_RESENDS: u8 = 4;

/// One transmission of a packet of the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transmission {
    pub(super) serial: u32,
    pub(super) sequence: u32,
    pub(super) time: Instant,
}

/// Transmissions that may be lost, and packets that are.
#[derive(Debug)]
pub(super) struct LossDetection {
    /// Transmissions in the order in which they left. Some of them are known to have arrived, or to be lost.
    order: VecDeque<Transmission>,
    /// Packets to send again, in turn. Some of them have arrived meanwhile.
    lost: VecDeque<u32>,
    /// Lost packets that are not sent again before a time.
    resting: BTreeSet<(Instant, u32)>,
    /// The newest transmission known to have arrived, and its round trip.
    newest_arrived: Option<(Instant, Duration)>,
    reorder_scale: u32,
    reorder_deadline: Option<Instant>,
}

impl LossDetection {
    pub(super) const fn new() -> Self {
        Self {
            order: VecDeque::new(),
            lost: VecDeque::new(),
            resting: BTreeSet::new(),
            newest_arrived: None,
            reorder_scale: 1,
            reorder_deadline: None,
        }
    }

    /// A packet has left.
    pub(super) fn on_sent(&mut self, transmission: Transmission) {
        let follows = |before: &Transmission| before.time <= transmission.time;
        debug_assert!(self.order.back().is_none_or(follows), "out of order");
        self.order.push_back(transmission);
    }

    /// Whether any transmission is neither known to have arrived nor to be lost.
    pub(super) fn is_waiting(&self) -> bool {
        !self.order.is_empty()
    }

    /// Whether anything is to be sent again now.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Packets to send again now.
    pub(super) fn lost(&self) -> usize {
        self.lost.len()
    }

    /// The packet to send again next, and its payload's size.
    pub(super) fn next_lost(&mut self, sent: &SentPackets) -> Option<(u32, usize)> {
        while let Some(&sequence) = self.lost.front() {
            match sent.get(sequence) {
                Some(packet) if packet.is_lost() => {
                    return Some((sequence, packet.payload.len()));
                }
                _ => self.lost.pop_front(),
            };
        }
        None
    }

    /// The packet in flight that left last.
    pub(super) fn tail(&self, sent: &SentPackets) -> Option<u32> {
        let mut sequences = self.order.iter().rev().map(|sent| sent.sequence);
        sequences.find(|sequence| {
            sent.get(*sequence)
                .is_some_and(|packet| packet.is_in_flight())
        })
    }

    /// The transmission with that serial, if it is still remembered.
    pub(super) fn transmission(&self, serial: u32) -> Option<Transmission> {
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

    /// An acknowledgement was processed: of the transmissions that it shows to have arrived the newest left at
    /// `newest_sent`, and so many losses proved `spurious`.
    pub(super) fn on_ack(&mut self, now: Instant, newest_sent: Option<Instant>, spurious: u32) {
        if spurious > 0 {
            self.reorder_scale = (self.reorder_scale + spurious).min(REORDER_SCALE_MAX);
        }
        if let Some(sent) = newest_sent
            && self.newest_arrived.is_none_or(|(newest, _)| sent >= newest)
        {
            self.newest_arrived = Some((sent, now.saturating_duration_since(sent)));
        }
    }

    /// Declares lost what was sent so long before something that arrived (RFC 8985 §6.2).
    pub(super) fn detect(&mut self, now: Instant, sent: &mut SentPackets, path: &mut Path) {
        self.reorder_deadline = None;
        let mut previous = None;
        while let Some(&transmission) = self.order.front() {
            if !is_in_flight(sent, &transmission) {
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
            self.declare_lost(now, sequence, new_burst, sent, path);
        }
    }

    fn declare_lost(
        &mut self,
        now: Instant,
        sequence: u32,
        new_burst: bool,
        sent: &mut SentPackets,
        path: &mut Path,
    ) {
        let Some(packet) = sent.lose(sequence) else {
            return;
        };
        let lost = LostPacket {
            token: packet.newest.token,
            time_sent: packet.newest.time,
            bytes: packet.newest.size,
        };
        if packet.losses > PROMPT_RESENDS {
            let doublings = u32::from(packet.losses - PROMPT_RESENDS - 1).min(12);
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

    /// Declares lost all that is in flight: nothing of it was acknowledged in time.
    pub(super) fn lose_all(&mut self, sent: &mut SentPackets, path: &mut Path) {
        let mut count = 0_u64;
        while let Some(transmission) = self.order.pop_front() {
            if is_in_flight(sent, &transmission)
                && let Some(packet) = sent.lose(transmission.sequence)
            {
                let Departure { token, size, .. } = packet.newest;
                path.controller.on_discarded(token, size);
                self.lost.push_back(transmission.sequence);
                count += 1;
            }
        }
        path.counters.lost += count;
        afar_probes::rx_lost(path.address, count);
        self.lost.make_contiguous().sort_unstable();
    }

    /// A soft acknowledgement was taken back.
    pub(super) fn on_taken_back(&mut self, sequence: u32) {
        self.lost.push_back(sequence);
    }

    /// When a packet must be declared lost, or has rested for long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let rested = self.resting.first().map(|(at, _)| *at);
        [self.reorder_deadline, rested].into_iter().flatten().min()
    }

    /// Whether a reordering window has passed.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.reorder_deadline
            .is_some_and(|deadline| deadline <= now)
    }

    /// What has rested long enough is sent again.
    pub(super) fn wake_rested(&mut self, now: Instant) {
        while let Some((at, sequence)) = self.resting.first().copied()
            && at <= now
        {
            self.resting.pop_first();
            self.lost.push_back(sequence);
        }
    }

    /// The call leaves a path: all that is in flight on that is sent again, and nothing rests any longer.
    pub(super) fn leave_path(&mut self, sent: &mut SentPackets, path: &mut Path) {
        sent.withdraw(|sequence, departure| {
            path.controller
                .on_discarded(departure.token, departure.size);
            self.lost.push_back(sequence);
        });
        let resting = std::mem::take(&mut self.resting);
        self.lost
            .extend(resting.into_iter().map(|(_, sequence)| sequence));
        self.order.clear();
        self.newest_arrived = None;
        self.reorder_deadline = None;
    }

    /// Nothing is in flight or lost any more.
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.lost.clear();
        self.resting.clear();
        self.reorder_deadline = None;
    }

    /// Looks whether transmissions are in order, each packet in flight has its own here, and each lost one its turn.
    #[cfg(test)]
    pub(super) fn check(&self, sent: &SentPackets) {
        let oldest = self.order.front().map_or(0, |first| first.serial);
        let keys = self.order.iter();
        let keys = keys.map(|sent| (sent.time, sent.serial.wrapping_sub(oldest)));
        assert!(keys.is_sorted(), "{:?}", self.order);
        let in_flight = sent.iter().filter(|(_, packet)| packet.is_in_flight());
        let known = (self.order.iter()).filter(|transmission| is_in_flight(sent, transmission));
        assert_eq!(known.count(), in_flight.count(), "{self:?} {sent:?}");
        let resting = self.resting.iter().map(|(_, sequence)| *sequence);
        let mut waiting: Vec<u32> = self.lost.iter().copied().chain(resting).collect();
        waiting.sort_unstable();
        for (sequence, _) in sent.iter().filter(|(_, packet)| packet.is_lost()) {
            let is_known = waiting.binary_search(&sequence).is_ok();
            assert!(is_known, "{sequence} is never sent again: {self:?}");
        }
    }
}

/// Whether a transmission is the newest of its packet, and that in flight.
fn is_in_flight(sent: &SentPackets, transmission: &Transmission) -> bool {
    sent.get(transmission.sequence)
        .is_some_and(|packet| packet.newest.serial == transmission.serial && packet.is_in_flight())
}
