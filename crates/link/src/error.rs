//! Why a link operation failed.

use std::{fmt, io};

/// The result of a link operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a link operation failed. Each message names the object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is not root, or lacks the capabilities that root has.
    #[error("making network namespaces and TUN devices needs root (effective user id {0})")]
    NotRoot(u32),
    /// There is no `/dev/net/tun`.
    #[error("/dev/net/tun is missing")]
    NoTun,
    /// The name cannot be that of a link.
    #[error("bad link name '{0}': want 1 to 32 of A-Z a-z 0-9 _ -, the first a letter or digit")]
    BadName(String),
    /// The options contradict each other or are out of range.
    #[error("{0}")]
    BadOption(String),
    /// A link of this name is up, or what is left of one is still there.
    #[error("link {name} exists already ({what})")]
    Exists {
        /// Name of the link.
        name: String,
        /// What was found.
        what: String,
    },
    /// There is no link of this name.
    #[error("there is no link {0}")]
    NotFound(String),
    /// The namespaces are there but the emulator is not.
    #[error("the emulator of link {0} is not running")]
    NotRunning(String),
    /// The emulator did not start.
    #[error("the emulator of link {name} did not start: {log}")]
    Start {
        /// Name of the link.
        name: String,
        /// What it wrote before it ended.
        log: String,
    },
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, and on which object.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Adds what was tried to a system error.
pub(crate) trait Context<T> {
    /// Turns the error into [`Error::Io`] with `what` in front.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Error::Io {
            what: what.to_string(),
            source: e.into(),
        })
    }
}
