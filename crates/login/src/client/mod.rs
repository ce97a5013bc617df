//! Logging in.
//!
//! First a server is believed ([`Server::trust`]), then a password or keys are shown to it
//! ([`Trusted`]). What comes back ([`Granted`]) is a token for AFS's servers, and all that an entry
//! of a Kerberos credentials cache needs.

mod agent;
mod error;
mod keys;
mod known;
mod local;
mod trust;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use afar_security::{EncryptionKey, Principal, SessionKey, Token};
use afar_types::CellName;
use afar_xdr::{List, Opaque};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use crate::frame;
use crate::password::{PasswordError, PasswordLogin};
use crate::proof::Binding;
use crate::wire::{Answer, Reason, Request, Signature, Ticket, Who};
use crate::{Fingerprint, PROTOCOL};

pub use error::{KeyProblem, LoginError};
pub use keys::SshKeys;
pub use known::KNOWN_CELLS;
pub use local::{announce, local};
pub use trust::Trust;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may take for an answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Where to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The cell.
    pub cell: CellName,
    /// The name or address of its login service.
    pub host: String,
    /// Its TCP port: [`PORT`](crate::PORT), if nothing else is said.
    pub port: u16,
}

impl Server {
    /// Host and port, as they are written.
    fn place(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// A server of which nothing is known but what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The cell it is to be of.
    pub cell: CellName,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its key's fingerprint.
    pub fingerprint: Fingerprint,
    /// Other keys by which servers of the cell are known.
    pub others: usize,
}

/// A server that is believed to be the right one.
#[derive(Clone, Debug)]
pub struct Trusted {
    server: Server,
    fingerprint: Fingerprint,
}

/// What a cell gives to one who has logged in.
#[derive(Clone)]
pub struct Granted {
    /// What connections to its servers are opened with.
    pub token: Token,
    /// The Kerberos key of the ticket's session.
    pub session: EncryptionKey,
    /// Whose ticket it is.
    pub client: Principal,
    /// The components of the service's name, `afs` and the cell; its realm is the client's.
    pub service: [String; 2],
    /// The ticket's flags, the first one in the highest bit (RFC 4120, 5.3).
    pub flags: u32,
    /// The cell.
    pub cell: CellName,
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Granted")
            .field("client", &self.client)
            .field("cell", &self.cell)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl Trusted {
    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// By which key it is known.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Logs in with a password, which the server does not get to see. The token holds for
    /// `lifetime`, or shorter, as the cell wants it.
    ///
    /// # Errors
    /// When the server cannot be reached, is no longer the one it was, or refuses.
    pub async fn with_password(
        &self,
        user: &str,
        password: &[u8],
        lifetime: Option<Duration>,
    ) -> Result<Granted, LoginError> {
        let who = self.who(user, lifetime)?;
        let (login, ke1) = PasswordLogin::begin(password)?;
        let mut stream = connect(&self.server, Some(self.fingerprint)).await?;
        let binding = self.binding(&stream)?;
        let binding = binding.of_password(who.cell.as_bytes(), who.user.as_bytes());
        let ke1 = Opaque::new(ke1).map_err(|_| PasswordError::TooLong)?;
        let request = Request::Password { who, ke1 };
        let ke2 = match self.ask(&mut stream, &request).await? {
            Answer::Challenge { ke2 } => ke2,
            other => return self.take(other, user),
        };
        // Stretching the password takes a while.
        let proof = tokio::task::spawn_blocking(move || login.prove(&ke2, &binding));
        let proof = proof.await.map_err(|error| self.strange(&error))?;
        let ke3 = match proof {
            Ok(ke3) => Opaque::new(ke3).map_err(|error| self.strange(&error))?,
            Err(PasswordError::Wrong) => return Err(self.refused(user)),
            Err(error) => return Err(self.strange(&error)),
        };
        let answer = self.ask(&mut stream, &Request::Proof { ke3 }).await?;
        self.take(answer, user)
    }

    /// Logs in with SSH keys: one that the user has registered is enough. The token holds for
    /// `lifetime`, or shorter, as the cell wants it.
    ///
    /// # Errors
    /// When the server cannot be reached, is no longer the one it was, or refuses; when the agent
    /// fails.
    pub async fn with_keys(
        &self,
        user: &str,
        keys: &mut SshKeys,
        lifetime: Option<Duration>,
    ) -> Result<Granted, LoginError> {
        let who = self.who(user, lifetime)?;
        let mut stream = connect(&self.server, Some(self.fingerprint)).await?;
        let binding = self.binding(&stream)?;
        let message = binding.of_signature(who.cell.as_bytes(), who.user.as_bytes());
        let signatures = keys.sign(&message)?;
        let signatures: Vec<_> = signatures.into_iter().flat_map(Signature::new).collect();
        if signatures.is_empty() {
            return Err(self.refused(user));
        }
        let signatures = List::new(signatures).map_err(|error| self.strange(&error))?;
        let request = Request::Keys { who, signatures };
        let answer = self.ask(&mut stream, &request).await?;
        self.take(answer, user)
    }

    fn who(&self, user: &str, lifetime: Option<Duration>) -> Result<Who, LoginError> {
        let bad = || LoginError::User(user.to_owned());
        if user.is_empty() || user.contains(':') {
            return Err(bad());
        }
        let seconds = lifetime.map_or(0, |life| {
            u32::try_from(life.as_secs().max(1)).unwrap_or(u32::MAX)
        });
        Ok(Who {
            cell: self.server.cell.as_str().try_into().map_err(|_| bad())?,
            user: user.try_into().map_err(|_| bad())?,
            lifetime: seconds,
        })
    }

    fn binding(&self, stream: &TlsStream<TcpStream>) -> Result<Binding, LoginError> {
        Binding::of_client(stream.get_ref().1).map_err(|error| self.strange(&error))
    }

    async fn ask(
        &self,
        stream: &mut TlsStream<TcpStream>,
        request: &Request,
    ) -> Result<Answer, LoginError> {
        let exchange = async {
            frame::send(stream, request).await?;
            frame::receive(stream).await
        };
        match tokio::time::timeout(ANSWER, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.strange(&error)),
            Err(_) => Err(self.strange(&"it does not answer")),
        }
    }

    /// Takes the end of a login apart.
    fn take(&self, answer: Answer, user: &str) -> Result<Granted, LoginError> {
        let host = || self.server.host.clone();
        match answer {
            Answer::Granted(ticket) => self.granted(ticket),
            Answer::Challenge { .. } => Err(self.strange(&"it asks for a password twice")),
            Answer::Refused { reason, wait } => Err(match reason {
                Reason::Refused => self.refused(user),
                Reason::Wait => LoginError::Wait { seconds: wait },
                Reason::Cell => LoginError::OtherCell {
                    host: host(),
                    cell: self.server.cell.clone(),
                },
                Reason::Server => LoginError::Server { host: host() },
                Reason::Message => self.strange(&"it does not understand this program"),
                Reason::Other(number) => self.strange(&format!("it refuses with reason {number}")),
            }),
        }
    }

    fn granted(&self, mut ticket: Ticket) -> Result<Granted, LoginError> {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let mut client = ticket.client.iter().map(|part| text(part.as_bytes()));
        let client = Principal {
            name: client.next().unwrap_or_default(),
            instance: client.next().unwrap_or_default(),
            realm: text(ticket.realm.as_bytes()),
        };
        let service = ticket.service.iter().map(|part| text(part.as_bytes()));
        let service: Vec<String> = service.collect();
        let service = <[String; 2]>::try_from(service);
        let service = service.map_err(|_| self.strange(&"its ticket is for no cell"))?;
        let session = Zeroizing::new(ticket.session.0.to_vec());
        let granted = Granted {
            token: Token {
                kvno: ticket.kvno,
                key: SessionKey::new(ticket.key.0.0),
                ticket: std::mem::take(&mut ticket.ticket).into_bytes().into(),
                start: ticket.start,
                end: ticket.end,
            },
            session: EncryptionKey::new(ticket.etype, session.to_vec()),
            client,
            service,
            flags: ticket.flags,
            cell: self.server.cell.clone(),
        };
        ticket.wipe();
        Ok(granted)
    }

    fn refused(&self, user: &str) -> LoginError {
        LoginError::Refused {
            cell: self.server.cell.clone(),
            user: user.to_owned(),
        }
    }

    fn strange(&self, what: &dyn fmt::Display) -> LoginError {
        LoginError::Protocol {
            host: self.server.host.clone(),
            what: what.to_string(),
        }
    }
}

/// A connection to a server; to the one with this key, if one is named.
async fn connect(
    server: &Server,
    expected: Option<Fingerprint>,
) -> Result<TlsStream<TcpStream>, LoginError> {
    let unreachable = |source| LoginError::Unreachable {
        host: server.host.clone(),
        port: server.port,
        source,
    };
    let strange = |what: String| LoginError::Protocol {
        host: server.host.clone(),
        what,
    };
    let opened = tokio::time::timeout(CONNECT, async {
        TcpStream::connect((server.host.as_str(), server.port)).await
    });
    let stream = opened
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(unreachable)?;
    let config =
        afar_tls::client(PROTOCOL, expected).map_err(|error| strange(error.to_string()))?;
    // What is no name for TLS is at best one of /etc/hosts; the name does not matter here.
    let name = ServerName::try_from(server.host.clone());
    let name = name.or_else(|_| ServerName::try_from(server.cell.to_string()));
    let name = name.map_err(|error| strange(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(config));
    tokio::time::timeout(CONNECT, connector.connect(name, stream))
        .await
        .map_err(|_| strange("it does not answer".to_owned()))?
        .map_err(|error| strange(error.to_string()))
}
