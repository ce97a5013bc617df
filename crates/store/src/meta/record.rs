//! A record of file data, as its row has it: where it lies or, if it is small, itself.

use crate::segment::{Codec, Extent};

/// Most stored bytes of a record that is kept in its row: two such rows fit in a database page.
pub(crate) const INLINE_MAX: usize = 1_900;

/// What the row of a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// It lies in a segment.
    Extent(Extent),
    /// It is here.
    Inline {
        codec: Codec,
        /// Bytes when decompressed.
        plain: u32,
        stored: Vec<u8>,
    },
}

/// A record on its way into a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewRecord {
    pub(crate) record: Record,
    /// Under which its bytes are, or are to be, known for others to share.
    pub(crate) hash: Option<[u8; 16]>,
    /// The bytes were there already.
    pub(crate) shared: bool,
}

impl From<Record> for NewRecord {
    fn from(record: Record) -> Self {
        Self {
            record,
            hash: None,
            shared: false,
        }
    }
}

impl Record {
    /// Bytes when decompressed.
    pub(crate) fn plain_len(&self) -> u32 {
        match self {
            Self::Extent(extent) => extent.plain,
            Self::Inline { plain, .. } => *plain,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Extent(extent) => {
                let mut out = vec![0];
                out.extend_from_slice(&extent.to_bytes());
                out
            }
            Self::Inline {
                codec,
                plain,
                stored,
            } => {
                let mut out = vec![1, codec.to_u8()];
                out.extend_from_slice(&plain.to_be_bytes());
                out.extend_from_slice(stored);
                out
            }
        }
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, extent) => Extent::from_bytes(extent).ok().map(Self::Extent),
            (1, rest) => {
                let (codec, rest) = rest.split_first()?;
                let (plain, stored) = rest.split_first_chunk()?;
                Some(Self::Inline {
                    codec: Codec::from_u8(*codec)?,
                    plain: u32::from_be_bytes(*plain),
                    stored: stored.to_vec(),
                })
            }
            _ => None,
        }
    }
}
