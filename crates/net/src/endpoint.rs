//! One socket, its I/O thread and the engine behind it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use afar_rx::security::{ClientSecurity, ServerSecurity};
use afar_rx::{PeerStats, RxNull, Service, ServiceId};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::config::random;
use crate::connection::{Connection, ConnectionShared};
use crate::driver::Driver;
use crate::mailbox::{Command, Mailbox};
use crate::server::{Handler, spawn_with};
use crate::{Config, Socket, Stats, Udp};

/// One UDP socket, its I/O thread and the Rx engine behind it. Cheap to clone.
///
/// It ends with [`shutdown`](Self::shutdown), or at once when its last clone is dropped: calls that
/// run then fail with [`CallError::Closed`](afar_rx::CallError::Closed). A handler that keeps a clone
/// keeps the endpoint, until it is shut down.
#[derive(Clone)]
pub struct Endpoint(Arc<Handle>);

/// Ends the I/O thread when dropped.
struct Handle {
    mailbox: Arc<Mailbox>,
    local_addr: SocketAddr,
    buffer_hint: Option<String>,
    /// The settings of a UDP socket.
    udp: Option<Config>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Endpoint {
    /// Opens a UDP socket at that address and starts its I/O thread.
    ///
    /// # Errors
    /// The system's: the address is taken or not ours, or there are no more sockets or threads.
    pub fn bind(addr: SocketAddr, config: Config) -> io::Result<Self> {
        let endpoint = Self::open(addr, config)?;
        endpoint.warn();
        Ok(endpoint)
    }

    /// Another endpoint like this one, at a free port of the same address: to peers that know hosts by their ports
    /// another host. `None` if this one was not [bound](Self::bind) to a UDP socket.
    ///
    /// # Errors
    /// As those of [`bind`](Self::bind).
    pub fn another(&self) -> io::Result<Option<Self>> {
        let Some(mut config) = self.0.udp.clone() else {
            return Ok(None);
        };
        // Two with the same would have connections of the same numbers.
        config.rx.seed = random();
        let addr = SocketAddr::new(self.0.local_addr.ip(), 0);
        Self::open(addr, config).map(Some)
    }

    fn open(addr: SocketAddr, config: Config) -> io::Result<Self> {
        let udp = Udp::bind(addr, config.receive_buffer, config.send_buffer)?;
        Self::start(udp, config.clone(), Some(config))
    }

    /// Runs Rx over another network than UDP: a simulated one.
    ///
    /// # Errors
    /// The system's: there are no more file descriptors or threads.
    pub fn with_socket(socket: impl Socket, config: Config) -> io::Result<Self> {
        let endpoint = Self::start(socket, config, None)?;
        endpoint.warn();
        Ok(endpoint)
    }

    fn warn(&self) {
        if let Some(hint) = &self.0.buffer_hint {
            tracing::warn!("{hint}");
        }
    }

    fn start(socket: impl Socket, config: Config, udp: Option<Config>) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let local_addr = socket.local_addr();
        let buffer_hint = socket.buffer_hint();
        let shared = Arc::clone(&mailbox);
        let thread = thread::Builder::new()
            .name(format!("rx-{}", local_addr.port()))
            .spawn(move || Driver::new(socket, config, shared).run())?;
        Ok(Self(Arc::new(Handle {
            mailbox,
            local_addr,
            buffer_hint,
            udp,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// The address the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr
    }

    /// One line that says which limit of the system keeps the socket's buffers smaller than the
    /// configuration asks, and how to raise it; `None` if none does.
    #[must_use]
    pub fn buffer_hint(&self) -> Option<String> {
        self.0.buffer_hint.clone()
    }

    /// A connection to a service of a peer. No packet is sent before the first call.
    ///
    /// Without authentication `security` is `Arc::new(RxNull)`.
    #[must_use]
    pub fn connect(
        &self,
        peer: SocketAddr,
        service: ServiceId,
        security: Arc<dyn ClientSecurity>,
    ) -> Connection {
        let shared = Arc::new(ConnectionShared::new(reachable(peer), service));
        if self
            .0
            .mailbox
            .push(Command::Connect(Arc::clone(&shared), security))
            .is_err()
        {
            shared.close();
        }
        Connection::new(shared, Arc::clone(&self.0.mailbox))
    }

    /// Answers calls to a service, each in a task or thread of the current runtime ([`Handler::BLOCKS`]).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn serve<H: Handler>(&self, service: ServiceId, name: &'static str, handler: H) {
        self.serve_with(Service::new(service, name), handler);
    }

    /// Like [`serve`](Self::serve), with all of the service's settings.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn serve_with<H: Handler>(&self, service: Service, handler: H) {
        self.serve_secured(service, vec![Arc::new(RxNull)], handler);
    }

    /// Like [`serve_with`](Self::serve_with), for clients that use one of these security classes;
    /// others are refused. A [`Call`](crate::Call) says who its client is.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn serve_secured<H: Handler>(
        &self,
        service: Service,
        security: Vec<Arc<dyn ServerSecurity>>,
        handler: H,
    ) {
        let spawn = spawn_with(runtime::Handle::current(), handler);
        // An endpoint that has ended serves nobody, which is what shutting down means.
        let _ended = self
            .0
            .mailbox
            .push(Command::Serve(service, security, spawn));
    }

    /// Takes what has arrived and arrives from now on, where [`Config::hold`] has kept it waiting. A
    /// service that is there before answers the first call.
    pub fn listen(&self) {
        // An endpoint that has ended takes nothing, which is what shutting down means.
        self.0.mailbox.push(Command::Listen).ok();
    }

    /// Counters of the engine and the shell; the last ones if the endpoint has ended.
    pub async fn stats(&self) -> Stats {
        let (answer, stats) = oneshot::channel();
        let told = match self.0.mailbox.push(Command::Stats(answer)) {
            Ok(()) => stats.await.ok(),
            Err(_) => None,
        };
        told.or_else(|| self.0.mailbox.ended()).unwrap_or_default()
    }

    /// What is known of the path to a peer, if there is one at that address.
    pub async fn peer_stats(&self, peer: SocketAddr) -> Option<PeerStats> {
        let (answer, stats) = oneshot::channel();
        self.0.mailbox.push(Command::PeerStats(peer, answer)).ok()?;
        stats.await.ok().flatten()
    }

    /// Asks a peer for so many shares of the path, as
    /// [`ask_for_shares`](afar_rx::Endpoint::ask_for_shares) does.
    pub fn ask_for_shares(&self, peer: SocketAddr, shares: u8) {
        // An endpoint that has ended gets nothing any more.
        self.0
            .mailbox
            .push(Command::AskForShares(peer, shares))
            .ok();
    }

    /// What is known of the paths to all peers.
    pub async fn peers(&self) -> Vec<PeerStats> {
        let (answer, stats) = oneshot::channel();
        if self.0.mailbox.push(Command::Peers(answer)).is_err() {
            return Vec::new();
        }
        stats.await.unwrap_or_default()
    }

    /// Lets running calls finish, for at most [`Config::shutdown_limit`], refuses new ones, and
    /// closes the socket. While calls of peers run, calls can be made on new connections, as those
    /// may depend on them. Calls that did not finish fail with
    /// [`CallError::Closed`](afar_rx::CallError::Closed).
    pub async fn shutdown(&self) {
        let (done, ended) = oneshot::channel();
        if self.0.mailbox.push(Command::Shutdown(done)).is_ok() {
            // The thread never sends: it drops the sender as its last act.
            let _dropped = ended.await;
        }
        let thread = self.0.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the I/O thread of {} panicked", self.0.local_addr);
        }
    }
}

/// The address from which a peer's replies come: one of IPv4 as such, and this machine's where none is named.
fn reachable(peer: SocketAddr) -> SocketAddr {
    let ip = match peer.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, peer.port())
}

impl Drop for Handle {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.mailbox.push(Command::Close);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("local_addr", &self.0.local_addr)
            .finish_non_exhaustive()
    }
}
