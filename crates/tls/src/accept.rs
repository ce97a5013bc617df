//! Accepting connections, as many as a gate lets in.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::{Gate, Pass};

/// Connections that may wait to be accepted: of more, the system lets clients believe that they are connected.
const BACKLOG: u32 = 4096;
/// How long to wait when no connection can be accepted: the process may be out of files.
const PAUSE: Duration = Duration::from_millis(100);

/// Opens a socket to serve at.
///
/// # Errors
/// The system's.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that starts again does not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A service that takes connections.
pub trait Connections: Send + Sync + 'static {
    /// What connections are for, as in "cannot accept a connection for logins".
    const PURPOSE: &'static str;

    /// Which connections there may be.
    fn gate(&self) -> &Arc<Gate>;

    /// Whether the gate may let an address in where there is only room for known ones.
    fn is_known(&self, _address: IpAddr, _now: Instant) -> bool {
        true
    }

    /// A connection was closed at once, because the gate did not let it in.
    fn turned_away(&self) {}

    /// Serves a connection. It counts until the pass is dropped.
    fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        pass: Pass,
    ) -> impl Future<Output = ()> + Send;
}

/// Answers at this socket, until the future is dropped.
pub async fn serve<S: Connections>(service: Arc<S>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for {}", S::PURPOSE);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (now, address) = (Instant::now(), peer.ip());
        let is_known = || service.is_known(address, now);
        let Some(pass) = service.gate().enter(address, now, is_known) else {
            service.turned_away();
            tracing::debug!(%peer, "too many connections for {}", S::PURPOSE);
            continue;
        };
        connections.spawn(Arc::clone(&service).connection(stream, peer, pass));
    }
}
