//! Pacing: when each call starts.
//!
//! Calls that start together burst together six round trips later, with as much in the last of these
//! as in all before, and then the link runs idle. Queues keep them together, since all wait for
//! the same one. So the pacer spaces calls by the time that the data of one takes at somewhat more
//! than the bottleneck bandwidth.
//!
//! With a little more always in flight than the link holds, the least round trip would be forgotten. So the
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
    pub(super) phase: Phase,
    /// Calls that may start in a round trip during start-up, whatever the bandwidth.
    pub(super) start: f64,
    /// Whether somebody who comes first uses it.
    pub(super) first: bool,
}

/// What the controller is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It does not know yet how many calls suffice.
    StartUp,
    /// There is no queue but our own.
    Alone,
    /// There has been a queue for so long that somebody else must fill it, too.
    Queueing,
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
        // A large call is not to leave the link idle for the want of others.
        let (gain, least) = match link.phase {
            Phase::StartUp => (tuning.pace_start, link.start),
            _ => (self.gain(now, link, tuning), 1.0),
        };
        let starts = gain * bandwidth * round_trip / real(bytes.max(1));
        let distance = round_trip / starts.max(least);
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
            return if link.first {
                tuning.pace_first
            } else {
                tuning.pace
            };
        }
        if now >= at + Duration::from_secs_f64(tuning.drain_trips * link.round_trip) {
            self.drain_at = Some(now + tuning.lifetime);
        }
        match link.phase {
            Phase::Queueing => tuning.pace_deep_drain,
            _ => tuning.pace_drain,
        }
    }
}
