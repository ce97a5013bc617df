//! CUBIC (RFC 9438) with HyStart++ (RFC 9406) and proportional rate reduction (RFC 9937).
//!
//! Losses that prove spurious are undone entirely (RFC 9438 §4.9.2): the window, the threshold
//! and the cubic epoch go back to what they were.

use std::time::{Duration, Instant};

use super::{
    CongestionControl, Loss, MIN_WINDOW_PACKETS, PathView,
    episode::Episode,
    flight::{AckSample, scale, to_u64},
    hystart::{CSS_GROWTH_DIVISOR, HyStart, SlowStart},
    window_pacing,
};
use crate::peer::rtt::RttEstimator;

/// The window after a loss, as a share of the window before it.
const BETA: f64 = 0.7;
/// How fast the window grows, in segments per second cubed.
const C: f64 = 0.4;
/// Growth of the Reno-friendly estimate that matches Reno's average with our beta.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of CUBIC on one path.
#[derive(Debug)]
pub(crate) struct Cubic {
    curve: Curve,
    initial: u64,
    hystart: HyStart,
    episode: Option<Episode<Curve>>,
}

/// What a loss changes, and what an undo restores.
#[derive(Clone, Debug)]
struct Curve {
    window: f64,
    threshold: u64,
    /// The window before the last reduction, in bytes.
    window_max: f64,
    /// The window just before the reduction, without fast convergence.
    window_prior: f64,
    epoch: Option<Epoch>,
}

/// One stretch of congestion avoidance.
#[derive(Clone, Debug)]
struct Epoch {
    began: Instant,
    /// Seconds from the epoch's begin until the curve reaches `window_max`.
    k: f64,
    /// What Reno would have, in bytes.
    reno: f64,
    last_ack: Instant,
}

impl Cubic {
    pub(super) fn new(window: u64, _datagram: u64) -> Self {
        Self {
            curve: Curve {
                window: window as f64,
                threshold: u64::MAX,
                window_max: 0.0,
                window_prior: 0.0,
                epoch: None,
            },
            initial: window,
            hystart: HyStart::default(),
            episode: None,
        }
    }

    fn reduce(&mut self, now: Instant, in_flight: u64, undoable: bool, datagram: u64) {
        let undo = undoable.then(|| self.curve.clone());
        self.curve.reduce(datagram);
        let target = self.curve.threshold;
        let previous = self.episode.take();
        self.episode = Some(Episode::begin(
            now,
            previous.as_ref(),
            undo,
            target,
            in_flight,
            datagram,
        ));
    }

    fn collapse(&mut self, datagram: u64) {
        self.curve.reduce(datagram);
        self.curve.window = (MIN_WINDOW_PACKETS * datagram) as f64;
        self.hystart = HyStart::default();
        self.episode = None;
    }
}

impl Curve {
    fn reduce(&mut self, datagram: u64) {
        self.window_prior = self.window;
        // Fast convergence: a window that shrinks twice in a row makes room for a newcomer.
        self.window_max = if self.window < self.window_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        let floor = (MIN_WINDOW_PACKETS * datagram) as f64;
        self.window = (self.window * BETA).max(floor);
        self.threshold = to_u64(self.window);
        self.epoch = None;
    }

    /// Congestion avoidance (RFC 9438 §4.2 to §4.5).
    fn grow(&mut self, now: Instant, acked: u64, rtt: Duration, datagram: f64) {
        let acked = acked as f64;
        let window = self.window;
        if self.window_max < window {
            self.window_max = window;
        }
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began: now,
            k: ((self.window_max - window).max(0.0) / datagram / C).cbrt(),
            reno: window,
            last_ack: now,
        });
        epoch.last_ack = now;
        let elapsed = now.saturating_duration_since(epoch.began).as_secs_f64();
        let at = |t: f64| C * (t - epoch.k).powi(3) * datagram + self.window_max;
        let alpha = if epoch.reno < self.window_prior {
            ALPHA
        } else {
            1.0
        };
        epoch.reno += alpha * datagram * acked / window;
        if at(elapsed) < epoch.reno {
            self.window = window.max(epoch.reno);
        } else {
            let target = at(elapsed + rtt.as_secs_f64()).clamp(window, 1.5 * window);
            self.window += (target - window) / window * acked;
        }
    }
}

impl Cubic {
    fn in_slow_start(&self) -> bool {
        to_u64(self.curve.window) < self.curve.threshold
    }
}

impl CongestionControl for Cubic {
    fn on_packet_sent(&mut self, now: Instant, bytes: u64, restarted: bool, _path: PathView<'_>) {
        if let Some(episode) = &mut self.episode {
            episode.on_sent(bytes);
        }
        // Idle time is no time of growth: the curve goes on where it was.
        if restarted && let Some(epoch) = &mut self.curve.epoch {
            epoch.began += now.saturating_duration_since(epoch.last_ack);
            epoch.last_ack = now;
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
            let growth = match self.hystart.on_ack(ack, path.flight.delivered()) {
                SlowStart::Grow => ack.acked_window_limited,
                SlowStart::GrowSlowly => ack.acked_window_limited / CSS_GROWTH_DIVISOR,
                SlowStart::Leave => {
                    self.curve.threshold = to_u64(self.curve.window);
                    0
                }
            };
            self.curve.window += growth as f64;
        } else if ack.acked_window_limited > 0 {
            let (rtt, datagram) = (path.rtt.smoothed(), path.datagram as f64);
            self.curve
                .grow(ack.now, ack.acked_window_limited, rtt, datagram);
        } else if let Some(epoch) = &mut self.curve.epoch {
            // The application limits: the curve waits.
            epoch.began += ack.now.saturating_duration_since(epoch.last_ack);
            epoch.last_ack = ack.now;
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

    fn on_spurious_loss(&mut self, now: Instant, _bytes: u64, time_sent: Instant) {
        let undo = self
            .episode
            .as_mut()
            .and_then(|e| e.on_spurious_loss(time_sent));
        if let Some(mut before) = undo {
            before.window = before.window.max(self.curve.window);
            if let Some(epoch) = &mut before.epoch {
                // The time of a recovery that was for nothing is no time of growth.
                epoch.began += now.saturating_duration_since(epoch.last_ack);
                epoch.last_ack = now;
            }
            self.curve = before;
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
        let window = to_u64(self.curve.window);
        // RFC 2861: what was found before counts for three quarters.
        self.curve.threshold = self.curve.threshold.max(scale(window, 0.75));
        self.curve.window = self.curve.window.min(self.initial as f64);
        self.curve.epoch = None;
        self.hystart = HyStart::default();
    }

    fn on_mtu_change(&mut self, old: u64, new: u64) {
        // A window begins with a number of packets, however large these are.
        self.initial = scale(self.initial, new as f64 / old as f64);
        self.curve.window = self.curve.window.max((MIN_WINDOW_PACKETS * new) as f64);
        self.curve.epoch = None;
    }

    fn window(&self) -> u64 {
        let recovery = self.episode.as_ref().and_then(Episode::recovery_window);
        recovery.unwrap_or_else(|| to_u64(self.curve.window))
    }

    fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64> {
        Some(window_pacing(
            to_u64(self.curve.window),
            self.in_slow_start(),
            rtt,
        ))
    }

    fn state(&self) -> &'static str {
        match &self.episode {
            Some(episode) if episode.recovering() => "recovery",
            _ if self.in_slow_start() => "slow-start",
            _ => "congestion-avoidance",
        }
    }
}
