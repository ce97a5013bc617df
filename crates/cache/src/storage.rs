//! Where the data of files is kept.

use std::fmt;
use std::io;
use std::ops::Range;

use afar_types::{CellName, DataVersion, Fid, VolumeId};
use bytes::Bytes;

use crate::ranges::RangeSet;

/// Names a file in all cells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileKey {
    /// First, so that all that a break can mean lies together.
    pub(crate) fid: Fid,
    pub(crate) cell: CellName,
}

/// Octets of a file with their place, in order of their places.
pub(crate) type Pieces = Vec<(u64, Bytes)>;

/// Keeps data of files: clean octets, which belong to a data version and may be dropped at any time,
/// and dirty ones, which may not. Methods are short and do not wait for anything but a disk.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// The clean octets of this version that are there.
    fn read(&self, key: &FileKey, version: DataVersion, range: Range<u64>) -> io::Result<Pieces>;

    /// Keeps octets of this version; those of any other are dropped.
    fn write_clean(
        &self,
        key: &FileKey,
        version: DataVersion,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()>;

    /// The dirty octets that are there.
    fn read_dirty(&self, key: &FileKey, range: Range<u64>) -> io::Result<Pieces>;

    /// Keeps octets until they are [stored](Self::stored) or [cut off](Self::cut_dirty).
    fn write_dirty(&self, key: &FileKey, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Drops the dirty octets from this place on.
    fn cut_dirty(&self, key: &FileKey, length: u64) -> io::Result<()>;

    /// A server has these dirty octets now, as part of version `to`: they become clean. If that
    /// version has what version `from` had before `limit` and nothing else was changed, `from` is
    /// given, and the clean octets before `limit` are of the new version too.
    fn stored(
        &self,
        key: &FileKey,
        ranges: &RangeSet,
        from: Option<(DataVersion, u64)>,
        to: DataVersion,
    ) -> io::Result<()>;

    /// Drops all of a file, dirty or clean.
    fn forget(&self, key: &FileKey);

    /// Drops what is clean of a volume.
    fn forget_volume(&self, cell: &CellName, volume: VolumeId);
}
