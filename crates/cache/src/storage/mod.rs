//! Where the data of files is kept: what is asked of it, and `disk`, where it is. Beside it `journal`, with changes
//! that no server has yet, and `conflicts`, a record of those that no server will get; they use `private` and `lost`,
//! files that others cannot read and a place for what is lost.

pub(crate) mod conflicts;
pub(crate) mod disk;
pub(crate) mod journal;

mod lost;
mod private;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use afar_types::{CellName, DataVersion, UnixTime, VolumeId};
use bytes::Bytes;

use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;

/// Bytes of a file with their place, in order of their places.
pub(crate) type Pieces = Vec<(u64, Bytes)>;

/// Whether to wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// However long it takes.
    Yes,
    /// Only what is in memory will do.
    No,
}

/// What was written to a file and could not be stored, so that it can be after a crash too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The version of the file it was written to.
    pub(crate) base: DataVersion,
    /// The bytes written.
    pub(crate) ranges: RangeSet,
    /// The file's length.
    pub(crate) length: u64,
    /// The least length it was cut to.
    pub(crate) limit: u64,
    /// Whether its length was set.
    pub(crate) resized: bool,
    /// When it was changed.
    pub(crate) mtime: UnixTime,
    /// When it had been changed when storing was tried last; 0 if it never was.
    pub(crate) tried: UnixTime,
    /// The user of this machine who wrote it, and as whom it is stored.
    pub(crate) writer: u32,
}

/// What data takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of the disk.
    pub(crate) taken: u64,
    /// Of that, what is where it was written: it is not stored yet, or not for long.
    pub(crate) written: u64,
    /// What it may take.
    pub(crate) limit: u64,
}

/// Something kept by an earlier process.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// Which of all.
    pub(crate) number: u64,
    pub(crate) key: FileKey,
    pub(crate) kept: Kept,
}

/// Keeps data of files: clean bytes, which belong to a data version and may be dropped at any time,
/// and dirty ones, which may not. Methods do not wait for anything but a disk.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// The clean bytes of this version that are there. If it is not to wait, and they would have to
    /// come from a disk, that is [`io::ErrorKind::WouldBlock`].
    fn read(
        &self,
        key: &FileKey,
        version: DataVersion,
        range: Range<u64>,
        wait: Wait,
    ) -> io::Result<Pieces>;

    /// Whether there may be clean bytes of some version of it.
    fn knows(&self, key: &FileKey) -> bool;

    /// Which clean bytes of this version are there, as far as is known without reading them.
    fn present(
        &self,
        key: &FileKey,
        version: DataVersion,
        range: Range<u64>,
    ) -> io::Result<RangeSet>;

    /// Keeps bytes of this version, in which the file has this length; those of any other are
    /// dropped. What cannot be kept is not.
    fn write_clean(
        &self,
        key: &FileKey,
        version: DataVersion,
        offset: u64,
        data: &[u8],
        length: u64,
    );

    /// The dirty bytes that are there.
    fn read_dirty(&self, key: &FileKey, range: Range<u64>) -> io::Result<Pieces>;

    /// Keeps bytes until they are [stored](Self::stored) or [cut off](Self::cut_dirty).
    fn write_dirty(&self, key: &FileKey, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Drops the dirty bytes from this place on.
    fn cut_dirty(&self, key: &FileKey, length: u64) -> io::Result<()>;

    /// Has what was written to a file survive a crash, until it is stored or
    /// [forgotten](Self::forget). When this returns it is on the disk.
    fn keep(&self, key: &FileKey, kept: &Kept) -> io::Result<()>;

    /// What was kept when the storage was opened.
    fn left(&self) -> Vec<Left>;

    /// Has something that was left be dirty bytes of its file again. Returns false if there are
    /// others now, or the kept ones are gone.
    fn adopt(&self, left: &Left) -> io::Result<bool>;

    /// Puts something that was left where a user finds it; returns where.
    fn put_aside(&self, left: &Left) -> io::Result<PathBuf>;

    /// Puts what was written to a file, and will not be stored, where a user finds it; returns where. None if
    /// nothing was written, or too much is there already.
    fn set_aside(&self, key: &FileKey, length: u64) -> io::Result<Option<PathBuf>>;

    /// Puts all data that a file was to have, and will not, where a user finds it; returns where. None if too much is
    /// there already.
    fn save(&self, key: &FileKey, data: &[u8]) -> io::Result<Option<PathBuf>>;

    /// A server has these dirty bytes now, as part of version `to`. If that version has what version
    /// `from` had before `limit` and nothing else was changed, `from` is given: the bytes become
    /// clean, and the clean ones before `limit` are of the new version too. Otherwise all of them are
    /// dropped.
    fn stored(
        &self,
        key: &FileKey,
        ranges: &RangeSet,
        from: Option<(DataVersion, u64)>,
        to: DataVersion,
    ) -> io::Result<()>;

    /// Drops what is clean of a file.
    fn drop_clean(&self, key: &FileKey);

    /// Drops all of a file, dirty or clean.
    fn forget(&self, key: &FileKey);

    /// A volume is the instance that was made at this time. What is clean of another is dropped.
    fn instance(&self, cell: &CellName, volume: VolumeId, made: UnixTime);

    /// How much there is.
    fn usage(&self) -> Usage;

    /// Has it take no more than so many bytes from now on.
    fn set_limit(&self, bytes: u64);

    /// Puts on the disk what a later process may use.
    fn close(&self);
}
