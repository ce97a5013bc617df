//! How many fetch calls one file server gets at a time.
//!
//! An OpenAFS file server sends at most 32 packets a round trip in one call, so a long link is
//! filled by many calls, as a TCP connection fills it by many packets. How many is found as delay-based
//! congestion control finds its window (Vegas, Brakmo 1994): the time to the first octet of a reply
//! grows beyond its least value once calls queue, in the network or in the server. As long as few
//! queue there is room for more calls; when many do, fewer do the same work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Calls at first: one connection's worth is not yet rude to any server.
const INITIAL: usize = 8;
/// Never fewer.
const LEAST: usize = 2;
/// Never more: 64 connections to one server.
const MOST: usize = 256;
/// For how long at least a least delay counts; then it is measured anew.
const BASE_LIFETIME: Duration = Duration::from_secs(10);
/// Delays shorter than this are taken for this long: below it, scheduling is all that is measured.
const BASE_FLOOR: Duration = Duration::from_millis(1);

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
    in_use: usize,
    most_in_use: usize,
    /// Permits to be withheld when calls end, as the limit fell.
    debt: usize,
    /// Doubling each round trip, until something queues.
    starting: bool,
    /// Steps up or down collected, in calls.
    credit: f64,
    smoothed: Option<f64>,
    base: MinFilter,
    cut_at: Option<Instant>,
    /// When all calls allowed were last running.
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
            Some((since, least)) if at.duration_since(*since) < BASE_LIFETIME => {
                *least = least.min(value);
            }
            other => {
                self.before = other.map(|(_, least)| least);
                *other = Some((at, value));
            }
        }
        let now = self.now.map_or(value, |(_, least)| least);
        self.before.map_or(now, |before| before.min(now))
    }
}

/// The right to have one call running. Dropping it says nothing of how the call went.
#[derive(Debug)]
pub(crate) struct Permit {
    window: Arc<Window>,
    started: Instant,
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
                in_use: 0,
                most_in_use: 0,
                debt: 0,
                starting: true,
                credit: 0.0,
                smoothed: None,
                base: MinFilter::default(),
                cut_at: None,
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
        let mut state = self.lock();
        state.in_use += 1;
        state.most_in_use = state.most_in_use.max(state.in_use);
        let started = Instant::now();
        if state.in_use >= state.limit {
            state.full_at = Some(started);
        }
        Permit {
            window: Arc::clone(self),
            started,
        }
    }

    /// The most calls there were at a time.
    pub(crate) fn most_in_use(&self) -> usize {
        self.lock().most_in_use
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            tracing::trace!(limit, starting = state.starting, "calls at a time");
        }
        state.limit = limit;
    }
}

impl Permit {
    /// The call went well; its first octet came after `first`.
    pub(crate) fn succeeded(self, first: Duration) {
        let now = Instant::now();
        let whole = now.duration_since(self.started);
        let mut state = self.window.lock();
        let first = first.max(BASE_FLOOR).as_secs_f64();
        let base = state.base.update(now, first);
        let smoothed = state
            .smoothed
            .map_or(first, |smoothed| smoothed + (first - smoothed) / 8.0);
        state.smoothed = Some(smoothed);
        let limit = state.limit;
        // A reply that arrives in pieces far apart was held up by a retransmission timer.
        if whole.as_secs_f64() > first + 3.0 * base + 0.3 {
            self.cut(&mut state, now, base);
        } else if state.full_at.is_some_and(|full| full >= self.started) {
            // Without use for more calls nothing was learnt about them.
            let calls = f64::from(u32::try_from(limit).unwrap_or(u32::MAX));
            let queued = calls * (1.0 - base / smoothed);
            let (few, many) = (2.0 + calls / 8.0, 4.0 + calls / 3.0);
            if state.starting && queued < many {
                state.credit += 1.0;
            } else {
                state.starting = false;
                if queued < few {
                    state.credit += 1.0 / calls;
                } else if queued > many {
                    state.credit -= 1.0 / calls;
                }
            }
            if state.credit >= 1.0 {
                state.credit = 0.0;
                self.window.set_limit(&mut state, limit + 1);
            } else if state.credit <= -1.0 {
                state.credit = 0.0;
                self.window.set_limit(&mut state, limit - 1);
            }
        }
    }

    /// The server was too busy for the call, or did not answer it.
    pub(crate) fn refused(self) {
        let mut state = self.window.lock();
        self.cut(&mut state, Instant::now(), 0.1);
    }

    /// Fewer calls, at most once in two round trips.
    fn cut(&self, state: &mut State, now: Instant, round_trip: f64) {
        let pause = Duration::from_secs_f64(2.0 * round_trip);
        state.starting = false;
        if state.cut_at.is_none_or(|at| now.duration_since(at) > pause) {
            state.cut_at = Some(now);
            let limit = state.limit - state.limit / 4;
            self.window.set_limit(state, limit);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.window.lock();
        state.in_use -= 1;
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

    /// Runs calls against a link that holds `capacity` calls without queueing; returns the limit
    /// found.
    async fn run(capacity: usize, base: Duration, rounds: usize) -> usize {
        let window = Arc::new(Window::new(None));
        for _ in 0..rounds {
            let limit = window.lock().limit;
            let mut permits = Vec::new();
            for _ in 0..limit {
                permits.push(window.acquire().await);
            }
            let delay = base.mul_f64((limit as f64 / capacity as f64).max(1.0));
            tokio::time::advance(delay).await;
            for permit in permits {
                permit.succeeded(delay);
            }
        }
        let limit = window.lock().limit;
        limit
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_settles_somewhat_above_what_the_link_holds() {
        for capacity in [20, 34, 100] {
            let found = run(capacity, Duration::from_millis(12), 400).await;
            assert!(
                (capacity..capacity * 2).contains(&found),
                "{found} calls for {capacity}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_start_takes_a_few_round_trips() {
        let found = run(100, Duration::from_millis(230), 5).await;
        assert!(found >= 100, "{found}");
    }

    #[tokio::test(start_paused = true)]
    async fn busy_servers_get_fewer_calls_and_permits_are_not_lost() {
        let window = Arc::new(Window::new(None));
        for _ in 0..4 {
            window.acquire().await.refused();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let limit = window.lock().limit;
        assert!(limit < INITIAL && limit >= LEAST, "{limit}");
        assert_eq!(window.permits.available_permits(), limit);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fixed_limit_stays() {
        let window = Arc::new(Window::new(Some(3)));
        for _ in 0..100 {
            let permits = [window.acquire().await, window.acquire().await];
            for permit in permits {
                permit.succeeded(Duration::from_millis(5));
            }
            window.acquire().await.refused();
        }
        assert_eq!(window.permits.available_permits(), 3);
        assert_eq!(window.most_in_use(), 2);
    }
}
