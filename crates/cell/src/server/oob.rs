//! What a server has out of band: counted, told, tried again.

use std::sync::Arc;

use super::FileServer;
use crate::oob::{Called, Counted, OobServer};

impl FileServer {
    /// A fetch out of band begins.
    pub(crate) fn count_fetch(&self) -> Counted {
        self.peer.tally.fetches.begin()
    }

    /// A store out of band begins.
    pub(crate) fn count_store(&self) -> Counted {
        self.peer.tally.stores.begin()
    }

    /// A large piece is fetched by a call.
    pub(crate) fn call_fetch(&self) -> Called {
        self.peer.tally.fetches.call()
    }

    /// A large part is stored by a call.
    pub(crate) fn call_store(&self) -> Called {
        self.peer.tally.stores.call()
    }

    /// Whether this user has a connection to it.
    pub(crate) fn has_oob(&self) -> bool {
        self.oob.is_connected()
    }

    /// What goes out of band to it, where these servers are those with connections, of all users.
    pub(crate) fn tell_oob(&self, connected: &[Arc<Self>]) -> OobServer {
        let peer = &self.peer;
        let own = connected.iter();
        let own = own.filter(|server| Arc::ptr_eq(&server.peer, peer));
        OobServer {
            address: self.address,
            offer: peer.tally.offer(&peer.blocked),
            connections: own.count() as u64,
            fetches: peer.tally.fetches.read(),
            stores: peer.tally.stores.read(),
        }
    }

    /// Has it tried again if TCP did not reach it, or asked again if it offered nothing.
    pub(crate) fn retry_oob(&self) {
        self.peer.blocked.forget();
        self.peer.tally.retry();
        self.oob.retry();
    }

    /// Ends what this user has out of band; transfers under way go on.
    pub(crate) fn disconnect_oob(&self) {
        self.oob.forget();
    }
}
