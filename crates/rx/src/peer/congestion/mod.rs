//! Congestion control of one path: how much may be in flight, and how fast it may leave.
//!
//! One [`Controller`] serves all calls to a peer. The engine tells it what was sent, acknowledged
//! and lost, and asks it for a window, a pacing rate and a burst size. It has no clock: every
//! event carries its time.
//!
//! A peer may ask for several shares of the path (docs/protocol/rx-extension.md, "Shares"). Each is an
//! algorithm of its own with packets of its own, so that so many shares get about what so many peers would
//! get, whatever the algorithm.
//!
//! | algorithm | follows | for |
//! |---|---|---|
//! | [`reno`] | RFC 5681, RFC 6582, RFC 9937 | comparison in tests |
//! | [`cubic`] | RFC 9438, RFC 9406 (HyStart++), RFC 9937 | paths whose losses mean congestion |
//! | [`bbr`] | draft-ietf-ccwg-bbr (BBRv3) | the default: paths that lose at random too |
//!
//! They are written from those documents rather than taken from a library: the ones that can be
//! driven from outside count windows in 32 bits and datagrams in 16, and cannot undo a spurious loss.
//!
//! # Results
//!
//! From the packet-level simulation in `sim.rs` (`cargo test --release -p afar-rx -- --ignored
//! --nocapture table`): drop-tail queue of one bandwidth-delay product (BDP) unless given, initial
//! window 32 packets of 1444 bytes, ramp included. Share of the link's rate; for BBR the worst of 3
//! seeds, for the others one seed:
//!
//! | link | BBR | CUBIC | Reno |
//! |---|---|---|---|
//! | 12.5 ms, 1 Gbit/s, 15 s | 0.994 | 0.995 | 0.995 |
//! | 100 ms, 1 Gbit/s, 4 GiB | 0.975 | 0.978 | 0.978 |
//! | 230 ms, 30 Mbit/s, 40 MB | 0.918 | 0.923 | 0.920 |
//! | the same, 1 % of packets 5 ms late | 0.918 | 0.923 | 0.921 |
//! | 12.5 ms, 1 Gbit/s, 0.1 % loss | 0.993 | 0.044 | 0.037 |
//! | 12.5 ms, 1 Gbit/s, 1 % loss | 0.979 | 0.012 | 0.011 |
//! | 100 ms, 100 Mbit/s, 1 % loss | 0.950 | 0.021 | 0.017 |
//! | 20 ms, 20 Mbit/s, 1 % loss | 0.984 | 0.363 | 0.326 |
//!
//! At 230 ms the ramp binds: 32 packets doubled each round trip fill this pipe after a second, of
//! the 10.7 s the transfer takes at line rate. BBR alone keeps 0.09 BDP queued at 12.5 ms, CUBIC 0.66.
//!
//! Four BBR flows beside four CUBIC flows (unpaced, initial window 10) on 100 Mbit/s and 25 ms,
//! 60 s, 8 seeds:
//!
//! | queue | BBR's share, mean (least to most) | least Jain index among the BBR flows |
//! |---|---|---|
//! | 0.5 BDP | 0.574 (0.528 to 0.593) | 0.972 |
//! | 1 BDP | 0.580 (0.555 to 0.603) | 0.968 |
//! | 2 BDP | 0.588 (0.563 to 0.607) | 0.958 |
//!
//! A latecomer, and a flow with several shares: one BBR flow beside another on 100 Mbit/s, and its part of
//! both in the first 100 s, then in the next (least to most of 3 seeds; queues of 0.5 to 2 BDP at 230 ms,
//! of 1 BDP at 25 ms):
//!
//! | | 230 ms | 25 ms |
//! |---|---|---|
//! | begun 10 s later | 0.27 to 0.45, then 0.46 to 0.69 | 0.38 to 0.40, then 0.49 to 0.51 |
//! | three shares | 0.78 to 0.84, then 0.73 to 0.94 | 0.77 to 0.83, then 0.78 to 0.80 |
//! | three peers | 0.65 to 0.77, then 0.59 to 0.78 | 0.73 to 0.77, then 0.73 to 0.75 |
//!
//! `tests/links.rs` measures the whole engine, with drivers that are now and then kept from running:
//! 1 to 5 ms at a time, a third of the time in all. One call, 1 Gbit/s and 12.5 ms, ramp included,
//! reaches 0.97 of the link's rate without loss, 0.95 with 0.1 % and 0.94 with 1 % (least of 2 seeds).

pub(crate) mod bbr;
pub(crate) mod cubic;
mod episode;
mod flight;
mod hystart;
pub(crate) mod reno;
mod share;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use self::flight::{AckSample, Flight};
pub(crate) use self::flight::{AckedPacket, LostPacket, SentToken};
use self::share::Share;
use super::rtt::RttEstimator;

/// Packets in flight below which no algorithm goes, so that acknowledgements keep coming even if
/// the peer acknowledges only every second packet.
const MIN_WINDOW_PACKETS: u64 = 4;

/// The most shares of a path that a peer gets: more connections than this nobody would open either.
pub(crate) const SHARES_MOST: u8 = 4;

/// Largest burst, the most one segmentation-offloaded send can carry.
const MAX_QUANTUM: usize = 65_536;

/// The congestion control algorithm of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionKind {
    /// NewReno (RFC 5681, RFC 6582): for tests and comparison.
    Reno,
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406): takes every loss for congestion.
    Cubic,
    /// BBRv3 (draft-ietf-ccwg-bbr): models the path's rate and RTT, and tolerates up to 2 % loss.
    #[default]
    Bbr,
}

impl CongestionKind {
    /// The name used in configuration: `reno`, `cubic` or `bbr`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl std::str::FromStr for CongestionKind {
    type Err = UnknownCongestionKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Reno, Self::Cubic, Self::Bbr]
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
            .ok_or(UnknownCongestionKind)
    }
}

/// A name that is no congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown congestion control; use reno, cubic or bbr")]
pub struct UnknownCongestionKind;

/// What an algorithm may look at when an event comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathView<'a> {
    flight: &'a Flight,
    rtt: &'a RttEstimator,
    datagram: u64,
}

/// A congestion control algorithm: events in, a window out.
///
/// [`Controller`] keeps the flight's accounts and calls these with the event already counted.
trait CongestionControl {
    /// A packet left. `restarted` is true if nothing was in flight before it.
    fn on_packet_sent(&mut self, now: Instant, bytes: u64, restarted: bool, path: PathView<'_>);

    /// An acknowledgement newly acknowledged at least one packet.
    fn on_ack(&mut self, ack: &AckSample, path: PathView<'_>);

    /// A packet was declared lost.
    fn on_loss(&mut self, loss: &Loss, path: PathView<'_>);

    /// A loss declared earlier was none: the packet sent at `time_sent` arrived late.
    fn on_spurious_loss(&mut self, now: Instant, bytes: u64, time_sent: Instant);

    /// The path marked `count` packets, the newest of which left at `time_sent`.
    fn on_ecn_ce(&mut self, now: Instant, count: u64, time_sent: Instant, path: PathView<'_>);

    /// The retransmission timeout fired twice in a row: the path's state is unknown.
    fn on_persistent_timeout(&mut self, now: Instant, path: PathView<'_>);

    /// Sending begins again after the path was idle for longer than a retransmission timeout.
    fn on_idle_restart(&mut self, now: Instant, path: PathView<'_>);

    /// The datagram size changed.
    fn on_mtu_change(&mut self, old: u64, new: u64);

    /// Bytes that may be in flight.
    fn window(&self) -> u64;

    /// Bytes per second, or `None` to send as fast as the window allows.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64>;

    /// A lower-case word for the phase the algorithm is in.
    fn state(&self) -> &'static str;
}

/// A loss as the algorithms see it.
#[derive(Clone, Copy, Debug)]
struct Loss {
    now: Instant,
    packet: LostPacket,
    /// The first of a contiguous run of lost packets.
    new_burst: bool,
    /// Nothing sent over a long period got through (RFC 9002 §7.6).
    persistent: bool,
}

/// The congestion controller of one path.
///
/// For each received ACK: `begin_ack`, `on_packet_acked` for each newly acknowledged packet,
/// `on_loss` for each packet this ACK shows to be lost, then `end_ack`, with the RTT estimator
/// already updated. `on_loss` may also come by itself, from a timer.
#[derive(Debug)]
pub(crate) struct Controller {
    kind: CongestionKind,
    datagram: u64,
    initial_window_packets: u32,
    seed: u64,
    /// There is one at least. Those beyond `active` send no more, but what they sent is still counted.
    shares: Vec<Share>,
    active: u8,
}

impl Controller {
    /// A controller for a fresh path. `seed` decides when BBR probes; the same seed and the same
    /// events give the same behaviour.
    pub(crate) fn new(
        kind: CongestionKind,
        now: Instant,
        datagram_size: usize,
        initial_window_packets: u32,
        seed: u64,
    ) -> Self {
        let mut controller = Self {
            kind,
            datagram: datagram_size.max(1) as u64,
            initial_window_packets,
            seed,
            shares: Vec::new(),
            active: 0,
        };
        controller.set_shares(now, 1);
        controller
    }

    /// From now on the path has this many shares, at least one and at most [`SHARES_MOST`]. One that is
    /// new begins as a fresh path does.
    pub(crate) fn set_shares(&mut self, now: Instant, shares: u8) {
        self.active = shares.clamp(1, SHARES_MOST);
        while self.shares.len() < usize::from(self.active) {
            let seed = self.seed.wrapping_add(self.shares.len() as u64);
            let packets = u64::from(self.initial_window_packets).max(MIN_WINDOW_PACKETS);
            let window = packets * self.datagram;
            let share = Share::new(self.kind, now, window, self.datagram, seed);
            self.shares.push(share);
        }
    }

    /// Shares the path has.
    pub(crate) fn shares(&self) -> u8 {
        self.active
    }

    /// Counts a packet as in flight. The token goes with the packet until it is acknowledged,
    /// lost or discarded.
    ///
    /// `app_limited` says that nothing more is ready to be sent although the window has room: for
    /// lack of data, or because the peer's receive window is full.
    pub(crate) fn on_packet_sent(
        &mut self,
        now: Instant,
        bytes: usize,
        app_limited: bool,
        rtt: &RttEstimator,
    ) -> SentToken {
        if app_limited {
            // None of them could use its room.
            for share in &mut self.shares {
                share.mark_app_limited();
            }
        }
        let chosen = self.next_share();
        let several = self.active > 1;
        let share = &mut self.shares[chosen];
        if several {
            share.pace(now, bytes, rtt);
        }
        let token = share.on_packet_sent(now, bytes, app_limited, rtt, self.datagram);
        token.of_share(chosen)
    }

    /// The share that the next packet belongs to: of those with room the one whose pace lets it leave first.
    fn next_share(&self) -> usize {
        let numbered = self.active().enumerate();
        let next =
            numbered.min_by_key(|(_, share)| (share.available() < self.datagram, share.due()));
        next.map_or(0, |(number, _)| number)
    }

    /// Begins the processing of a received ACK.
    pub(crate) fn begin_ack(&mut self) {
        for share in &mut self.shares {
            share.begin_ack();
        }
    }

    /// Takes a newly acknowledged packet out of flight.
    pub(crate) fn on_packet_acked(&mut self, now: Instant, packet: &AckedPacket) {
        self.share_of(packet.token).on_packet_acked(now, packet);
    }

    /// Ends the processing of a received ACK: the window and the rate adapt now.
    pub(crate) fn end_ack(&mut self, now: Instant, rtt: &RttEstimator) {
        for share in &mut self.shares {
            share.end_ack(now, rtt, self.datagram);
        }
    }

    /// Takes a packet that was declared lost out of flight.
    ///
    /// `new_burst` marks the first of a contiguous run of losses; `persistent` says that nothing
    /// got through for so long that the window should collapse (RFC 9002 §7.6).
    pub(crate) fn on_loss(
        &mut self,
        now: Instant,
        packet: &LostPacket,
        new_burst: bool,
        persistent: bool,
        rtt: &RttEstimator,
    ) {
        let loss = Loss {
            now,
            packet: *packet,
            new_burst,
            persistent,
        };
        let datagram = self.datagram;
        self.share_of(packet.token).on_loss(&loss, rtt, datagram);
    }

    /// Takes back a loss: the transmission that left at `time_sent` had arrived after all.
    ///
    /// Changes nothing in flight: the packet left it when it was declared lost, and a
    /// retransmission is acknowledged through `on_packet_acked` like any packet.
    pub(crate) fn on_spurious_loss(
        &mut self,
        now: Instant,
        token: SentToken,
        bytes: usize,
        time_sent: Instant,
    ) {
        self.share_of(token).on_spurious_loss(now, bytes, time_sent);
    }

    /// Counts `count` packets that arrived marked "congestion experienced"; `time_sent` is when
    /// the newest packet of the same ACK left.
    pub(crate) fn on_ecn_ce(
        &mut self,
        now: Instant,
        count: u64,
        time_sent: Instant,
        rtt: &RttEstimator,
    ) {
        if count == 0 {
            return;
        }
        // The peer does not say which packets they were. Most likely they are of the largest flight.
        let datagram = self.datagram;
        if let Some(share) = self.shares.iter_mut().max_by_key(|s| s.in_flight()) {
            share.on_ecn_ce(now, count, time_sent, rtt, datagram);
        }
    }

    /// The retransmission timeout fired twice without any acknowledgement: start over carefully.
    pub(crate) fn on_persistent_timeout(&mut self, now: Instant, rtt: &RttEstimator) {
        for share in &mut self.shares {
            share.on_persistent_timeout(now, rtt, self.datagram);
        }
    }

    /// A packet is not tracked any more, because its call ended: it leaves the flight as neither
    /// delivered nor lost.
    pub(crate) fn on_discarded(&mut self, token: SentToken, bytes: usize) {
        self.share_of(token).on_discarded(bytes);
    }

    /// Sending begins again after nothing was in flight for longer than a retransmission timeout.
    pub(crate) fn on_idle_restart(&mut self, now: Instant, rtt: &RttEstimator) {
        for share in &mut self.shares {
            share.on_idle_restart(now, rtt, self.datagram);
        }
    }

    /// Packets of this path are now up to `datagram_size` bytes.
    pub(crate) fn on_mtu_change(&mut self, datagram_size: usize) {
        let new = datagram_size.max(1) as u64;
        let old = std::mem::replace(&mut self.datagram, new);
        if old != new {
            for share in &mut self.shares {
                share.on_mtu_change(old, new);
            }
        }
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.active().map(Share::window).sum()
    }

    /// Bytes in flight.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.shares.iter().map(Share::in_flight).sum()
    }

    /// Bytes that may be sent now as far as the window goes; the pacer may allow less.
    pub(crate) fn available(&self) -> u64 {
        self.active().map(Share::available).sum()
    }

    /// Bytes per second at which packets should leave; `None` if they need not be paced.
    pub(crate) fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64> {
        self.active().map(|share| share.pacing_rate(rtt)).sum()
    }

    /// Bytes worth sending in one go: about a millisecond's worth at the pacing rate, at least two
    /// packets and at most 64 KiB, but always a whole packet.
    pub(crate) fn send_quantum(&self, rtt: &RttEstimator) -> usize {
        let datagram = usize::try_from(self.datagram).unwrap_or(MAX_QUANTUM);
        let ceiling = MAX_QUANTUM / datagram.max(1) * datagram;
        let Some(rate) = self.pacing_rate(rtt) else {
            return ceiling.max(datagram);
        };
        let millisecond = usize::try_from(rate / 1000).unwrap_or(MAX_QUANTUM);
        let whole_packets = millisecond / datagram * datagram;
        whole_packets.max(2 * datagram).min(ceiling).max(datagram)
    }

    /// The algorithm's name.
    pub(crate) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// A lower-case word for the phase the algorithm is in; with several shares, the first one's.
    pub(crate) fn state(&self) -> &'static str {
        self.shares[0].state()
    }

    fn active(&self) -> impl Iterator<Item = &Share> {
        self.shares[..usize::from(self.active)].iter()
    }

    fn share_of(&mut self, token: SentToken) -> &mut Share {
        // Shares are never taken away.
        &mut self.shares[token.share()]
    }

    /// Bytes delivered and lost on this path so far.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> (u64, u64) {
        let each = self.shares.iter().map(Share::totals);
        each.fold((0, 0), |(d, l), (delivered, lost)| {
            (d + delivered, l + lost)
        })
    }
}

/// Pacing for window-based algorithms: the window over the RTT, and enough above it that pacing
/// never is what limits (twice in slow start, where the window doubles in a round; 1.25 × after).
fn window_pacing(window: u64, slow_start: bool, rtt: &RttEstimator) -> u64 {
    let rtt = rtt.smoothed().max(Duration::from_micros(1));
    let gain = if slow_start { 2.0 } else { 1.25 };
    flight::rate_over(flight::scale(window, gain), rtt).max(1)
}
