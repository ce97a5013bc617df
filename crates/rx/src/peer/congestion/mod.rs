//! Congestion control of one path: how much may be in flight, and how fast it may leave.
//!
//! One [`Controller`] serves all calls to a peer. The engine tells it what was sent, acknowledged
//! and lost, and asks it for a window, a pacing rate and a burst size. It has no clock: every
//! event carries its time.
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
//! | 12.5 ms, 1 Gbit/s, 15 s | 0.995 | 0.995 | 0.995 |
//! | 100 ms, 1 Gbit/s, 4 GiB | 0.978 | 0.978 | 0.978 |
//! | 230 ms, 30 Mbit/s, 40 MB | 0.922 | 0.923 | 0.920 |
//! | the same, 1 % of packets 5 ms late | 0.922 | 0.923 | 0.921 |
//! | 12.5 ms, 1 Gbit/s, 0.1 % loss | 0.994 | 0.044 | 0.037 |
//! | 12.5 ms, 1 Gbit/s, 1 % loss | 0.980 | 0.012 | 0.011 |
//! | 100 ms, 100 Mbit/s, 1 % loss | 0.953 | 0.021 | 0.017 |
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
//! | 0.5 BDP | 0.591 (0.576 to 0.609) | 0.952 |
//! | 1 BDP | 0.576 (0.553 to 0.603) | 0.962 |
//! | 2 BDP | 0.548 (0.490 to 0.591) | 0.950 |
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
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub(crate) use self::flight::{AckedPacket, LostPacket, SentToken};
use self::{
    bbr::Bbr,
    cubic::Cubic,
    flight::{AckSample, Flight},
    reno::Reno,
};
use super::rtt::RttEstimator;

/// Packets in flight below which no algorithm goes, so that acknowledgements keep coming even if
/// the peer acknowledges only every second packet.
const MIN_WINDOW_PACKETS: u64 = 4;

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
#[error("unknown congestion control; known are reno, cubic and bbr")]
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

#[derive(Debug)]
enum Algorithm {
    Reno(Reno),
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

macro_rules! dispatch {
    ($algorithm:expr, $inner:ident => $body:expr) => {
        match $algorithm {
            Algorithm::Reno($inner) => $body,
            Algorithm::Cubic($inner) => $body,
            Algorithm::Bbr($inner) => $body,
        }
    };
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
    flight: Flight,
    algorithm: Algorithm,
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
        let datagram = datagram_size.max(1) as u64;
        let window = u64::from(initial_window_packets).max(MIN_WINDOW_PACKETS) * datagram;
        let algorithm = match kind {
            CongestionKind::Reno => Algorithm::Reno(Reno::new(window)),
            CongestionKind::Cubic => Algorithm::Cubic(Cubic::new(window, datagram)),
            CongestionKind::Bbr => Algorithm::Bbr(Box::new(Bbr::new(now, window, datagram, seed))),
        };
        Self {
            kind,
            datagram,
            flight: Flight::new(now),
            algorithm,
        }
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
        let restarted = self.flight.in_flight() == 0;
        let token = self.flight.on_sent(now, bytes, app_limited);
        let path = PathView {
            flight: &self.flight,
            rtt,
            datagram: self.datagram,
        };
        dispatch!(&mut self.algorithm, a => a.on_packet_sent(now, bytes as u64, restarted, path));
        token
    }

    /// Begins the processing of a received ACK.
    pub(crate) fn begin_ack(&mut self) {
        self.flight.begin_ack();
    }

    /// Takes a newly acknowledged packet out of flight.
    pub(crate) fn on_packet_acked(&mut self, now: Instant, packet: &AckedPacket) {
        let window = self.window();
        self.flight.on_packet_acked(now, packet, window);
    }

    /// Ends the processing of a received ACK: the window and the rate adapt now.
    pub(crate) fn end_ack(&mut self, now: Instant, rtt: &RttEstimator) {
        let Some(ack) = self.flight.end_ack(now, rtt) else {
            return;
        };
        let path = PathView {
            flight: &self.flight,
            rtt,
            datagram: self.datagram,
        };
        dispatch!(&mut self.algorithm, a => a.on_ack(&ack, path));
        if matches!(&self.algorithm, Algorithm::Bbr(bbr) if bbr.probing_rtt()) {
            // The small flight is our own doing; its rate says nothing about the path.
            self.flight.mark_app_limited();
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
        self.flight.on_lost(packet.bytes);
        let path = PathView {
            flight: &self.flight,
            rtt,
            datagram: self.datagram,
        };
        let loss = Loss {
            now,
            packet: *packet,
            new_burst,
            persistent,
        };
        dispatch!(&mut self.algorithm, a => a.on_loss(&loss, path));
    }

    /// Takes back a loss: the transmission that left at `time_sent` had arrived after all.
    ///
    /// Changes nothing in flight: the packet left it when it was declared lost, and a
    /// retransmission is acknowledged through `on_packet_acked` like any packet.
    pub(crate) fn on_spurious_loss(&mut self, now: Instant, bytes: usize, time_sent: Instant) {
        self.flight.on_spurious_loss(bytes);
        dispatch!(&mut self.algorithm, a => a.on_spurious_loss(now, bytes as u64, time_sent));
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
        let path = PathView {
            flight: &self.flight,
            rtt,
            datagram: self.datagram,
        };
        dispatch!(&mut self.algorithm, a => a.on_ecn_ce(now, count, time_sent, path));
    }

    /// The retransmission timeout fired twice without any acknowledgement: start over carefully.
    pub(crate) fn on_persistent_timeout(&mut self, now: Instant, rtt: &RttEstimator) {
        let path = PathView {
            flight: &self.flight,
            rtt,
            datagram: self.datagram,
        };
        dispatch!(&mut self.algorithm, a => a.on_persistent_timeout(now, path));
    }

    /// A packet is not tracked any more, because its call ended: it leaves the flight as neither
    /// delivered nor lost.
    pub(crate) fn on_discarded(&mut self, _token: SentToken, bytes: usize) {
        self.flight.on_discarded(bytes);
    }

    /// Sending begins again after nothing was in flight for longer than a retransmission timeout.
    pub(crate) fn on_idle_restart(&mut self, now: Instant, rtt: &RttEstimator) {
        let path = PathView {
            flight: &self.flight,
            rtt,
            datagram: self.datagram,
        };
        dispatch!(&mut self.algorithm, a => a.on_idle_restart(now, path));
    }

    /// Packets of this path are now up to `datagram_size` bytes.
    pub(crate) fn on_mtu_change(&mut self, datagram_size: usize) {
        let new = datagram_size.max(1) as u64;
        let old = std::mem::replace(&mut self.datagram, new);
        if old != new {
            dispatch!(&mut self.algorithm, a => a.on_mtu_change(old, new));
        }
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        dispatch!(&self.algorithm, a => a.window())
    }

    /// Bytes in flight.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.flight.in_flight()
    }

    /// Bytes that may be sent now as far as the window goes; the pacer may allow less.
    pub(crate) fn available(&self) -> u64 {
        self.window().saturating_sub(self.flight.in_flight())
    }

    /// Bytes per second at which packets should leave; `None` if they need not be paced.
    pub(crate) fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64> {
        dispatch!(&self.algorithm, a => a.pacing_rate(rtt))
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

    /// A lower-case word for the phase the algorithm is in.
    pub(crate) fn state(&self) -> &'static str {
        dispatch!(&self.algorithm, a => a.state())
    }

    /// Bytes delivered and lost on this path so far.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.flight.delivered(), self.flight.lost())
    }
}

/// Pacing for window-based algorithms: the window over the RTT, and enough above it that pacing
/// never is what limits (twice in slow start, where the window doubles in a round; 1.25 × after).
fn window_pacing(window: u64, slow_start: bool, rtt: &RttEstimator) -> u64 {
    let rtt = rtt.smoothed().max(Duration::from_micros(1));
    let gain = if slow_start { 2.0 } else { 1.25 };
    flight::rate_over(flight::scale(window, gain), rtt).max(1)
}
