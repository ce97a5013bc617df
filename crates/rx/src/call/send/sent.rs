//! The packets that have sequence numbers and are not acknowledged for good, in a ring.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use crate::call::ranges::RangeSet;
use crate::peer::congestion::SentToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Acked,
}

/// One transmission of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) serial: u32,
    pub(super) time: Instant,
    pub(super) token: SentToken,
    pub(super) size: usize,
}

/// A packet that was sent.
#[derive(Debug)]
pub(super) struct SentPacket {
    pub(super) payload: Bytes,
    pub(super) last: bool,
    state: State,
    pub(super) newest: Departure,
    /// When the transmission before the newest left, if there was one that was declared lost.
    lost_transmission: Option<Instant>,
    /// Times it was declared lost.
    pub(super) losses: u8,
}

impl SentPacket {
    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.state == State::InFlight
    }

    pub(super) fn is_acked(&self) -> bool {
        self.state == State::Acked
    }

    /// Notes that it has arrived, and how many bytes are kept no more for that; `None` if it was known.
    fn arrive(&mut self, sequence: u32, frees: bool) -> Option<(Arrived, usize)> {
        if self.is_acked() {
            return None;
        }
        let was_lost = self.is_lost();
        self.state = State::Acked;
        let freed = match frees {
            true => std::mem::take(&mut self.payload).len(),
            false => 0,
        };
        let arrived = Arrived {
            sequence,
            newest: self.newest,
            lost_transmission: self.lost_transmission,
            was_lost,
        };
        Some((arrived, freed))
    }
}

/// A packet that arrived, as it was when the news came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) sequence: u32,
    pub(super) newest: Departure,
    pub(super) lost_transmission: Option<Instant>,
    pub(super) was_lost: bool,
}

/// The packets from `first` on, without a gap, up to `next`.
#[derive(Debug)]
pub(super) struct SentPackets {
    /// The lowest sequence not acknowledged for good.
    first: u32,
    /// The next sequence to assign.
    next: u32,
    packets: VecDeque<SentPacket>,
    /// Bytes of payload kept in these.
    kept: usize,
    /// Of these, packets not known to have arrived.
    unacknowledged: usize,
    /// The others, from `first` on.
    acked: RangeSet,
}

impl SentPackets {
    pub(super) fn new() -> Self {
        Self {
            first: 1,
            next: 1,
            packets: VecDeque::new(),
            kept: 0,
            unacknowledged: 0,
            acked: RangeSet::default(),
        }
    }

    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    pub(super) const fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn get(&self, sequence: u32) -> Option<&SentPacket> {
        self.packets.get(sequence.checked_sub(self.first)? as usize)
    }

    fn get_mut(&mut self, sequence: u32) -> Option<&mut SentPacket> {
        self.packets
            .get_mut(sequence.checked_sub(self.first)? as usize)
    }

    /// The packet that the peer waits for.
    pub(super) fn oldest(&self) -> Option<&SentPacket> {
        self.packets.iter().find(|packet| !packet.is_acked())
    }

    /// The highest sequence acknowledged, and not for good.
    pub(super) fn highest_acked(&self) -> Option<u32> {
        self.acked.descending().next().map(|(_, end)| end - 1)
    }

    /// The packet with the sequence `next` has left.
    pub(super) fn push(&mut self, payload: Bytes, last: bool, newest: Departure) {
        let follows = |before: &SentPacket| !before.last && before.newest.time <= newest.time;
        debug_assert!(self.packets.back().is_none_or(follows), "out of order");
        self.next += 1;
        self.unacknowledged += 1;
        self.kept += payload.len();
        self.packets.push_back(SentPacket {
            payload,
            last,
            state: State::InFlight,
            newest,
            lost_transmission: None,
            losses: 0,
        });
        self.assert_sums();
    }

    /// That packet has left again.
    pub(super) fn resend(&mut self, sequence: u32, newest: Departure) {
        let Some(packet) = self.get_mut(sequence) else {
            return;
        };
        debug_assert!(!packet.is_acked(), "what has arrived is not sent again");
        debug_assert!(packet.newest.time <= newest.time, "time goes back");
        packet.lost_transmission = Some(packet.newest.time);
        packet.state = State::InFlight;
        packet.newest = newest;
    }

    /// One packet has arrived for good; [`Self::release_below`] must follow. `None` if that was known.
    ///
    /// The payload is kept unless `frees`.
    pub(super) fn arrived(&mut self, sequence: u32, frees: bool) -> Option<Arrived> {
        let packet = self.get_mut(sequence)?;
        let (arrived, freed) = packet.arrive(sequence, frees)?;
        self.count_arrived(freed);
        Some(arrived)
    }

    /// The same of a packet whose acknowledgement may be taken back.
    pub(super) fn arrived_softly(&mut self, sequence: u32, frees: bool) -> Option<Arrived> {
        let arrived = self.arrived(sequence, frees)?;
        self.acked.insert(sequence);
        Some(arrived)
    }

    /// The same of all packets of a range; tells of each of which it was not known.
    pub(super) fn range_arrived(
        &mut self,
        start: u32,
        end: u32,
        frees: bool,
        mut tell: impl FnMut(&Arrived),
    ) {
        let end = end.min(self.next);
        if start >= end || start < self.first {
            return;
        }
        let Self {
            first,
            packets,
            kept,
            unacknowledged,
            acked,
            ..
        } = self;
        acked.insert_range(start, end, |start, end| {
            for sequence in start..end {
                let packet = packets.get_mut((sequence - *first) as usize);
                if let Some((arrived, freed)) =
                    packet.and_then(|packet| packet.arrive(sequence, frees))
                {
                    *kept -= freed;
                    *unacknowledged -= 1;
                    tell(&arrived);
                }
            }
        });
        self.assert_sums();
    }

    fn count_arrived(&mut self, freed: usize) {
        debug_assert!(self.unacknowledged > 0, "more has arrived than was sent");
        self.kept -= freed;
        self.unacknowledged -= 1;
        self.assert_sums();
    }

    /// A soft acknowledgement was taken back: the packet counts as lost. False if there was none.
    pub(super) fn take_back(&mut self, sequence: u32) -> bool {
        let Some(packet) = self.get_mut(sequence).filter(|packet| packet.is_acked()) else {
            return false;
        };
        packet.state = State::Lost;
        self.unacknowledged += 1;
        self.acked.remove(sequence);
        self.assert_sums();
        true
    }

    /// One packet was found lost.
    pub(super) fn lose(&mut self, sequence: u32) -> Option<&SentPacket> {
        let packet = self.get_mut(sequence)?;
        debug_assert!(packet.is_in_flight(), "only what is in flight can be lost");
        packet.state = State::Lost;
        packet.losses = packet.losses.saturating_add(1);
        Some(packet)
    }

    /// All that is in flight is to be sent again, though nothing says that it is lost.
    pub(super) fn withdraw(&mut self, mut tell: impl FnMut(u32, &Departure)) {
        for (sequence, packet) in (self.first..).zip(&mut self.packets) {
            if packet.is_in_flight() {
                packet.state = State::Lost;
                tell(sequence, &packet.newest);
            }
        }
    }

    /// Forgets packets that have arrived for good.
    pub(super) fn release_below(&mut self, first: u32) {
        while self.first < first
            && let Some(packet) = self.packets.pop_front()
        {
            debug_assert!(
                packet.is_acked(),
                "a packet is released that did not arrive"
            );
            self.kept -= packet.payload.len();
            self.first += 1;
        }
        self.acked.remove_below(self.first);
        self.assert_sums();
    }

    /// Forgets all; tells of each packet that is in flight.
    pub(super) fn clear(&mut self, mut tell: impl FnMut(&Departure)) {
        for packet in self.packets.drain(..) {
            if packet.is_in_flight() {
                tell(&packet.newest);
            }
        }
        self.first = self.next;
        self.kept = 0;
        self.unacknowledged = 0;
        self.acked.remove_below(self.first);
        self.assert_sums();
    }

    /// What costs nothing to look at of what `check` says.
    fn assert_sums(&self) {
        debug_assert_eq!((self.next - self.first) as usize, self.packets.len());
        debug_assert!(self.unacknowledged <= self.packets.len());
        debug_assert!(self.kept == 0 || !self.packets.is_empty());
    }

    /// Looks whether the sums are those of the packets.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.assert_sums();
        let kept: usize = self.packets.iter().map(|packet| packet.payload.len()).sum();
        assert_eq!(self.kept, kept, "bytes kept");
        let unacknowledged = self.packets.iter().filter(|packet| !packet.is_acked());
        assert_eq!(self.unacknowledged, unacknowledged.count());
        let numbered = (self.first..).zip(&self.packets);
        let acked = numbered.filter(|(_, packet)| packet.is_acked());
        let noted = self.acked.ascending().flat_map(|(start, end)| start..end);
        assert!(noted.eq(acked.map(|(sequence, _)| sequence)), "{self:?}");
    }

    /// The packets with their sequences.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &SentPacket)> {
        (self.first..).zip(&self.packets)
    }
}

#[cfg(test)]
mod tests;
