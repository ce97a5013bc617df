//! The identity of a client to a cell's servers, and how its connections are secured.
//!
//! Where tokens come from is not known here: [`Credentials`] is asked at each new connection, and
//! again when servers refuse what it gave, so that a token that was renewed meanwhile is used.

use std::fmt::Debug;
use std::sync::Arc;

use afar_net::{ClientSecurity, Connection, Endpoint, RxNull, ServiceId};
use afar_types::CellName;
use parking_lot::Mutex;

use crate::ended::ended;
use crate::error::Error;
use crate::refusal::ANONYMOUS;

/// Gives tokens for cells.
pub trait Credentials: Debug + Send + Sync {
    /// How new connections to a cell's servers are secured; `None` for anonymous ones. With
    /// `refused`, servers refuse that one: a newer one is to be found, and the same again means
    /// that there is none. May wait for a KDC; it is called where waiting holds up nobody else.
    ///
    /// # Errors
    /// Why there is no token, in words for users, when the client is not to go on without.
    fn security(
        &self,
        cell: &CellName,
        refused: Option<&Secured>,
    ) -> Result<Option<Secured>, String>;
}

/// How connections are secured, and as whom.
#[derive(Clone, Debug)]
pub struct Secured {
    /// The security class, with the token in it. Clones of the same token share it.
    pub security: Arc<dyn ClientSecurity>,
    /// Whose token it is, in words for users.
    pub who: Arc<str>,
    /// When it expires, in words for users; `None` if it does not.
    pub until: Option<Arc<str>>,
}

impl Secured {
    /// Whether this is the same token.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.security, &other.security)
    }
}

/// The client as one cell's servers see it.
#[derive(Debug)]
pub(crate) struct Access {
    cell: CellName,
    credentials: Option<Arc<dyn Credentials>>,
    /// As whom the last connection was made.
    who: Mutex<Arc<str>>,
}

impl Access {
    pub(crate) fn new(cell: CellName, credentials: Option<Arc<dyn Credentials>>) -> Self {
        Self {
            cell,
            credentials,
            who: Mutex::new(ANONYMOUS.into()),
        }
    }

    /// Which cell's servers.
    pub(crate) const fn cell(&self) -> &CellName {
        &self.cell
    }

    /// As whom servers were asked last.
    pub(crate) fn who(&self) -> Arc<str> {
        Arc::clone(&self.who.lock())
    }

    /// How a connection made now is secured.
    pub(crate) async fn secured(&self) -> Result<Option<Secured>, Error> {
        self.ask(None).await
    }

    /// What to use instead of what servers refused; `None` if there is nothing newer.
    pub(crate) async fn newer(&self, refused: &Secured) -> Result<Option<Secured>, Error> {
        let found = self.ask(Some(refused.clone())).await?;
        Ok(found.filter(|found| !found.is(refused)))
    }

    async fn ask(&self, refused: Option<Secured>) -> Result<Option<Secured>, Error> {
        let Some(credentials) = self.credentials.clone() else {
            return Ok(None);
        };
        let cell = self.cell.clone();
        let asked =
            tokio::task::spawn_blocking(move || credentials.security(&cell, refused.as_ref()));
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(error) => ended(error).await,
        };
        let secured = answer.map_err(|problem| Error::NoToken {
            cell: self.cell.clone(),
            problem,
        })?;
        let who = secured.as_ref().map(|secured| Arc::clone(&secured.who));
        *self.who.lock() = who.unwrap_or_else(|| ANONYMOUS.into());
        Ok(secured)
    }

    /// The error for a token that is refused, and there is no newer one.
    pub(crate) fn refused(&self, secured: &Secured, code: i32) -> Error {
        Error::Token {
            cell: self.cell.clone(),
            who: Arc::clone(&secured.who),
            until: secured.until.clone(),
            code,
        }
    }
}

/// A connection to a server, secured so.
pub(crate) fn connect(
    endpoint: &Endpoint,
    address: std::net::SocketAddr,
    service: ServiceId,
    secured: Option<&Secured>,
) -> Connection {
    let security = secured.map_or_else(
        || Arc::new(RxNull) as Arc<dyn ClientSecurity>,
        |secured| Arc::clone(&secured.security),
    );
    endpoint.connect(address, service, security)
}
