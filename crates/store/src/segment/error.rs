//! What can go wrong with segments and their records.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{Codec, Extent, ExtentError};

/// An operation on the segments failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The system refused something.
    #[error("{action} {}", path.display())]
    Io {
        /// What was being done, as in "writing to".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// An earlier sync failed. What it was to make durable may be lost without
    /// another report, so nothing is written until the partition is opened
    /// again.
    #[error(
        "an earlier sync failed; nothing is written to this partition until it is opened again"
    )]
    Poisoned,
    /// The partition was opened for reading only.
    #[error("the partition is open for reading only")]
    ReadOnly,
    /// An option is out of its range.
    #[error("{name} is {value}, and must be from {min} to {max}")]
    Option {
        /// The option.
        name: &'static str,
        /// What was asked.
        value: u64,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// The current segment cannot be removed.
    #[error("segment {0} is being written to and cannot be removed")]
    Current(u32),
    /// No number is left for another segment.
    #[error("no number is left for another segment")]
    Exhausted,
}

impl SegmentError {
    /// Whether the disk or a quota on it is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_no_space(source))
    }
}

/// Whether the disk or a quota on it is full.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A record cannot be read. The others of its file may well be good.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {stored} bytes at offset {offset} of segment {segment}")]
pub struct ReadError {
    /// The segment.
    pub segment: u32,
    /// Where the record begins.
    pub offset: u32,
    /// How many bytes it has there.
    pub stored: u32,
    /// Why not.
    #[source]
    pub kind: ReadErrorKind,
}

impl ReadError {
    pub(super) fn new(extent: &Extent, kind: ReadErrorKind) -> Self {
        Self {
            segment: extent.segment,
            offset: extent.offset,
            stored: extent.stored,
            kind,
        }
    }
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The system failed to read, or the file ends within the record.
    #[error("the file cannot be read")]
    Io(#[source] io::Error),
    /// The stored bytes are not those that were written.
    #[error("the checksum should be {expected:032x} but is {found:032x}")]
    Checksum {
        /// What the extent says.
        expected: u128,
        /// What the bytes have.
        found: u128,
    },
    /// The bytes are those that were written, and make no record: a mistake
    /// of the software that wrote them.
    #[error("the record cannot be decompressed")]
    Decompress(#[source] UnpackError),
    /// The file of the segment is missing.
    #[error("the segment's file is missing")]
    Missing,
    /// The extent cannot be right.
    #[error("the extent is invalid")]
    Extent(
        #[from]
        #[source]
        ExtentError,
    ),
    /// The range asked for does not lie within the record, or does not have
    /// the length of the buffer.
    #[error("bytes {start} to {end} are not within the record and as long as the buffer")]
    Range {
        /// First byte asked for.
        start: u32,
        /// Past the last byte asked for.
        end: u32,
    },
}

/// Bytes do not decompress to the record announced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// More is announced than a record may have.
    #[error("a record of {0} bytes is announced; the maximum is 1048576")]
    TooLong(u32),
    /// Another length comes out.
    #[error("{found} bytes came out, but {expected} were announced")]
    Length {
        /// The length announced.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// The codec does not understand the bytes.
    #[error("the bytes are not what the codec writes")]
    Corrupt(#[source] io::Error),
}

/// A segment is not as the metadata has it. Found when it was opened; records
/// in other segments, and those before the end of a short one, are readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentProblem {
    /// The file is not there.
    Missing {
        /// The segment.
        segment: u32,
    },
    /// The file ends before the last committed record.
    Short {
        /// The segment.
        segment: u32,
        /// Where committed records end.
        expected: u32,
        /// The length of the file.
        found: u64,
    },
}

impl SegmentProblem {
    /// The segment.
    pub fn segment(&self) -> u32 {
        match *self {
            Self::Missing { segment } | Self::Short { segment, .. } => segment,
        }
    }
}

impl fmt::Display for SegmentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { segment } => write!(f, "the file of segment {segment} is missing"),
            Self::Short {
                segment,
                expected,
                found,
            } => write!(
                f,
                "segment {segment} has {found} bytes, but committed records up to {expected}"
            ),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        })
    }
}
