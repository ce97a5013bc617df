//! What happens when time passes: retransmission, delayed acknowledgements, pings, limits, reaping.
//!
//! Timers are lazy. A call has at most one entry that counts in the heap, at or before its true
//! deadline; when the deadline moves later the entry stays and is looked at again when it comes up.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::Endpoint;
use super::account::Source;
use super::calls::stalled;
use super::parts::Parts;
use crate::call::{Role, STUCK, Stage};
use crate::packet::ack::Reason;
use crate::packet::{Flags, Header, PacketType};
use crate::types::Key;
use crate::{
    AbortCode, CallError, CallNumber, Cid, Epoch, Event, Identity, SecurityIndex, ServiceId,
};

/// How often old connections and paths are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// Idle connections of clients are forgotten after this, as OpenAFS does.
// spec: rx#connections
const SERVER_CONNECTION_IDLE: Duration = Duration::from_secs(700);
/// Paths without connections are forgotten after this.
const PATH_IDLE: Duration = Duration::from_secs(60);
/// How often room for new connections is looked for.
const EVICTION_EVERY: Duration = Duration::from_millis(100);
/// The epoch of packets that belong to no connection.
// spec: rx#version
const NAT_EPOCH: u32 = 999;
/// How often a peer whose window is closed is asked about it.
// spec: rx#keepalive, rx-extension#window
const WINDOW_PROBE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Call(Key),
    Path(Key),
    Challenge(Key),
    /// The connection's packets can no longer be sealed.
    Unsealable(Key),
    /// Whether the connection's client is at another address by now.
    Elsewhere(Key),
    Housekeeping,
}

impl Endpoint {
    /// When [`Self::handle_timeout`] is to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Call(key) => self.on_call_timer(now, at, key),
                Timer::Path(key) => {
                    if let Some(path) = self.paths.get_mut(key)
                        && path.wake_at == Some(at)
                    {
                        path.wake_at = None;
                        self.list_path(key);
                    }
                }
                Timer::Challenge(key) => self.on_challenge_timer(now, key),
                Timer::Unsealable(key) => self.on_unsealable(now, key),
                Timer::Elsewhere(key) => self.on_elsewhere_timer(now, key),
                Timer::Housekeeping => self.keep_house(now),
            }
        }
    }

    pub(super) fn schedule_housekeeping(&mut self, now: Instant) {
        self.timers
            .push(Reverse((now + HOUSEKEEPING, Timer::Housekeeping)));
    }

    /// When something must be done about a call.
    pub(super) fn call_deadline(&self, key: Key) -> Option<Instant> {
        let call = self.calls.get(key)?;
        let path = self.path_of(call.connection)?;
        let blocked = call
            .sender
            .is_window_blocked()
            .then(|| call.spoke + WINDOW_PROBE);
        [
            call.sender.deadline(path),
            call.receiver.ack_due(),
            call.repeat_due(path),
            call.ping_due(&self.config),
            call.limit_due(&self.config),
            call.reach_due(),
            call.expects_peer().then(|| path.mtu.look_at()).flatten(),
            blocked,
            call.may_be_stuck(path)
                .map(|since| since.max(call.spoke) + STUCK),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Makes sure that the heap looks at the call in time.
    pub(super) fn schedule_call(&mut self, key: Key) {
        let Some(deadline) = self.call_deadline(key) else {
            return;
        };
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if call.wake_at.is_none_or(|at| at > deadline) {
            call.wake_at = Some(deadline);
            self.timers.push(Reverse((deadline, Timer::Call(key))));
        }
    }

    /// Looks again when something must be done about the calls of a connection's path, if its peer answers much sooner
    /// than their timers count on. One call learns what the path is like for all; the others would wait as long as
    /// before for what they have lost.
    pub(super) fn schedule_calls_of_path(&mut self, now: Instant, connection: Key) {
        let Some(path) = self.connections.get(connection).map(|known| known.path) else {
            return;
        };
        let known = self.paths.get_mut(path);
        if !known.is_some_and(|path| path.answers_sooner(now)) {
            return;
        }
        for call in self.calls_of_path(path) {
            self.schedule_call(call);
        }
    }

    /// Takes entries off the top of the heap that nothing waits for any more, so that nobody is woken
    /// for them. Only worth it before sleeping.
    pub(super) fn prune_timers(&mut self) {
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            match timer {
                Timer::Call(key) => {
                    let known = self.calls.get(key).filter(|call| call.wake_at == Some(at));
                    let deadline = known.and_then(|_| self.call_deadline(key));
                    if deadline.is_some_and(|deadline| deadline <= at) {
                        return;
                    }
                    let is_known = known.is_some();
                    self.timers.pop();
                    if let Some(call) = self.calls.get_mut(key).filter(|_| is_known) {
                        call.wake_at = deadline;
                        self.timers.extend(deadline.map(|at| Reverse((at, timer))));
                    }
                }
                Timer::Path(key) if self.paths.get(key).is_none_or(|p| p.wake_at != Some(at)) => {
                    self.timers.pop();
                }
                _ => return,
            }
        }
    }

    pub(super) fn schedule_path(&mut self, key: Key, at: Instant) {
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        if path.wake_at.is_some_and(|known| known <= at) {
            return;
        }
        path.wake_at = Some(at);
        self.timers.push(Reverse((at, Timer::Path(key))));
    }

    fn on_call_timer(&mut self, now: Instant, at: Instant, key: Key) {
        self.settle(now, key);
        let Some(mut parts) = self.parts(now, key) else {
            return;
        };
        let call = &mut *parts.call;
        if call.wake_at != Some(at) {
            return;
        }
        call.wake_at = None;
        if call.limit_due(parts.config).is_some_and(|due| due <= now) {
            let dead = call.expects_peer() && call.heard + parts.config.dead_time <= now;
            if dead {
                self.fail(key, CallError::Dead);
            } else {
                self.time_out(now, key);
            }
            return;
        }
        parts.ask_what_is_due();
        parts.send_again_what_is_due();
        parts.look_at_probe();
        let is_waiting = parts.call.stage == Stage::Waiting;
        if self.look_at_size(now, key) {
            return;
        }
        if is_waiting {
            // It may be there now, or others have made room by doing nothing.
            self.admit(now, key);
        }
        self.make_ready(now, key);
        self.queue_ack(key);
        self.schedule_call(key);
    }

    /// Acts on what was found of the path's packet size; true if the call is over for it.
    pub(super) fn look_at_size(&mut self, now: Instant, key: Key) -> bool {
        let Some(parts) = self.parts(now, key) else {
            return true;
        };
        if let Some(size) = parts.path.mtu.take_news() {
            let peer = parts.path.address;
            parts.events.push_back(Event::Narrow { peer, size });
            // An old peer hears at once that it is to send smaller packets.
            parts.call.receiver.request_ack(Reason::Ping);
        }
        let missing = parts.connection.missing();
        if parts.call.is_too_large(parts.path) || parts.call.is_stuck(now, parts.path, missing) {
            self.send_abort(now, key, AbortCode::RX_MSGSIZE);
            self.fail(key, CallError::TooLarge);
            return true;
        }
        false
    }

    /// Has a connection aborted whose packets cannot be sealed any more. Not at once but at the next
    /// timeout, which is now: when it sends, the driver has taken this turn's events already.
    pub(super) fn refuse_to_seal(&mut self, now: Instant, key: Key) {
        self.timers.push(Reverse((now, Timer::Unsealable(key))));
    }

    fn on_unsealable(&mut self, now: Instant, key: Key) {
        let refused = self.connections.get(key).map(|c| c.security.ready());
        if let Some(Err(code)) = refused {
            self.abort_connection(now, key, code);
        }
    }

    /// Forgets what has been idle for long.
    fn keep_house(&mut self, now: Instant) {
        let idle: Vec<Key> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                connection.role() == Role::Server
                    && now.saturating_duration_since(connection.last_used) > SERVER_CONNECTION_IDLE
                    && connection
                        .channels
                        .iter()
                        .all(|channel| channel.call.is_none())
            })
            .map(|(key, _)| key)
            .collect();
        for key in idle {
            self.remove_connection(key);
        }
        let retired = self
            .connections
            .iter()
            .filter(|(_, known)| known.is_retired);
        let retired: Vec<Key> = retired.map(|(key, _)| key).collect();
        for key in retired {
            if !self.is_busy(key) {
                self.remove_connection_and_calls(key, CallError::Closed);
            }
        }
        let unused: Vec<(Key, std::net::SocketAddr)> = self
            .paths
            .iter()
            .filter(|(_, path)| {
                path.connections == 0 && now.saturating_duration_since(path.last_used) > PATH_IDLE
            })
            .map(|(key, path)| (key, path.address))
            .collect();
        for (key, address) in unused {
            self.paths.remove(key);
            self.by_address.remove(&address);
        }
        self.account.keep_house(now);
        self.keep_nat_mappings(now);
        self.schedule_housekeeping(now);
    }

    /// Sends a packet that means nothing to peers we have connections to and nothing to say to: a
    /// VERSION that is neither request nor answer, as OpenAFS and Linux clients do.
    fn keep_nat_mappings(&mut self, now: Instant) {
        let Some(every) = self.config.nat_keepalive else {
            return;
        };
        let mut due: Vec<Key> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.role() == Role::Client)
            .map(|(_, connection)| connection.path)
            .collect();
        due.sort_unstable();
        due.dedup();
        for key in due {
            let Some(path) = self.paths.get_mut(key) else {
                continue;
            };
            let quiet = path
                .last_used
                .max(path.kept_alive.unwrap_or(path.last_used));
            // Of the two times at which the house is kept, the nearer one.
            if now.saturating_duration_since(quiet) + HOUSEKEEPING / 2 < every {
                continue;
            }
            path.kept_alive = Some(now);
            let header = Header {
                epoch: Epoch(NAT_EPOCH),
                cid: Cid(0),
                call_number: CallNumber(0),
                sequence: 0,
                serial: 0,
                packet_type: PacketType::Version,
                flags: Flags::LAST_PACKET,
                user_status: 0,
                security_index: SecurityIndex(0),
                checksum: 0,
                service_id: ServiceId(0),
            };
            self.push_control(now, key, &header, &[0]);
        }
    }

    /// Whether a client at that address may open a connection, for which idle ones make room: those of
    /// all, or those of this address if it has its share.
    pub(super) fn may_connect(&mut self, now: Instant, source: Source) -> bool {
        if !self.account.may_connect(source) && self.account.has_connection() {
            let own = (source, Key::LEAST)..=(source, Key::MOST);
            let own: Vec<Key> = self.by_source.range(own).map(|(_, key)| *key).collect();
            return self.evict_idle_connections(now, &own);
        }
        if self.account.has_connection() {
            return true;
        }
        // Looking at all is not cheap, so a flood of connections makes it look only so often.
        if now < self.next_eviction {
            return false;
        }
        self.next_eviction = now + EVICTION_EVERY;
        let all: Vec<Key> = self.by_source.iter().map(|(_, key)| *key).collect();
        self.evict_idle_connections(now, &all)
    }

    /// Removes a sixteenth of these connections: only those without calls, or whose calls do not get on, and of
    /// those first whose clients have not proved who they are, and that were not used for longest. False if there
    /// are none.
    fn evict_idle_connections(&mut self, now: Instant, keys: &[Key]) -> bool {
        let is_idle = |call: &Key| {
            self.calls
                .get(*call)
                .is_none_or(|call| call.stage == Stage::Lingering || stalled(call, now).is_some())
        };
        let mut idle: Vec<(bool, Instant, Key)> = keys
            .iter()
            .filter_map(|key| Some((key, self.connections.get(*key)?)))
            .filter(|(_, connection)| {
                connection
                    .channels
                    .iter()
                    .all(|channel| channel.call.as_ref().is_none_or(is_idle))
            })
            .map(|(key, connection)| {
                let is_named = connection.security.identity() != Identity::Anonymous;
                (is_named, connection.last_used, *key)
            })
            .collect();
        // Strangers first, and of these the one that was not used for longest.
        idle.sort_unstable();
        // Some more than one, because it costs as much to find one.
        idle.truncate(keys.len() / 16 + 1);
        for (.., key) in &idle {
            self.remove_connection_and_calls(*key, CallError::Closed);
        }
        !idle.is_empty()
    }

    pub(super) fn remove_connection_and_calls(&mut self, key: Key, error: CallError) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        for call in connection
            .channels
            .iter()
            .filter_map(|channel| channel.call)
            .collect::<Vec<_>>()
        {
            self.fail(call, error);
        }
        self.remove_connection(key);
    }
}

impl Parts<'_> {
    /// Asks the peer for what is to be known of it by now, and tells it what it is owed.
    fn ask_what_is_due(&mut self) {
        let Self {
            now,
            call,
            path,
            config,
            ..
        } = self;
        let now = *now;
        call.receiver.on_ack_due(now);
        let blocked = call.sender.is_window_blocked() && call.spoke + WINDOW_PROBE <= now;
        let stuck = call
            .may_be_stuck(path)
            .is_some_and(|since| since.max(call.spoke) + STUCK <= now);
        if blocked || stuck || call.ping_due(config).is_some_and(|due| due <= now) {
            call.receiver.request_ack(Reason::Ping);
            // It leaves next; until then it is not due again.
            call.spoke = now;
        }
        if path.is_reached(now) {
            call.reach_asked = None;
        } else if call.reach_due().is_some_and(|due| due <= now) {
            call.await_reach(now);
        }
        if call.repeat_due(path).is_some_and(|due| due <= now) {
            call.receiver.repeat_ack();
            call.spoke = now;
        }
    }

    /// Has what is lost by now, or was not answered for too long, sent again.
    fn send_again_what_is_due(&mut self) {
        let (call, path) = (&mut *self.call, &mut *self.path);
        match call.sender.on_deadline(self.now, path) {
            Some(1) => self.stats.probes += 1,
            Some(count) => {
                self.stats.timeouts += 1;
                // A small packet tells whether the peer is there and only large ones are lost.
                call.receiver.request_ack(Reason::Ping);
                let is_heard = call.sender.is_heard(call.heard);
                let lost = call.sender.oldest().unwrap_or_default();
                if path.mtu.on_timeouts(count, lost, is_heard) {
                    let size = path.packet_size();
                    path.controller.on_mtu_change(size);
                }
                call.look_for_size(self.now, path);
            }
            None => {}
        }
    }

    /// Looks again for the path's packet size, if a probe was not answered in time.
    fn look_at_probe(&mut self) {
        if (self.path.mtu.look_at()).is_some_and(|at| at <= self.now) {
            // The peer may have been silent.
            self.call.receiver.request_ack(Reason::Ping);
            self.call.look_for_size(self.now, self.path);
        }
    }
}
