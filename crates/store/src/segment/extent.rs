//! Where a record lies: its codec, place, lengths and checksum.

use super::MAX_RECORD;

/// How the bytes of one record are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// One LZ4 block, without a length before it.
    Lz4 = 2,
}

impl Codec {
    /// The number in an extent and on the wire.
    pub fn to_u8(self) -> u8 {
        self as u8
    }

    /// The codec of this number.
    pub fn from_u8(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Zstd),
            2 => Some(Self::Lz4),
            _ => None,
        }
    }
}

/// A record in a segment.
///
/// On disk 32 bytes, big-endian:
///
/// | bytes | |
/// |---|---|
/// | 0..4 | segment, from 1 |
/// | 4..8 | offset in the segment |
/// | 8..12 | stored length |
/// | 12..15 | plain length |
/// | 15 | codec: 0 raw, 1 zstd, 2 LZ4 |
/// | 16..32 | XXH3-128 of the stored bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The number of the segment, from 1.
    pub segment: u32,
    /// Where the record begins in the segment, in bytes.
    pub offset: u32,
    /// How many bytes it takes there.
    pub stored: u32,
    /// How many bytes it has when decompressed, at most
    /// [`MAX_RECORD`].
    pub plain: u32,
    /// How it is stored.
    pub codec: Codec,
    /// XXH3-128 of the stored bytes.
    pub checksum: u128,
}

impl Extent {
    /// The length of an extent on disk, in bytes.
    pub const SIZE: usize = 32;

    /// The form on disk.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let lengths = self.plain << 8 | u32::from(self.codec.to_u8());
        bytes[0..4].copy_from_slice(&self.segment.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.stored.to_be_bytes());
        bytes[12..16].copy_from_slice(&lengths.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }

    /// Reads the form on disk. Accepts exactly what [`to_bytes`](Self::to_bytes)
    /// makes of an extent that [`Segments::append`](super::Segments::append)
    /// could have returned.
    ///
    /// # Errors
    ///
    /// [`ExtentError`], saying what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ExtentError> {
        let bytes: &[u8; Self::SIZE] = bytes
            .try_into()
            .map_err(|_| ExtentError::Size(bytes.len()))?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_be_bytes(word)
        };
        let mut checksum = [0; 16];
        checksum.copy_from_slice(&bytes[16..]);
        let extent = Self {
            segment: word(0),
            offset: word(4),
            stored: word(8),
            plain: word(12) >> 8,
            codec: Codec::from_u8(bytes[15]).ok_or(ExtentError::Codec(bytes[15]))?,
            checksum: u128::from_be_bytes(checksum),
        };
        extent.check()?;
        Ok(extent)
    }

    /// Where the record ends in the segment.
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.stored)
    }

    pub(super) fn check(&self) -> Result<(), ExtentError> {
        if self.segment == 0 {
            return Err(ExtentError::Segment);
        }
        if self.end() > u64::from(u32::MAX) {
            return Err(ExtentError::End(self.end()));
        }
        check_lengths(self.codec, self.stored, self.plain)
    }
}

/// A raw record is as long as it is plain, a compressed one shorter.
pub(super) fn check_lengths(codec: Codec, stored: u32, plain: u32) -> Result<(), ExtentError> {
    let right = match codec {
        Codec::Raw => stored == plain,
        Codec::Zstd | Codec::Lz4 => stored > 0 && stored < plain,
    };
    if right && plain <= MAX_RECORD {
        Ok(())
    } else {
        Err(ExtentError::Lengths {
            codec,
            stored,
            plain,
        })
    }
}

/// Why bytes are no [`Extent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// An extent has 32 bytes.
    #[error("an extent has 32 bytes, not {0}")]
    Size(usize),
    /// Segments are numbered from 1.
    #[error("an extent names segment 0, but the first is 1")]
    Segment,
    /// The record would end past the greatest length of a segment.
    #[error("an extent ends at {0}, past the end of any segment")]
    End(u64),
    /// No such codec.
    #[error("an extent has codec {0}, which this version does not know")]
    Codec(u8),
    /// The lengths do not fit each other or the bound.
    #[error("an extent of codec {codec:?} cannot store {plain} bytes in {stored}")]
    Lengths {
        /// The codec named.
        codec: Codec,
        /// The stored length.
        stored: u32,
        /// The plain length.
        plain: u32,
    },
}
