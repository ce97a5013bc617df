//! Bulk data out of band, as a client has it from one server: an offer is asked for once, a connection is made
//! behind the first transfer, which goes by Rx, and later ones go there.
//!
//! - `offer`: what a server offered
//! - `blocked`: whether TCP reaches it
//! - `connection`: a TLS connection and the transfers on it
//! - `wire`: the handshake, and what is sent on it
//! - `storing`: a transfer to the server
//! - `volumes`: dumps of volumes, to servers and from them
//! - `tally`: what is counted of a server, and shown
//! - `pace`: whether calls are faster
//!
//! What goes wrong costs no transfer: what is left of it goes by Rx.
// spec: oob#when-to-use-it

mod blocked;
mod connection;
mod offer;
mod pace;
mod storing;
mod tally;
mod volumes;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use connection::NoConnection;
use offer::Known;

pub(crate) use blocked::Blocked;
pub(crate) use connection::{Connection, Event, Transfer};
pub(crate) use offer::{Asked, ask};
pub(crate) use storing::{StoreEnd, Storing};
pub(crate) use tally::{Called, Counted, Ended, Tally};
pub use tally::{OobOffer, OobServer, OobTransfers};
pub use volumes::{VolumeDump, VolumeOob, VolumeRestore};

/// How long a server is not asked again that knows nothing of this.
// spec: oob#when-to-use-it
const UNKNOWN_TIME: Duration = Duration::from_secs(600);
/// How long it takes until another attempt after one that failed in other ways.
const PAUSE: Duration = Duration::from_secs(10);

/// What one user has of one server.
#[derive(Debug, Default)]
pub(crate) struct Oob {
    state: Mutex<State>,
    /// That an attempt to make a connection has ended.
    tried: Notify,
}

#[derive(Debug, Default)]
struct State {
    offer: Option<Known>,
    connection: Option<Arc<Connection>>,
    /// Whether a connection is being made.
    connecting: bool,
    /// Until then none is made.
    paused: Option<Instant>,
    /// Counts how often all was forgotten.
    generation: u64,
}

impl Oob {
    /// The connection, if there is one now. If there should be another, it is made in the background, by an offer that
    /// is asked for there.
    pub(crate) fn ready<F>(
        self: &Arc<Self>,
        server: SocketAddr,
        blocked: &Arc<Blocked>,
        ask: impl FnOnce() -> F + Send + 'static,
    ) -> Option<Arc<Connection>>
    where
        F: Future<Output = Asked> + Send + 'static,
    {
        let mut state = self.state.lock();
        if blocked.is_known() {
            state.connection = None;
            return None;
        }
        state.connection.take_if(|known| !known.is_usable());
        let ready = state.connection.clone();
        let is_wanted = ready.as_ref().is_none_or(|known| known.is_aging());
        let may_try = !state.connecting && state.paused.is_none_or(|until| Instant::now() >= until);
        if is_wanted && may_try {
            state.connecting = true;
            let (oob, blocked) = (Arc::clone(self), Arc::clone(blocked));
            let generation = state.generation;
            tokio::spawn(async move { oob.connect(server, &blocked, generation, ask()).await });
        }
        ready
    }

    /// The same, after the attempt to make one, if there is none before.
    pub(crate) async fn made<F>(
        self: &Arc<Self>,
        server: SocketAddr,
        blocked: &Arc<Blocked>,
        ask: impl FnOnce() -> F + Send + 'static,
    ) -> Option<Arc<Connection>>
    where
        F: Future<Output = Asked> + Send + 'static,
    {
        let ready = self.ready(server, blocked, ask);
        if ready.is_some() {
            return ready;
        }
        loop {
            let tried = self.tried.notified();
            {
                let state = self.state.lock();
                if !state.connecting {
                    let usable = |known: &&Arc<Connection>| known.is_usable();
                    return state.connection.as_ref().filter(usable).cloned();
                }
            }
            tried.await;
        }
    }

    /// Forgets all: the server is to know us as somebody else, or to be asked again.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        let (connecting, generation) = (state.connecting, state.generation + 1);
        *state = State {
            connecting,
            generation,
            ..State::default()
        };
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        let state = self.state.lock();
        (state.connection.as_ref()).is_some_and(|known| known.is_usable())
    }

    /// Has the next transfer try again to make a connection, if there is none because that failed.
    pub(crate) fn retry(&self) {
        self.state.lock().paused = None;
    }

    /// Makes a connection, and notes how it went.
    async fn connect(
        &self,
        server: SocketAddr,
        blocked: &Arc<Blocked>,
        generation: u64,
        ask: impl Future<Output = Asked>,
    ) {
        let known = self.state.lock().offer.clone();
        let known = known.filter(|known| !known.is_aging());
        let is_old = known.is_some();
        let offered = match known {
            Some(known) => Asked::Offered(known),
            None => ask.await,
        };
        let (offer, connected) = match offered {
            Asked::Offered(offer) => {
                let connected = Connection::open(server, &offer, blocked).await;
                (Some(offer), Some(connected))
            }
            Asked::Unknown => (None, None),
            Asked::Failed => (None, Some(Err(NoConnection::Refused))),
        };
        let mut state = self.state.lock();
        state.connecting = false;
        self.tried.notify_waiters();
        if state.generation != generation {
            // The next transfer asks again, as who the client is now.
            return;
        }
        state.offer = offer;
        match connected {
            None => state.paused = Some(Instant::now() + UNKNOWN_TIME),
            Some(Ok(connection)) => state.connection = Some(connection),
            Some(Err(NoConnection::Refused)) => {
                state.offer = None;
                state.paused = Some(Instant::now() + PAUSE);
            }
            // The server may have been started again since, and have another key: it is asked again.
            Some(Err(NoConnection::Blocked(_))) if is_old => state.offer = None,
            Some(Err(NoConnection::Blocked(problem))) => {
                blocked.note();
                tracing::info!(
                    %server,
                    %problem,
                    "out-of-band transfers do not reach the server; data passes by Rx for the next hour"
                );
            }
        }
    }
}
