//! The login service: who proves to be a user gets a ticket.
//!
//! - [`Directory`]: where users, and what is known of their passwords and keys, come from
//! - [`Certificate`]: by which key the server is known
//! - `limits`: how often somebody may try
//! - `session`: one connection
//!
//! Whatever the reason, who is refused gets the same answer after the same messages; the audit (the
//! events with the target `audit`) tells why.

mod certificate;
mod grant;
mod limits;
mod session;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_security::KeyRing;
use afar_tls::{Connections, Gate, GateLimits, Pass};
use afar_types::CellName;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::password::{Record, Setup};
use crate::sshkey::SshKey;

pub use certificate::{Certificate, CertificateError};
use limits::Limits;

/// The longest time for which a token may be given: servers refuse longer ones.
pub const LIFETIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a client may take until its first message has come: somebody may have to touch a key.
const OPENING_MAX: Duration = Duration::from_secs(15);
/// How long it may take for the proof of a password.
const PROOF_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take, from its first byte to its last.
const TIME_MAX: Duration = Duration::from_secs(30);

/// How many connections there may be. Known addresses are those from which somebody has logged in.
const CONNECTIONS: GateLimits = GateLimits {
    all: 256,
    each: 16,
    kept: 64,
    burst: 64,
    pause: Duration::from_millis(125),
};

/// What is known of a user.
#[derive(Clone, Debug)]
pub struct User {
    /// The user's id, to which passwords are bound.
    pub id: i32,
    /// The user's name.
    pub name: String,
    /// The record of the user's password.
    pub password: Option<Record>,
    /// Keys with which the user can log in.
    pub keys: Vec<SshKey>,
}

/// The directory cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot look up users: {0}")]
pub struct DirectoryError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl DirectoryError {
    /// For this reason.
    #[must_use]
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

/// The users of a cell. Asked from within async code, so its answers must be at hand.
pub trait Directory: Send + Sync + 'static {
    /// The name by which this user is known, if there is one: two names of one user are the same
    /// then, also where there is no such user.
    fn canonical(&self, name: &str) -> String;

    /// The user of this canonical name.
    ///
    /// # Errors
    /// When the users cannot be read.
    fn find(&self, name: &str) -> Result<Option<User>, DirectoryError>;

    /// The secret of the service.
    ///
    /// # Errors
    /// When it cannot be read.
    fn setup(&self) -> Result<Setup, DirectoryError>;
}

/// What a login service is to do.
#[derive(Debug, Clone)]
pub struct LoginConfig {
    /// The cell it gives tickets for.
    pub cell: CellName,
    /// The Kerberos realm of its users: one that its servers take for the cell's own.
    pub realm: String,
    /// For how long it gives tokens, at most; no more than [`LIFETIME_MAX`].
    pub lifetime: Duration,
    /// The cell's keys, of which the newest seals tickets.
    pub keys: Arc<KeyRing>,
    /// By which key it is known.
    pub certificate: Certificate,
}

/// The login service.
pub struct LoginServer<D> {
    config: LoginConfig,
    directory: D,
    limits: Limits,
    gate: Arc<Gate>,
}

impl<D> std::fmt::Debug for LoginServer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginServer")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<D: Directory> LoginServer<D> {
    /// A service for the users of this directory.
    #[must_use]
    pub fn new(config: LoginConfig, directory: D) -> Self {
        Self {
            config,
            directory,
            limits: Limits::default(),
            gate: Arc::new(Gate::new(CONNECTIONS)),
        }
    }

    /// Answers at this socket, until the future is dropped.
    pub async fn serve(self, listener: TcpListener) {
        afar_tls::serve(Arc::new(self), listener).await;
    }

    async fn attend(&self, stream: TcpStream, peer: SocketAddr) {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config.certificate.config));
        let served = async {
            let opening = Instant::now();
            let accepted = tokio::time::timeout(OPENING_MAX, acceptor.accept(stream)).await;
            let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            let left = OPENING_MAX.saturating_sub(opening.elapsed());
            self.session(stream, peer, left).await
        };
        match tokio::time::timeout(TIME_MAX, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a login was aborted"),
            Err(_) => tracing::debug!(%peer, "a login took too long"),
        }
    }
}

impl<D: Directory> Connections for LoginServer<D> {
    const PURPOSE: &'static str = "logins";

    fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    fn is_known(&self, address: IpAddr, now: Instant) -> bool {
        self.limits.is_known(address, now)
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, pass: Pass) {
        self.attend(stream, peer).await;
        drop(pass);
    }
}
