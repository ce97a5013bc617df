//! Filling a link: as many calls as it takes, and few more.
//!
//! This works like BBR: a call of known length takes a known number of round trips when nothing queues, so
//! the data that comes in shows how many calls would have sufficed to bring it: the load. The controller allows
//! somewhat more than that.
//!
//! During start-up, and after a time without a queue, the number grows ahead of the data, which follows the calls
//! six round trips later. It grows until replies queue: until more calls are in flight than suffice for the data that
//! comes. The time until a reply begins does not show that: during the handshake of one connection the server lets
//! calls on all others wait.

mod best;
mod meter;
mod pace;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::filter::Filter;
use crate::{CALL_TRIPS, Call, Controller, Tuning, ceil, count, seconds};
use best::Best;
use meter::{Measured, Meter};
use pace::{Link, Pace};

/// Allows as many calls as fill the link.
#[derive(Debug)]
pub struct Fill {
    tuning: Tuning,
    limit: usize,
    /// The bounds of the limit.
    limits: RangeInclusive<usize>,
    admitted: usize,
    running: usize,
    /// Until replies queue, and when they last did.
    starting: bool,
    queued_at: Option<Instant>,
    /// The least delay of a first byte, in seconds.
    round_trip: Filter,
    meter: Meter,
    /// The highest bandwidth, in bytes a second.
    bandwidth: Filter,
    best: Best,
    pace: Pace,
    /// Until then the limit does not grow.
    held_until: Option<Instant>,
    /// When all calls allowed were last admitted.
    full_at: Option<Instant>,
    /// When a reader with priority last wanted something.
    priority_at: Option<Instant>,
}

impl Fill {
    /// A controller that finds its limit, or keeps the given one.
    #[must_use]
    pub fn new(tuning: Tuning, fixed: Option<usize>) -> Self {
        let limit = fixed.map_or(tuning.initial, |fixed| fixed.clamp(1, tuning.most));
        let limits = fixed.map_or(1..=tuning.most, |_| limit..=limit);
        Self {
            tuning,
            limit,
            limits,
            admitted: 0,
            running: 0,
            starting: true,
            queued_at: None,
            round_trip: Filter::min(),
            meter: Meter::default(),
            bandwidth: Filter::max(),
            best: Best::new(),
            pace: Pace::default(),
            held_until: None,
            full_at: None,
            priority_at: None,
        }
    }

    /// A reader with priority wants something.
    pub fn prioritize(&mut self, now: Instant) {
        self.priority_at = Some(now);
    }

    /// The shares of the link that its calls should get, where another client's get one.
    #[must_use]
    pub fn shares(&self, now: Instant) -> u8 {
        let is_fresh = |at| now.saturating_duration_since(at) < self.tuning.priority_time;
        if self.priority_at.is_some_and(is_fresh) {
            self.tuning.priority_shares
        } else {
            1
        }
    }

    /// The highest recent rate at which data came while the calls took all of the link, in bytes a second.
    #[must_use]
    pub fn best_rate(&self, now: Instant) -> Option<f64> {
        self.best.rate(now, &self.tuning)
    }

    /// Once a round trip, which began at `since`: moves the limit towards what the load calls for.
    fn adjust(&mut self, measured: Measured, since: Instant, now: Instant) {
        self.bandwidth
            .update(now, measured.rate, self.tuning.lifetime);
        let call = self.round_trip.get().unwrap_or_default() * CALL_TRIPS;
        self.notice_queue(measured, call, now);
        let all_in_use = self.full_at.is_some_and(|full| full >= since);
        let fills = all_in_use && !self.starting;
        self.best.on_round(now, since, fills, call, &self.tuning);
        // If not all calls allowed are in use, nothing shows how many there could be.
        if !all_in_use {
            return;
        }
        let (limit, growth) = (self.limit, self.tuning.growth);
        let held = self.held_until.is_some_and(|until| now < until);
        let target = if self.starting {
            // Calls that still wait for a connection need no more beside them.
            limit.max((limit + growth).min(self.running + growth))
        } else {
            let basic = self.tuning.basic * usize::from(self.shares(now));
            ceil(measured.load * self.tuning.gain, self.tuning.most) + basic
        };
        if target < limit {
            self.set_limit(target.max(limit - limit / 16));
        } else if !held {
            self.set_limit(target.min(limit + growth));
        }
    }

    /// Ends start-up when replies queue, and begins it again when they have not queued for long: the link may have
    /// become wider. A call takes `call` seconds without a queue.
    fn notice_queue(&mut self, measured: Measured, call: f64, now: Instant) {
        // Replies of a packet each say nothing of queues.
        if measured.needed <= 0.0 {
            return;
        }
        let queue = measured.replying / measured.needed;
        self.starting &= queue <= self.tuning.start_slack;
        if queue > self.tuning.room_slack {
            self.queued_at = Some(now);
        }
        let queued_at = *self.queued_at.get_or_insert(now);
        self.starting |= seconds(queued_at, now) > self.tuning.room_time * call;
    }

    fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(*self.limits.start(), *self.limits.end());
    }

    /// Takes in the delay of a first byte, in seconds.
    fn note_delay(&mut self, now: Instant, delay: f64) {
        self.round_trip.update(now, delay, self.tuning.lifetime);
    }
}

impl Controller for Fill {
    fn limit(&self) -> usize {
        self.limit
    }

    fn may_start(&mut self, now: Instant, bytes: u64) -> Instant {
        self.admitted += 1;
        if self.admitted >= self.limit {
            self.full_at = Some(now);
        }
        let Some(round_trip) = self.round_trip.get() else {
            return now;
        };
        let link = Link {
            round_trip,
            bandwidth: self.bandwidth.get().unwrap_or_default(),
            // So that the number of calls limits the growth of the data, and the pacer does not.
            start: self
                .starting
                .then(|| count(self.tuning.growth) + count(self.limit) / CALL_TRIPS),
        };
        self.pace.next(now, bytes, link, &self.tuning)
    }

    fn on_start(&mut self, now: Instant, call: &mut Call) {
        self.running += 1;
        self.best.on_start(now, call, &self.tuning);
        call.started = Some(now);
    }

    fn on_first_byte(&mut self, now: Instant, call: &mut Call, delay: Duration) {
        if !std::mem::replace(&mut call.answered, true) {
            self.meter.reply_begins(now);
        }
        self.note_delay(now, delay.max(self.tuning.round_trip_least).as_secs_f64());
    }

    fn on_progress(&mut self, now: Instant, call: &mut Call, bytes: u64) {
        let before = call.received;
        call.received += bytes;
        self.best.on_progress(bytes);
        let Some(round_trip) = self.round_trip.get() else {
            return;
        };
        let received = self.meter.received(now, before, call.received, round_trip);
        if let Some((since, measured)) = received {
            self.adjust(measured, since, now);
        }
    }

    fn on_refused(&mut self, now: Instant) {
        if self.held_until.is_none_or(|until| now >= until) {
            self.starting = false;
            let pause = self.round_trip.get().unwrap_or(0.1) * CALL_TRIPS;
            self.held_until = Some(now + Duration::from_secs_f64(pause));
            self.set_limit(self.limit - self.limit / 4);
        }
    }

    fn on_end(&mut self, now: Instant, call: &Call) {
        self.admitted -= 1;
        if call.started.is_some() {
            self.running -= 1;
            self.best.on_end(call, &self.tuning);
        }
        if call.answered {
            self.meter.reply_ends(now);
        }
    }

    fn learn(&mut self, now: Instant, round_trip: Duration) {
        if self.round_trip.get().is_none() {
            let round_trip = round_trip.max(self.tuning.round_trip_least);
            self.note_delay(now, round_trip.as_secs_f64());
        }
    }
}
