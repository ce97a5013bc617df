//! What a partition holds, and what that takes on its disk.

use afar_types::VolumeType;

use super::{Partition, format};
use crate::error::Result;
use crate::meta::{Kind, Record, Rows, SegmentRow, Table, VolumeRow, split_row_key};
use crate::segment::Codec;

/// Figures that cost a look at each volume's row, and none at what volumes hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Read-write volumes.
    pub read_write: u64,
    /// Read-only clones.
    pub read_only: u64,
    /// Backup clones.
    pub backup: u64,
    /// Volumes of any kind that clients may not use.
    pub offline: u64,
    /// Vnodes, as volumes count them: those that a volume shares with its clones count for each.
    pub vnodes: u64,
    /// KiB, as volumes count them for their quotas: likewise.
    pub used_kib: u64,
    /// Bytes of the database's file.
    pub database: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes allocated to segment files.
    pub allocated: u64,
    /// Bytes of segments that belong to a record.
    pub live: u64,
}

impl Space {
    /// Volumes of any kind.
    #[must_use]
    pub fn volumes(&self) -> u64 {
        self.read_write + self.read_only + self.backup
    }

    /// Allocated bytes of segments that belong to no record: removed and not yet given back, too
    /// short a stretch to be given back, or allocated ahead.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.allocated.saturating_sub(self.live)
    }
}

/// Records stored in one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packed {
    /// How many.
    pub records: u64,
    /// Bytes of file data in them.
    pub plain: u64,
    /// Bytes they are stored in.
    pub stored: u64,
}

impl Packed {
    fn add(&mut self, plain: u32, stored: usize) {
        self.records += 1;
        self.plain += u64::from(plain);
        self.stored += stored as u64;
    }
}

/// What all rows say, counted once however many volumes see them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// Rows looked at.
    pub rows: u64,
    /// Directories, one for each version a clone has of its own.
    pub directories: u64,
    /// Files and symlinks, likewise.
    pub files: u64,
    /// Pages of directories, likewise.
    pub pages: u64,
    /// Records stored raw.
    pub raw: Packed,
    /// Records stored as LZ4.
    pub lz4: Packed,
    /// Records stored as zstd.
    pub zstd: Packed,
    /// Records short enough to be kept in the database, in whichever codec.
    pub inline: Packed,
}

impl Survey {
    /// All records.
    #[must_use]
    pub fn data(&self) -> Packed {
        let kinds = [self.raw, self.lz4, self.zstd, self.inline];
        Packed {
            records: kinds.iter().map(|kind| kind.records).sum(),
            plain: kinds.iter().map(|kind| kind.plain).sum(),
            stored: kinds.iter().map(|kind| kind.stored).sum(),
        }
    }

    fn count(&mut self, kind: Kind, value: &[u8]) -> Option<()> {
        self.rows += 1;
        // An empty row says that a later generation has the item no more.
        if value.is_empty() {
            return Some(());
        }
        match kind {
            Kind::DirectoryVnode => self.directories += 1,
            Kind::FileVnode => self.files += 1,
            Kind::Page => self.pages += 1,
            Kind::PageChange => {}
            Kind::Record => match Record::from_bytes(value)? {
                Record::Inline { plain, stored, .. } => self.inline.add(plain, stored.len()),
                Record::Extent(extent) => {
                    let place = match extent.codec {
                        Codec::Raw => &mut self.raw,
                        Codec::Lz4 => &mut self.lz4,
                        Codec::Zstd => &mut self.zstd,
                    };
                    place.add(extent.plain, extent.stored as usize);
                }
            },
        }
        Some(())
    }
}

impl Partition {
    /// The version of the format the partition is in.
    #[must_use]
    pub fn format_version(&self) -> u32 {
        format::VERSION
    }

    /// What the partition holds, by the rows of its volumes and segments.
    ///
    /// # Errors
    ///
    /// If the database or the segments cannot be read.
    pub fn space(&self) -> Result<Space> {
        let (database, allocated) = self.disk_usage()?;
        let mut space = Space {
            database,
            allocated,
            ..Space::default()
        };
        let reader = self.reader()?;
        for row in reader.scan(Table::Volumes, &[])? {
            let volume = VolumeRow::from_bytes(row?.1)
                .ok_or_else(|| reader.env().corrupt("the row of a volume"))?;
            match volume.kind {
                VolumeType::ReadWrite => space.read_write += 1,
                VolumeType::ReadOnly => space.read_only += 1,
                VolumeType::Backup => space.backup += 1,
            }
            space.offline += u64::from(!volume.is_online());
            space.vnodes += u64::from(volume.file_count);
            space.used_kib = space.used_kib.saturating_add(volume.disk_used);
        }
        for row in reader.scan(Table::Segments, &[])? {
            let segment = SegmentRow::from_bytes(row?.1)
                .ok_or_else(|| reader.env().corrupt("the row of a segment"))?;
            space.segments += 1;
            space.live += segment.live;
        }
        Ok(space)
    }

    /// How many rows [`Partition::survey`] looks at.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn row_count(&self) -> Result<u64> {
        self.reader()?.count(Table::Rows)
    }

    /// Looks at all rows of what volumes hold. `progress` is told now and then how many it has
    /// seen.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn survey(&self, mut progress: impl FnMut(u64)) -> Result<Survey> {
        let reader = self.reader()?;
        let mut survey = Survey::default();
        for row in reader.scan(Table::Rows, &[])? {
            let (key, value) = row?;
            split_row_key(key)
                .and_then(|(_, item)| survey.count(item.kind, value))
                .ok_or_else(|| reader.env().corrupt(format!("row {key:02x?}")))?;
            if survey.rows.is_multiple_of(10_000) {
                progress(survey.rows);
            }
        }
        progress(survey.rows);
        Ok(survey)
    }
}
