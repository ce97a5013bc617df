//! Names that AFS sends as arrays of characters.

use std::fmt;

use bytes::BytesMut;

use crate::{Decode, DecodeError, Decoder, Encode, LengthError};

/// `char name[N]`: `N` words, one byte of a NUL-terminated name in each. A name has at most
/// `N - 1` bytes when made here; a peer may fill all `N`. What follows the first NUL is dropped.
///
/// ```
/// let name = afar_xdr::CharArray::<65>::new("root.afs")?;
/// assert_eq!(afar_xdr::to_bytes(&name).len(), 260);
/// # Ok::<(), afar_xdr::LengthError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CharArray<const N: usize>([u8; N]);

impl<const N: usize> CharArray<N> {
    /// Checks the name and copies it.
    ///
    /// # Errors
    /// When it has more than `N - 1` bytes or one of them is NUL.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, LengthError> {
        let name = name.as_ref();
        if name.contains(&0) {
            return Err(LengthError::EmbeddedNul);
        }
        let mut bytes = [0; N];
        match bytes.get_mut(..name.len()) {
            Some(start) if name.len() < N => start.copy_from_slice(name),
            _ => {
                let limit = N.saturating_sub(1);
                return Err(LengthError::TooLong {
                    length: name.len(),
                    limit,
                });
            }
        }
        Ok(Self(bytes))
    }

    /// The name, without its NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(N);
        &self.0[..end]
    }
}

impl<const N: usize> Default for CharArray<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

// spec: afs-rpc#encoding
impl<const N: usize> Encode for CharArray<N> {
    fn encode(&self, out: &mut BytesMut) {
        for byte in self.0 {
            // A C `char` is signed where AFS comes from, so bytes from 0x80 up go out as
            // negative words.
            i8::from_be_bytes([byte]).encode(out);
        }
    }
}

impl<const N: usize> Decode for CharArray<N> {
    const MIN_LEN: usize = N.saturating_mul(4);
    const MAX_LEN: usize = N.saturating_mul(4);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut bytes = <[u8; N]>::decode(input)?;
        if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
            bytes[end..].fill(0);
        }
        Ok(Self(bytes))
    }
}

/// Bytes that are not UTF-8 show as U+FFFD.
impl<const N: usize> fmt::Display for CharArray<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl<const N: usize> fmt::Debug for CharArray<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}
