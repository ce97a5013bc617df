//! XDR codec (RFC 4506): bounded, never panics on any input.
//!
//! [`Encode`] appends to a buffer, [`Decode`] reads from a [`Decoder`] over a byte slice. Every
//! variable-length type carries its maximum in its type ([`XdrString`], [`Opaque`], [`List`]), so
//! decoding refuses an announced length that is not allowed or not present before it allocates,
//! and a value that exists can always be encoded.
//!
//! AFS differs from plain XDR in a few places, all handled here: `char`, `short` and their
//! unsigned forms are whole words, and a `char name[N]` is `N` words ([`CharArray`]).
//!
//! ```
//! use afar_xdr::{Decode, Encode, XdrString, from_bytes, to_bytes};
//!
//! #[derive(Debug, PartialEq, Encode, Decode)]
//! struct Lookup {
//!     opcode: u32,
//!     name: XdrString<65>,
//! }
//!
//! let lookup = Lookup { opcode: 527, name: "root.cell".try_into()? };
//! let bytes = to_bytes(&lookup);
//! assert_eq!(&bytes[..8], [0, 0, 2, 15, 0, 0, 0, 9]);
//! assert_eq!(bytes.len(), 20);
//! assert_eq!(from_bytes::<Lookup>(&bytes)?, lookup);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

extern crate self as afar_xdr;

mod bounded;
mod chars;
mod decoder;
mod error;
mod primitive;

pub use afar_xdr_derive::{Decode, Encode};
pub use bounded::{FixedOpaque, List, Opaque, XdrString};
pub use bytes::BytesMut;
pub use chars::CharArray;
pub use decoder::Decoder;
pub use error::{DecodeError, DecodeErrorKind, LengthError};

use bytes::Bytes;

/// A value with an XDR form. Encoding cannot fail: limits are checked when the value is made.
pub trait Encode {
    /// Appends the XDR form, a multiple of four bytes, to `out`.
    fn encode(&self, out: &mut BytesMut);
}

/// A value that can be read from its XDR form.
pub trait Decode: Sized {
    /// The shortest encoding, in bytes. Arrays use it to refuse counts that cannot be present.
    const MIN_LEN: usize;
    /// The longest encoding, in bytes; `usize::MAX` where no limit is known. Callers use it to
    /// bound what they read from the network.
    const MAX_LEN: usize;

    /// Reads one value and moves `input` past it.
    ///
    /// # Errors
    /// When the bytes end early, a length exceeds its limit or a word has no meaning. `input` is
    /// then somewhere within the value.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError>;
}

/// Encodes one value into a buffer of its own.
pub fn to_bytes<T: Encode + ?Sized>(value: &T) -> Bytes {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    out.freeze()
}

/// Decodes one value that takes up all of `bytes`.
///
/// # Errors
/// As [`Decode::decode`], and when bytes are left over.
pub fn from_bytes<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut input = Decoder::new(bytes);
    let value = T::decode(&mut input)?;
    input.finish()?;
    Ok(value)
}

#[cfg(test)]
mod tests;
