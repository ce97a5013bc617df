//! The cursor every decoder reads from.

use crate::{Decode, DecodeError, DecodeErrorKind};

/// A cursor over the bytes being decoded. Knows its offset, never reads past the end.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    /// A cursor at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The bytes not yet read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    /// Reads a value of the type asked for; the same as `T::decode(input)`.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    pub fn read<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Takes the next `len` bytes, without padding.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`] when fewer are left.
    pub fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let rest = self.rest();
        let Some(taken) = rest.get(..len) else {
            return Err(self.truncated(what, len));
        };
        self.offset += len;
        Ok(taken)
    }

    /// Takes `len` bytes and the zero to three bytes that pad them to whole words. The padding's
    /// value is not checked, as no AFS peer checks it.
    pub(crate) fn take_padded(
        &mut self,
        len: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let taken = self.take(len, what)?;
        self.take(padding(len), what)?;
        Ok(taken)
    }

    /// Takes `N` bytes as an array.
    pub(crate) fn take_array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let Some(taken) = self.rest().first_chunk::<N>() else {
            return Err(self.truncated(what, N));
        };
        self.offset += N;
        Ok(*taken)
    }

    /// Reads the length word of a string or array and holds it against the limit and against the
    /// bytes left, each element taking at least `min_len` of them.
    pub(crate) fn take_length(
        &mut self,
        limit: usize,
        min_len: usize,
        what: &'static str,
    ) -> Result<usize, DecodeError> {
        let start = self.offset;
        let announced = u32::from_be_bytes(self.take_array(what)?);
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > limit {
            let kind = DecodeErrorKind::TooLong { announced, limit };
            return Err(DecodeError::new(start, what, kind));
        }
        let needed = announced.saturating_mul(min_len);
        if needed > self.rest().len() {
            return Err(self.truncated(what, needed));
        }
        Ok(announced)
    }

    /// Requires that everything has been read.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Trailing`] with the number of bytes left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest().len() {
            0 => Ok(()),
            left => Err(DecodeError::new(
                self.offset,
                "end",
                DecodeErrorKind::Trailing(left),
            )),
        }
    }

    /// The error for a word just read that selects nothing in `what`.
    #[must_use]
    pub fn invalid_word(&self, what: &'static str, word: u32) -> DecodeError {
        let offset = self.offset.saturating_sub(4);
        DecodeError::new(offset, what, DecodeErrorKind::InvalidWord(word))
    }

    fn truncated(&self, what: &'static str, needed: usize) -> DecodeError {
        let kind = DecodeErrorKind::Truncated {
            needed,
            present: self.rest().len(),
        };
        DecodeError::new(self.offset, what, kind)
    }
}

/// Bytes that pad `len` bytes to whole words.
pub(crate) const fn padding(len: usize) -> usize {
    (4 - len % 4) % 4
}
