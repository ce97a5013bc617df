//! Connections to a file server, and which of their channels are free.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use afar_rpc::rxafs;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use super::hosts::Host;
use crate::credentials::Secured;

/// Calls that can run at a time on one Rx connection.
pub(super) const CHANNELS: usize = 4;

/// Connections, and their free channels.
#[derive(Debug)]
pub(super) struct Lanes {
    state: Mutex<State>,
    /// One permit for each free lane.
    free: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    connections: Vec<Link>,
    /// Whether any of them was introduced.
    open: bool,
    /// The one to take next is in front.
    free: VecDeque<usize>,
    /// Lanes there should be.
    wanted: usize,
    /// Whether a task is introducing connections.
    growing: bool,
}

/// A connection, from where it is, and how it is secured.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) client: rxafs::Client,
    pub(super) secured: Option<Secured>,
    pub(super) host: Arc<Host>,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            free: Semaphore::new(0),
        }
    }

    /// Lanes there are, those of connections that are still being introduced too.
    pub(super) fn count(&self) -> usize {
        self.lock().connections.len() * CHANNELS
    }

    /// Whether some of them were ever free.
    pub(super) fn are_open(&self) -> bool {
        self.lock().open
    }

    /// Whether whoever wants one must wait.
    pub(super) fn is_taken(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Takes a free one, with its number.
    pub(super) async fn take(&self) -> (usize, Link) {
        loop {
            // The semaphore is never closed.
            if let Ok(permit) = self.free.acquire().await {
                permit.forget();
            }
            let mut state = self.lock();
            // They may have been cleared meanwhile.
            if let Some(number) = state.free.pop_front() {
                return (number, state.connections[number / CHANNELS].clone());
            }
        }
    }

    /// The first connection.
    pub(super) fn first(&self) -> Option<Link> {
        self.lock().connections.first().cloned()
    }

    /// One connection of each host.
    pub(super) fn of_each_host(&self) -> Vec<Link> {
        let state = self.lock();
        let mut links: Vec<Link> = Vec::new();
        for link in &state.connections {
            if !links
                .iter()
                .any(|known| Arc::ptr_eq(&known.host, &link.host))
            {
                links.push(link.clone());
            }
        }
        links
    }

    /// Adds a connection, none of whose channels is free yet; returns which it is.
    pub(super) fn add(&self, link: Link) -> usize {
        let mut state = self.lock();
        state.connections.push(link);
        state.connections.len() - 1
    }

    /// All channels of a connection are free.
    pub(super) fn open(&self, connection: usize) {
        self.free(connection * CHANNELS..(connection + 1) * CHANNELS);
    }

    /// These are free.
    pub(super) fn free(&self, numbers: Range<usize>) {
        let count = numbers.len();
        let mut state = self.lock();
        state.free.extend(numbers);
        state.check();
        state.open = true;
        drop(state);
        self.free.add_permits(count);
    }

    /// One that was taken is free again. If its call failed it is to rest a while, as the server's side of it may
    /// still be busy with the call.
    pub(super) fn put_back(&self, number: usize, failed: bool) {
        let mut state = self.lock();
        debug_assert!(!state.free.contains(&number), "lane {number} is free twice");
        if failed {
            state.free.push_back(number);
        } else {
            // The one used last has its windows open.
            state.free.push_front(number);
        }
        state.check();
        drop(state);
        self.free.add_permits(1);
    }

    /// Takes all away, unless there is one that is taken.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        // A taken lane would be put back among other connections, under a number that is not its own.
        if !state.growing && state.free.len() == state.connections.len() * CHANNELS {
            self.free.forget_permits(state.free.len());
            *state = State::default();
        }
    }

    /// There should be so many. Says whether a task is to be started that adds what is missing.
    pub(super) fn want(&self, number: usize) -> bool {
        let mut state = self.lock();
        state.wanted = state.wanted.max(number);
        let are_few = state.connections.len() * CHANNELS < state.wanted;
        are_few && !std::mem::replace(&mut state.growing, true)
    }

    /// Whether so many are as many as there should be.
    pub(super) fn are_enough(&self, count: usize) -> bool {
        count >= self.lock().wanted
    }

    /// The same where there are at most so many; if so, no task adds any from now on.
    pub(super) fn has_grown(&self, count: usize, most: usize) -> bool {
        let mut state = self.lock();
        state.growing = count < state.wanted.min(most);
        !state.growing
    }

    /// No task adds any from now on, though there are too few.
    pub(super) fn stop_growing(&self) {
        self.lock().growing = false;
    }

    /// Whether a connection is secured like this.
    pub(super) fn has(&self, secured: &Secured) -> bool {
        let state = self.lock();
        state.connections.iter().any(|link| link.is(secured))
    }

    /// Puts others in the place of connections. Calls that run on those end there.
    pub(super) fn replace(&self, other: impl Fn(&Link) -> Option<Link>) {
        for link in &mut self.lock().connections {
            if let Some(other) = other(link) {
                *link = other;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Only channels of connections there are can be free.
    fn check(&self) {
        let lanes = self.connections.len() * CHANNELS;
        debug_assert!(self.free.len() <= lanes, "{} of {lanes}", self.free.len());
        debug_assert!(self.free.iter().all(|number| *number < lanes));
    }
}

impl Link {
    /// Whether it is secured like this.
    pub(super) fn is(&self, secured: &Secured) -> bool {
        self.secured.as_ref().is_some_and(|used| used.is(secured))
    }
}
