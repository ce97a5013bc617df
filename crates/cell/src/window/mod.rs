//! How many fetch calls one file server gets at a time.
//!
//! An OpenAFS file server sends little in one call: it begins each with one packet, doubles that each
//! round trip and ends at 32 packets. A long link is therefore filled by many calls, as TCP fills it by
//! many packets. How many is found in the manner of BBR: a call of known length takes a known number of
//! round trips when nothing queues, so the data that comes in tells how many calls would have sufficed
//! to bring it. Somewhat more than that are allowed.
//!
//! At the start, and after a long time without a queue, the number grows ahead of the data, which
//! follows the calls six round trips later, until replies queue: until more calls are under way
//! than suffice for what comes, or the way itself takes longer than at first, as PINGs show. The time until a
//! reply begins is no guide to that: a server that is being introduced to a connection makes calls on all
//! others wait.

mod filter;
mod giving_way;
mod meter;
mod pace;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use filter::Least;
use giving_way::GivingWay;
use meter::{Measured, Meter};
use pace::{Pace, Phase, Way};

pub(crate) use filter::Most;

/// Calls at first.
// spec: rx#how-openafs-sends
const INITIAL: usize = 24;
/// Calls always allowed, unless the server is busy.
const BASIC: usize = 6;
/// Never fewer.
const LEAST: usize = 2;
/// Never more: 64 connections to one server.
const MOST: usize = 256;
/// Calls allowed besides [`BASIC`] for each that would suffice.
const GAIN: f64 = 1.1;
/// The start ends when replies take this many times as long as without a queue.
const START_SLACK: f64 = 1.2;
/// The same while the server is introduced to connections.
const INTRODUCING_SLACK: f64 = 1.6;
/// It also ends when the way's own round trip is twice in a row this many times as long as at its beginning,
/// by so many seconds at least: bursts queue as well.
const START_TRIP_SLACK: f64 = 1.25;
const START_TRIP_LEAST: f64 = 0.005;
/// The same for those who come first.
const FIRST_TRIP_SLACK: f64 = 1.5;
/// The interval between two looks at it, which is how often the engine measures it.
const TRIP_EVERY: Duration = Duration::from_millis(500);
/// When replies take less than this many times as long, there is room for more.
const ROOM_SLACK: f64 = 1.1;
/// Replies that may be under way besides.
const QUEUE_BASIC: f64 = 2.0;
/// For how many times of a call there must be room before a new start.
const ROOM_TIME: f64 = 1.5;
/// For how long at least a least delay or highest rate counts; then it is measured again.
const LIFETIME: Duration = Duration::from_secs(10);
/// For how long at least the least delay of all counts. When the others are this many times as long, others
/// keep up a queue too: each takes the queue of the other for a part of the way.
const FLOOR_LIFETIME: Duration = Duration::from_secs(600);
const FLOOR_SLACK: f64 = 1.25;
/// For how long the highest rate counts at which a way was in use.
const BEST_LIFETIME: Duration = Duration::from_secs(1800);
/// Over so long it is measured: what comes after a loss comes at once.
const BEST_TIME: Duration = Duration::from_secs(1);
/// Calls for more bytes than this are for peers that need no other to fill the way.
const LARGE: u64 = 1 << 20;
/// Delays shorter than this are taken for this long: below it, scheduling is all that is measured.
const DELAY_FLOOR: Duration = Duration::from_millis(1);
/// For how many times of a call at least the most load counts.
const LOAD_TIME: f64 = 2.0;
/// What those get who come first, compared with others.
const FIRST_SHARES: u8 = 3;
/// Calls they are allowed for each that would suffice: where hundreds do, [`BASIC`] ones make no difference.
const FIRST_GAIN: f64 = 1.3;
/// For how long they do after a call of theirs has begun.
const FIRST_TIME: Duration = Duration::from_secs(10);
/// Calls that may be allowed more in a round trip.
const GROWTH: usize = 6;
/// A call of which nothing comes for so long, and so many round trips, is stuck, if other calls go on: a lost packet
/// comes sooner.
const STUCK: Duration = Duration::from_secs(1);
const STUCK_TRIPS: f64 = 4.0;
/// Round trips a call takes, about.
const ROUND_TRIPS: f64 = 6.0;

/// The calls one file server may have at a time.
#[derive(Debug)]
pub(crate) struct Window {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// What it may be.
    limits: RangeInclusive<usize>,
    running: usize,
    most_running: usize,
    /// Permits to be withheld when calls end, as the limit fell.
    debt: usize,
    /// Until replies queue.
    starting: bool,
    /// Whether they never did, and until the queue is gone that ended that.
    first_start: bool,
    draining: bool,
    /// The least round trip of the way since the start began, in seconds, and when it is to be measured next.
    start_trip: Option<f64>,
    trip_at: Option<Instant>,
    /// Whether it was long when it was looked at last.
    long_trip: bool,
    /// Whether they take longer because the server is being introduced to connections.
    introducing: bool,
    /// When it last had been.
    introduced: Option<Instant>,
    /// Since when they do not.
    room_since: Option<Instant>,
    /// The least delay of a first byte, in seconds.
    delay: Least,
    /// The same, for longer.
    floor: Least,
    meter: Meter,
    /// The highest rate at which data came, in bytes a second.
    rate: Most,
    /// Bytes that came.
    came: u64,
    /// Since when more would have been taken, or since it was last measured, and how many had come by then.
    filled: Option<(Instant, u64)>,
    /// The highest rate while that was so, and when it was last measured.
    best: Most,
    best_at: Option<Instant>,
    /// Calls that fill the way alone, and since when there are such.
    large: usize,
    large_since: Option<Instant>,
    /// The most calls that would have sufficed.
    load: Most,
    pace: Pace,
    /// For those who are to use only what others leave.
    giving_way: Option<GivingWay>,
    /// Until then the limit does not grow.
    held_until: Option<Instant>,
    /// When all calls allowed were last in use.
    full_at: Option<Instant>,
    /// When a reader with priority last wanted something.
    first_at: Option<Instant>,
}

/// The right to have one call running. Dropping it says nothing of how the call went.
#[derive(Debug)]
pub(crate) struct Permit {
    window: Arc<Window>,
    /// When the call began.
    started: Option<Instant>,
    /// Whether the reply has begun.
    replying: bool,
    /// Bytes that are to come, and that came.
    octets: u64,
    received: u64,
}

impl Window {
    /// One that finds its limit, or has the one given.
    pub(crate) fn new(fixed: Option<usize>) -> Self {
        let limit = fixed.map_or(INITIAL, |fixed| fixed.clamp(1, MOST));
        Self::with(limit, fixed.map_or(LEAST..=MOST, |_| limit..=limit), None)
    }

    /// One that allows what others leave of the way, and no more calls than this if it is given.
    pub(crate) fn giving_way(most: Option<usize>) -> Self {
        let most = most.map_or(MOST, |most| most.clamp(1, MOST));
        let limit = giving_way::INITIAL.min(most);
        Self::with(limit, 1..=most, Some(GivingWay::new(Instant::now())))
    }

    fn with(limit: usize, limits: RangeInclusive<usize>, giving_way: Option<GivingWay>) -> Self {
        Self {
            permits: Semaphore::new(limit),
            state: Mutex::new(State {
                limit,
                limits,
                running: 0,
                most_running: 0,
                debt: 0,
                starting: true,
                first_start: true,
                draining: false,
                start_trip: None,
                trip_at: None,
                long_trip: false,
                introducing: false,
                introduced: None,
                room_since: None,
                delay: Least::default(),
                floor: Least::default(),
                meter: Meter::default(),
                rate: Most::default(),
                came: 0,
                filled: None,
                best: Most::default(),
                best_at: None,
                large: 0,
                large_since: None,
                load: Most::default(),
                pace: Pace::default(),
                giving_way,
                held_until: None,
                full_at: None,
                first_at: None,
            }),
        }
    }

    /// Waits until another call, for so many bytes, may begin.
    pub(crate) async fn acquire(self: &Arc<Self>, octets: u64) -> Permit {
        // It is never closed.
        if let Ok(permit) = self.permits.acquire().await {
            // `Permit` gives it back, unless the limit fell meanwhile.
            permit.forget();
        }
        let permit = Permit {
            window: Arc::clone(self),
            started: None,
            replying: false,
            octets,
            received: 0,
        };
        let now = Instant::now();
        let at = {
            let mut state = self.lock();
            if self.permits.available_permits() == 0 {
                state.full_at = Some(now);
            }
            state.beginning(now, octets)
        };
        // With the permit in hand, so that those who wait for one keep their order.
        if let Some(at) = at {
            tokio::time::sleep_until(at).await;
        }
        permit
    }

    /// A reader with priority wants something.
    pub(crate) fn come_first(&self) {
        self.lock().first_at = Some(Instant::now());
    }

    /// Shares of the way there should be, compared with others who use it.
    pub(crate) fn shares(&self) -> u8 {
        self.lock().shares(Instant::now())
    }

    /// The most calls there were at a time.
    pub(crate) fn most_running(&self) -> usize {
        self.lock().most_running
    }

    /// Whether the server is being introduced to connections, which holds up calls on all others.
    pub(crate) fn introducing(&self, introducing: bool) {
        let mut state = self.lock();
        if state.introducing {
            state.introduced = Some(Instant::now());
        }
        state.introducing = introducing;
    }

    /// Whether it is not yet known how many calls suffice.
    pub(crate) fn is_starting(&self) -> bool {
        self.lock().starting
    }

    /// Whether the way's round trip should be told now.
    pub(crate) fn wants_round_trip(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let due = state.starting && state.trip_at.is_none_or(|at| now >= at);
        if due {
            state.trip_at = Some(now + TRIP_EVERY);
        }
        due
    }

    /// Takes in a round trip of the way alone: if it is longer than it was there is a queue.
    pub(crate) fn note_round_trip(&self, round_trip: Duration) {
        let mut state = self.lock();
        if !state.starting {
            return;
        }
        let trip = round_trip.as_secs_f64();
        let least = state.start_trip.map_or(trip, |least| least.min(trip));
        state.start_trip = Some(least);
        let slack = if state.shares(Instant::now()) > 1 {
            FIRST_TRIP_SLACK
        } else {
            START_TRIP_SLACK
        };
        let is_long = trip > (least * slack).max(least + START_TRIP_LEAST);
        if std::mem::replace(&mut state.long_trip, is_long) && is_long {
            state.end_start();
        }
    }

    /// The highest rate of late at which data came while more would have been taken, in bytes a second.
    pub(crate) fn best_rate(&self) -> Option<f64> {
        let state = self.lock();
        let at = state.best_at?;
        state.best.get().filter(|_| at.elapsed() < BEST_LIFETIME)
    }

    /// Calls allowed now.
    pub(crate) fn limit(&self) -> usize {
        self.lock().limit
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Once a round trip, which began at `since`: moves the limit towards what the load calls for.
    fn adjust(&self, state: &mut State, measured: Measured, since: Instant, now: Instant) {
        state.rate.update(now, measured.rate, LIFETIME);
        // Waves and lost packets make the load look less than it is.
        let call = state.delay.get().unwrap_or_default() * ROUND_TRIPS;
        let lifetime = Duration::from_secs_f64(LOAD_TIME * call);
        let most_load = state.load.update(now, measured.load, lifetime);
        let load = if state.draining {
            measured.load
        } else {
            most_load
        };
        state.notice_queue(measured, call, now);
        state.notice_rate(since, call, now);
        // Without use for all calls allowed nothing is learnt about how many there could be.
        if state.full_at.is_none_or(|full| full < since) {
            return;
        }
        let limit = state.limit;
        let held = state.held_until.is_some_and(|until| now < until);
        let target = if state.starting {
            // Calls that wait for a connection need no company.
            limit.max((limit + GROWTH).min(state.running + GROWTH))
        } else {
            let shares = state.shares(now);
            let gain = if shares > 1 { FIRST_GAIN } else { GAIN };
            ceil(load * gain) + BASIC * usize::from(shares)
        };
        if target < limit {
            // Without a queue the load is only late.
            if state.room_since.is_none() {
                self.set_limit(state, target.max(limit - limit / 16));
            }
        } else if !held {
            self.set_limit(state, target.min(limit + GROWTH));
        }
    }

    /// Takes in a round trip time known from elsewhere, to have something to begin with.
    pub(crate) fn learn(&self, round_trip: Duration) {
        let mut state = self.lock();
        let (now, delay) = (Instant::now(), round_trip.max(DELAY_FLOOR).as_secs_f64());
        if state.delay.get().is_none() {
            state.note_delay(now, delay);
        }
        if let Some(giving_way) = &mut state.giving_way {
            giving_way.learn(now, delay);
        }
    }

    fn set_limit(&self, state: &mut State, limit: usize) {
        let limit = limit.clamp(*state.limits.start(), *state.limits.end());
        if limit > state.limit {
            let more = limit - state.limit;
            let repaid = more.min(state.debt);
            state.debt -= repaid;
            self.permits.add_permits(more - repaid);
        } else {
            // Those in use cannot be taken back: they are withheld when their calls end.
            let fewer = state.limit - limit;
            state.debt += fewer - self.permits.forget_permits(fewer);
        }
        if limit != state.limit {
            tracing::trace!(limit, "calls at a time");
        }
        state.limit = limit;
        let (free, debt) = (self.permits.available_permits(), state.debt);
        debug_assert!(state.limits.contains(&limit), "{limit}");
        debug_assert!(free <= limit + debt, "{free} of {limit} and {debt}");
    }
}

impl State {
    /// Where several share a way, the calls each has besides those that its data calls for decide what it gets.
    fn shares(&self, now: Instant) -> u8 {
        let is_first = |at| now.saturating_duration_since(at) < FIRST_TIME;
        if self.first_at.is_some_and(is_first) {
            FIRST_SHARES
        } else {
            1
        }
    }

    /// Takes in the delay of a first byte, in seconds.
    fn note_delay(&mut self, now: Instant, delay: f64) {
        self.delay.update(now, delay, LIFETIME);
        self.floor.update(now, delay, FLOOR_LIFETIME);
    }

    /// When a call for so many bytes may begin; `None` is now.
    fn beginning(&mut self, now: Instant, octets: u64) -> Option<Instant> {
        if let Some(giving_way) = &mut self.giving_way {
            return Some(giving_way.beginning(now, self.limit));
        }
        let rate = self.rate.get().unwrap_or_default();
        let round_trip = self.delay.get()?;
        let floor = self.floor.get().unwrap_or(round_trip);
        let phase = if self.starting {
            Phase::Starting
        } else if round_trip > floor * FLOOR_SLACK {
            Phase::Queueing
        } else {
            Phase::Alone
        };
        let first = self.shares(now) > 1;
        let way = Way {
            round_trip,
            rate,
            phase,
            // For the number of calls to be what makes the data grow.
            start: count(GROWTH)
                + if self.first_start {
                    count(self.limit) / ROUND_TRIPS
                } else {
                    0.0
                },
            first,
        };
        self.pace.beginning(now, octets, way)
    }

    /// Measures the rate while calls fill the way.
    fn notice_rate(&mut self, since: Instant, call: f64, now: Instant) {
        if !self.fills_the_way(since, call) {
            self.filled = None;
            return;
        }
        let (from, before) = *self.filled.get_or_insert((now, self.came));
        let elapsed = now.duration_since(from);
        if elapsed < BEST_TIME {
            return;
        }
        self.filled = Some((now, self.came));
        // It may have been long ago that something was asked for last.
        if elapsed < 4 * BEST_TIME {
            let rate = bytes_of(self.came - before) / elapsed.as_secs_f64();
            self.best.update(now, rate, BEST_LIFETIME);
            self.best_at = Some(now);
        }
    }

    /// Whether calls that have been under way since then, for a time of `call` seconds before, take what the
    /// way gives.
    fn fills_the_way(&self, since: Instant, call: f64) -> bool {
        let all_in_use = !self.starting && self.full_at.is_some_and(|full| full >= since);
        let large = self
            .large_since
            .is_some_and(|large| since.saturating_duration_since(large).as_secs_f64() > call);
        all_in_use || large
    }

    fn end_start(&mut self) {
        self.starting = false;
        self.draining |= std::mem::replace(&mut self.first_start, false);
        self.start_trip = None;
        self.long_trip = false;
    }

    /// Ends the start when replies queue, and begins it again when they have not for long. A call takes
    /// `call` seconds without a queue.
    fn notice_queue(&mut self, measured: Measured, call: f64, now: Instant) {
        let Measured {
            needed, replying, ..
        } = measured;
        let replying = replying - QUEUE_BASIC;
        // Calls that were held up are looked at until they are over.
        let over = |at: Instant| now.duration_since(at).as_secs_f64() > 2.0 * call;
        let slack = if self.introducing || !self.introduced.is_none_or(over) {
            INTRODUCING_SLACK
        } else {
            START_SLACK
        };
        if replying > slack * needed {
            self.end_start();
        }
        if replying > ROOM_SLACK * needed {
            self.room_since = None;
            return;
        }
        if std::mem::replace(&mut self.draining, false) {
            // What was measured of its bursts is too much.
            self.load = Most::default();
        }
        let since = *self.room_since.get_or_insert(now);
        self.starting |= now.duration_since(since).as_secs_f64() > ROOM_TIME * call;
    }
}

impl Permit {
    /// The call begins.
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        let mut state = self.window.lock();
        state.running += 1;
        debug_assert!(self.started.is_none(), "it begins once");
        debug_assert!(state.running <= state.limit + state.debt, "{state:?}");
        state.most_running = state.most_running.max(state.running);
        if self.octets > LARGE {
            state.large += 1;
            debug_assert!(state.large <= state.running, "{state:?}");
            state.large_since.get_or_insert(now);
        }
        self.started = Some(now);
    }

    /// The first byte of the reply came, after so long.
    pub(crate) fn answered(&mut self, delay: Duration) {
        let mut state = self.window.lock();
        let now = Instant::now();
        if !std::mem::replace(&mut self.replying, true) {
            state.meter.reply_begins(now);
        }
        let delay = delay.max(DELAY_FLOOR).as_secs_f64();
        state.note_delay(now, delay);
        let (limit, full) = (state.limit, state.full_at);
        if let Some(giving_way) = &mut state.giving_way {
            let limit = giving_way.answered(now, delay, limit, full);
            self.window.set_limit(&mut state, limit);
        }
    }

    /// Waits for what comes next of the reply; `None` if that does not come while replies to others do, or for twice
    /// as long. For a large call it does wait: only peers that recover by themselves are asked for so much.
    pub(crate) async fn unless_stuck<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        if self.octets > LARGE {
            return Some(next.await);
        }
        tokio::pin!(next);
        let (before, long) = {
            let state = self.window.lock();
            let long = state.delay.get().unwrap_or_default() * STUCK_TRIPS;
            (state.came, Duration::from_secs_f64(long).max(STUCK))
        };
        if let Ok(next) = tokio::time::timeout(long, &mut next).await {
            return Some(next);
        }
        let others_go_on = self.window.lock().came > before;
        if others_go_on {
            return None;
        }
        tokio::time::timeout(long, next).await.ok()
    }

    /// So many bytes of the reply came.
    pub(crate) fn received(&mut self, bytes: usize) {
        let before = self.received;
        self.received += bytes as u64;
        let mut state = self.window.lock();
        state.came += bytes as u64;
        let (Some(delay), None) = (state.delay.get(), &state.giving_way) else {
            return;
        };
        let now = Instant::now();
        let received = state.meter.received(now, before, self.received, delay);
        if let Some((since, measured)) = received {
            self.window.adjust(&mut state, measured, since, now);
        }
    }

    /// The server was too busy for the call, or did not answer it.
    pub(crate) fn refused(self) {
        let mut state = self.window.lock();
        let now = Instant::now();
        // A burst of calls is refused as one, and is one reason to allow fewer.
        if state.held_until.is_none_or(|until| now >= until) {
            state.end_start();
            let pause = state.delay.get().unwrap_or(0.1) * ROUND_TRIPS;
            state.held_until = Some(now + Duration::from_secs_f64(pause));
            let limit = state.limit - state.limit / 4;
            self.window.set_limit(&mut state, limit);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn bytes_of(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The next whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a window can be"
)]
fn ceil(number: f64) -> usize {
    number.ceil().clamp(0.0, count(MOST)) as usize
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.window.lock();
        if self.started.is_some() {
            debug_assert!(
                state.running > 0 && state.large <= state.running,
                "{state:?}"
            );
            state.running -= 1;
            state.large -= usize::from(self.octets > LARGE);
            if state.large == 0 {
                state.large_since = None;
            }
        }
        if self.replying {
            state.meter.reply_ends(Instant::now());
        }
        if let (Some(giving_way), Some(began), true) =
            (&mut state.giving_way, self.started, self.replying)
        {
            giving_way.ended(began.elapsed().as_secs_f64());
        }
        if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.window.permits.add_permits(1);
        }
    }
}
