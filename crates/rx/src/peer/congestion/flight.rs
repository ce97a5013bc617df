//! What is in flight on a path, and how fast the path delivers.
//!
//! The delivery rate is measured as in draft-ietf-ccwg-bbr §4.1: each packet remembers how much
//! had been delivered when it left, so its acknowledgement gives one sample over about one round
//! trip, bounded by both the sending and the delivering pace.

use std::time::{Duration, Instant};

use crate::peer::rtt::RttEstimator;

const APP_LIMITED: u64 = 1 << 63;
/// The share of the path is in these bits.
const SHARE_SHIFT: u32 = 61;
const SHARE_MASK: u64 = 0b11 << SHARE_SHIFT;

/// What the controller wants remembered about one transmission.
///
/// Times are nanoseconds since the controller was made. 40 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentToken {
    /// Bytes the path had delivered when this packet left.
    delivered: u64,
    /// When the newest of those was acknowledged.
    delivered_at: u64,
    /// When the packet left whose acknowledgement that was.
    first_sent_at: u64,
    /// Bytes in flight, this packet included.
    in_flight: u64,
    /// Bytes the path had lost; the top bit says that the application limited the flight, the next two which
    /// share of the path the packet belongs to.
    lost_and_more: u64,
}

impl SentToken {
    /// Bytes the path had delivered when this packet left.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes in flight just after this packet left, itself included.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes the path had lost when this packet left.
    pub(super) fn lost(&self) -> u64 {
        self.lost_and_more & !(APP_LIMITED | SHARE_MASK)
    }

    /// True if the flight was smaller than the window for lack of data.
    pub(super) fn app_limited(&self) -> bool {
        self.lost_and_more & APP_LIMITED != 0
    }

    /// Which share of the path the packet belongs to.
    pub(super) fn share(&self) -> usize {
        ((self.lost_and_more & SHARE_MASK) >> SHARE_SHIFT) as usize
    }

    /// The same, of this share, of which there are [`SHARES_MOST`](super::SHARES_MOST).
    pub(super) fn of_share(self, share: usize) -> Self {
        let share = (share as u64) << SHARE_SHIFT & SHARE_MASK;
        Self {
            lost_and_more: self.lost_and_more & !SHARE_MASK | share,
            ..self
        }
    }
}

/// A packet that was acknowledged for the first time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckedPacket {
    /// What `on_packet_sent` gave for this transmission.
    pub(crate) token: SentToken,
    /// When this transmission left.
    pub(crate) time_sent: Instant,
    /// Size as counted when it was sent.
    pub(crate) bytes: usize,
}

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostPacket {
    /// What `on_packet_sent` gave for this transmission.
    pub(crate) token: SentToken,
    /// When this transmission left.
    pub(crate) time_sent: Instant,
    /// Size as counted when it was sent.
    pub(crate) bytes: usize,
}

/// What one received acknowledgement said about the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckSample {
    pub(super) now: Instant,
    /// Bytes newly acknowledged.
    pub(super) acked: u64,
    /// Of these, bytes sent while the window was in use, so that they argue for a larger one.
    pub(super) acked_window_limited: u64,
    /// When the newest acknowledged packet left.
    pub(super) newest_sent: Instant,
    /// The newest acknowledged packet's token.
    pub(super) newest: SentToken,
    /// Bytes per second; `None` if the sample is too short to be believed.
    pub(super) rate: Option<u64>,
    /// Bytes delivered over the sample.
    pub(super) delivered: u64,
    /// Bytes lost over the sample.
    pub(super) lost: u64,
    /// The new RTT sample, if this acknowledgement gave one.
    pub(super) rtt: Option<Duration>,
}

/// Counts bytes in flight, delivered and lost on one path.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    epoch: Instant,
    in_flight: u64,
    delivered: u64,
    lost: u64,
    delivered_at: u64,
    first_sent_at: u64,
    /// The flight counts as limited by the application until this much is delivered.
    app_limited_until: u64,
    rtt_samples: u64,
    pending: Option<Pending>,
}

/// What the packets of the acknowledgement being processed have added so far.
#[derive(Clone, Copy, Debug)]
struct Pending {
    acked: u64,
    acked_window_limited: u64,
    newest_sent: Instant,
    newest: SentToken,
}

impl Flight {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            in_flight: 0,
            delivered: 0,
            lost: 0,
            delivered_at: 0,
            first_sent_at: 0,
            app_limited_until: 0,
            rtt_samples: 0,
            pending: None,
        }
    }

    /// Bytes sent and neither acknowledged, declared lost nor discarded.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes lost so far, less those that proved not to be.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// True while samples may understate the path because the application had nothing to send.
    pub(super) fn app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// From now on, until what is in flight is delivered, the flight is not limited by the window.
    pub(super) fn mark_app_limited(&mut self) {
        self.app_limited_until = (self.delivered + self.in_flight).max(1);
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize, app_limited: bool) -> SentToken {
        let at = self.at(now);
        if self.in_flight == 0 {
            self.first_sent_at = at;
            self.delivered_at = at;
        }
        self.in_flight += bytes as u64;
        if app_limited {
            self.mark_app_limited();
        }
        let limit = if self.app_limited() { APP_LIMITED } else { 0 };
        SentToken {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight: self.in_flight,
            lost_and_more: self.lost & !(APP_LIMITED | SHARE_MASK) | limit,
        }
    }

    /// Begins an acknowledgement; what an unfinished one had gathered stays counted.
    pub(super) fn begin_ack(&mut self) {
        self.pending = None;
    }

    /// Counts one newly acknowledged packet. `window` is the congestion window.
    pub(super) fn on_packet_acked(&mut self, now: Instant, packet: &AckedPacket, window: u64) {
        let bytes = packet.bytes as u64;
        let token = packet.token;
        let mut pending = self.pending.unwrap_or(Pending {
            acked: 0,
            acked_window_limited: 0,
            newest_sent: packet.time_sent,
            newest: token,
        });
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = self.at(now);
        pending.acked += bytes;
        if !token.app_limited() || token.in_flight.saturating_mul(2) >= window {
            pending.acked_window_limited += bytes;
        }
        let newer =
            (packet.time_sent, token.delivered) >= (pending.newest_sent, pending.newest.delivered);
        if newer {
            pending.newest_sent = packet.time_sent;
            pending.newest = token;
        }
        self.pending = Some(pending);
    }

    /// Closes the acknowledgement; `None` if it acknowledged nothing new.
    pub(super) fn end_ack(&mut self, now: Instant, rtt: &RttEstimator) -> Option<AckSample> {
        let pending = self.pending.take()?;
        let newest = pending.newest;
        let sent_at = self.at(pending.newest_sent);
        self.first_sent_at = self.first_sent_at.max(sent_at);
        if self.app_limited_until <= self.delivered {
            self.app_limited_until = 0;
        }
        let delivered = self.delivered.saturating_sub(newest.delivered);
        let send_elapsed = sent_at.saturating_sub(newest.first_sent_at);
        let ack_elapsed = self.delivered_at.saturating_sub(newest.delivered_at);
        let interval = Duration::from_nanos(send_elapsed.max(ack_elapsed));
        // A sample over less than a round trip comes from a retransmission whose original was
        // acknowledged, or from a clock that jumped.
        let believable = !interval.is_zero() && (!rtt.has_sample() || interval >= rtt.min());
        let fresh_rtt = rtt.samples() != self.rtt_samples;
        self.rtt_samples = rtt.samples();
        Some(AckSample {
            now,
            acked: pending.acked,
            acked_window_limited: pending.acked_window_limited,
            newest_sent: pending.newest_sent,
            newest,
            rate: believable.then(|| rate_over(delivered, interval)),
            delivered,
            lost: self.lost.saturating_sub(newest.lost()),
            rtt: fresh_rtt.then(|| rtt.latest()),
        })
    }

    pub(super) fn on_lost(&mut self, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes as u64);
        self.lost += bytes as u64;
    }

    pub(super) fn on_spurious_loss(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_sub(bytes as u64);
    }

    pub(super) fn on_discarded(&mut self, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes as u64);
    }

    fn at(&self, time: Instant) -> u64 {
        nanos(time.saturating_duration_since(self.epoch))
    }
}

/// Nanoseconds of `duration`, enough for 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

/// Bytes per second of `bytes` in `interval`.
pub(super) fn rate_over(bytes: u64, interval: Duration) -> u64 {
    to_u64(bytes as f64 / interval.as_secs_f64().max(1e-9))
}

/// `value` × `gain`; `u64::MAX`, which stands for "no bound", stays what it is.
pub(super) fn scale(value: u64, gain: f64) -> u64 {
    if value == u64::MAX {
        value
    } else {
        to_u64(value as f64 * gain)
    }
}

/// Bytes that `rate` delivers in `interval`.
pub(super) fn volume(rate: u64, interval: Duration) -> u64 {
    if rate == u64::MAX {
        rate
    } else {
        to_u64(rate as f64 * interval.as_secs_f64())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "float casts saturate, which is what is wanted"
)]
pub(super) fn to_u64(value: f64) -> u64 {
    value as u64
}
