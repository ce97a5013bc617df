//! What must hold of an endpoint between two events, which tests look at after each.
//!
//! The engine's tables refer to each other by keys, and its sums are kept up to date by hand. A key of
//! something that is gone, or a sum that is no longer one, shows in nothing but a call that stands still
//! or memory that never comes back, long after the step that was wrong.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::account::Owner;
use super::timers::Timer;
use super::{Endpoint, connection_index};
use crate::call::{Role, Stage};
use crate::types::Key;

/// By how much a timer may be late besides what the path's estimates explain.
const SLACK: Duration = Duration::from_millis(200);

impl Endpoint {
    /// Looks at everything that must hold after any event.
    ///
    /// # Panics
    /// With what does not.
    pub(crate) fn check(&self) {
        self.check_connections();
        self.check_calls();
        self.check_paths();
        self.check_services();
        self.check_account();
    }

    /// Looks at what must hold besides when the driver goes to sleep: whatever is to happen at a time has a
    /// timer, and one only that counts.
    ///
    /// # Panics
    /// With what does not.
    pub(crate) fn check_timers(&self) {
        let mut timers: BTreeMap<(Instant, Timer), u32> = BTreeMap::new();
        for Reverse(timer) in &self.timers {
            *timers.entry(*timer).or_default() += 1;
        }
        for (key, call) in self.calls.iter() {
            if let Some(at) = call.wake_at {
                let count = timers.get(&(at, Timer::Call(key)));
                assert!(count.is_some(), "a call waits for no timer: {call:?}");
            }
            let path = self.connections.get(call.connection);
            let path = path.and_then(|connection| self.paths.get(connection.path));
            let path = path.expect("a call has a path");
            // What another call sent to learn the path's size is that call's to look after.
            let deadline = self
                .call_deadline(key)
                .filter(|at| path.mtu.look_at() != Some(*at));
            let is_late = |deadline: Instant| {
                let since = call
                    .sender
                    .waits_since()
                    .map_or(call.spoke, |at| at.min(call.spoke));
                let wait = deadline.saturating_duration_since(since);
                let slack = wait.mul_f64(path.timers_lag()) + SLACK;
                call.wake_at.is_none_or(|at| at > deadline + slack)
            };
            assert!(
                !deadline.is_some_and(is_late),
                "{deadline:?} is missed: {call:?}"
            );
        }
        for (key, path) in self.paths.iter() {
            if let Some(at) = path.wake_at {
                let is_set = timers.contains_key(&(at, Timer::Path(key)));
                assert!(is_set, "a path waits for no timer: {path:?}");
            }
        }
        let housekeeping = timers
            .iter()
            .filter(|((_, timer), _)| *timer == Timer::Housekeeping);
        assert_eq!(housekeeping.map(|(_, count)| count).sum::<u32>(), 1);
    }

    fn check_connections(&self) {
        let mut of_clients = 0;
        for (key, connection) in self.connections.iter() {
            let path = self.paths.get(connection.path);
            let path = path.expect("a connection has a path");
            let index = connection_index(connection, path.address);
            assert_eq!(self.by_id.get(&index), Some(&key), "{index:?}");
            if connection.role() == Role::Server {
                of_clients += 1;
                assert!(self.by_source.contains(&(connection.source, key)));
            }
            for (number, channel) in connection.channels.iter().enumerate() {
                if let Some(key_of_call) = channel.call {
                    let call = self.calls.get(key_of_call);
                    let call = call.expect("a channel's call is there");
                    assert_eq!((call.connection, call.channel), (key, number));
                }
            }
        }
        assert_eq!(self.by_id.len(), self.connections.iter().count());
        assert_eq!(self.by_source.len(), of_clients);
    }

    fn check_calls(&self) {
        let mut strangers = 0;
        let acks: BTreeSet<Key> = self.acks.iter().copied().collect();
        for (key, call) in self.calls.iter() {
            let connection = self.connections.get(call.connection);
            let connection = connection.expect("a call has a connection");
            assert_eq!(connection.channels[call.channel].call, Some(key));
            assert_eq!(connection.role(), call.role);
            let path = self.paths.get(connection.path);
            let is_listed = path.is_some_and(|path| path.ready.contains(&key));
            assert!(is_listed || !call.in_ready, "ready, and in no list");
            assert!(acks.contains(&key) || !call.in_acks, "owes, and in no list");
            assert!(call.owners.is_some() || !call.counted, "counts for nobody");
            assert!(
                call.stage == Stage::Waiting || !call.in_line,
                "runs, and waits in line"
            );
            call.sender.check();
            if let Some(order) = call.stranger {
                strangers += 1;
                assert_eq!(self.strangers.get(&order), Some(&key));
            }
            match call.role {
                Role::Client => assert_ne!(call.stage, Stage::Waiting),
                Role::Server if call.stage == Stage::Running => assert!(call.counted),
                Role::Server => {}
            }
        }
        assert_eq!(self.strangers.len(), strangers);
    }

    fn check_paths(&self) {
        let connections = self.connections.iter();
        let by_path: BTreeSet<(Key, Key)> = connections
            .map(|(key, connection)| (connection.path, key))
            .collect();
        assert_eq!(self.by_path, by_path);
        let mut connections: BTreeMap<Key, usize> = BTreeMap::new();
        for (path, _) in by_path {
            *connections.entry(path).or_default() += 1;
        }
        let mut in_flight: BTreeMap<Key, u64> = BTreeMap::new();
        for (_, call) in self.calls.iter() {
            let path = self
                .connections
                .get(call.connection)
                .map(|known| known.path);
            let path = path.expect("a call has a path");
            *in_flight.entry(path).or_default() += call.sender.in_flight();
        }
        for (key, path) in self.paths.iter() {
            assert_eq!(self.by_address.get(&path.address), Some(&key));
            let in_flight = in_flight.get(&key).copied().unwrap_or_default();
            assert_eq!(path.controller.bytes_in_flight(), in_flight);
            let used = connections.get(&key).copied().unwrap_or_default();
            assert_eq!(path.connections, used, "{}", path.address);
            assert!(!path.listed || self.sendable.contains(&key));
        }
        assert_eq!(self.by_address.len(), self.paths.iter().count());
    }

    fn check_services(&self) {
        for (id, state) in &self.services {
            let mut running = 0;
            let mut shares: BTreeMap<Owner, (usize, usize)> = BTreeMap::new();
            let mut waiting = 0;
            for (key, call) in self.calls.iter().filter(|(_, call)| call.counted) {
                let service = self.connections.get(call.connection).map(|c| c.service);
                if service != Some(*id) {
                    continue;
                }
                running += usize::from(!call.in_line);
                waiting += usize::from(call.in_line);
                assert_eq!(call.in_line, state.waiting.contains(&key));
                for owner in call.owners.iter().flat_map(|owners| owners.each()) {
                    let share = shares.entry(owner).or_default();
                    share.0 += usize::from(!call.in_line);
                    share.1 += usize::from(call.in_line);
                }
            }
            assert_eq!((state.running, state.waiting.len()), (running, waiting));
            assert_eq!(state.shares(), shares);
        }
    }

    fn check_account(&self) {
        let held: u64 = self
            .calls
            .iter()
            .map(|(_, call)| call.receiver.held())
            .sum();
        assert_eq!(self.stats.receive_memory, held);
        let calls = self.calls.iter();
        let calls = calls.map(|(_, call)| (call.owners.as_ref(), call.charged, call.stranger));
        let connections = self.connections.iter().map(|(_, connection)| connection);
        let connections = connections
            .filter(|connection| connection.role() == Role::Server)
            .map(|connection| connection.source);
        self.account.check(calls, connections);
    }
}
