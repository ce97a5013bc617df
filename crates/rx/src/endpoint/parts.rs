//! What an event of one call touches: the call, its connection and its path, which lie in three tables.

use std::collections::VecDeque;
use std::time::Instant;

use super::account::Account;
use crate::call::{Call, Role};
use crate::connection::Connection;
use crate::peer::Path;
use crate::types::Key;
use crate::{Config, Event, Stats};

/// One call, and what of its endpoint may change with it, each borrowed by itself.
pub(super) struct Parts<'a> {
    pub(super) now: Instant,
    pub(super) key: Key,
    pub(super) call: &'a mut Call,
    pub(super) connection: &'a mut Connection,
    pub(super) path: &'a mut Path,
    pub(super) config: &'a Config,
    pub(super) account: &'a Account,
    pub(super) stats: &'a mut Stats,
    pub(super) events: &'a mut VecDeque<Event>,
}

impl Parts<'_> {
    /// Bytes that the call's packets may have for want of a proof that its client receives them; `None` if there
    /// is one.
    // spec: rx-strangers#before-an-address-has-answered
    pub(super) fn room(&self) -> Option<u64> {
        let is_free =
            self.call.role == Role::Client || self.config.private || self.path.is_reached(self.now);
        (!is_free).then(|| self.path.room())
    }

    /// Takes the call out of its path's line of senders, at whose head it is.
    pub(super) fn leave_line(&mut self) {
        debug_assert_eq!(self.path.ready.front(), Some(&self.key), "not its turn");
        self.path.ready.pop_front();
        self.call.in_ready = false;
    }
}
