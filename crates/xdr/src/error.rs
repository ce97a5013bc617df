//! What can be wrong with an encoding, or with a value that is to be encoded.

/// Why bytes could not be decoded, where, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}: {kind}")]
pub struct DecodeError {
    /// Bytes from the start of the decoded slice to the item at fault.
    pub offset: usize,
    /// The item: the innermost `Type.field` known, else the type.
    pub what: &'static str,
    /// What is wrong with it.
    pub kind: DecodeErrorKind,
    /// Whether `what` already names a field.
    named: bool,
}

/// What is wrong with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end before the item does.
    #[error("{needed} bytes needed, {present} left")]
    Truncated {
        /// Bytes the item takes at least.
        needed: usize,
        /// Bytes that were left.
        present: usize,
    },
    /// The announced length is more than the item may have.
    #[error("length {announced} is over the limit of {limit}")]
    TooLong {
        /// The length or count found.
        announced: usize,
        /// The greatest allowed.
        limit: usize,
    },
    /// The word selects nothing.
    #[error("{0} has no meaning here")]
    InvalidWord(u32),
    /// A string holds a NUL byte, which no AFS string may.
    #[error("a NUL byte inside a string")]
    EmbeddedNul,
    /// The item is complete and bytes are left over.
    #[error("{0} bytes left over")]
    Trailing(usize),
}

impl DecodeError {
    pub(crate) fn new(offset: usize, what: &'static str, kind: DecodeErrorKind) -> Self {
        Self {
            offset,
            what,
            kind,
            named: false,
        }
    }

    /// Names the field the error happened in, unless a field inside it is named already. Used by
    /// the derived implementations.
    #[must_use]
    pub fn within(mut self, field: &'static str) -> Self {
        if !self.named {
            self.what = field;
            self.named = true;
        }
        self
    }

    /// Whether more bytes could make the item whole. A reader of a stream goes on reading then.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        matches!(self.kind, DecodeErrorKind::Truncated { .. })
    }
}

/// A value that does not fit the XDR type it was meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LengthError {
    /// More bytes or elements than the type allows.
    #[error("length {length} is over the limit of {limit}")]
    TooLong {
        /// Bytes or elements given.
        length: usize,
        /// The greatest number allowed.
        limit: usize,
    },
    /// A NUL byte in a string.
    #[error("a NUL byte inside a string")]
    EmbeddedNul,
}
