//! Protection servers, of which the first that answers is asked.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::{RpcError, pr, vote};
use afar_types::error::Code;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::Unanswered;
use super::version::Version;

/// What one server has to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// For how long nobody is asked after nobody answered.
pub(super) const REST: Duration = Duration::from_secs(10);

/// A protection server, connected to.
#[derive(Debug, Clone)]
pub struct Clients {
    /// For questions about users and groups.
    pub users: pr::Client,
    /// For the version of its database; without it answers are kept for a short time only.
    pub versions: Option<vote::Client>,
}

/// Connects to a protection server once more.
pub type Connect = Box<dyn Fn() -> Clients + Send + Sync>;

/// All of them.
pub(super) struct Servers {
    servers: Vec<Server>,
    /// The one that answered last.
    preferred: AtomicUsize,
    rest_until: Mutex<Option<Instant>>,
}

impl Servers {
    pub(super) fn new(servers: Vec<Connect>) -> Self {
        Self {
            servers: servers.into_iter().map(Server::new).collect(),
            preferred: AtomicUsize::new(0),
            rest_until: Mutex::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Asks one server after the other until one answers.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl Fn(pr::Client) -> F,
    ) -> Result<T, Unanswered>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        let resting = |until: &Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        if resting(&self.rest_until.lock()) {
            return Err(Unanswered);
        }
        let first = self.preferred.load(Ordering::Relaxed);
        for turn in 0..self.servers.len() {
            let number = (first + turn) % self.servers.len();
            if let Some(answer) = self.servers[number].ask(&question).await {
                self.preferred.store(number, Ordering::Relaxed);
                *self.rest_until.lock() = None;
                return Ok(answer);
            }
        }
        *self.rest_until.lock() = Some(Instant::now() + REST);
        Err(Unanswered)
    }

    /// The version of the database of the server that answered last, if it tells it. Other servers are
    /// found by the next question.
    pub(super) async fn version(&self) -> Option<Version> {
        let number = self.preferred.load(Ordering::Relaxed);
        let server = self.servers.get(number)?;
        let versions = server.clients.lock().versions.clone()?;
        // spec: afs-rpc#database-servers-that-agree
        match timeout(PATIENCE, versions.debug()).await {
            Ok(Ok(reply)) => Some(Version::told(number, &reply.state.state)),
            Ok(Err(error)) => {
                let peer = versions.connection().peer();
                tracing::debug!(%peer, %error, "asking a protection server for its version");
                *server.clients.lock() = (server.connect)();
                None
            }
            Err(_) => None,
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.servers.iter();
        let peers = servers.map(|server| server.clients.lock().users.connection().peer());
        f.debug_list().entries(peers).finish()
    }
}

/// A protection server.
struct Server {
    connect: Connect,
    clients: Mutex<Clients>,
}

impl Server {
    fn new(connect: Connect) -> Self {
        let clients = Mutex::new(connect());
        Self { connect, clients }
    }

    /// Its answer, if it gives one. One that does not like our ticket is shown a new one.
    async fn ask<T, F>(&self, question: &impl Fn(pr::Client) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        let mut again = true;
        loop {
            let client = self.clients.lock().users.clone();
            let peer = client.connection().peer();
            match timeout(PATIENCE, question(client)).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => {
                    // A new connection has a new token, and what this one has may be why it was refused.
                    *self.clients.lock() = (self.connect)();
                    let disliked = is_rxkad(error.code());
                    if disliked && std::mem::take(&mut again) {
                        continue;
                    }
                    tracing::warn!(%peer, %error, "asking a protection server");
                }
                Err(_) => tracing::warn!(%peer, "a protection server does not answer"),
            }
            return None;
        }
    }
}

/// Whether a code is rxkad's: it is about the ticket, not about the question.
// spec: security#refused-tokens
fn is_rxkad(code: AbortCode) -> bool {
    Code(code.0).is_token_refused()
}
