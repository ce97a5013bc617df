//! Why something could not be copied.

use std::io;

use afar_cell::{PathCause, PathError};

/// The result of a transfer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be copied, compared or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something failed, a path as a rule, for another reason.
    #[error("{what}")]
    Failed {
        /// The path, or what was tried with it.
        what: String,
        /// The reason.
        #[source]
        cause: Box<Self>,
    },
    /// A path in AFS leads nowhere.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The same, of a path that is named around it.
    #[error(transparent)]
    PathCause(#[from] PathCause),
    /// A server or the cell refused.
    #[error(transparent)]
    Cell(#[from] afar_cell::Error),
    /// The local disk refused, or nobody reads what is told.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The transfer refuses: by its options, or because the other side has nothing like it.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// With what failed before the reason.
    pub(crate) fn context(self, what: impl Into<String>) -> Self {
        Self::Failed {
            what: what.into(),
            cause: Box::new(self),
        }
    }
}

/// Puts what failed before the reason.
pub(crate) trait Context<T> {
    /// With what failed.
    fn context(self, what: impl Into<String>) -> Result<T>;
    /// The same, made only for an error.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| Error::Refused(what.into()))
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| Error::Refused(what()))
    }
}

/// Returns a refusal.
macro_rules! bail {
    ($($text:tt)*) => {
        return Err($crate::error::Error::Refused(format!($($text)*)))
    };
}
/// Returns a refusal unless something holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            $crate::error::bail!($($text)*);
        }
    };
}
pub(crate) use {bail, ensure};

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_reason_follows_what_failed() {
        let refused: Result<()> = (|| bail!("is a {}", "pipe"))();
        let error = refused.context("cannot write y").context("x").unwrap_err();
        let mut told = vec![error.to_string()];
        let mut cause = error.source();
        while let Some(error) = cause {
            told.push(error.to_string());
            cause = error.source();
        }
        assert_eq!(told, ["x", "cannot write y", "is a pipe"]);
    }
}
