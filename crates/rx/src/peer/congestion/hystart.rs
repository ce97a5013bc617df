//! HyStart++ (RFC 9406): leaves slow start when the RTT rises, before the queue overflows.

use std::time::Duration;

use super::flight::AckSample;

/// Bounds of the rise in RTT that ends slow start (MIN_RTT_THRESH, MAX_RTT_THRESH).
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);
/// The rise is 1/8 of the last round's minimum (MIN_RTT_DIVISOR).
const RISE_DIVISOR: u32 = 8;
/// Samples a round needs before it is judged (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Conservative slow start grows this much slower (CSS_GROWTH_DIVISOR)...
pub(super) const CSS_GROWTH_DIVISOR: u64 = 4;
/// ...and becomes congestion avoidance after this many rounds (CSS_ROUNDS).
const CSS_ROUNDS: u32 = 5;

/// What slow start should do after an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowStart {
    /// Grow by what was acknowledged.
    Grow,
    /// Conservative slow start: grow by a quarter of it.
    GrowSlowly,
    /// The path is full: go on in congestion avoidance.
    Leave,
}

/// The state of HyStart++ during slow start.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    round_end: u64,
    last_round_min: Option<Duration>,
    round_min: Option<Duration>,
    samples: u32,
    /// The minimum of the round in which conservative slow start began, and rounds since then.
    conservative: Option<(Duration, u32)>,
}

impl HyStart {
    /// `delivered` is the path's count of delivered bytes, which tells rounds apart.
    pub(super) fn on_ack(&mut self, ack: &AckSample, delivered: u64) -> SlowStart {
        if ack.newest.delivered() >= self.round_end {
            self.round_end = delivered;
            self.last_round_min = self.round_min.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds > CSS_ROUNDS {
                    return SlowStart::Leave;
                }
            }
        }
        if let Some(rtt) = ack.rtt {
            self.round_min = Some(self.round_min.map_or(rtt, |min| min.min(rtt)));
            self.samples += 1;
        }
        let judged = self.round_min.filter(|_| self.samples >= SAMPLES);
        match (self.conservative, judged, self.last_round_min) {
            // The rise was a passing one: the RTT is below where it began.
            (Some((baseline, _)), Some(min), _) if min < baseline => self.conservative = None,
            (None, Some(min), Some(last)) => {
                let rise = (last / RISE_DIVISOR).clamp(RISE_MIN, RISE_MAX);
                if min >= last + rise {
                    self.conservative = Some((min, 0));
                }
            }
            _ => {}
        }
        if self.conservative.is_some() {
            SlowStart::GrowSlowly
        } else {
            SlowStart::Grow
        }
    }
}
