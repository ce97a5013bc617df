//! Round-trip time of one path: latest, windowed minimum, smoothed value and variation.
//!
//! Follows RFC 6298 §2 and RFC 9002 §5, with two differences. The minimum forgets samples older
//! than [`MIN_RTT_WINDOW`], because a path that moved to a longer route must not look congested
//! forever. The granularity added to the retransmission timeout is 1 ms, since the engine's timers
//! are that fine; peers that delay their acknowledgements by more ask for a floor instead.

use std::time::{Duration, Instant};

/// How long a minimum is believed without being seen again.
pub(crate) const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// Smallest margin between the smoothed RTT and the retransmission timeout.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Longest retransmission timeout ever answered (RFC 6298 §2.5 allows a cap of 60 s or more).
const RTO_MAX: Duration = Duration::from_secs(60);

/// Estimates the round-trip time of one path from samples.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    initial: Duration,
    latest: Duration,
    smoothed: Duration,
    variation: Duration,
    min: WindowedMin,
    samples: u64,
}

impl RttEstimator {
    /// An estimator without samples; until the first one it answers `initial` for every RTT.
    pub(crate) fn new(initial: Duration) -> Self {
        Self {
            initial,
            latest: initial,
            smoothed: initial,
            variation: initial / 2,
            min: WindowedMin::default(),
            samples: 0,
        }
    }

    /// Takes in one sample: the time from sending a packet to `now`, when its acknowledgement came.
    ///
    /// `ack_delay` is the time the peer says it held the acknowledgement back. It is taken off
    /// only as far as the result stays at or above the minimum (RFC 9002 §5.3), so a peer cannot
    /// lower our estimate below what the path has shown.
    pub(crate) fn update(&mut self, now: Instant, sample: Duration, ack_delay: Option<Duration>) {
        let sample = sample.max(Duration::from_nanos(1));
        self.min.update(now, sample);
        let min = self.min.value().unwrap_or(sample);
        let adjusted = match ack_delay {
            Some(delay) => sample
                .checked_sub(delay)
                // A delay that would leave less than the least is not believed.
                .filter(|rest| *rest >= min)
                .unwrap_or(sample),
            None => sample,
        };
        self.latest = adjusted;
        if self.samples == 0 {
            self.smoothed = adjusted;
            self.variation = adjusted / 2;
        } else {
            let difference = self.smoothed.abs_diff(adjusted);
            self.variation = (self.variation * 3 + difference) / 4;
            self.smoothed = (self.smoothed * 7 + adjusted) / 8;
        }
        self.samples += 1;
    }

    /// The newest sample, less the acknowledgement delay.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// The smallest sample of the last [`MIN_RTT_WINDOW`], or the initial guess.
    pub(crate) fn min(&self) -> Duration {
        self.min.value().unwrap_or(self.initial)
    }

    /// The exponentially smoothed RTT (weight 1/8 for each sample), or the initial guess.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The mean deviation (weight 1/4 for each sample).
    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    /// How many samples were taken; controllers compare it to see if an ACK brought a new one.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// True once a sample was taken.
    pub(crate) fn has_sample(&self) -> bool {
        self.samples > 0
    }

    /// The retransmission timeout before back-off: smoothed + max(4 × variation, 1 ms), and at
    /// least `floor`.
    pub(crate) fn rto(&self, floor: Duration) -> Duration {
        let rto = self
            .smoothed
            .saturating_add((self.variation * 4).max(GRANULARITY));
        rto.max(floor).min(RTO_MAX.max(floor))
    }
}

/// Minimum over a sliding window, kept as the three best samples of successive sub-windows, so
/// that memory is constant and an expired minimum gives way to a recent one (the method used by
/// Linux's `minmax` filters).
#[derive(Clone, Copy, Debug, Default)]
struct WindowedMin {
    best: Option<[(Instant, Duration); 3]>,
}

impl WindowedMin {
    fn value(&self) -> Option<Duration> {
        self.best.map(|best| best[0].1)
    }

    fn update(&mut self, now: Instant, value: Duration) {
        let new = (now, value);
        let Some(mut best) = self.best else {
            self.best = Some([new; 3]);
            return;
        };
        let age = |at: Instant| now.saturating_duration_since(at);
        if value <= best[0].1 || age(best[2].0) > MIN_RTT_WINDOW {
            self.best = Some([new; 3]);
            return;
        }
        if value <= best[1].1 {
            best[1] = new;
            best[2] = new;
        } else if value <= best[2].1 {
            best[2] = new;
        }
        if age(best[0].0) > MIN_RTT_WINDOW {
            best = [best[1], best[2], new];
            if age(best[0].0) > MIN_RTT_WINDOW {
                best = [best[1], best[2], new];
            }
        } else if best[1].0 == best[0].0 && age(best[0].0) > MIN_RTT_WINDOW / 4 {
            best[1] = new;
            best[2] = new;
        } else if best[2].0 == best[1].0 && age(best[0].0) > MIN_RTT_WINDOW / 2 {
            best[2] = new;
        }
        self.best = Some(best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A point in time to start from.
    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant cannot be made in another way"
    )]
    fn start_of_time() -> Instant {
        Instant::now()
    }

    #[test]
    fn first_sample_replaces_the_guess() {
        let mut rtt = RttEstimator::new(100 * MS);
        assert_eq!(rtt.smoothed(), 100 * MS);
        assert!(!rtt.has_sample());
        rtt.update(start_of_time(), 20 * MS, None);
        assert_eq!(
            (rtt.smoothed(), rtt.min(), rtt.latest()),
            (20 * MS, 20 * MS, 20 * MS)
        );
        assert_eq!(rtt.variation(), 10 * MS);
        assert_eq!(rtt.rto(Duration::ZERO), 60 * MS);
        assert_eq!(rtt.rto(200 * MS), 200 * MS);
    }

    #[test]
    fn steady_samples_leave_the_granularity_as_margin() {
        let mut rtt = RttEstimator::new(100 * MS);
        let start = start_of_time();
        for i in 0..200 {
            rtt.update(start + i * MS, 20 * MS, None);
        }
        assert_eq!(rtt.rto(Duration::ZERO), 21 * MS);
    }

    #[test]
    fn ack_delay_never_lowers_below_the_minimum() {
        let mut rtt = RttEstimator::new(100 * MS);
        let now = start_of_time();
        rtt.update(now, 20 * MS, None);
        rtt.update(now, 30 * MS, Some(8 * MS));
        assert_eq!(rtt.latest(), 22 * MS);
        rtt.update(now, 30 * MS, Some(15 * MS));
        assert_eq!(
            rtt.latest(),
            30 * MS,
            "a delay that leaves less than the minimum is not believed"
        );
    }

    #[test]
    fn minimum_expires() {
        let mut rtt = RttEstimator::new(100 * MS);
        let start = start_of_time();
        rtt.update(start, 10 * MS, None);
        for i in 1..=240u32 {
            let now = start + 50 * MS * i;
            rtt.update(now, 30 * MS + Duration::from_micros(u64::from(i)), None);
            if now < start + MIN_RTT_WINDOW {
                assert_eq!(rtt.min(), 10 * MS);
            }
        }
        assert!(
            rtt.min() >= 30 * MS,
            "the old minimum is gone after the window"
        );
        assert!(rtt.min() < 31 * MS);
    }

    #[test]
    fn minimum_matches_a_full_history() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut rtt = RttEstimator::new(100 * MS);
        let start = start_of_time();
        let mut history: Vec<(Instant, Duration)> = Vec::new();
        let mut now = start;
        for _ in 0..5000 {
            now += Duration::from_millis(random.u64(1..40));
            let sample = Duration::from_micros(random.u64(1000..9000));
            history.push((now, sample));
            rtt.update(now, sample, None);
            let within = |limit: Duration| {
                let recent = history
                    .iter()
                    .filter(|(at, _)| now.duration_since(*at) <= limit);
                recent.map(|(_, sample)| *sample).min().unwrap_or(sample)
            };
            assert!(rtt.min() >= within(MIN_RTT_WINDOW));
            assert!(
                rtt.min() <= within(MIN_RTT_WINDOW / 4),
                "a recent smaller sample always counts"
            );
        }
    }
}
