//! Segment files: where the records of file data lie.
//!
//! A record is up to 1 MiB of a file, stored raw or compressed in a large
//! append-only file named `NNNNNNNN.seg`. Nothing in a segment says where a
//! record begins: the [`Extent`] that points at it lies in the metadata, with
//! the checksum of the stored bytes, so that a stale, misplaced or torn record
//! is told from a good one. What no committed extent covers is free space.
//!
//! The way of a record: [`pack`] compresses it, [`Segments::append`] writes
//! it, [`Segments::sync`] makes it durable, and then the caller may commit its
//! extent. [`Segments::read`] verifies and decompresses. When a record is dead
//! and no reader can hold its extent any more ([`Epochs`]),
//! [`Segments::punch`] gives its blocks back.

mod compression;
mod epoch;
mod error;
mod extent;
mod files;
mod noise;
mod pool;
mod read;
mod record;
mod segments;
mod stats;
#[cfg(test)]
mod tests;
mod times;

pub use compression::{Compression, CompressionError};
pub use epoch::{Epoch, EpochGuard, Epochs};
pub(crate) use error::is_no_space;
pub use error::{ReadError, ReadErrorKind, SegmentError, SegmentProblem, UnpackError};
pub use extent::{Codec, Extent, ExtentError};
pub(crate) use files::file_name;
pub use record::{Stored, pack, unpack};
pub use segments::{Placed, SegmentEnd, SegmentOptions, Segments};
pub use stats::SegmentStats;
pub use times::DiskTimes;

/// The greatest plain length of a record, in bytes.
pub const MAX_RECORD: u32 = 1 << 20;

/// Raw records begin at a multiple of this many bytes, and holes are punched
/// in whole multiples of it: the page and block size of the systems we run on.
pub const BLOCK: u32 = 4096;
