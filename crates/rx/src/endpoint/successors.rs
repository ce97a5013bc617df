//! A connection whose peer does not know it any more, or refuses it, gets a successor for its next calls.
//!
//! A server that lost a connection's state, or had it taken over by somebody else, would let every call on it die. To
//! the application the connection is the same: it has other numbers, and its security begins once more.

use std::sync::Arc;
use std::time::Instant;

use super::{Endpoint, connection_index};
use crate::call::{Call, Role, Stage};
use crate::connection::{Connection, Security};
use crate::types::Key;
use crate::{CallError, ConnectionId, Event};

impl Endpoint {
    /// Has the next call on a connection begin a new one, if this one's end says that it is of no use any more.
    pub(super) fn judge(&mut self, call: Key, error: CallError) {
        let Some(call) = self.calls.get(call) else {
            return;
        };
        let is_lost = match error {
            CallError::Dead | CallError::ConnectionAborted(_) => true,
            // Nothing ever came: the server may drop what it takes for somebody else's.
            CallError::TimedOut => call.heard == call.started,
            _ => false,
        };
        if is_lost
            && call.role == Role::Client
            && let Some(connection) = self.connections.get_mut(call.connection)
        {
            connection.is_lost = true;
        }
    }

    /// Puts a new connection in the place of one that is lost. Calls that still run on the old one end there.
    // spec: rx-strangers#connections-that-this-side-opened
    pub(super) fn succeed(&mut self, now: Instant, key: Key) {
        if self.connections.get(key).is_none_or(|known| !known.is_lost) {
            return;
        }
        let cid = self.free_cid();
        let Some(old) = self.connections.get_mut(key) else {
            return;
        };
        let Security::Client(_, class) = &old.security else {
            return;
        };
        let fresh = Connection::new(
            (self.epoch, cid),
            (old.path, old.source),
            old.service,
            old.security_index,
            Security::Client(class.connect(self.epoch, cid), Arc::clone(class)),
            0,
            now,
        );
        let mut old = std::mem::replace(old, fresh);
        if std::mem::take(&mut old.wants_channel) {
            self.events.push_back(Event::ChannelFree(ConnectionId(key)));
        }
        old.is_retired = true;
        let path = old.path;
        let calls: Vec<Key> = old.channels.iter().filter_map(|c| c.call).collect();
        let retired = self.connections.insert_with(|_| old);
        self.by_path.insert((path, retired));
        for call in calls {
            if let Some(call) = self.calls.get_mut(call) {
                call.connection = retired;
            }
        }
        let Some(path) = self.paths.get_mut(path) else {
            return;
        };
        path.connections += 1;
        // The old numbers lead to the retired one, whose calls go on.
        for key in [key, retired] {
            if let Some(connection) = self.connections.get(key) {
                let index = connection_index(connection, path.address);
                self.by_id.insert(index, key);
            }
        }
        if !self.is_busy(retired) {
            self.remove_connection_and_calls(retired, CallError::Closed);
        }
    }

    /// Whether the application has calls on a connection.
    pub(super) fn is_busy(&self, key: Key) -> bool {
        let is_used = |call: &Call| call.stage != Stage::Lingering;
        self.connections.get(key).is_some_and(|connection| {
            let mut calls = connection
                .channels
                .iter()
                .filter_map(|c| self.calls.get(c.call?));
            calls.any(is_used)
        })
    }
}
