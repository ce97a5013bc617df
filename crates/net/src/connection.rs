//! A connection to one service of one peer.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use afar_rx::{CallError, ConnectionId, ServiceId};
use tokio::sync::Semaphore;

use crate::call::Call;
use crate::mailbox::{Command, Mailbox};

/// Calls that can run at a time on one Rx connection.
const CHANNELS: usize = 4;

/// A connection to one service of one peer: hands out calls, four at a time.
///
/// It is one Rx connection with its four channels; [`call`](Self::call) waits for a free one. For
/// more calls at a time open more connections: what is known of the path is shared by all of them.
/// Clones are the same connection. It closes when its last clone and call are dropped.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

/// Closes the connection when dropped.
struct Handle {
    shared: Arc<ConnectionShared>,
    mailbox: Arc<Mailbox>,
}

/// What handles and the I/O thread share about one connection.
pub(crate) struct ConnectionShared {
    pub(crate) peer: SocketAddr,
    pub(crate) service: ServiceId,
    /// The engine's name for it; written by the I/O thread.
    pub(crate) id: OnceLock<ConnectionId>,
    /// One permit a free channel; closed when the endpoint has ended.
    channels: Semaphore,
}

impl Connection {
    pub(crate) fn new(shared: Arc<ConnectionShared>, mailbox: Arc<Mailbox>) -> Self {
        Self(Arc::new(Handle { shared, mailbox }))
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.0.shared.peer
    }

    /// The service that is called.
    #[must_use]
    pub fn service(&self) -> ServiceId {
        self.0.shared.service
    }

    /// Begins a call once a channel is free. No packet is sent before the request is.
    ///
    /// # Errors
    /// [`CallError::Closed`] if the endpoint is shut down.
    pub async fn call(&self) -> Result<Call, CallError> {
        let permit = self
            .0
            .shared
            .channels
            .acquire()
            .await
            .map_err(|_| CallError::Closed)?;
        // The I/O thread gives it back when the call is over.
        permit.forget();
        Ok(Call::client(self.clone(), Arc::clone(&self.0.mailbox)))
    }

    pub(crate) fn shared(&self) -> &Arc<ConnectionShared> {
        &self.0.shared
    }
}

impl ConnectionShared {
    pub(crate) fn new(peer: SocketAddr, service: ServiceId) -> Self {
        Self {
            peer,
            service,
            id: OnceLock::new(),
            channels: Semaphore::new(CHANNELS),
        }
    }

    /// A call is over.
    pub(crate) fn release_channel(&self) {
        self.channels.add_permits(1);
    }

    /// No call can begin any more.
    pub(crate) fn close(&self) {
        self.channels.close();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An endpoint that has ended has closed its connections.
        let _ended = self
            .mailbox
            .push(Command::Disconnect(Arc::clone(&self.shared)));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer())
            .field("service", &self.service())
            .finish_non_exhaustive()
    }
}
