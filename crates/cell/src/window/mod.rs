//! The fetch calls one file server gets at a time: a [`Controller`] with a clock, and the queue of calls.
//!
//! Crate `flow` decides how many calls there may be and when each starts; here they wait for that.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use afar_flow::{Call, Controller, Fill, Scavenge, Tuning};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The calls one file server may have at a time.
#[derive(Debug)]
pub(crate) struct Window {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    flow: Flow,
    /// The limit that the permits follow, and the permits to withhold when calls end, because it fell.
    limit: usize,
    debt: usize,
    running: usize,
    most_running: usize,
}

/// The controller that decides.
#[derive(Debug)]
enum Flow {
    Fill(Box<Fill>),
    Scavenge(Box<Scavenge>),
}

/// The right to run one call. Dropping it says nothing about how the call went.
#[derive(Debug)]
pub(crate) struct Permit {
    window: Arc<Window>,
    call: Call,
    is_running: bool,
}

impl Window {
    /// A window that fills the path, or allows the given number of calls.
    pub(crate) fn new(fixed: Option<usize>) -> Self {
        let fill = Fill::new(Tuning::default(), fixed);
        Self::with(Flow::Fill(Box::new(fill)))
    }

    /// A window that allows what others leave of the path, and no more calls than `most` if that is given.
    pub(crate) fn giving_way(most: Option<usize>) -> Self {
        let scavenge = Scavenge::new(Tuning::default(), Instant::now().into_std(), most);
        Self::with(Flow::Scavenge(Box::new(scavenge)))
    }

    fn with(mut flow: Flow) -> Self {
        let limit = flow.controller().limit();
        Self {
            permits: Semaphore::new(limit),
            state: Mutex::new(State {
                flow,
                limit,
                debt: 0,
                running: 0,
                most_running: 0,
            }),
        }
    }

    /// Waits until another call, for this many bytes, may start.
    pub(crate) async fn acquire(self: &Arc<Self>, bytes: u64) -> Permit {
        // It is never closed.
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        let (at, permit) = self.tell(|flow, now| {
            let at = flow.may_start(now, bytes);
            let permit = Permit {
                window: Arc::clone(self),
                call: Call::new(bytes),
                is_running: false,
            };
            ((at > now).then_some(at), permit)
        });
        if let Some(at) = at {
            tokio::time::sleep_until(at.into()).await;
        }
        permit
    }

    /// A reader with priority wants something.
    pub(crate) fn come_first(&self) {
        if let Flow::Fill(fill) = &mut self.lock().flow {
            fill.prioritize(Instant::now().into_std());
        }
    }

    /// The shares of the path that its calls should get, where another client's get one.
    pub(crate) fn shares(&self) -> u8 {
        match &self.lock().flow {
            Flow::Fill(fill) => fill.shares(Instant::now().into_std()),
            Flow::Scavenge(_) => 1,
        }
    }

    /// The most calls there were at a time.
    pub(crate) fn most_running(&self) -> usize {
        self.lock().most_running
    }

    /// The highest recent rate at which data came while the calls took all of the path, in bytes a second.
    pub(crate) fn best_rate(&self) -> Option<f64> {
        match &self.lock().flow {
            Flow::Fill(fill) => fill.best_rate(Instant::now().into_std()),
            Flow::Scavenge(_) => None,
        }
    }

    /// Calls allowed now.
    pub(crate) fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Takes in a round-trip time known from elsewhere, to have one to begin with.
    pub(crate) fn learn(&self, round_trip: Duration) {
        self.tell(|flow, now| flow.learn(now, round_trip));
    }

    /// Tells the controller something, and lets as many calls run as it allows then.
    fn tell<T>(&self, what: impl FnOnce(&mut dyn Controller, std::time::Instant) -> T) -> T {
        let mut state = self.lock();
        // Under the lock: time must not go back.
        let told = what(state.flow.controller(), Instant::now().into_std());
        let (limit, before) = (state.flow.controller().limit(), state.limit);
        if limit > before {
            let more = limit - before;
            let repaid = more.min(state.debt);
            state.debt -= repaid;
            self.permits.add_permits(more - repaid);
        } else if limit < before {
            let fewer = before - limit;
            state.debt += fewer - self.permits.forget_permits(fewer);
        }
        if limit != before {
            tracing::trace!(limit, "calls at a time");
            state.limit = limit;
        }
        told
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Flow {
    fn controller(&mut self) -> &mut dyn Controller {
        match self {
            Self::Fill(fill) => fill.as_mut(),
            Self::Scavenge(scavenge) => scavenge.as_mut(),
        }
    }
}

impl Permit {
    /// The call starts.
    pub(crate) fn begin(&mut self) {
        self.window
            .tell(|flow, now| flow.on_start(now, &mut self.call));
        let mut state = self.window.lock();
        state.running += 1;
        state.most_running = state.most_running.max(state.running);
        self.is_running = true;
    }

    /// The first byte of the reply came, after this delay.
    pub(crate) fn answered(&mut self, delay: Duration) {
        self.window
            .tell(|flow, now| flow.on_first_byte(now, &mut self.call, delay));
    }

    /// This many bytes of the reply came.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.window
            .tell(|flow, now| flow.on_progress(now, &mut self.call, bytes as u64));
    }

    /// The server was too busy for the call, or did not answer it.
    pub(crate) fn refused(self) {
        self.window.tell(|flow, now| flow.on_refused(now));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.window.tell(|flow, now| flow.on_end(now, &self.call));
        let mut state = self.window.lock();
        state.running -= usize::from(self.is_running);
        if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.window.permits.add_permits(1);
        }
    }
}
