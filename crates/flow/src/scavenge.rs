//! Scavenging: calls that use only what others leave of a link.
//!
//! This works like LEDBAT (RFC 6817), with calls for packets: a reply that begins later than it could shows a queue,
//! and a queue shows that another sender wants the link. While there is nearly no queue the number of calls grows;
//! when there is one it falls by a quarter or a half, down to a single call. Other senders queue until packets are
//! lost, or keep a queue as BBR does, and so get what they want.
//!
//! The receiver does this (as in RFC 9840), so it works with servers that know nothing of it.

use std::time::{Duration, Instant};

use crate::filter::Filter;
use crate::{Call, Controller, Tuning, count, seconds};

/// Allows what others leave of the link.
#[derive(Debug)]
pub struct Scavenge {
    tuning: Tuning,
    limit: usize,
    most: usize,
    admitted: usize,
    /// When all calls allowed were last admitted.
    full_at: Option<Instant>,
    /// The least delay of a first byte, in seconds.
    round_trip: Filter,
    /// The current round trip: when it began, and its least delay.
    since: Instant,
    round: Option<f64>,
    /// When the number last fell.
    fell: Option<Instant>,
    /// Seconds the last call took, if one has ended.
    call: Option<f64>,
    /// When the next may start.
    next: Instant,
}

impl Scavenge {
    /// A controller that allows no more calls than `most`, if that is given.
    #[must_use]
    pub fn new(tuning: Tuning, now: Instant, most: Option<usize>) -> Self {
        let most = most.map_or(tuning.most, |most| most.clamp(1, tuning.most));
        Self {
            limit: tuning.scavenge_initial.min(most),
            most,
            admitted: 0,
            full_at: None,
            round_trip: Filter::min(),
            since: now,
            round: None,
            fell: None,
            call: None,
            next: now,
            tuning,
        }
    }

    /// The seconds that a call takes, at least a round trip.
    fn call(&self, round_trip: f64) -> f64 {
        self.call.unwrap_or_default().max(round_trip)
    }

    /// How many calls there may be, when a reply began after `delay` seconds.
    fn answered(&mut self, now: Instant, delay: f64) -> usize {
        let tuning = &self.tuning;
        let least = self.round_trip.update(now, delay, tuning.scavenge_lifetime);
        let round = self.round.map_or(delay, |round| round.min(delay));
        self.round = Some(round);
        let since = self.since;
        if seconds(since, now) < least {
            return self.limit;
        }
        (self.since, self.round) = (now, None);
        let (queue, much) = (round - least, tuning.scavenge_queue);
        if queue > much {
            return self.fewer(now, least, queue / much);
        }
        if queue > much / 2.0 {
            return self.limit;
        }
        // If not all calls allowed are in use, nothing shows how many there could be.
        if self.full_at.is_none_or(|full| full < since) {
            return self.limit;
        }
        self.limit + (self.limit / self.tuning.scavenge_growth).max(1)
    }

    /// There is a queue, `queue` times as long as one that counts: fewer calls, once those that made it
    /// are over.
    fn fewer(&mut self, now: Instant, least: f64, queue: f64) -> usize {
        let call = self.call(least);
        if self.fell.is_some_and(|fell| seconds(fell, now) < call) {
            return self.limit;
        }
        self.fell = Some(now);
        if queue > 2.0 {
            self.limit / 2
        } else {
            self.limit - (self.limit / 4).max(1)
        }
    }

    fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(1, self.most);
    }
}

impl Controller for Scavenge {
    fn limit(&self) -> usize {
        self.limit
    }

    fn may_start(&mut self, now: Instant, _bytes: u64) -> Instant {
        self.admitted += 1;
        if self.admitted >= self.limit {
            self.full_at = Some(now);
        }
        // With a distance between them, or the calls would make a queue of their own.
        let distance =
            self.tuning.scavenge_distance * self.call.unwrap_or_default() / count(self.limit);
        let at = self.next.max(now);
        self.next = at + Duration::from_secs_f64(distance);
        at
    }

    fn on_start(&mut self, now: Instant, call: &mut Call) {
        call.started = Some(now);
    }

    fn on_first_byte(&mut self, now: Instant, call: &mut Call, delay: Duration) {
        call.answered = true;
        let delay = delay.max(self.tuning.round_trip_least).as_secs_f64();
        let limit = self.answered(now, delay);
        self.set_limit(limit);
    }

    fn on_progress(&mut self, _now: Instant, call: &mut Call, bytes: u64) {
        call.received += bytes;
    }

    fn on_refused(&mut self, now: Instant) {
        let call = self.call(self.round_trip.get().unwrap_or_default());
        if self.fell.is_none_or(|fell| seconds(fell, now) >= call) {
            self.fell = Some(now);
            self.set_limit(self.limit - self.limit / 4);
        }
    }

    fn on_end(&mut self, now: Instant, call: &Call) {
        self.admitted -= 1;
        if let (Some(started), true) = (call.started, call.answered) {
            self.call = Some(seconds(started, now));
        }
    }

    fn learn(&mut self, now: Instant, round_trip: Duration) {
        let round_trip = round_trip.max(self.tuning.round_trip_least).as_secs_f64();
        self.round_trip
            .update(now, round_trip, self.tuning.scavenge_lifetime);
    }
}
