//! Entries as a linked list (AFS-3 vldb_list and nvldb_list).

use std::ops::Deref;

use afar_xdr::{BytesMut, Decode, DecodeError, Decoder, Encode, LengthError, List};

/// At most `MAX` entries. On the wire the word 1 comes before each, and 0 after the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain<T, const MAX: usize>(List<T, MAX>);

impl<T, const MAX: usize> Chain<T, MAX> {
    /// Checks the number of entries and takes them over.
    ///
    /// # Errors
    /// When there are more than `MAX`.
    pub fn new(entries: impl Into<Vec<T>>) -> Result<Self, LengthError> {
        List::new(entries).map(Self)
    }

    /// The entries, given away.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0.into_vec()
    }
}

impl<T, const MAX: usize> Default for Chain<T, MAX> {
    fn default() -> Self {
        Self(List::default())
    }
}

impl<T, const MAX: usize> Deref for Chain<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Encode, const MAX: usize> Encode for Chain<T, MAX> {
    fn encode(&self, out: &mut BytesMut) {
        for entry in self.iter() {
            true.encode(out);
            entry.encode(out);
        }
        false.encode(out);
    }
}

impl<T: Decode, const MAX: usize> Decode for Chain<T, MAX> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: usize = T::MAX_LEN
        .saturating_add(4)
        .saturating_mul(MAX)
        .saturating_add(4);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut entries = Vec::new();
        while input.read::<bool>()? {
            if entries.len() == MAX {
                // Where the list has to end, "there is one more" says nothing that can be right.
                return Err(input.invalid_word("linked list", 1));
            }
            entries.push(T::decode(input)?);
        }
        Ok(Self(List::new(entries).unwrap_or_default()))
    }
}
