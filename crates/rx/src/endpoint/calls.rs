//! Which calls of clients may run, how much each may hold, and which go when there is no room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Endpoint;
use super::account::{CALL_FLOOR, Owner, Owners, for_strangers, has_room};
use super::parts::Parts;
use crate::call::receive::WindowLimits;
use crate::call::send::Limit;
use crate::call::{BYTES_PER_GRANTED, Call, GRANT_FLOOR, Patience, Role, Stage};
use crate::security::{Identity, ServerSecurity};
use crate::types::Key;
use crate::{AbortCode, CallError, CallId, ConnectionId, Event, Service, ServiceId};

/// Calls that may wait for a place in a service; further ones get VBUSY. OpenAFS's file server
/// begins to refuse at 600.
// spec: rx#busy-servers
const WAITING_MAX: usize = 1024;
/// Calls of one address, or user, that may run, or wait, while there is room, however many it has already.
const SHARE_MIN: usize = 64;
/// Calls of peers that have not shown that they are there. When there are more, the oldest goes: a peer that
/// is there has answered by then.
const STRANGERS_MAX: usize = 8192;
/// How many of these one address may have.
const STRANGERS_SHARE: usize = STRANGERS_MAX / 8;
/// What a call that does not run yet may hold while memory is short.
const WAITING_FLOOR: u64 = 4 << 10;
/// Bytes that a call of a known client may have queued from the beginning, if there is room: as much as is
/// read of a file at a time.
const GRANT_START: usize = 512 << 10;
/// How often calls are looked for that can make room for others.
const EVICTION_EVERY: Duration = Duration::from_millis(20);
/// After how long without anything of its client a call makes room: a stranger's, and others of those that
/// have not proved who they are.
const STALLED: Duration = Duration::from_secs(1);
const STALLED_KNOWN: Duration = Duration::from_secs(5);
/// Of a service's calls, the part that makes room at a time.
const EVICTED_PART: usize = 16;
/// By how much what a call holds must change before it is counted again.
const RECOUNTED: u64 = 4 << 10;
/// How much longer than for others the endpoint waits for a user, and for an administrator.
const USERS_PATIENCE: u32 = 2;
const SUPERUSERS_PATIENCE: u32 = 10;

#[derive(Debug)]
pub(super) struct ServiceState {
    pub(super) service: Service,
    pub(super) security: Vec<Arc<dyn ServerSecurity>>,
    pub(super) running: usize,
    pub(super) waiting: VecDeque<Key>,
    /// By whose they are; nobody is listed without a call.
    shares: BTreeMap<Owner, Share>,
}

/// The calls of one address, or user, to a service.
#[derive(Debug, Default)]
struct Share {
    running: usize,
    waiting: usize,
}

impl ServiceState {
    pub(super) const fn new(service: Service, security: Vec<Arc<dyn ServerSecurity>>) -> Self {
        Self {
            service,
            security,
            running: 0,
            waiting: VecDeque::new(),
            shares: BTreeMap::new(),
        }
    }

    /// Whether a call may run.
    fn has_place(&self, owners: &Owners) -> bool {
        let most = places(self.service.max_calls, owners);
        let own = self.most_of(owners, |share| share.running);
        has_room(most, self.running, own, SHARE_MIN)
    }

    /// Whether a call may wait, by the same rule.
    fn has_place_in_line(&self, owners: &Owners) -> bool {
        let most = places(WAITING_MAX, owners);
        let own = self.most_of(owners, |share| share.waiting);
        has_room(most, self.waiting.len(), own, SHARE_MIN)
    }

    fn most_of(&self, owners: &Owners, count: impl Fn(&Share) -> usize) -> usize {
        let counts = owners
            .each()
            .map(|owner| self.shares.get(&owner).map_or(0, &count));
        counts.max().unwrap_or_default()
    }

    /// Puts a call in line for a place.
    fn join_line(&mut self, key: Key, owners: &Owners) {
        self.waiting.push_back(key);
        self.change_shares(owners, |share| share.waiting += 1);
    }

    /// Takes a call out of the line.
    fn leave_line(&mut self, key: Key, owners: &Owners) {
        self.waiting.retain(|waiting| *waiting != key);
        self.change_shares(owners, |share| share.waiting -= 1);
    }

    /// Gives a call a place.
    fn enter(&mut self, owners: &Owners) {
        self.running += 1;
        self.change_shares(owners, |share| share.running += 1);
    }

    /// Takes a call's place back.
    fn leave(&mut self, owners: &Owners) {
        self.running = self.running.saturating_sub(1);
        self.change_shares(owners, |share| share.running -= 1);
    }

    /// Calls that run and that wait, by whose they are.
    #[cfg(test)]
    pub(super) fn shares(&self) -> BTreeMap<Owner, (usize, usize)> {
        let shares = self.shares.iter();
        let shares = shares.map(|(owner, share)| (owner.clone(), (share.running, share.waiting)));
        shares.collect()
    }

    fn change_shares(&mut self, owners: &Owners, change: impl Fn(&mut Share)) {
        for owner in owners.each() {
            let share = self.shares.entry(owner.clone()).or_default();
            change(share);
            if share.running == 0 && share.waiting == 0 {
                self.shares.remove(&owner);
            }
        }
    }
}

/// Of so many places, those that these owners may take.
const fn places(most: usize, owners: &Owners) -> usize {
    match owners.is_known {
        true => most,
        false => for_strangers(most),
    }
}

/// For how long the client of a call has done nothing, if that is long enough for others to have its place.
pub(super) fn stalled(call: &Call, now: Instant) -> Option<Duration> {
    let owners = call.owners.as_ref().filter(|owners| !owners.is_named)?;
    let limit = if owners.is_known {
        STALLED_KNOWN
    } else {
        STALLED
    };
    let stalled = call.patience.stalled(now);
    stalled.filter(|stalled| *stalled >= limit)
}

impl Endpoint {
    /// Offers a waiting call to the application if nothing stands in its way, or has it wait in line.
    pub(super) fn admit(&mut self, now: Instant, key: Key) {
        let Some(service) = self.wants_place(now, key) else {
            return;
        };
        self.is_no_stranger(key);
        if self.is_full(service, key) {
            self.make_room(now, service);
        }
        // Room goes to the first in line at once, which may be this call.
        if (self.calls.get(key)).is_none_or(|call| call.stage != Stage::Waiting) {
            return;
        }
        if self.has_place(service, key) {
            self.run(key);
        } else {
            self.line_up(now, service, key);
        }
    }

    /// The service of a waiting call whose client has shown what it must.
    fn wants_place(&mut self, now: Instant, key: Key) -> Option<ServiceId> {
        let connection = self.calls.get(key)?.connection;
        let service = self.connections.get(connection)?.service;
        let checks = self.services.get(&service)?.service.check_reach;
        let parts = self.parts(now, key)?;
        if parts.call.stage != Stage::Waiting || !parts.connection.security.is_authenticated() {
            return None;
        }
        if checks && !parts.config.private && !parts.path.is_reached(now) {
            parts.call.await_reach(now);
            self.wait_for_sign(key);
            return None;
        }
        parts.call.reach_asked = None;
        Some(service)
    }

    /// Has a call wait until its client shows that it is there. When too many do, the oldest goes, or this
    /// one if its address has its share of them. Nothing is noted of a call that goes: it may come again.
    fn wait_for_sign(&mut self, key: Key) {
        let Some(call) = self.calls.get(key) else {
            return;
        };
        if let (None, Some(owners)) = (call.stranger, &call.owners) {
            let source = owners.source;
            let own = self.account.strangers(source);
            let is_full = self.strangers.len() >= STRANGERS_MAX;
            // The oldest of all: a peer that is there has answered by then. But an address with its share loses its own.
            let gone = match self.strangers.first_key_value() {
                _ if own >= STRANGERS_SHARE => Some(key),
                Some((_, oldest)) if is_full => Some(*oldest),
                _ => None,
            };
            self.strangers_counted += 1;
            if let Some(call) = self.calls.get_mut(key) {
                call.stranger = Some(self.strangers_counted);
                self.strangers.insert(self.strangers_counted, key);
                self.account.stranger_came(source);
            }
            if let Some(gone) = gone {
                self.stats.refused += 1;
                self.remove_call(gone);
            }
        }
        // It is a PING, whose answer is the sign.
        self.queue_ack(key);
    }

    fn has_place(&self, service: ServiceId, key: Key) -> bool {
        let owners = self.calls.get(key).and_then(|call| call.owners.as_ref());
        let state = self.services.get(&service);
        state.zip(owners).is_some_and(|(state, owners)| {
            state.has_place(owners) && self.account.has_floor(owners)
        })
    }

    /// Whether there is no place, or no memory, for any more calls such as this one.
    fn is_full(&self, service: ServiceId, key: Key) -> bool {
        let owners = self.calls.get(key).and_then(|call| call.owners.as_ref());
        let state = self.services.get(&service);
        state.zip(owners).is_some_and(|(state, owners)| {
            state.running >= places(state.service.max_calls, owners)
                || !self.account.has_floor(owners)
        })
    }

    fn line_up(&mut self, now: Instant, service: ServiceId, key: Key) {
        let (Some(call), Some(state)) = (self.calls.get_mut(key), self.services.get_mut(&service))
        else {
            return;
        };
        let Some(owners) = call.owners.as_ref().filter(|_| !call.in_line) else {
            return;
        };
        if !state.has_place_in_line(owners) {
            self.stats.refused += 1;
            self.send_abort(now, key, AbortCode::VBUSY);
            return self.remove_call(key);
        }
        state.join_line(key, owners);
        (call.in_line, call.counted) = (true, true);
        self.stats.calls_waited += 1;
    }

    /// Gives a call to the application.
    fn run(&mut self, key: Key) {
        let granted = self.grant_for(key, GRANT_START);
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Some(connection) = self.connections.get(call.connection) else {
            return;
        };
        let path = self.paths.get(connection.path);
        let state = self.services.get_mut(&connection.service);
        let (Some(owners), Some(path), Some(state)) = (&call.owners, path, state) else {
            return;
        };
        if std::mem::take(&mut call.in_line) {
            state.leave_line(key, owners);
        }
        state.enter(owners);
        call.counted = true;
        call.stage = Stage::Running;
        call.granted = granted;
        let times = match connection.security.identity() {
            Identity::Anonymous => 1,
            Identity::User(_) => USERS_PATIENCE,
            Identity::Operator(_) | Identity::Superuser => SUPERUSERS_PATIENCE,
        };
        let limit = state.service.idle_limit.map(|limit| limit * times);
        call.patience = Patience::new(limit);
        call.sender.set_limit(Limit {
            bytes: granted,
            is_strict: !owners.is_known && !path.took_answer,
        });
        self.stats.calls_received += 1;
        self.events.push_back(Event::Incoming {
            call: CallId(key),
            connection: ConnectionId(call.connection),
            peer: path.address,
            service: connection.service,
        });
        let charge = call.charge();
        self.account.recount(Some(owners), call.charged, charge);
        call.charged = charge;
    }

    /// A call is over: its place, or that in line, is for others.
    pub(super) fn give_place_back(&mut self, service: ServiceId, key: Key, call: &Call) {
        let Some(owners) = call.owners.as_ref().filter(|_| call.counted) else {
            return;
        };
        if let Some(state) = self.services.get_mut(&service) {
            match call.in_line {
                true => state.leave_line(key, owners),
                false => state.leave(owners),
            }
        }
        if self.services.values().all(|state| state.waiting.is_empty()) {
            return;
        }
        // It may have been memory that others wait for, also those of other services.
        let services: Vec<ServiceId> = self.services.keys().copied().collect();
        for service in services {
            while let Some(next) = self.next_in_line(service) {
                self.run(next);
            }
        }
    }

    /// The first in line whose share allows it to run.
    fn next_in_line(&self, service: ServiceId) -> Option<Key> {
        let state = self.services.get(&service)?;
        if state.running >= state.service.max_calls {
            return None;
        }
        state
            .waiting
            .iter()
            .copied()
            .find(|key| self.has_place(service, *key))
    }

    /// Ends calls of a service whose clients do nothing, those first that have not for longest, for others
    /// that want a place or memory. A client that has proved who it is keeps its call.
    fn make_room(&mut self, now: Instant, service: ServiceId) {
        if now < self.next_call_eviction {
            return;
        }
        self.next_call_eviction = now + EVICTION_EVERY;
        let most = self.services.get(&service).map_or(0, |state| state.running) / EVICTED_PART + 1;
        let calls = self.calls.iter();
        let mut idle: Vec<(Duration, Key)> = calls
            .filter_map(|(key, call)| Some((stalled(call, now)?, key)))
            .collect();
        idle.sort_unstable_by(|a, b| b.cmp(a));
        for (_, key) in idle.into_iter().take(most) {
            self.time_out(now, key);
        }
    }

    /// Ends a call whose client does not get on with it.
    pub(super) fn time_out(&mut self, now: Instant, key: Key) {
        let is_clients = self
            .calls
            .get(key)
            .is_some_and(|call| call.role == Role::Server);
        self.stats.calls_evicted += u64::from(is_clients);
        self.send_abort(now, key, AbortCode::RX_CALL_TIMEOUT);
        self.fail(key, CallError::TimedOut);
    }

    fn is_no_stranger(&mut self, key: Key) {
        if let Some(call) = self.calls.get_mut(key)
            && let Some(order) = call.stranger.take()
            && let Some(owners) = &call.owners
        {
            self.strangers.remove(&order);
            self.account.stranger_left(owners.source);
        }
    }

    /// Bytes that a call may have queued if it wants so many.
    fn grant_for(&self, key: Key, wanted: usize) -> usize {
        let Some(call) = self.calls.get(key) else {
            return 0;
        };
        let connection = self.connections.get(call.connection);
        let path = self.path_of(call.connection);
        let state = connection.and_then(|c| self.services.get(&c.service));
        let (Some(owners), Some(path), Some(state)) = (&call.owners, path, state) else {
            return wanted;
        };
        if !owners.is_known && !path.took_answer {
            return GRANT_FLOOR;
        }
        let calls = state.most_of(owners, |share| share.running).max(1) as u64;
        let (share, room) = self.account.share(owners);
        let bytes = |memory: u64| usize::try_from(memory / BYTES_PER_GRANTED).unwrap_or(usize::MAX);
        let more = call.granted.saturating_add(bytes(room));
        wanted.min(bytes(share / calls)).min(more).max(GRANT_FLOOR)
    }

    /// The application has written as much as it may: it may write more if the client has taken what it was
    /// sent before, and there is memory. Says whether it may.
    pub(super) fn grant_more(&mut self, now: Instant, key: Key) -> bool {
        let most = self.config.send_buffer;
        let granted = self.grant_for(key, most);
        let Some(parts) = self.parts(now, key) else {
            return false;
        };
        let is_trusted = match &parts.call.owners {
            Some(owners) => owners.is_known || parts.path.took_answer,
            None => true,
        };
        parts.call.granted = granted;
        parts.call.sender.set_limit(Limit {
            bytes: granted,
            is_strict: !is_trusted,
        })
    }

    /// A client has acknowledged some of an answer.
    pub(super) fn on_answer_taken(&mut self, now: Instant, key: Key) {
        let Some(parts) = self.parts(now, key) else {
            return;
        };
        if parts.call.role == Role::Server
            && !std::mem::replace(&mut parts.path.took_answer, true)
            && parts.call.sender.is_full()
            && self.grant_more(now, key)
        {
            self.events.push_back(Event::Writable(CallId(key)));
        }
        self.tell_room(key);
        self.settle(now, key);
    }

    /// Tells an application that was told to wait that it may write again.
    pub(super) fn tell_room(&mut self, key: Key) {
        if self
            .calls
            .get_mut(key)
            .is_some_and(|call| call.sender.take_room())
        {
            self.events.push_back(Event::Writable(CallId(key)));
        }
    }

    /// Brings the account, and whose turn it is, up to what a call is now.
    pub(super) fn settle(&mut self, now: Instant, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let is_peers = call.is_peers_turn();
        call.patience.turn(now, is_peers);
        let charge = call.charge();
        if charge.abs_diff(call.charged) >= RECOUNTED {
            self.account
                .recount(call.owners.as_ref(), call.charged, charge);
            call.charged = charge;
        }
    }
}

impl Parts<'_> {
    /// What the call may hold of what arrives: its own limit, or half of what is left for all.
    pub(super) fn window_limits(&self) -> WindowLimits {
        let (call, account) = (&*self.call, self.account);
        let held = call.receiver.held();
        // What it counts for and does not hold it may take first.
        let spare = call.charged.saturating_sub(held);
        let left = match &call.owners {
            Some(owners) => account.share(owners).1,
            None => account.left(),
        };
        let left = left.saturating_add(spare);
        let floor = match call.stage {
            Stage::Waiting if account.is_tight() => WAITING_FLOOR,
            _ => CALL_FLOOR,
        };
        let most = self.config.receive_window_max;
        WindowLimits {
            call: most.min(held + left / 2).max(floor),
            memory: (held + left).max(floor),
            floor,
            classic: u32::from(self.config.classic_window.max(1)),
            afar: self.path.afar,
        }
    }
}
