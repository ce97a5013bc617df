//! How many fetch calls one file server gets at a time.
//!
//! An OpenAFS file server sends little in one call: it begins each with one packet, doubles that each
//! round trip and ends at 32 packets. A long link is therefore filled by many calls, as TCP fills it by
//! many packets. How many is found in the manner of BBR: a call of known length takes a known number of
//! round trips when nothing queues, so the data that comes in tells how many calls would have sufficed
//! to bring it. Somewhat more than that are allowed. While the link has room, more calls bring more
//! data and the number grows; once it has none, more calls only wait, and it stands.
//!
//! The time until a reply begins is no guide: a server that is being introduced to a connection
//! makes calls on all others wait.
//!
//! Calls that begin together burst together six round trips later, so they begin at some distance
//! from each other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Calls at first.
const INITIAL: usize = 24;
/// Calls always allowed, unless the server is busy.
const BASIC: usize = 6;
/// Never fewer.
const LEAST: usize = 2;
/// Never more: 64 connections to one server.
const MOST: usize = 256;
/// Calls allowed besides [`BASIC`] for each that would suffice.
const GAIN: f64 = 1.15;
/// The same at the start.
const START_GAIN: f64 = 1.35;
/// The same at the start.
const START_BASIC: f64 = 16.0;
/// For how long at least a least delay counts; then it is measured anew.
const LIFETIME: Duration = Duration::from_secs(10);
/// Delays shorter than this are taken for this long: below it, scheduling is all that is measured.
const DELAY_FLOOR: Duration = Duration::from_millis(1);
/// Round trips over which the load is averaged.
const LOADS: usize = 4;
/// Octets of payload in a packet of an OpenAFS server.
const PACKET: f64 = 1416.0;
/// Packets an OpenAFS server sends in a round trip at most.
const WINDOW: f64 = 32.0;
/// Calls that may be allowed more in a round trip.
const GROWTH: usize = 8;
/// Calls that may begin in one round trip besides those that replace others and a sixteenth more.
const BEGINNINGS: f64 = 8.0;
/// Round trips a call takes, about.
const ROUND_TRIPS: f64 = 6.0;
/// Pauses shorter than this are made up for later.
const PAUSE_LEAST: Duration = Duration::from_millis(1);

/// The calls one file server may have at a time.
#[derive(Debug)]
pub(crate) struct Window {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    fixed: bool,
    running: usize,
    most_running: usize,
    /// Permits to be withheld when calls end, as the limit fell.
    debt: usize,
    /// Until calls queue for the first time.
    starting: bool,
    /// The least delay of a first octet, in seconds.
    delay: MinFilter,
    /// The round trips of calls that came in the round trip that began then.
    work: Option<(Instant, f64)>,
    /// Calls that would have sufficed, in each of the last round trips.
    loads: VecDeque<f64>,
    next_beginning: Option<Instant>,
    /// Until then the limit does not grow.
    held_until: Option<Instant>,
    /// When all calls allowed were last in use.
    full_at: Option<Instant>,
}

/// The least of the last 10 to 20 s.
#[derive(Debug, Default)]
struct MinFilter {
    now: Option<(Instant, f64)>,
    before: Option<f64>,
}

impl MinFilter {
    fn update(&mut self, at: Instant, value: f64) -> f64 {
        match &mut self.now {
            Some((since, least)) if at.duration_since(*since) < LIFETIME => {
                *least = least.min(value);
            }
            other => {
                self.before = other.map(|(_, least)| least);
                *other = Some((at, value));
            }
        }
        self.least().unwrap_or(value)
    }

    fn least(&self) -> Option<f64> {
        let (_, now) = self.now?;
        Some(self.before.map_or(now, |before| before.min(now)))
    }
}

/// The right to have one call running. Dropping it says nothing of how the call went.
#[derive(Debug)]
pub(crate) struct Permit {
    window: Arc<Window>,
    /// When the call began.
    started: Option<Instant>,
    /// Octets that came.
    received: u64,
}

impl Window {
    /// One that finds its limit, or has the one given.
    pub(crate) fn new(fixed: Option<usize>) -> Self {
        let limit = fixed.map_or(INITIAL, |fixed| fixed.clamp(1, MOST));
        Self {
            permits: Semaphore::new(limit),
            state: Mutex::new(State {
                limit,
                fixed: fixed.is_some(),
                running: 0,
                most_running: 0,
                debt: 0,
                starting: true,
                delay: MinFilter::default(),
                work: None,
                loads: VecDeque::with_capacity(LOADS),
                next_beginning: None,
                held_until: None,
                full_at: None,
            }),
        }
    }

    /// Waits until another call may begin.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Permit {
        // It is never closed.
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        let permit = Permit {
            window: Arc::clone(self),
            started: None,
            received: 0,
        };
        let now = Instant::now();
        let at = {
            let mut state = self.lock();
            if self.permits.available_permits() == 0 {
                state.full_at = Some(now);
            }
            state.beginning(now)
        };
        if let Some(at) = at {
            tokio::time::sleep_until(at).await;
        }
        permit
    }

    /// The most calls there were at a time.
    pub(crate) fn most_running(&self) -> usize {
        self.lock().most_running
    }

    /// Calls allowed now.
    pub(crate) fn limit(&self) -> usize {
        self.lock().limit
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once a round trip: moves the limit towards what the load calls for. At the start it grows
    /// ahead of the load, which follows the calls with some round trips' delay.
    fn adjust(&self, state: &mut State, since: Instant, now: Instant) {
        // Without use for all calls allowed nothing is learnt about how many there could be.
        if state.full_at.is_none_or(|full| full < since) || state.loads.len() < LOADS {
            return;
        }
        let load = state.loads.iter().sum::<f64>() / count(LOADS);
        let limit = state.limit;
        state.starting &= count(state.running) <= START_GAIN * load + START_BASIC;
        let held = state.held_until.is_some_and(|until| now < until);
        let target = if state.starting {
            limit + GROWTH
        } else {
            ceil(load * GAIN) + BASIC
        };
        if target < limit {
            self.set_limit(state, target.max(limit - limit / 8));
        } else if !held {
            self.set_limit(state, target.min(limit + GROWTH));
        }
    }

    /// Takes in a round trip time known from elsewhere, to have something to begin with.
    pub(crate) fn learn(&self, round_trip: Duration) {
        let mut state = self.lock();
        if state.delay.least().is_none() {
            let delay = round_trip.max(DELAY_FLOOR).as_secs_f64();
            state.delay.update(Instant::now(), delay);
        }
    }

    fn set_limit(&self, state: &mut State, limit: usize) {
        let limit = if state.fixed {
            state.limit
        } else {
            limit.clamp(LEAST, MOST)
        };
        if limit > state.limit {
            let more = limit - state.limit;
            let repaid = more.min(state.debt);
            state.debt -= repaid;
            self.permits.add_permits(more - repaid);
        } else {
            let fewer = state.limit - limit;
            state.debt += fewer - self.permits.forget_permits(fewer);
        }
        if limit != state.limit {
            tracing::trace!(limit, "calls at a time");
        }
        state.limit = limit;
    }
}

impl State {
    /// When the next call may begin; `None` is now.
    fn beginning(&mut self, now: Instant) -> Option<Instant> {
        let round_trip = self.delay.least()?;
        if Duration::from_secs_f64(round_trip) <= 2 * DELAY_FLOOR {
            return None;
        }
        let running = count(self.running);
        let beginnings = running / ROUND_TRIPS + running / 16.0 + BEGINNINGS;
        let distance = round_trip / beginnings;
        let earliest = now.checked_sub(2 * PAUSE_LEAST).unwrap_or(now);
        let at = self.next_beginning.map_or(now, |at| at.max(earliest));
        self.next_beginning = Some(at + Duration::from_secs_f64(distance));
        (at > now + PAUSE_LEAST).then_some(at)
    }
}

impl Permit {
    /// The call begins.
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        let mut state = self.window.lock();
        state.running += 1;
        state.most_running = state.most_running.max(state.running);
        self.started = Some(now);
    }

    /// The first octet of the reply came, after so long.
    pub(crate) fn answered(&self, delay: Duration) {
        let mut state = self.window.lock();
        let now = Instant::now();
        state
            .delay
            .update(now, delay.max(DELAY_FLOOR).as_secs_f64());
    }

    /// So many octets of the reply came.
    pub(crate) fn received(&mut self, bytes: usize) {
        let before = self.received;
        self.received += bytes as u64;
        let mut state = self.window.lock();
        let Some(delay) = state.delay.least() else {
            return;
        };
        let now = Instant::now();
        let (since, work) = state.work.unwrap_or((now, 0.0));
        let work = work + round_trips(self.received) - round_trips(before);
        let elapsed = now.duration_since(since).as_secs_f64();
        if elapsed < delay.max(0.01) {
            state.work = Some((since, work));
            return;
        }
        state.work = Some((now, 0.0));
        if state.loads.len() == LOADS {
            state.loads.pop_front();
        }
        state.loads.push_back(work * delay / elapsed);
        self.window.adjust(&mut state, since, now);
    }

    /// The server was too busy for the call, or did not answer it.
    pub(crate) fn refused(self) {
        let mut state = self.window.lock();
        let now = Instant::now();
        if state.held_until.is_none_or(|until| now >= until) {
            state.starting = false;
            let pause = state.delay.least().unwrap_or(0.1) * ROUND_TRIPS;
            state.held_until = Some(now + Duration::from_secs_f64(pause));
            let limit = state.limit - state.limit / 4;
            self.window.set_limit(&mut state, limit);
        }
    }
}

/// Round trips in which an OpenAFS server sends so many octets when nothing queues, as a number that
/// grows evenly: 1, 2, 4, 8, 16 and then 32 packets each.
fn round_trips(bytes: u64) -> f64 {
    let packets = bytes_of(bytes) / PACKET;
    let ramp = 2.0 * WINDOW - 1.0;
    (packets.min(ramp) + 1.0).log2() + (packets - ramp).max(0.0) / WINDOW
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
            state.running -= 1;
        }
        if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.window.permits.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds of calls against a link that carries `capacity` pieces in the time of one;
    /// returns the limit found.
    async fn run(capacity: usize, base: Duration, rounds: usize) -> usize {
        let window = Arc::new(Window::new(None));
        for _ in 0..rounds {
            let limit = window.limit();
            let mut permits = Vec::new();
            for _ in 0..limit {
                window.permits.acquire().await.unwrap().forget();
                let mut permit = Permit {
                    window: Arc::clone(&window),
                    started: None,
                    received: 0,
                };
                permit.begin();
                permits.push(permit);
            }
            window.lock().full_at = Some(Instant::now());
            // As many octets as the server's window has grown to, as fast as the link carries them.
            let times = (count(limit) / count(capacity)).max(1.0);
            for trip in 0..6 {
                tokio::time::advance(base.mul_f64(times)).await;
                for permit in &mut permits {
                    if trip == 0 {
                        permit.answered(base);
                    }
                    permit.received(1416 << trip);
                }
            }
        }
        window.limit()
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_settles_somewhat_above_what_the_link_holds() {
        for capacity in [20, 58, 130] {
            let found = run(capacity, Duration::from_millis(12), 60).await;
            assert!(
                (capacity..2 * capacity + BASIC).contains(&found),
                "{found} calls for {capacity}"
            );
        }
    }

    #[test]
    fn round_trips_follow_the_server_s_windows() {
        for (packets, trips) in [
            (0, 0.0),
            (1, 1.0),
            (3, 2.0),
            (31, 5.0),
            (63, 6.0),
            (95, 7.0),
        ] {
            let found = round_trips(packets * 1416);
            assert!((found - trips).abs() < 1e-9, "{packets}: {found}");
        }
        assert!(round_trips(64 * 1416) < round_trips(65 * 1416));
    }

    #[tokio::test(start_paused = true)]
    async fn busy_servers_get_fewer_calls_and_permits_are_not_lost() {
        let window = Arc::new(Window::new(None));
        for _ in 0..4 {
            window.acquire().await.refused();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let limit = window.limit();
        assert!((LEAST..INITIAL).contains(&limit), "{limit}");
        assert_eq!(window.permits.available_permits(), limit);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fixed_limit_stays() {
        let window = Arc::new(Window::new(Some(3)));
        for _ in 0..100 {
            for mut permit in [window.acquire().await, window.acquire().await] {
                permit.begin();
                permit.answered(Duration::from_millis(5));
                permit.received(100_000);
            }
            window.acquire().await.refused();
        }
        assert_eq!(window.permits.available_permits(), 3);
        assert_eq!(window.most_running(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_begin_at_a_distance() {
        let window = Arc::new(Window::new(Some(100)));
        let mut permit = window.acquire().await;
        permit.begin();
        permit.answered(Duration::from_millis(160));
        let begin = Instant::now();
        let mut permits = Vec::new();
        for _ in 0..17 {
            permits.push(window.acquire().await);
        }
        let took = begin.elapsed();
        let expected = Duration::from_millis(290)..Duration::from_millis(330);
        assert!(expected.contains(&took), "{took:?}");
    }
}
