//! What can go wrong with the rows.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use afar_net::AbortCode;
use afar_types::error;

/// Why rows could not be read or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// The directory or its files cannot be used.
    #[error("database {path}: {what}")]
    Open {
        /// The database's directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: Arc<io::Error>,
    },
    /// It was written by a later version.
    #[error("database {path} has format {found}, but this version of afar knows 1 and 2")]
    Format {
        /// The database's directory.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// It has rows of its own and cannot become a replica, which would remove them.
    #[error("database {0} has rows that are not from etcd")]
    NotReplica(PathBuf),
    /// A page of it is damaged, so it is not read.
    #[error("database {}: {what}", .path.display())]
    Damaged {
        /// The database's directory.
        path: PathBuf,
        /// The file and the page.
        what: String,
    },
    /// There is no whole copy of it to go back to.
    #[error("there is no copy to go back to: {}: {why}", .path.display())]
    NoCopy {
        /// The copy's file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// LMDB failed.
    #[error("database {path}")]
    Rows {
        /// The database's directory.
        path: Arc<PathBuf>,
        /// What it says.
        source: Arc<heed::Error>,
    },
    /// A key is empty or longer than 511 bytes.
    #[error("a key of {0} bytes; 1 to 511 are possible")]
    Key(usize),
    /// More is changed at once than the servers can agree on at once.
    #[error("a change of {rows} rows and {bytes} bytes is too large")]
    TooLarge {
        /// Rows changed.
        rows: usize,
        /// Bytes of their keys and values.
        bytes: usize,
    },
    /// The servers that have to agree cannot be reached, or have no majority.
    #[error("the database has no quorum")]
    NoQuorum,
    /// A change had a fault of its own; nothing of it was kept.
    #[error("a change of the database failed inside the server")]
    Fault,
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
}

impl DbError {
    /// The code to abort a call with: one of ubik's, which make a client try another server.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::NoQuorum => UNOQUORUM,
            Self::Open { .. }
            | Self::Format { .. }
            | Self::NotReplica(_)
            | Self::Damaged { .. }
            | Self::NoCopy { .. }
            | Self::Rows { .. } => UIOERROR,
            Self::Key(_) | Self::TooLarge { .. } | Self::Fault | Self::Closed => UINTERNAL,
        }
    }
}

/// No majority of the database servers is reached (ubik).
pub const UNOQUORUM: AbortCode = AbortCode(error::UNOQUORUM);
/// Reading or writing the database failed (ubik).
pub const UIOERROR: AbortCode = AbortCode(error::UIOERROR);
/// The database server failed (ubik).
pub const UINTERNAL: AbortCode = AbortCode(error::UINTERNAL);
