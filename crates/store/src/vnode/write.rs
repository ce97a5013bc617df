//! Writing file data, at any offset and in any size.
//!
//! Data is cut into records, which are compressed and appended to a segment by the writer's own
//! thread. Only the last step, which makes the file refer to them, goes through the committer. So
//! a file changes as a whole or not at all, however much is written.

use std::borrow::Cow;

use afar_types::{Fid, PtsId, UnixTime};

use super::edit::Edit;
use super::read::read_record;
use super::{VnodeStatus, check_target, node};
use crate::error::{Result, StoreError};
use crate::meta::{INLINE_MAX, Item, Kind, NewRecord, Record, Rows, VnodeRow};
use crate::partition::Pending;
use crate::segment::{Compression, pack};
use crate::volume::Volume;

/// Two to this power is the length of a record: 128 KiB.
pub(crate) const RECORD_SHIFT: u8 = 17;
/// The same for files that begin with a store of exactly 64 KiB: see [`shift_by_first`].
const PIECE_SHIFT: u8 = 16;
/// The same for files known to be large: 1 MiB compresses better and takes fewer rows.
const LARGE_SHIFT: u8 = 20;
/// From this length on a file is large.
const LARGE: u64 = 16 << 20;
/// The most bytes a file can have.
const MAX_LENGTH: u64 = i64::MAX as u64;

/// The shift of an empty file that data up to `end` is stored in. A client that stores in pieces shows
/// their length by the first: with records twice as long, every other piece would write the one before
/// it again.
pub(super) fn shift_by_first(end: u64) -> u8 {
    if end == 1 << PIECE_SHIFT {
        PIECE_SHIFT
    } else {
        shift_for(end)
    }
}

/// The shift of a file that will have this length.
pub(crate) fn shift_for(length: u64) -> u8 {
    if length >= LARGE {
        LARGE_SHIFT
    } else {
        RECORD_SHIFT
    }
}

/// A record small enough to be kept in its row.
pub(crate) fn record_of(plain: &[u8]) -> Record {
    let packed = pack(plain, Compression::default());
    Record::Inline {
        codec: packed.codec(),
        plain: packed.plain_len(),
        stored: packed.into_bytes().into_owned(),
    }
}

/// Packs a record, and writes it to a segment unless it is small enough to be kept in its row.
/// `None` is a hole: all zeros.
pub(crate) fn pack_record<'a>(
    pending: &mut Pending<'_>,
    plain: impl Into<Cow<'a, [u8]>>,
    compression: Compression,
) -> Result<Option<NewRecord>> {
    let plain = plain.into();
    // In blocks, which is many times faster than byte by byte.
    let zeros = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte) == 0;
    if plain.chunks(256).all(zeros) {
        return Ok(None);
    }
    let (twin, hash) = pending.find_twin(&plain)?;
    if let Some(extent) = twin {
        return Ok(Some(NewRecord {
            record: Record::Extent(extent),
            hash,
            shared: true,
        }));
    }
    let packed = pack(plain, compression);
    if packed.bytes().len() <= INLINE_MAX {
        let record = Record::Inline {
            codec: packed.codec(),
            plain: packed.plain_len(),
            stored: packed.into_bytes().into_owned(),
        };
        return Ok(Some(record.into()));
    }
    Ok(Some(NewRecord {
        record: Record::Extent(pending.append(packed)?),
        hash,
        shared: false,
    }))
}

/// What goes with stored data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The user who stores it.
    pub author: PtsId,
    /// The file's modification time; by default now.
    pub modify_time: Option<UnixTime>,
    /// The length the file is to have, as StoreData has it: it is cut to this, but never below
    /// the end of what is written. By default it only grows.
    pub file_length: Option<u64>,
}

/// Stores data in a file, piece by piece. Nothing is seen of it before
/// [`finish`](FileWriter::finish), and nothing if that is never called.
pub struct FileWriter<'v> {
    volume: &'v Volume,
    fid: Fid,
    base: VnodeRow,
    compression: Compression,
    shift: u8,
    start: u64,
    /// Where it ends, as far as is known.
    end: u64,
    position: u64,
    /// Plain bytes of the record that `position` is in, from its first on.
    record: Vec<u8>,
    records: Vec<(u64, Option<NewRecord>)>,
    pending: Pending<'v>,
}

impl Volume {
    /// Begins to store data at `offset`. `expected` bytes are to come, as far as is known.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReadOnly`], [`StoreError::IsDirectory`], [`StoreError::TooBig`].
    pub fn writer(&self, fid: Fid, offset: u64, expected: u64) -> Result<FileWriter<'_>> {
        let fid = self.own(fid)?;
        let reader = self.partition.reader()?;
        let volume = self.online(&reader)?;
        if !crate::volume::is_writable(volume.kind) {
            return Err(StoreError::ReadOnly(self.id));
        }
        let base = node(&*reader, volume.at(), fid)?;
        if base.is_directory() {
            return Err(StoreError::IsDirectory(fid.vnode));
        }
        drop(reader);
        let end = offset.saturating_add(expected);
        if end > MAX_LENGTH {
            return Err(StoreError::TooBig(end));
        }
        // An empty file has no records, so their length can be chosen.
        let shift = if base.length == 0 {
            shift_by_first(end)
        } else {
            base.record_shift
        };
        let mut writer = FileWriter {
            volume: self,
            fid,
            base,
            compression: volume.compression,
            shift,
            start: offset,
            end,
            position: offset,
            record: Vec::new(),
            records: Vec::new(),
            pending: Pending::new(&self.partition),
        };
        let into = offset - writer.record_start();
        if into > 0 {
            writer.load(writer.position >> shift)?;
            writer
                .record
                .resize(usize::try_from(into).unwrap_or(usize::MAX), 0);
        }
        Ok(writer)
    }

    /// Stores data at `offset`: [`Volume::writer`] in one go. Tries again if another writer
    /// comes in between.
    ///
    /// # Errors
    ///
    /// As [`Volume::writer`] and [`FileWriter::finish`].
    pub fn write(
        &self,
        fid: Fid,
        offset: u64,
        data: &[u8],
        options: &StoreOptions,
    ) -> Result<VnodeStatus> {
        loop {
            let mut writer = self.writer(fid, offset, data.len() as u64)?;
            writer.write(data)?;
            match writer.finish(options) {
                Err(StoreError::Conflict(_)) => {}
                result => return result,
            }
        }
    }

    /// Cuts a file to a length, or lengthens it with zeros.
    ///
    /// # Errors
    ///
    /// As [`Volume::write`].
    pub fn truncate(&self, fid: Fid, length: u64, options: &StoreOptions) -> Result<VnodeStatus> {
        let cut = StoreOptions {
            file_length: Some(length),
            ..*options
        };
        self.write(fid, length, &[], &cut)
    }
}

impl FileWriter<'_> {
    fn record_len(&self) -> u64 {
        1 << self.shift
    }

    fn record_start(&self) -> u64 {
        self.position >> self.shift << self.shift
    }

    /// Adds data.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`], [`StoreError::TooBig`].
    pub fn write(&mut self, mut data: &[u8]) -> Result<()> {
        let end = self.position.saturating_add(data.len() as u64);
        if end > MAX_LENGTH {
            return Err(StoreError::TooBig(end));
        }
        while !data.is_empty() {
            let left = self.record_start() + self.record_len() - self.position;
            let len = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (part, rest) = data.split_at(len);
            let index = self.position >> self.shift;
            if self.record.is_empty() && len as u64 == self.record_len() {
                // A whole record needs no copy.
                self.put(index, part)?;
                self.position += len as u64;
            } else {
                self.record.extend_from_slice(part);
                self.position += len as u64;
                if len as u64 == left {
                    let mut record = std::mem::take(&mut self.record);
                    if self.position == self.end {
                        self.put(index, record)?;
                    } else {
                        self.put(index, &record)?;
                        record.clear();
                        self.record = record;
                    }
                }
            }
            data = rest;
        }
        Ok(())
    }

    /// Packs a record and puts it where it is to be.
    fn put<'a>(&mut self, index: u64, plain: impl Into<Cow<'a, [u8]>>) -> Result<()> {
        let record = pack_record(&mut self.pending, plain, self.compression)?;
        self.records.push((index, record));
        Ok(())
    }

    /// Reads what a record holds now.
    fn load(&mut self, index: u64) -> Result<()> {
        self.record.clear();
        let partition = &self.volume.partition;
        let reader = partition.reader()?;
        let at = self.volume.online(&reader)?.at();
        let Some(value) = reader.row(at, Item::record(self.fid.vnode.0, index))? else {
            return Ok(());
        };
        let record = Record::from_bytes(value).ok_or_else(|| {
            reader
                .env()
                .corrupt(format!("record {index} of {}", self.fid))
        })?;
        self.record.resize(record.plain_len() as usize, 0);
        read_record(
            partition,
            reader.env(),
            &record,
            0..record.plain_len(),
            &mut self.record,
        )
    }

    /// Makes what was written the file's.
    ///
    /// # Errors
    ///
    /// [`StoreError::OverQuota`], [`StoreError::NoSpace`]; [`StoreError::Conflict`] if the file's
    /// data was changed since the writer was made.
    pub fn finish(mut self, options: &StoreOptions) -> Result<VnodeStatus> {
        let written = self.position > self.start;
        // As StoreData has it: what is written, and the rest of the file unless it is cut off.
        let old = self.base.length;
        let length = match options.file_length {
            Some(wanted) if written => self.position.max(wanted.min(old)),
            Some(wanted) => wanted,
            None if written => old.max(self.position),
            None => old,
        };
        if length > MAX_LENGTH {
            return Err(StoreError::TooBig(length));
        }
        if self.base.kind == VnodeRow::SYMLINK {
            check_target(length)?;
        }
        self.last_record(written, length)?;
        let Self {
            volume,
            fid,
            base,
            shift,
            records,
            pending,
            ..
        } = self;
        let (id, options) = (volume.id, *options);
        pending.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let mut row = edit.node(fid)?;
            if row.data_version != base.data_version || row.length != base.length {
                return Err(StoreError::Conflict(fid));
            }
            row.record_shift = shift;
            edit.store(fid, &mut row, &records, length)?;
            row.data_version += 1;
            row.author = options.author.0;
            row.modify_time = options
                .modify_time
                .map_or_else(|| edit.now(), |time| time.0);
            row.server_modify_time = edit.now();
            edit.put(fid.vnode.0, &row)?;
            let status = edit.status(fid, &row)?;
            edit.finish()?;
            Ok(status)
        })
    }

    /// Completes the record written last with what the file had behind, and cuts the one in which
    /// the file now ends.
    fn last_record(&mut self, written: bool, length: u64) -> Result<()> {
        let ends = length & (self.record_len() - 1) != 0;
        let last = length >> self.shift;
        let open = self.position >> self.shift;
        if written && !self.record.is_empty() {
            let head = std::mem::take(&mut self.record);
            self.load(open)?;
            let kept = usize::try_from(length - (open << self.shift)).unwrap_or(usize::MAX);
            self.record.truncate(kept);
            if self.record.len() < head.len() {
                self.record.clear();
                self.record.extend_from_slice(&head);
            } else {
                self.record[..head.len()].copy_from_slice(&head);
            }
            let record = std::mem::take(&mut self.record);
            self.put(open, record)?;
            if open == last {
                return Ok(());
            }
        }
        if length < self.base.length
            && ends
            && !self.records.iter().any(|(index, _)| *index == last)
        {
            self.load(last)?;
            let kept = usize::try_from(length - (last << self.shift)).unwrap_or(usize::MAX);
            if self.record.len() > kept {
                self.record.truncate(kept);
                let record = std::mem::take(&mut self.record);
                self.put(last, record)?;
            }
        }
        Ok(())
    }
}

impl Edit<'_, '_> {
    /// Sets records of a file and its length.
    fn store(
        &mut self,
        fid: Fid,
        row: &mut VnodeRow,
        records: &[(u64, Option<NewRecord>)],
        length: u64,
    ) -> Result<()> {
        let (at, vnode) = (self.at(), fid.vnode.0);
        for (index, record) in records {
            match record {
                Some(record) => self.change.put_record(at, vnode, *index, record)?,
                None => self.change.delete_row(at, Item::record(vnode, *index))?,
            }
        }
        if length < row.length {
            let beyond = length.div_ceil(1 << row.record_shift);
            for index in self.indexes(Kind::Record, vnode, beyond)? {
                self.change.delete_row(at, Item::record(vnode, index))?;
            }
        }
        row.length = length;
        Ok(())
    }
}
