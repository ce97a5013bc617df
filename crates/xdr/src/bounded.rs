//! Strings, opaque data and arrays whose limit is part of their type.

use std::fmt;
use std::ops::Deref;

use bytes::{BufMut, BytesMut};

use crate::decoder::padding;
use crate::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, LengthError};

/// `string s<MAX>`: at most `MAX` bytes without NUL. AFS does not say which character set they
/// are in, so they stay bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XdrString<const MAX: usize>(Vec<u8>);

/// `opaque x<MAX>`: at most `MAX` bytes of any value.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opaque<const MAX: usize>(Vec<u8>);

/// `T a<MAX>`: at most `MAX` elements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List<T, const MAX: usize>(Vec<T>);

/// `opaque x[N]`: exactly `N` bytes, padded to whole words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FixedOpaque<const N: usize>(pub [u8; N]);

fn check_length(length: usize, limit: usize) -> Result<(), LengthError> {
    if length > limit {
        Err(LengthError::TooLong { length, limit })
    } else {
        Ok(())
    }
}

fn encode_counted(bytes: &[u8], out: &mut BytesMut) {
    out.reserve(bytes.len() + 8);
    encode_count(bytes.len(), out);
    out.put_slice(bytes);
    out.put_bytes(0, padding(bytes.len()));
}

/// Writes a length word. A length above its limit cannot be built, and every limit in use is far
/// below 4 Gi; a larger one would be written as a word no peer accepts.
fn encode_count(count: usize, out: &mut BytesMut) {
    out.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
}

const fn padded(len: usize) -> usize {
    len.saturating_add(padding(len))
}

impl<const MAX: usize> XdrString<MAX> {
    /// The greatest number of bytes.
    pub const MAX: usize = MAX;

    /// Checks length and NUL bytes and takes the bytes over.
    ///
    /// # Errors
    /// When there are more than `MAX` bytes or one of them is NUL.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, LengthError> {
        let bytes = bytes.into();
        check_length(bytes.len(), MAX)?;
        if bytes.contains(&0) {
            Err(LengthError::EmbeddedNul)
        } else {
            Ok(Self(bytes))
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, given away.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<const MAX: usize> Encode for XdrString<MAX> {
    fn encode(&self, out: &mut BytesMut) {
        encode_counted(&self.0, out);
    }
}

impl<const MAX: usize> Decode for XdrString<MAX> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: usize = padded(MAX).saturating_add(4);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let length = input.take_length(MAX, 1, "string")?;
        let start = input.offset();
        let bytes = input.take_padded(length, "string")?;
        match bytes.iter().position(|&byte| byte == 0) {
            Some(at) => Err(DecodeError::new(
                start + at,
                "string",
                DecodeErrorKind::EmbeddedNul,
            )),
            None => Ok(Self(bytes.to_vec())),
        }
    }
}

impl<const MAX: usize> TryFrom<&str> for XdrString<MAX> {
    type Error = LengthError;

    fn try_from(text: &str) -> Result<Self, LengthError> {
        Self::new(text)
    }
}

impl<const MAX: usize> TryFrom<&[u8]> for XdrString<MAX> {
    type Error = LengthError;

    fn try_from(bytes: &[u8]) -> Result<Self, LengthError> {
        Self::new(bytes)
    }
}

/// Bytes that are not UTF-8 show as U+FFFD.
impl<const MAX: usize> fmt::Display for XdrString<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.0))
    }
}

impl<const MAX: usize> fmt::Debug for XdrString<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<const MAX: usize> Opaque<MAX> {
    /// The greatest number of bytes.
    pub const MAX: usize = MAX;

    /// Checks the length and takes the bytes over.
    ///
    /// # Errors
    /// When there are more than `MAX` bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, LengthError> {
        let bytes = bytes.into();
        check_length(bytes.len(), MAX)?;
        Ok(Self(bytes))
    }

    /// The bytes, given away.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<const MAX: usize> Deref for Opaque<MAX> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> Encode for Opaque<MAX> {
    fn encode(&self, out: &mut BytesMut) {
        encode_counted(&self.0, out);
    }
}

impl<const MAX: usize> Decode for Opaque<MAX> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: usize = padded(MAX).saturating_add(4);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let length = input.take_length(MAX, 1, "opaque")?;
        Ok(Self(input.take_padded(length, "opaque")?.to_vec()))
    }
}

impl<const MAX: usize> fmt::Debug for Opaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl<T, const MAX: usize> List<T, MAX> {
    /// The greatest number of elements.
    pub const MAX: usize = MAX;

    /// Checks the number of elements and takes them over.
    ///
    /// # Errors
    /// When there are more than `MAX`.
    pub fn new(elements: impl Into<Vec<T>>) -> Result<Self, LengthError> {
        let elements = elements.into();
        check_length(elements.len(), MAX)?;
        Ok(Self(elements))
    }

    /// The elements, given away.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MAX: usize> TryFrom<Vec<T>> for List<T, MAX> {
    type Error = LengthError;

    fn try_from(elements: Vec<T>) -> Result<Self, LengthError> {
        Self::new(elements)
    }
}

impl<T, const MAX: usize> IntoIterator for List<T, MAX> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T, const MAX: usize> IntoIterator for &'a List<T, MAX> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Encode, const MAX: usize> Encode for List<T, MAX> {
    fn encode(&self, out: &mut BytesMut) {
        encode_count(self.0.len(), out);
        for element in &self.0 {
            element.encode(out);
        }
    }
}

impl<T: Decode, const MAX: usize> Decode for List<T, MAX> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: usize = T::MAX_LEN.saturating_mul(MAX).saturating_add(4);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        // An element without bytes of its own would let a count alone decide what is allocated.
        let count = input.take_length(MAX, T::MIN_LEN.max(1), "array")?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::decode(input)?);
        }
        Ok(Self(elements))
    }
}

impl<const N: usize> Encode for FixedOpaque<N> {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.0);
        out.put_bytes(0, padding(N));
    }
}

impl<const N: usize> Decode for FixedOpaque<N> {
    const MIN_LEN: usize = padded(N);
    const MAX_LEN: usize = padded(N);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let bytes = input.take_array("opaque")?;
        input.take(padding(N), "opaque")?;
        Ok(Self(bytes))
    }
}
