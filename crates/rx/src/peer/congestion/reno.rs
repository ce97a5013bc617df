//! NewReno (RFC 5681, RFC 6582) with proportional rate reduction (RFC 9937), for comparison.

use std::time::Instant;

use super::{
    CongestionControl, Loss, MIN_WINDOW_PACKETS, PathView, episode::Episode, flight::AckSample,
    flight::scale, window_pacing,
};
use crate::peer::rtt::RttEstimator;

/// The window after a loss, as a share of the window before it.
const BETA: f64 = 0.5;

/// State of NewReno on one path.
#[derive(Debug)]
pub(crate) struct Reno {
    window: u64,
    initial: u64,
    threshold: u64,
    /// Bytes acknowledged in congestion avoidance since the window last grew.
    credit: u64,
    episode: Option<Episode<(u64, u64)>>,
}

impl Reno {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            initial: window,
            threshold: u64::MAX,
            credit: 0,
            episode: None,
        }
    }

    fn reduce(&mut self, now: Instant, in_flight: u64, undoable: bool, datagram: u64) {
        let undo = undoable.then_some((self.window, self.threshold));
        self.threshold = scale(self.window, BETA).max(MIN_WINDOW_PACKETS * datagram);
        let previous = self.episode.take();
        let begun = Episode::begin(
            now,
            previous.as_ref(),
            undo,
            self.threshold,
            in_flight,
            datagram,
        );
        self.episode = Some(begun);
        self.window = self.threshold;
        self.credit = 0;
    }

    fn collapse(&mut self, datagram: u64) {
        self.threshold = self
            .threshold
            .min(scale(self.window, BETA))
            .max(MIN_WINDOW_PACKETS * datagram);
        self.window = MIN_WINDOW_PACKETS * datagram;
        self.credit = 0;
        self.episode = None;
    }
}

impl Reno {
    fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }
}

impl CongestionControl for Reno {
    fn on_packet_sent(&mut self, _now: Instant, bytes: u64, _restarted: bool, _path: PathView<'_>) {
        if let Some(episode) = &mut self.episode {
            episode.on_sent(bytes);
        }
    }

    fn on_ack(&mut self, ack: &AckSample, path: PathView<'_>) {
        if let Some(episode) = &mut self.episode {
            let ended = episode.on_ack(ack, path.flight.in_flight(), path.datagram);
            if ended || episode.recovering() {
                return;
            }
        }
        if self.in_slow_start() {
            self.window += ack.acked_window_limited;
            return;
        }
        self.credit += ack.acked_window_limited;
        while self.credit >= self.window {
            self.credit -= self.window;
            self.window += path.datagram;
        }
    }

    fn on_loss(&mut self, loss: &Loss, path: PathView<'_>) {
        let bytes = loss.packet.bytes as u64;
        if loss.persistent {
            self.collapse(path.datagram);
            return;
        }
        if !self
            .episode
            .as_ref()
            .is_some_and(|e| e.covers(loss.packet.time_sent))
        {
            let in_flight = path.flight.in_flight() + bytes;
            self.reduce(loss.now, in_flight, true, path.datagram);
        }
        if let Some(episode) = &mut self.episode {
            episode.on_loss(bytes);
        }
    }

    fn on_spurious_loss(&mut self, _now: Instant, _bytes: u64, time_sent: Instant) {
        let undo = self
            .episode
            .as_mut()
            .and_then(|e| e.on_spurious_loss(time_sent));
        if let Some((window, threshold)) = undo {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
        }
    }

    fn on_ecn_ce(&mut self, now: Instant, _count: u64, time_sent: Instant, path: PathView<'_>) {
        match &mut self.episode {
            Some(episode) if episode.covers(time_sent) => episode.confirm(),
            _ => self.reduce(now, path.flight.in_flight(), false, path.datagram),
        }
    }

    fn on_persistent_timeout(&mut self, _now: Instant, path: PathView<'_>) {
        self.collapse(path.datagram);
    }

    fn on_idle_restart(&mut self, _now: Instant, _path: PathView<'_>) {
        // RFC 2861: what was found before counts for three quarters.
        self.threshold = self.threshold.max(scale(self.window, 0.75));
        self.window = self.window.min(self.initial);
        self.credit = 0;
    }

    fn on_mtu_change(&mut self, old: u64, new: u64) {
        self.initial = scale(self.initial, new as f64 / old as f64);
        self.window = self.window.max(MIN_WINDOW_PACKETS * new);
    }

    fn window(&self) -> u64 {
        self.episode
            .as_ref()
            .and_then(Episode::recovery_window)
            .unwrap_or(self.window)
    }

    fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64> {
        Some(window_pacing(self.window, self.in_slow_start(), rtt))
    }

    fn state(&self) -> &'static str {
        match &self.episode {
            Some(episode) if episode.recovering() => "recovery",
            _ if self.in_slow_start() => "slow-start",
            _ => "congestion-avoidance",
        }
    }
}
