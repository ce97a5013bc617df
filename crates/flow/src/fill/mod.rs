//! Filling a link: as many calls as it takes, and few more.
//!
//! In the manner of BBR: a call of known length takes a known number of round trips when nothing queues, so
//! the data that comes in shows how many calls would have sufficed to bring it: the load. The controller allows
//! somewhat more than that.
//!
//! During start-up, and after a long time without a queue, the number grows ahead of the data, which
//! follows the calls six round trips later, until replies queue: until more calls are in flight
//! than suffice for what comes, or PINGs take longer than at first. The time until a
//! reply begins is no guide to that: a server that is being introduced to a connection makes calls on all
//! others wait.

mod meter;
mod pace;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::filter::Filter;
use crate::{CALL_TRIPS, Call, Controller, Tuning, ceil, count, real, seconds};
use meter::{Measured, Meter};
use pace::{Link, Pace, Phase};

/// Allows as many calls as fill the link.
#[derive(Debug)]
pub struct Fill {
    tuning: Tuning,
    limit: usize,
    /// What it may be.
    limits: RangeInclusive<usize>,
    admitted: usize,
    running: usize,
    most_running: usize,
    /// Until replies queue.
    starting: bool,
    /// Whether they never did, and until the queue is gone that ended that.
    first_start: bool,
    draining: bool,
    /// The least round trip of PINGs since start-up began, in seconds, and when it is to be measured next.
    start_trip: Option<f64>,
    trip_at: Option<Instant>,
    /// Whether it was long when it was looked at last.
    long_trip: bool,
    /// Whether replies take longer because the server is being introduced to connections.
    introducing: bool,
    /// When it last had been.
    introduced: Option<Instant>,
    /// Since when they do not queue.
    room_since: Option<Instant>,
    /// The least delay of a first byte, in seconds.
    round_trip: Filter,
    /// The same, for longer.
    floor: Filter,
    meter: Meter,
    /// The highest bandwidth, in bytes a second.
    bandwidth: Filter,
    /// Bytes that came.
    came: u64,
    /// Since when more would have been taken, or since it was last measured, and how many had come by then.
    filled: Option<(Instant, u64)>,
    /// The highest rate while that was so, and when it was last measured.
    best: Filter,
    best_at: Option<Instant>,
    /// Calls that fill the link alone, and since when there are such.
    large: usize,
    large_since: Option<Instant>,
    /// The most calls that would have sufficed.
    load: Filter,
    pace: Pace,
    /// Until then the limit does not grow.
    held_until: Option<Instant>,
    /// When all calls allowed were last admitted.
    full_at: Option<Instant>,
    /// When somebody who comes first last wanted something.
    first_at: Option<Instant>,
}

impl Fill {
    /// One that finds its limit, or has the one given.
    #[must_use]
    pub fn new(tuning: Tuning, fixed: Option<usize>) -> Self {
        let limit = fixed.map_or(tuning.initial, |fixed| fixed.clamp(1, tuning.most));
        let limits = fixed.map_or(tuning.least..=tuning.most, |_| limit..=limit);
        Self {
            tuning,
            limit,
            limits,
            admitted: 0,
            running: 0,
            most_running: 0,
            starting: true,
            first_start: true,
            draining: false,
            start_trip: None,
            trip_at: None,
            long_trip: false,
            introducing: false,
            introduced: None,
            room_since: None,
            round_trip: Filter::min(),
            floor: Filter::min(),
            meter: Meter::default(),
            bandwidth: Filter::max(),
            came: 0,
            filled: None,
            best: Filter::max(),
            best_at: None,
            large: 0,
            large_since: None,
            load: Filter::max(),
            pace: Pace::default(),
            held_until: None,
            full_at: None,
            first_at: None,
        }
    }

    /// Somebody who comes first wants something.
    pub fn come_first(&mut self, now: Instant) {
        self.first_at = Some(now);
    }

    /// Shares of the link there should be, compared with others who use it.
    #[must_use]
    pub fn shares(&self, now: Instant) -> u8 {
        let is_first = |at| now.saturating_duration_since(at) < self.tuning.first_time;
        if self.first_at.is_some_and(is_first) {
            self.tuning.first_shares
        } else {
            1
        }
    }

    /// The most calls that ran at a time.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.most_running
    }

    /// Whether the server is being introduced to connections, which holds up calls on all others.
    pub fn introducing(&mut self, now: Instant, introducing: bool) {
        if self.introducing {
            self.introduced = Some(now);
        }
        self.introducing = introducing;
    }

    /// Whether it is not yet known how many calls suffice.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.starting
    }

    /// Whether the round trip of PINGs should be given now.
    pub fn wants_round_trip(&mut self, now: Instant) -> bool {
        let due = self.starting && self.trip_at.is_none_or(|at| now >= at);
        if due {
            self.trip_at = Some(now + self.tuning.trip_every);
        }
        due
    }

    /// Takes in the round trip of PINGs: if it is longer than it was there is a queue.
    pub fn note_round_trip(&mut self, now: Instant, round_trip: Duration) {
        if !self.starting {
            return;
        }
        let trip = round_trip.as_secs_f64();
        let least = self.start_trip.map_or(trip, |least| least.min(trip));
        self.start_trip = Some(least);
        let slack = if self.shares(now) > 1 {
            self.tuning.first_trip_slack
        } else {
            self.tuning.trip_slack
        };
        let is_long = trip > (least * slack).max(least + self.tuning.trip_least);
        if std::mem::replace(&mut self.long_trip, is_long) && is_long {
            self.end_start();
        }
    }

    /// The highest rate of late at which data came while more would have been taken, in bytes a second.
    #[must_use]
    pub fn best_rate(&self, now: Instant) -> Option<f64> {
        let at = self.best_at?;
        self.best
            .get()
            .filter(|_| now.saturating_duration_since(at) < self.tuning.best_lifetime)
    }

    /// Bytes that came of all replies.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.came
    }

    /// How long nothing may come of a call before it is stuck, if other calls go on; never for a large one.
    #[must_use]
    pub fn stuck_after(&self, call: &Call) -> Option<Duration> {
        let long = self.round_trip.get().unwrap_or_default() * self.tuning.stuck_trips;
        (call.bytes <= self.tuning.large)
            .then(|| Duration::from_secs_f64(long).max(self.tuning.stuck))
    }

    /// Once a round trip, which began at `since`: moves the limit towards what the load calls for.
    fn adjust(&mut self, measured: Measured, since: Instant, now: Instant) {
        self.bandwidth
            .update(now, measured.rate, self.tuning.lifetime);
        // Waves and lost packets make the load look less than it is.
        let call = self.round_trip.get().unwrap_or_default() * CALL_TRIPS;
        let lifetime = Duration::from_secs_f64(self.tuning.load_time * call);
        let most_load = self.load.update(now, measured.load, lifetime);
        let load = if self.draining {
            measured.load
        } else {
            most_load
        };
        self.notice_queue(measured, call, now);
        self.notice_rate(since, call, now);
        // Without use for all calls allowed nothing is learnt about how many there could be.
        if self.full_at.is_none_or(|full| full < since) {
            return;
        }
        let (limit, growth) = (self.limit, self.tuning.growth);
        let held = self.held_until.is_some_and(|until| now < until);
        let target = if self.starting {
            // Calls that wait for a connection need no company.
            limit.max((limit + growth).min(self.running + growth))
        } else {
            let shares = self.shares(now);
            let gain = if shares > 1 {
                self.tuning.first_gain
            } else {
                self.tuning.gain
            };
            ceil(load * gain, self.tuning.most) + self.tuning.basic * usize::from(shares)
        };
        if target < limit {
            // Without a queue the load is only late.
            if self.room_since.is_none() {
                self.set_limit(target.max(limit - limit / 16));
            }
        } else if !held {
            self.set_limit(target.min(limit + growth));
        }
    }

    fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(*self.limits.start(), *self.limits.end());
    }

    /// Takes in the delay of a first byte, in seconds.
    fn note_delay(&mut self, now: Instant, delay: f64) {
        self.round_trip.update(now, delay, self.tuning.lifetime);
        self.floor.update(now, delay, self.tuning.floor_lifetime);
    }

    /// Measures the rate while calls fill the link.
    fn notice_rate(&mut self, since: Instant, call: f64, now: Instant) {
        if !self.fills_the_link(since, call) {
            self.filled = None;
            return;
        }
        let (from, before) = *self.filled.get_or_insert((now, self.came));
        let elapsed = now.duration_since(from);
        if elapsed < self.tuning.best_time {
            return;
        }
        self.filled = Some((now, self.came));
        // It may have been long ago that something was asked for last.
        if elapsed < 4 * self.tuning.best_time {
            let rate = real(self.came - before) / elapsed.as_secs_f64();
            self.best.update(now, rate, self.tuning.best_lifetime);
            self.best_at = Some(now);
        }
    }

    /// Whether calls that have been in flight since then, for a time of `call` seconds before, take what the
    /// link gives.
    fn fills_the_link(&self, since: Instant, call: f64) -> bool {
        let all_in_use = !self.starting && self.full_at.is_some_and(|full| full >= since);
        let large = self
            .large_since
            .is_some_and(|large| seconds(large, since) > call);
        all_in_use || large
    }

    fn end_start(&mut self) {
        self.starting = false;
        self.draining |= std::mem::replace(&mut self.first_start, false);
        self.start_trip = None;
        self.long_trip = false;
    }

    /// Ends start-up when replies queue, and begins it again when they have not for long. A call takes
    /// `call` seconds without a queue.
    fn notice_queue(&mut self, measured: Measured, call: f64, now: Instant) {
        let Measured {
            needed, replying, ..
        } = measured;
        let replying = replying - self.tuning.queue_basic;
        // Calls that were held up are looked at until they are over.
        let over = |at: Instant| seconds(at, now) > 2.0 * call;
        let slack = if self.introducing || !self.introduced.is_none_or(over) {
            self.tuning.introducing_slack
        } else {
            self.tuning.start_slack
        };
        if replying > slack * needed {
            self.end_start();
        }
        if replying > self.tuning.room_slack * needed {
            self.room_since = None;
            return;
        }
        if std::mem::replace(&mut self.draining, false) {
            // What was measured of its bursts is too much.
            self.load = Filter::max();
        }
        let since = *self.room_since.get_or_insert(now);
        self.starting |= seconds(since, now) > self.tuning.room_time * call;
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
        let floor = self.floor.get().unwrap_or(round_trip);
        let phase = if self.starting {
            Phase::StartUp
        } else if round_trip > floor * self.tuning.floor_slack {
            Phase::Queueing
        } else {
            Phase::Alone
        };
        let first = self.shares(now) > 1;
        // For the number of calls to be what makes the data grow.
        let more = if self.first_start {
            self.tuning.first_start * count(self.limit) / CALL_TRIPS
        } else {
            0.0
        };
        let link = Link {
            round_trip,
            bandwidth: self.bandwidth.get().unwrap_or_default(),
            phase,
            start: count(self.tuning.growth) + more,
            first,
        };
        self.pace.next(now, bytes, link, &self.tuning)
    }

    fn on_start(&mut self, now: Instant, call: &mut Call) {
        self.running += 1;
        self.most_running = self.most_running.max(self.running);
        if call.bytes > self.tuning.large {
            self.large += 1;
            self.large_since.get_or_insert(now);
        }
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
        self.came += bytes;
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
            self.end_start();
            let pause = self.round_trip.get().unwrap_or(0.1) * CALL_TRIPS;
            self.held_until = Some(now + Duration::from_secs_f64(pause));
            self.set_limit(self.limit - self.limit / 4);
        }
    }

    fn on_end(&mut self, now: Instant, call: &Call) {
        self.admitted -= 1;
        if call.started.is_some() {
            self.running -= 1;
            self.large -= usize::from(call.bytes > self.tuning.large);
            if self.large == 0 {
                self.large_since = None;
            }
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
