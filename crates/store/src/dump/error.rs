//! What can be wrong with a dump.

use std::error::Error;
use std::{fmt, io};

use afar_types::VnodeId;

/// Why a dump cannot be read on, or not be written.
///
/// As an [`io::Error`] it keeps the kind of a failed read or write, or is `UnexpectedEof` for a
/// stream that ends too early and `InvalidData` for all else.
#[derive(Debug)]
#[non_exhaustive]
pub struct DumpError {
    /// Where, in bytes from the start of the stream: the tag of the field that is wrong, of the
    /// section if that is wrong as a whole, or the place where the stream ended.
    pub offset: u64,
    /// The vnode being read or written, if any.
    pub vnode: Option<VnodeId>,
    /// What.
    pub problem: DumpProblem,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of the dump", self.offset)?;
        if let Some(vnode) = self.vnode {
            write!(f, ", in vnode {vnode}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl Error for DumpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}

impl From<DumpError> for io::Error {
    fn from(error: DumpError) -> Self {
        let kind = match &error.problem {
            DumpProblem::Io(cause) => cause.kind(),
            DumpProblem::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpProblem {
    /// The stream failed.
    #[error("the stream cannot be read or written")]
    Io(#[source] io::Error),
    /// The stream ends too early.
    #[error("the stream ends where {expected} should be")]
    Truncated {
        /// What should follow.
        expected: &'static str,
    },
    /// It does not start, or end, like a dump.
    #[error("{part} has magic number {found:#010x}, not {expected:#010x}")]
    Magic {
        /// Which part of a dump.
        part: &'static str,
        /// The number there.
        found: u32,
        /// The number that belongs there.
        expected: u32,
    },
    /// Its format is not known.
    #[error("the dump has format version {0}; only version 1 is known")]
    Version(u32),
    /// A section is not where it belongs.
    #[error("section tag {found:#04x} stands where {expected} should be")]
    Section {
        /// The tag there.
        found: u8,
        /// What may stand there.
        expected: &'static str,
    },
    /// A field is not known, and how to skip it is not known either, or forbidden.
    #[error("the field with tag {tag:#04x} is not known and cannot be skipped")]
    UnknownField {
        /// Its tag.
        tag: u8,
    },
    /// A field is given twice, with different values, or after the data it belongs before.
    #[error("the field with tag {:?} appears again, with another value", char::from(*tag))]
    Repeated {
        /// Its tag.
        tag: u8,
    },
    /// A field is missing that there must be.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value is not one of those there are.
    #[error("{what} is {found}, not {allowed}")]
    Value {
        /// Which value.
        what: &'static str,
        /// The one found.
        found: u64,
        /// What it may be.
        allowed: &'static str,
    },
    /// Something is longer than its limit.
    #[error("{what} is longer than {max} bytes")]
    TooLong {
        /// What.
        what: &'static str,
        /// The limit in force.
        max: u64,
    },
    /// A text to be written has a NUL, which would end it.
    #[error("{0} has a NUL in it")]
    Nul(&'static str),
    /// The data written is not as long as announced.
    #[error("{announced} bytes of data were announced and {given} given")]
    DataLength {
        /// Bytes announced with the vnode.
        announced: u64,
        /// Bytes given; too many as soon as this is greater.
        given: u64,
    },
    /// The stream goes on behind the end of the dump.
    #[error("the stream continues after the end of the dump")]
    Trailing,
    /// A caller asked for things out of order, or went on after an error.
    #[error("{0}")]
    Order(&'static str),
}
