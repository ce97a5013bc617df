//! One share of a path: an algorithm, and the packets it has in flight.

use std::time::{Duration, Instant};

use super::bbr::Bbr;
use super::cubic::Cubic;
use super::flight::{AckedPacket, Flight, SentToken};
use super::reno::Reno;
use super::{CongestionControl, CongestionKind, Loss, PathView};
use crate::peer::rtt::RttEstimator;

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

/// Calls the algorithm with what it may look at, besides the event.
macro_rules! tell {
    ($share:expr, $rtt:expr, $datagram:expr, $method:ident($($event:expr),*)) => {{
        let path = PathView {
            flight: &$share.flight,
            rtt: $rtt,
            datagram: $datagram,
        };
        dispatch!(&mut $share.algorithm, a => a.$method($($event,)* path));
    }};
}

/// The events and questions are those of [`Controller`](super::Controller), as far as they are of packets of
/// this share. `datagram` is the size of the path's packets.
#[derive(Debug)]
pub(super) struct Share {
    flight: Flight,
    algorithm: Algorithm,
    /// When its pace lets the next packet leave.
    due: Instant,
}

impl Share {
    /// One with a window of so many bytes at first.
    pub(super) fn new(
        kind: CongestionKind,
        now: Instant,
        window: u64,
        datagram: u64,
        seed: u64,
    ) -> Self {
        let algorithm = match kind {
            CongestionKind::Reno => Algorithm::Reno(Reno::new(window)),
            CongestionKind::Cubic => Algorithm::Cubic(Cubic::new(window, datagram)),
            CongestionKind::Bbr => Algorithm::Bbr(Box::new(Bbr::new(now, window, datagram, seed))),
        };
        Self {
            flight: Flight::new(now),
            algorithm,
            due: now,
        }
    }

    pub(super) fn on_packet_sent(
        &mut self,
        now: Instant,
        bytes: usize,
        app_limited: bool,
        rtt: &RttEstimator,
        datagram: u64,
    ) -> SentToken {
        let restarted = self.flight.in_flight() == 0;
        let token = self.flight.on_sent(now, bytes, app_limited);
        tell!(
            self,
            rtt,
            datagram,
            on_packet_sent(now, bytes as u64, restarted)
        );
        token
    }

    /// A packet is about to be sent: the next one is due when its time at the share's pace is over.
    pub(super) fn pace(&mut self, now: Instant, bytes: usize, rtt: &RttEstimator) {
        if let Some(rate) = self.pacing_rate(rtt) {
            let time = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            // What was not sent in time is not made up for.
            self.due = self.due.max(now) + time;
        }
    }

    /// Nothing more is ready to be sent, by this share or another.
    pub(super) fn mark_app_limited(&mut self) {
        self.flight.mark_app_limited();
    }

    pub(super) fn begin_ack(&mut self) {
        self.flight.begin_ack();
    }

    pub(super) fn on_packet_acked(&mut self, now: Instant, packet: &AckedPacket) {
        let window = self.window();
        self.flight.on_packet_acked(now, packet, window);
    }

    pub(super) fn end_ack(&mut self, now: Instant, rtt: &RttEstimator, datagram: u64) {
        let Some(ack) = self.flight.end_ack(now, rtt) else {
            return;
        };
        tell!(self, rtt, datagram, on_ack(&ack));
        if matches!(&self.algorithm, Algorithm::Bbr(bbr) if bbr.probing_rtt()) {
            // The small flight is our own doing; its rate says nothing about the path.
            self.flight.mark_app_limited();
        }
    }

    pub(super) fn on_loss(&mut self, loss: &Loss, rtt: &RttEstimator, datagram: u64) {
        self.flight.on_lost(loss.packet.bytes);
        tell!(self, rtt, datagram, on_loss(loss));
    }

    pub(super) fn on_spurious_loss(&mut self, now: Instant, bytes: usize, time_sent: Instant) {
        self.flight.on_spurious_loss(bytes);
        dispatch!(&mut self.algorithm, a => a.on_spurious_loss(now, bytes as u64, time_sent));
    }

    pub(super) fn on_ecn_ce(
        &mut self,
        now: Instant,
        count: u64,
        time_sent: Instant,
        rtt: &RttEstimator,
        datagram: u64,
    ) {
        tell!(self, rtt, datagram, on_ecn_ce(now, count, time_sent));
    }

    pub(super) fn on_persistent_timeout(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        datagram: u64,
    ) {
        tell!(self, rtt, datagram, on_persistent_timeout(now));
    }

    pub(super) fn on_discarded(&mut self, bytes: usize) {
        self.flight.on_discarded(bytes);
    }

    pub(super) fn on_idle_restart(&mut self, now: Instant, rtt: &RttEstimator, datagram: u64) {
        tell!(self, rtt, datagram, on_idle_restart(now));
    }

    pub(super) fn on_mtu_change(&mut self, old: u64, new: u64) {
        dispatch!(&mut self.algorithm, a => a.on_mtu_change(old, new));
    }

    pub(super) fn window(&self) -> u64 {
        dispatch!(&self.algorithm, a => a.window())
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.flight.in_flight()
    }

    pub(super) fn available(&self) -> u64 {
        self.window().saturating_sub(self.flight.in_flight())
    }

    pub(super) fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64> {
        dispatch!(&self.algorithm, a => a.pacing_rate(rtt))
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    pub(super) fn state(&self) -> &'static str {
        dispatch!(&self.algorithm, a => a.state())
    }

    /// Bytes delivered and lost so far.
    #[cfg(test)]
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.flight.delivered(), self.flight.lost())
    }
}
