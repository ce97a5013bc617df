//! Pacing: when each call starts.
//!
//! Calls that start together burst together six round trips later, with as much data in the last of these
//! as in all before, and then the link runs idle. A queue keeps them together, because all wait in it. So the
//! pacer spaces calls by the time that the data of one takes at somewhat more than the bottleneck bandwidth.
//!
//! With always a little more in flight than the link holds, the least round trip would never show again. So the
//! pacer drains the queue from time to time.

use std::time::{Duration, Instant};

use crate::{Tuning, real};

/// What is known of the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Seconds.
    pub(super) round_trip: f64,
    /// Bytes a second; 0 if unknown.
    pub(super) bandwidth: f64,
    /// During start-up, calls that may start in a round trip whatever the bandwidth.
    pub(super) start: Option<f64>,
}

/// Tells calls when to start.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
    /// When the next drain begins.
    drain_at: Option<Instant>,
}

impl Pace {
    /// When the next call, for this many bytes, may start.
    pub(super) fn next(
        &mut self,
        now: Instant,
        bytes: u64,
        link: Link,
        tuning: &Tuning,
    ) -> Instant {
        let Link {
            round_trip,
            bandwidth,
            ..
        } = link;
        if Duration::from_secs_f64(round_trip) <= 2 * tuning.round_trip_least {
            return now;
        }
        // At least one a round trip, so that the link never runs idle behind a large call.
        let starts = self.gain(now, link, tuning) * bandwidth * round_trip / real(bytes.max(1));
        let distance = round_trip / starts.max(link.start.unwrap_or(1.0));
        let earliest = now.checked_sub(2 * tuning.pause_least).unwrap_or(now);
        let at = self.next.map_or(now, |at| at.max(earliest));
        self.next = Some(at + Duration::from_secs_f64(distance));
        if at > now + tuning.pause_least {
            at
        } else {
            now
        }
    }

    fn gain(&mut self, now: Instant, link: Link, tuning: &Tuning) -> f64 {
        let at = *self.drain_at.get_or_insert(now + tuning.lifetime);
        if now < at {
            return tuning.pace;
        }
        if now >= at + Duration::from_secs_f64(tuning.drain_trips * link.round_trip) {
            self.drain_at = Some(now + tuning.lifetime);
        }
        tuning.pace_drain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::start;

    const LINK: Link = Link {
        round_trip: 0.1,
        bandwidth: 1e7,
        start: None,
    };

    /// The time in seconds that 60 calls for what 10 MB/s bring in 10 ms take to start.
    fn time(pace: &mut Pace, now: Instant) -> f64 {
        let mut at = now;
        for _ in 0..60 {
            at = pace.next(at, 100_000, LINK, &Tuning::default());
        }
        at.duration_since(now).as_secs_f64()
    }

    #[test]
    fn calls_start_at_the_distance_of_their_data() {
        let (now, tuning) = (start(), Tuning::default());
        let mut pace = Pace::default();
        let took = time(&mut pace, now);
        assert!((took - 0.59 / tuning.pace).abs() < 0.02, "{took} s");
        // Once the lifetime of the least round trip is over, two round trips drain the queue.
        let took = time(&mut pace, now + tuning.lifetime);
        let drained = 16.0;
        let expected = drained * 0.01 / tuning.pace_drain + (59.0 - drained) * 0.01 / tuning.pace;
        assert!((took - expected).abs() < 0.05, "{took} s for {expected}");
    }

    #[test]
    fn large_and_unmeasured_calls_do_not_wait_long() {
        let (now, tuning) = (start(), Tuning::default());
        for (start, expected) in [(None, 0.1), (Some(8.0), 0.1 / 8.0)] {
            for (bytes, bandwidth) in [(1 << 30, 1e7), (100_000, 0.0)] {
                let mut pace = Pace::default();
                let link = Link {
                    bandwidth,
                    start,
                    ..LINK
                };
                assert_eq!(pace.next(now, bytes, link, &tuning), now);
                let at = pace.next(now, bytes, link, &tuning);
                let waited = at.duration_since(now).as_secs_f64();
                assert!((waited - expected).abs() < 1e-6, "{waited} s");
            }
        }
        // On a short link no call waits.
        let mut pace = Pace::default();
        for _ in 0..10 {
            let link = Link {
                round_trip: 0.001,
                ..LINK
            };
            assert_eq!(pace.next(now, 100_000, link, &tuning), now);
        }
    }
}
