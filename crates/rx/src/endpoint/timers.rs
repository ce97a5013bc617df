//! What happens when time passes: retransmission, delayed acknowledgements, pings, limits, reaping.
//!
//! Timers are lazy. A call has at most one entry that counts in the heap, at or before its true
//! deadline; when the deadline moves later the entry stays and is looked at again when it comes up.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::Endpoint;
use crate::call::{Role, Stage};
use crate::packet::ack::Reason;
use crate::packet::{Flags, Header, PacketType};
use crate::types::Key;
use crate::{AbortCode, CallError, CallNumber, Cid, Epoch, SecurityIndex, ServiceId};

/// How often old connections and paths are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// Idle connections of clients are forgotten after this, as OpenAFS does.
const SERVER_CONNECTION_IDLE: Duration = Duration::from_secs(700);
/// Paths without connections are forgotten after this.
const PATH_IDLE: Duration = Duration::from_secs(60);
/// Time between two CHALLENGEs.
pub(super) const CHALLENGE_EVERY: Duration = Duration::from_secs(2);
/// CHALLENGEs after which the client is taken for dead.
const CHALLENGE_TRIES: u32 = 15;
/// How often room for new connections is looked for.
const EVICTION_EVERY: Duration = Duration::from_millis(100);
/// The epoch of packets that belong to no connection.
const NAT_EPOCH: u32 = 999;
/// How often a peer whose window is closed is asked about it.
const WINDOW_PROBE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Call(Key),
    Path(Key),
    Challenge(Key),
    /// The connection's packets can no longer be sealed.
    Unsealable(Key),
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
                Timer::Unsealable(key) => self.on_unsealable(key),
                Timer::Housekeeping => self.keep_house(now),
            }
        }
    }

    pub(super) fn schedule_housekeeping(&mut self, now: Instant) {
        self.timers
            .push(Reverse((now + HOUSEKEEPING, Timer::Housekeeping)));
    }

    /// When something must be done about a call.
    fn call_deadline(&self, key: Key) -> Option<Instant> {
        let call = self.calls.get(key)?;
        let path = self
            .paths
            .get(self.connections.get(call.connection)?.path)?;
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
            blocked,
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
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if call.wake_at != Some(at) {
            return;
        }
        call.wake_at = None;
        if call.limit_due(&self.config).is_some_and(|due| due <= now) {
            let dead = call.expects_peer() && call.heard + self.config.dead_time <= now;
            if dead {
                self.fail(key, CallError::Dead);
            } else {
                self.send_abort(now, key, AbortCode::RX_CALL_TIMEOUT);
                self.fail(key, CallError::TimedOut);
            }
            return;
        }
        call.receiver.on_ack_due(now);
        let blocked = call.sender.is_window_blocked() && call.spoke + WINDOW_PROBE <= now;
        if blocked || call.ping_due(&self.config).is_some_and(|due| due <= now) {
            call.receiver.request_ack(Reason::Ping);
            // It leaves next; until then it is not due again.
            call.spoke = now;
        }
        let Some(connection) = self.connections.get(call.connection) else {
            return;
        };
        let path_key = connection.path;
        let Some(path) = self.paths.get_mut(path_key) else {
            return;
        };
        if call.repeat_due(path).is_some_and(|due| due <= now) {
            call.receiver.repeat_ack();
            call.spoke = now;
        }
        match call.sender.on_deadline(now, path) {
            Some(1) => self.stats.probes += 1,
            Some(count) => {
                self.stats.timeouts += 1;
                if path.mtu.on_timeouts(now, count) {
                    let size = path.packet_size();
                    path.controller.on_mtu_change(size);
                }
            }
            None => {}
        }
        self.make_ready(key);
        self.queue_ack(key);
        self.schedule_call(key);
    }

    fn on_challenge_timer(&mut self, now: Instant, key: Key) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let due = connection.challenge.next.is_some_and(|next| next <= now);
        if connection.security.is_authenticated() || !due {
            return;
        }
        if connection.challenge.tries >= CHALLENGE_TRIES {
            self.remove_connection_and_calls(key, CallError::Dead);
            return;
        }
        self.send_challenge(now, key);
    }

    /// Has a connection aborted whose packets cannot be sealed any more. Not at once but at the next
    /// timeout, which is now: when it sends, the driver has taken this turn's events already.
    pub(super) fn refuse_to_seal(&mut self, now: Instant, key: Key) {
        self.timers.push(Reverse((now, Timer::Unsealable(key))));
    }

    fn on_unsealable(&mut self, key: Key) {
        let refused = self.connections.get(key).map(|c| c.security.ready());
        if let Some(Err(code)) = refused {
            self.abort_connection(key, code);
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
            self.push_control(key, &header, &[0]);
        }
    }

    /// Makes room for new connections: a sixteenth of them goes, those idle for longest first.
    ///
    /// Looking is not cheap, so a flood of connections makes it look only so often. False if there
    /// is no room.
    pub(super) fn evict_idle_connections(&mut self, now: Instant) -> bool {
        if now < self.next_eviction {
            return false;
        }
        self.next_eviction = now + EVICTION_EVERY;
        let is_idle = |call: &Key| {
            self.calls
                .get(*call)
                .is_none_or(|call| call.stage == Stage::Lingering)
        };
        let mut idle: Vec<(Instant, Key)> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                connection.role() == Role::Server
                    && connection
                        .channels
                        .iter()
                        .all(|c| c.call.as_ref().is_none_or(is_idle))
            })
            .map(|(key, connection)| (connection.last_used, key))
            .collect();
        idle.sort_unstable();
        idle.truncate(self.config.server_connections_max / 16 + 1);
        for (_, key) in &idle {
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
