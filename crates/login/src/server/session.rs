//! One connection: one attempt to log in.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use afar_xdr::List;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;

use super::{Directory, DirectoryError, LoginServer, PROOF_MAX, User, grant};
use crate::frame::{self, FrameError};
use crate::password::{Credential, PasswordError};
use crate::proof::Binding;
use crate::sshkey;
use crate::wire::{Answer, Reason, Request, SIGNATURES_MAX, Signature, Who};

/// Why a session ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// TLS could not bind it.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The user who tries to log in.
struct Attempt<'a> {
    who: &'a Who,
    /// The user's canonical name.
    name: String,
    peer: SocketAddr,
    /// The kind of login, as the audit calls it.
    operation: &'static str,
}

/// Why an attempt did not succeed. Only the audit tells.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("there is no such user")]
    NoUser,
    #[error("the user has no password")]
    NoPassword,
    #[error("the password is wrong, or the client gave up")]
    Password,
    #[error("none of the keys is the user's, or no signature is valid")]
    Key,
    #[error("a message is invalid")]
    Message,
    #[error("too many attempts: the next one in {} s", seconds(*.0))]
    Wait(Duration),
    #[error("the server has failed: {0}")]
    Server(String),
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        Self::Server(error.to_string())
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        match error {
            // A client that finds its password wrong says no more.
            FrameError::Io(_) => Self::Password,
            FrameError::TooLong(_) | FrameError::Wire(_) => Self::Message,
        }
    }
}

impl Failure {
    /// What the client is told.
    fn answer(&self) -> Answer {
        let (reason, wait) = match self {
            Self::NoUser | Self::NoPassword | Self::Password | Self::Key => (Reason::Refused, 0),
            Self::Message => (Reason::Message, 0),
            Self::Wait(wait) => (Reason::Wait, seconds(*wait)),
            Self::Server(_) => (Reason::Server, 0),
        };
        Answer::Refused { reason, wait }
    }
}

/// What is received, if it comes in time.
async fn within<T>(
    time: Duration,
    received: impl Future<Output = Result<T, FrameError>>,
) -> Result<T, FrameError> {
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
    tokio::time::timeout(time, received)
        .await
        .unwrap_or_else(late)
}

/// So many whole seconds that none is too few.
fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

impl<D: Directory> LoginServer<D> {
    /// Serves one client to its end; its first message has to come in time.
    pub(super) async fn session(
        &self,
        mut stream: TlsStream<TcpStream>,
        peer: SocketAddr,
        opening: Duration,
    ) -> Result<(), SessionError> {
        let binding = Binding::of_server(stream.get_ref().1)?;
        let first = within(opening, frame::receive(&mut stream)).await;
        let mut answer = match first {
            Ok(request) => self.answer(&mut stream, &binding, peer, request).await,
            // One that only looks who is here says nothing.
            Err(FrameError::Io(_)) => return Ok(()),
            Err(error) => {
                tracing::debug!(%peer, %error, "a login could not be read");
                Failure::from(error).answer()
            }
        };
        let sent = frame::send(&mut stream, &answer).await;
        if let Answer::Granted(ticket) = &mut answer {
            ticket.wipe();
        }
        sent?;
        Ok(stream.shutdown().await?)
    }

    async fn answer(
        &self,
        stream: &mut TlsStream<TcpStream>,
        binding: &Binding,
        peer: SocketAddr,
        request: Request,
    ) -> Answer {
        let (who, operation) = match &request {
            Request::Password { who, .. } => (who, "login.password"),
            Request::Keys { who, .. } => (who, "login.keys"),
            Request::Proof { .. } => return Failure::Message.answer(),
        };
        if who.cell.as_bytes() != self.config.cell.as_str().as_bytes() {
            return Answer::Refused {
                reason: Reason::Cell,
                wait: 0,
            };
        }
        let given = String::from_utf8_lossy(who.user.as_bytes());
        let attempt = Attempt {
            who,
            name: self.directory.canonical(&given),
            peer,
            operation,
        };
        let proved = match &request {
            Request::Keys { signatures, .. } => self.keys(&attempt, binding, signatures),
            Request::Password { ke1, .. } => self.password(stream, &attempt, binding, ke1).await,
            Request::Proof { .. } => Err(Failure::Message),
        };
        let granted = proved.and_then(|user| {
            let now = SystemTime::now();
            let ticket = grant::ticket(&self.config, &user.name, attempt.who.lifetime, now);
            ticket
                .map(Answer::Granted)
                .map_err(|error| Failure::Server(format!("{}: {error}", user.name)))
        });
        attempt.tell(granted.as_ref().err());
        match granted {
            Ok(answer) => {
                let address = peer.ip();
                self.limits
                    .succeeded(&attempt.name, address, Instant::now());
                answer
            }
            Err(failure) => failure.answer(),
        }
    }

    /// Counts the attempt, before anything is told that lets the client try a password.
    fn admit(&self, attempt: &Attempt<'_>) -> Result<(), Failure> {
        self.limits
            .begin(&attempt.name, attempt.peer.ip(), Instant::now())
            .map_err(Failure::Wait)
    }

    async fn password(
        &self,
        stream: &mut TlsStream<TcpStream>,
        attempt: &Attempt<'_>,
        binding: &Binding,
        ke1: &[u8],
    ) -> Result<User, Failure> {
        self.admit(attempt)?;
        let user = self.directory.find(&attempt.name)?;
        let setup = self.directory.setup()?;
        let credential = match &user {
            Some(user) => Credential::Known(user.id),
            None => Credential::Nobody(&attempt.name),
        };
        let record = user.as_ref().and_then(|user| user.password.as_ref());
        let who = attempt.who;
        let binding = binding.of_password(who.cell.as_bytes(), who.user.as_bytes());
        let unusable = |error: PasswordError| match error {
            PasswordError::Damaged => Failure::Message,
            _ => Failure::Password,
        };
        let (challenged, ke2) = setup
            .challenge(&credential, record, ke1, &binding)
            .map_err(unusable)?;
        let ke2 = afar_xdr::Opaque::new(ke2).map_err(|_| Failure::Message)?;
        frame::send(stream, &Answer::Challenge { ke2 })
            .await
            .map_err(|error| Failure::from(FrameError::from(error)))?;
        // A client that lets the time pass has tried a password too, and the audit must say so.
        let proof = within(PROOF_MAX, frame::receive(stream)).await;
        let proved = match proof.map_err(Failure::from) {
            Ok(Request::Proof { ke3 }) => challenged.check(&ke3, &binding).map_err(unusable),
            Ok(_) => Err(Failure::Message),
            Err(failure) => Err(failure),
        };
        // Which of these it is, the client must not know: it gets one answer for all.
        match (user, proved) {
            (_, Err(Failure::Message)) => Err(Failure::Message),
            (None, _) => Err(Failure::NoUser),
            (Some(user), _) if user.password.is_none() => Err(Failure::NoPassword),
            (Some(user), Ok(())) => Ok(user),
            (Some(_), Err(failure)) => Err(failure),
        }
    }

    fn keys(
        &self,
        attempt: &Attempt<'_>,
        binding: &Binding,
        signatures: &List<Signature, SIGNATURES_MAX>,
    ) -> Result<User, Failure> {
        self.admit(attempt)?;
        let who = attempt.who;
        let message = binding.of_signature(who.cell.as_bytes(), who.user.as_bytes());
        // All are checked before the user is looked up, so that it takes as long for everybody.
        let signers: Vec<_> = signatures
            .iter()
            .filter_map(|signature| sshkey::signer(signature, &message))
            .collect();
        let user = self.directory.find(&attempt.name)?;
        let user = user.ok_or(Failure::NoUser)?;
        let known = |key: &sshkey::SshKey| signers.contains(key.key_data());
        if user.keys.iter().any(known) {
            Ok(user)
        } else {
            Err(Failure::Key)
        }
    }
}

impl Attempt<'_> {
    /// Tells the audit, and of failures of the server itself the log.
    fn tell(&self, failure: Option<&Failure>) {
        let (from, operation) = (self.peer, self.operation);
        match failure {
            None => tracing::info!(
                target: "audit", who = %self.name, %from, operation, code = 0, "done"
            ),
            Some(cause) => tracing::info!(
                target: "audit",
                who = "anonymous",
                %from,
                operation,
                object = ?self.name,
                cause = %cause,
                code = REFUSED,
                "refused"
            ),
        }
        if let Some(Failure::Server(cause)) = failure {
            tracing::error!(%from, cause, "cannot grant an authenticated login");
        }
    }
}

/// What the audit has as the code of a login that was refused: EACCES.
const REFUSED: i32 = 13;
