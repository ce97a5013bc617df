//! How clients of secured services prove who they are, and what waits until they have.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Endpoint;
use super::timers::Timer;
use crate::connection::Security;
use crate::packet::{Header, PacketType};
use crate::types::Key;
use crate::{CallError, CallNumber};

/// Time between two CHALLENGEs.
// spec: rx#challenges
const CHALLENGE_EVERY: Duration = Duration::from_secs(2);
/// CHALLENGEs after which the client is taken for dead.
const CHALLENGE_TRIES: u32 = 15;

impl Endpoint {
    /// Asks a client who it is.
    fn send_challenge(&mut self, now: Instant, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Security::Server(server) = &mut connection.security else {
            return;
        };
        let body = server.challenge();
        connection.challenge.tries += 1;
        connection.challenge.next = Some(now + CHALLENGE_EVERY);
        let header = connection.header(PacketType::Challenge, 0, CallNumber(0));
        let path = connection.path;
        if self.may_challenge(now, path) {
            self.push_control(now, path, &header, &body);
        }
        self.timers
            .push(Reverse((now + CHALLENGE_EVERY, Timer::Challenge(key))));
    }

    /// Whether a client is asked who it is, once more.
    fn may_challenge(&mut self, now: Instant, path: Key) -> bool {
        let Some(path) = self.paths.get(path) else {
            return false;
        };
        let may = self.config.private
            || path.is_reached(now)
            || self.addresses.may_challenge(now, path.address.ip());
        self.stats.answers_limited += u64::from(!may);
        may
    }

    /// A client says who it is.
    pub(super) fn on_response(&mut self, now: Instant, key: Key, body: &[u8]) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let challenge = &mut connection.challenge;
        let server = match &mut connection.security {
            // spec: rx#challenges
            Security::Server(server) if challenge.tries > 0 && !server.is_authenticated() => server,
            _ => {
                self.stats.violations += 1;
                return;
            }
        };
        match server.check(body) {
            Ok(calls) => {
                connection.adopt_call_numbers(calls);
                // It repeats what the challenge said.
                let path = connection.path;
                self.on_proof(now, path);
                self.release_held_back(now, key);
            }
            // The sender is not known. A client with a bad key gives up when it is told; if a third
            // party wanted to end a client's call so, the right answer still counts.
            Err(code) => {
                challenge.tries = challenge.tries.max(CHALLENGE_TRIES - 1);
                if self.may_answer_peer(now, key) {
                    self.send_connection_abort(now, key, code);
                }
            }
        }
    }

    pub(super) fn on_challenge_timer(&mut self, now: Instant, key: Key) {
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

    /// Keeps a packet until its connection has proved who it is.
    pub(super) fn hold_back(&mut self, now: Instant, key: Key, header: Header, body: &Bytes) {
        let Some(source) = self.connections.get(key).map(|c| c.source) else {
            return;
        };
        self.held_back.keep(key, source, header, body);
        if self
            .connections
            .get(key)
            .is_some_and(|c| c.challenge.tries == 0)
        {
            self.send_challenge(now, key);
        }
    }

    fn release_held_back(&mut self, now: Instant, key: Key) {
        for (header, body) in self.held_back.take(key) {
            self.on_call_packet(now, key, header, body);
        }
    }
}
