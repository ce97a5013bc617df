//! Giving way: how many calls those get who are to use only what others leave.
//!
//! As LEDBAT (RFC 6817) does with packets: a reply that begins later than it could tells of a queue, and
//! a queue tells that somebody else wants the way. While there is next to none the number of calls grows;
//! when there is one it falls by a quarter or a half, down to a single call with pauses between. Others, who queue until
//! something is lost, or keep a queue as BBR does, so get what they want.
//!
//! It is the receiver who does this (as in RFC 9840), so it works with servers that know nothing of it.

use std::time::Duration;

use tokio::time::Instant;

use super::count;
use super::filter::Least;

/// Calls at first.
pub(super) const INITIAL: usize = 4;
/// A queue this long is one, and a part of the least delay more of it.
const QUEUE: f64 = 0.008;
const QUEUE_PART: f64 = 1.0 / 32.0;
/// For how long at least a least delay counts. It must be longer than others may keep a queue.
const LIFETIME: Duration = Duration::from_secs(180);
/// In each round trip of the start there may be this part more calls, and later this.
const START_GROWTH: usize = 4;
const GROWTH: usize = 32;
/// Calls without a queue after which it starts again.
const START_AGAIN: f64 = 3.0;
/// Round trips of the longest pause between calls.
const PAUSE_MOST: f64 = 8.0;
/// Calls begin at a distance, or they would make a queue of their own: at this part of the time that one
/// takes, divided by their number. It is less than all, so that all are in use.
const DISTANCE: f64 = 0.9;
/// The part of a measured time that goes into the average.
const SMOOTHING: f64 = 0.125;

/// What tells how many calls there may be.
#[derive(Debug)]
pub(super) struct GivingWay {
    /// The least delay of a first byte, in seconds.
    least: Least,
    /// Since when the round trip goes that is looked at, and its least delay.
    since: Instant,
    round: Option<f64>,
    /// Until there is a queue.
    starting: bool,
    /// When the number last fell.
    fell: Option<Instant>,
    /// When there last was a queue.
    queued: Instant,
    /// Seconds between one call and the next, once there is no more than one at a time.
    pause: f64,
    /// Seconds a call takes, if one has ended.
    call: Option<f64>,
    /// When the next may begin.
    next: Instant,
}

impl GivingWay {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            least: Least::default(),
            since: now,
            round: None,
            starting: true,
            fell: None,
            queued: now,
            pause: 0.0,
            call: None,
            next: now,
        }
    }

    /// Takes in a round trip known from elsewhere, in seconds.
    pub(super) fn learn(&mut self, now: Instant, round_trip: f64) {
        self.least.update(now, round_trip, LIFETIME);
    }

    /// When the next call may begin, if there may be so many.
    pub(super) fn beginning(&mut self, now: Instant, limit: usize) -> Instant {
        debug_assert!(limit > 0, "nothing could ever begin");
        let distance = DISTANCE * self.call.unwrap_or_default() / count(limit);
        let at = self.next.max(now + Duration::from_secs_f64(self.pause));
        self.next = at + Duration::from_secs_f64(distance);
        at
    }

    /// Seconds a call takes, and no less than a round trip.
    fn call(&self, least: f64) -> f64 {
        self.call.unwrap_or_default().max(least)
    }

    /// A call took so many seconds.
    pub(super) fn ended(&mut self, call: f64) {
        let average = self
            .call
            .map_or(call, |average| average + SMOOTHING * (call - average));
        self.call = Some(average);
    }

    /// A reply began after so many seconds, while there may be so many calls, all of which were last in
    /// use at `full`. Returns how many there may be now.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        delay: f64,
        limit: usize,
        full: Option<Instant>,
    ) -> usize {
        let least = self.least.update(now, delay, LIFETIME);
        let round = self.round.map_or(delay, |round| round.min(delay));
        self.round = Some(round);
        let since = self.since;
        if now.duration_since(since).as_secs_f64() < least {
            return limit;
        }
        (self.since, self.round) = (now, None);
        let (queue, much) = (round - least, QUEUE + least * QUEUE_PART);
        if queue > much {
            self.starting = false;
            self.queued = now;
            return self.fewer(now, limit, least, queue / much);
        }
        if queue > much / 2.0 {
            return limit;
        }
        self.pause = 0.0;
        let clear = now.duration_since(self.queued).as_secs_f64();
        self.starting |= clear > START_AGAIN * self.call(least);
        // Without use for all of them nothing is learnt about how many there could be.
        if full.is_none_or(|full| full < since) {
            return limit;
        }
        let part = if self.starting { START_GROWTH } else { GROWTH };
        limit + (limit / part).max(1)
    }

    /// There is a queue, so many times as long as one that counts: fewer calls, once those that made it
    /// are over.
    fn fewer(&mut self, now: Instant, limit: usize, least: f64, queue: f64) -> usize {
        if limit == 1 {
            let pause = (2.0 * self.pause).max(least);
            self.pause = pause.min(PAUSE_MOST * least);
            return limit;
        }
        let call = self.call(least);
        let over = |at: Instant| now.duration_since(at).as_secs_f64() >= call;
        if !self.fell.is_none_or(over) {
            return limit;
        }
        self.fell = Some(now);
        if queue > 2.0 {
            limit / 2
        } else {
            limit - (limit / 4).max(1)
        }
    }
}
