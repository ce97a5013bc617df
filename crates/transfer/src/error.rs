//! Why something could not be copied.

use std::io;

use afar_cell::{PathCause, PathError};

/// The result of a transfer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be copied, compared or removed.
#[derive(Debug, thiserror::Error)]
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
    #[error("{why}")]
    Refused {
        /// What it refuses, and why.
        why: String,
        /// What would help.
        remedy: Option<Remedy>,
    },
    /// A pattern of names to leave alone means nothing.
    #[error("{pattern}: {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: PatternProblem,
    },
}

/// What would help where a transfer refuses. The program says by which command or option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// To create the directory.
    CreateDirectory,
    /// To copy directories with all that is in them.
    Recursive,
    /// To say what the copy is called.
    NameCopy,
    /// To copy from a cell, not from all of them.
    FromCell,
    /// To copy to a cell, not to all of them.
    IntoCell,
    /// To copy somewhere else.
    OtherDestination,
    /// To copy file by file instead of comparing trees.
    Copy,
    /// To use a program for local files.
    LocalProgram,
    /// To delete what stands in the way.
    Delete,
    /// To remove the mount point itself.
    RemoveMountPoint,
    /// To do the same again.
    Again,
    /// To do the same again when another process has ended.
    AgainLater,
}

/// What is wrong with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternProblem {
    /// It is empty, or a slash.
    #[error("names nothing")]
    Nothing,
    /// A bracket is not closed.
    #[error("a [ has no ]")]
    Bracket,
    /// A range in brackets is empty.
    #[error("a range in [ ] ends before it begins")]
    Range,
}

impl Error {
    /// A refusal with nothing to do about it.
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Refused {
            why: why.into(),
            remedy: None,
        }
    }

    /// A refusal, and what would help.
    pub(crate) fn unless(remedy: Remedy, why: impl Into<String>) -> Self {
        Self::Refused {
            why: why.into(),
            remedy: Some(remedy),
        }
    }

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
        self.ok_or_else(|| Error::refused(what))
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| Error::refused(what()))
    }
}

/// Returns a refusal, with a remedy if one is named before the text.
macro_rules! bail {
    ($remedy:ident => $($text:tt)*) => {
        return Err($crate::error::Error::unless(
            $crate::error::Remedy::$remedy,
            format!($($text)*),
        ))
    };
    ($($text:tt)*) => {
        return Err($crate::error::Error::refused(format!($($text)*)))
    };
}
/// Returns a refusal unless something holds.
macro_rules! ensure {
    ($holds:expr, $remedy:ident => $($text:tt)*) => {
        if !$holds {
            $crate::error::bail!($remedy => $($text)*);
        }
    };
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
