//! Why a login failed.

use std::io;
use std::path::PathBuf;

use afar_types::CellName;

use super::Unknown;
use crate::Fingerprint;
use crate::password::PasswordError;
use crate::sshkey::SshKeyError;

/// Why nobody was logged in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No login service was reached: there may be none, or another way in.
    #[error("no login service answers at {host}, TCP port {port}")]
    Unreachable {
        /// The host.
        host: String,
        /// Its port.
        port: u16,
        /// What went wrong.
        source: io::Error,
    },
    /// What answered does not speak the protocol, or stopped in the middle.
    #[error("{host}: cannot talk to the login service: {what}")]
    Protocol {
        /// The host.
        host: String,
        /// What went wrong.
        what: String,
    },
    /// Nothing tells that it is the right server, and nobody said so.
    #[error(
        "{host} is not known as a server of {}: its key has the fingerprint {}",
        .0.cell, .0.fingerprint, host = .0.host
    )]
    NotTrusted(Unknown),
    /// It has another key than the one that was given.
    #[error(
        "{host} is not the server you want: its key has the fingerprint {found}, not {expected}"
    )]
    Fingerprint {
        /// The host.
        host: String,
        /// The fingerprint asked for.
        expected: Fingerprint,
        /// The one it has.
        found: Fingerprint,
    },
    /// It has another key than before.
    #[error(
        "{host} has another key than before: this may be an attack. Line {line} of {} says \
         {expected}, but the key is now {found}",
        path.display()
    )]
    Mismatch {
        /// The host.
        host: String,
        /// The file that says what it had before.
        path: PathBuf,
        /// The line in it.
        line: usize,
        /// What it had before.
        expected: Fingerprint,
        /// What it has.
        found: Fingerprint,
    },
    /// The file of known cells cannot be used.
    #[error("cannot {doing} {}", path.display())]
    KnownCells {
        /// Reading or writing.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Refused, for whatever reason.
    #[error("{cell} refuses to log in {user}: wrong password or key, or no such user")]
    Refused {
        /// The cell.
        cell: CellName,
        /// The refused user.
        user: String,
    },
    /// Too many attempts have failed.
    #[error("too many attempts have failed")]
    Wait {
        /// How long to wait.
        seconds: u32,
    },
    /// It is a server of another cell.
    #[error("{host} is a server of another cell than {cell}")]
    OtherCell {
        /// The host.
        host: String,
        /// The cell that was asked for.
        cell: CellName,
    },
    /// The server cannot do it now.
    #[error("{host}: the login service has failed")]
    Server {
        /// The host.
        host: String,
    },
    /// A name that is none.
    #[error("{0:?} is not a valid user name: use 1 to 63 characters and no colon")]
    User(String),
    /// The password cannot be one.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// A file of a key cannot be used.
    #[error("the key {} cannot be used: {what}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: KeyProblem,
    },
    /// A key of a type that is not taken.
    #[error(transparent)]
    KeyType(#[from] SshKeyError),
    /// The SSH agent fails.
    #[error("the SSH agent at {} gives invalid answers", path.display())]
    Agent {
        /// Its socket.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// What is wrong with a key's file.
#[derive(Debug, thiserror::Error)]
pub enum KeyProblem {
    /// It cannot be read, or its passphrase cannot.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// It is of another form.
    #[error("it is not in OpenSSH's format")]
    Format,
    /// It cannot be decrypted.
    #[error("the passphrase is wrong")]
    Passphrase,
    /// Only an agent could sign with it, and none runs.
    #[error(
        "public keys and RSA keys need an SSH agent to sign, and there is none (SSH_AUTH_SOCK)"
    )]
    NoAgent,
    /// Only the agent could sign with it, and does not have it.
    #[error("public keys and RSA keys need the SSH agent to sign, and it does not have this key")]
    NotInAgent,
}
