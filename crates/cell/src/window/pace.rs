//! When calls begin.
//!
//! Calls that begin together burst together six round trips later, with as much in the last of these
//! as in all before, and then the link has nothing to do. Queues keep them together, since all wait for
//! the same one. So calls begin at a distance: the time that the data of one takes at somewhat more
//! than the rate at which data has come.
//!
//! With a little more always under way than the link holds, the least delay would be forgotten. So the
//! queue is made to run empty from time to time. A flow that shares the path with others takes their queue for a
//! part of it, which they do with its own. So while the least delay is much more than it once was, the flow takes
//! next to nothing for that time, and sees theirs alone.

use std::time::Duration;

use tokio::time::Instant;

use super::{DELAY_FLOOR, LIFETIME, bytes_of};

/// Calls begin as fast as to bring the data this much faster than it has come: the rate can grow,
/// and what bursts there are stay small.
const GAIN: f64 = 1.1;
/// The same at the start.
const START_GAIN: f64 = 1.25;
/// The same while the queue is to run empty.
const DRAIN_GAIN: f64 = 0.7;
/// The same where the queue is not ours alone.
const DEEP_DRAIN_GAIN: f64 = 0.2;
/// The first of these for those who come first: the limit decides what they have of the way.
const FIRST_GAIN: f64 = 1.5;
/// Round trips that takes.
const DRAIN: f64 = 2.0;
/// Pauses shorter than this are made up for later.
const PAUSE_LEAST: Duration = Duration::from_millis(1);

/// What is known of the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// In seconds.
    pub(super) round_trip: f64,
    /// In bytes a second; 0 if unknown.
    pub(super) rate: f64,
    pub(super) phase: Phase,
    /// Calls that may begin in a round trip at the start, whatever the rate.
    pub(super) start: f64,
    /// Whether a reader with priority uses it.
    pub(super) first: bool,
}

/// What else is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not yet how many calls suffice.
    Starting,
    /// There is no queue but our own.
    Alone,
    /// There has been a queue for so long that somebody else must fill it, too.
    Queueing,
}

/// Tells calls when to begin.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
    /// When the queue is next to run empty.
    drain_at: Option<Instant>,
}

impl Pace {
    /// When the next call, for so many bytes, may begin; `None` is now.
    pub(super) fn beginning(&mut self, now: Instant, octets: u64, way: Way) -> Option<Instant> {
        let Way {
            round_trip, rate, ..
        } = way;
        if Duration::from_secs_f64(round_trip) <= 2 * DELAY_FLOOR {
            return None;
        }
        // A large call is not to leave the link empty for the want of others.
        let (gain, least) = match way.phase {
            Phase::Starting => (START_GAIN, way.start),
            _ => (self.gain(now, way), 1.0),
        };
        let beginnings = gain * rate * round_trip / bytes_of(octets.max(1));
        let distance = round_trip / beginnings.max(least);
        debug_assert!(distance.is_finite() && distance >= 0.0, "{way:?}");
        // Short pauses that were not made are made up for, but not the time in which nothing was wanted.
        let earliest = now.checked_sub(2 * PAUSE_LEAST).unwrap_or(now);
        let at = self.next.map_or(now, |at| at.max(earliest));
        self.next = Some(at + Duration::from_secs_f64(distance));
        (at > now + PAUSE_LEAST).then_some(at)
    }

    fn gain(&mut self, now: Instant, way: Way) -> f64 {
        let at = *self.drain_at.get_or_insert(now + LIFETIME);
        if now < at {
            return if way.first { FIRST_GAIN } else { GAIN };
        }
        if now >= at + Duration::from_secs_f64(DRAIN * way.round_trip) {
            self.drain_at = Some(now + LIFETIME);
        }
        match way.phase {
            Phase::Queueing => DEEP_DRAIN_GAIN,
            _ => DRAIN_GAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: f64 = 8.0;

    fn way(round_trip: f64, rate: f64, phase: Phase) -> Way {
        Way {
            round_trip,
            rate,
            phase,
            start: START,
            first: false,
        }
    }

    /// The time that 60 calls of 100 kB at 10 MB/s take to begin.
    fn time(pace: &mut Pace, now: Instant, phase: Phase) -> f64 {
        let mut at = now;
        for _ in 0..60 {
            at = pace
                .beginning(at, 100_000, way(0.1, 1e7, phase))
                .unwrap_or(at);
        }
        at.duration_since(now).as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_begin_at_the_distance_of_their_data() {
        let now = Instant::now();
        for (phase, gain) in [(Phase::Alone, GAIN), (Phase::Starting, START_GAIN)] {
            let took = time(&mut Pace::default(), now, phase);
            let expected = 59.0 * 0.01 / gain;
            assert!((took - expected).abs() < 0.02, "{took} s for {expected}");
        }
        // Once the lifetime of a least delay is over, for two round trips, 16 calls.
        for (phase, calls, gain) in [
            (Phase::Alone, 16.0, DRAIN_GAIN),
            (Phase::Queueing, 7.0, DEEP_DRAIN_GAIN),
        ] {
            let mut pace = Pace::default();
            time(&mut pace, now, phase);
            let took = time(&mut pace, now + LIFETIME, phase);
            let expected = calls * 0.01 / gain + (59.0 - calls) * 0.01 / GAIN;
            assert!((took - expected).abs() < 0.05, "{took} s for {expected}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn large_and_unmeasured_calls_do_not_wait_long() {
        let now = Instant::now();
        for (phase, expected) in [(Phase::Alone, 0.1), (Phase::Starting, 0.1 / START)] {
            for (octets, rate) in [(1 << 30, 1e7), (100_000, 0.0)] {
                let mut pace = Pace::default();
                let way = way(0.1, rate, phase);
                assert_eq!(pace.beginning(now, octets, way), None);
                let at = pace.beginning(now, octets, way).unwrap();
                let waited = at.duration_since(now).as_secs_f64();
                assert!((waited - expected).abs() < 1e-6, "{waited} s");
            }
        }
        // On a short link nobody waits.
        let mut pace = Pace::default();
        for _ in 0..10 {
            assert_eq!(
                pace.beginning(now, 100_000, way(0.001, 1e7, Phase::Starting)),
                None
            );
        }
    }
}
