//! Reading: attributes, entries, data.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use afar_dir::{Editor, EntryId, PAGE_SIZE};
use afar_types::{AclRecord, Fid};
use rayon::prelude::*;

use super::edit::edit_error;
use super::pages::{ReadPages, page_count, read_page};
use super::{VnodeStatus, directory, full_acl, node, status};
use crate::error::{Result, StoreError};
use crate::meta::{At, Env, Item, Record, Rows, VnodeRow};
use crate::partition::Partition;
use crate::segment::{Codec, EpochGuard, Extent, unpack};
use crate::volume::Volume;

impl Volume {
    /// A vnode's attributes.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVnode`], [`StoreError::Offline`].
    pub fn status(&self, fid: Fid) -> Result<VnodeStatus> {
        let fid = self.own(fid)?;
        let reader = self.partition.reader()?;
        let at = self.online(&reader)?.at();
        let row = node(&*reader, at, fid)?;
        status(&*reader, at, fid, &row)
    }

    /// A directory's ACL.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotDirectory`], [`StoreError::NoVnode`].
    pub fn acl(&self, fid: Fid) -> Result<AclRecord> {
        let fid = self.own(fid)?;
        let reader = self.partition.reader()?;
        let at = self.online(&reader)?.at();
        let row = directory(&*reader, at, fid)?;
        AclRecord::from_bytes(&full_acl(&row.acl))
            .map_err(|error| reader.env().corrupt(format!("the ACL of {fid}: {error}")))
    }

    /// What a name in a directory stands for.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::NotDirectory`].
    pub fn lookup(&self, fid: Fid, name: &[u8]) -> Result<Fid> {
        let fid = self.own(fid)?;
        let reader = self.partition.reader()?;
        let at = self.online(&reader)?.at();
        let row = directory(&*reader, at, fid)?;
        let found: Option<EntryId> = Editor::open(ReadPages {
            rows: &*reader,
            at,
            vnode: fid.vnode.0,
            count: page_count(row.length),
        })
        .and_then(|mut pages| pages.lookup(name))
        .map_err(|error| edit_error(error, fid.vnode.0, name))?;
        let id = found.ok_or_else(|| StoreError::name_not_found(name))?;
        Ok(self.fid(id.vnode, id.uniquifier))
    }

    /// Reads a vnode's data from `offset` on: a file's contents, a directory's pages, a symlink's
    /// target. Returns how many bytes of `out` it filled: less than all at the end only.
    ///
    /// # Errors
    ///
    /// [`StoreError::Read`] if a record fails its checksum, [`StoreError::NoVnode`].
    pub fn read(&self, fid: Fid, offset: u64, out: &mut [u8]) -> Result<usize> {
        let fid = self.own(fid)?;
        let reader = self.partition.reader()?;
        let at = self.online(&reader)?.at();
        let row = node(&*reader, at, fid)?;
        self.partition
            .read_data(&*reader, at, fid.vnode.0, &row, offset, out)
    }

    /// Reads all of a vnode's data, which must have at most `limit` bytes: meant for directories
    /// and symlinks.
    ///
    /// # Errors
    ///
    /// As [`Volume::read`], and [`StoreError::TooBig`] beyond the limit.
    pub fn read_all(&self, fid: Fid, limit: usize) -> Result<Vec<u8>> {
        let fid = self.own(fid)?;
        let reader = self.partition.reader()?;
        let at = self.online(&reader)?.at();
        let row = node(&*reader, at, fid)?;
        let len = usize::try_from(row.length)
            .ok()
            .filter(|len| *len <= limit)
            .ok_or(StoreError::TooBig(row.length))?;
        let mut data = vec![0; len];
        self.partition
            .read_data(&*reader, at, fid.vnode.0, &row, 0, &mut data)?;
        Ok(data)
    }

    /// The records of a file from the one at byte `offset` on, as they are stored: to send them to
    /// a peer that understands them. Stretches without one read as zeros. At most `limit` records.
    ///
    /// # Errors
    ///
    /// As [`Volume::read`].
    pub fn stored_records(&self, fid: Fid, offset: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        let fid = self.own(fid)?;
        // Before the view, so that nothing in the view can be given back.
        let guard = Arc::new(self.partition.epoch());
        let reader = self.partition.reader()?;
        let at = self.online(&reader)?.at();
        let row = node(&*reader, at, fid)?;
        if row.is_directory() {
            return Err(StoreError::IsDirectory(fid.vnode));
        }
        let first = Item::record(fid.vnode.0, offset >> row.record_shift);
        let mut records = Vec::new();
        for found in reader.parts(at, first)?.take(limit) {
            let (item, value) = found?;
            let record = Record::from_bytes(value)
                .ok_or_else(|| reader.env().corrupt(format!("a record of {fid}")))?;
            records.push(StoredRecord {
                partition: Arc::clone(&self.partition),
                offset: item.index << row.record_shift,
                record,
                _guard: Arc::clone(&guard),
            });
        }
        Ok(records)
    }
}

/// A record of a file as it is stored. Its bytes stay where they are as long as this is held.
#[derive(Clone)]
pub struct StoredRecord {
    partition: Arc<Partition>,
    offset: u64,
    record: Record,
    _guard: Arc<EpochGuard>,
}

impl StoredRecord {
    /// Where in the file it begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes it has when decompressed.
    #[must_use]
    pub fn plain_len(&self) -> u32 {
        self.record.plain_len()
    }

    /// How it is stored.
    #[must_use]
    pub fn codec(&self) -> Codec {
        match &self.record {
            Record::Extent(extent) => extent.codec,
            Record::Inline { codec, .. } => *codec,
        }
    }

    /// Where it lies: codec, lengths and checksum. `None` if it is kept in the database.
    #[must_use]
    pub fn extent(&self) -> Option<&Extent> {
        match &self.record {
            Record::Extent(extent) => Some(extent),
            Record::Inline { .. } => None,
        }
    }

    /// The file, offset and length to send a raw record from. What is sent so is not verified
    /// here; the receiver has the checksum of [`StoredRecord::extent`].
    ///
    /// # Errors
    ///
    /// If the segment's file cannot be opened.
    pub fn raw_file(&self) -> Result<Option<(Arc<File>, u64, u64)>> {
        match &self.record {
            Record::Extent(extent) if extent.codec == Codec::Raw => {
                let file = self.partition.segments().file(extent.segment);
                let file = file.map_err(|e| {
                    StoreError::io(format!("opening segment {}", extent.segment), e)
                })?;
                Ok(Some((file, extent.offset.into(), extent.stored.into())))
            }
            _ => Ok(None),
        }
    }

    /// The record as stored, verified.
    ///
    /// # Errors
    ///
    /// [`StoreError::Read`] if it fails its checksum.
    pub fn stored(&self) -> Result<Vec<u8>> {
        match &self.record {
            Record::Extent(extent) => {
                let stored = self.partition.segments().read_stored(extent)?;
                Ok(stored.into_bytes().into_owned())
            }
            Record::Inline { stored, .. } => Ok(stored.clone()),
        }
    }
}

impl Partition {
    /// Reads data of a vnode into `out`, and returns how much there was.
    pub(crate) fn read_data(
        &self,
        rows: &impl Rows,
        at: At,
        vnode: u32,
        row: &VnodeRow,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        let left = row.length.saturating_sub(offset);
        let len = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let out = &mut out[..len];
        if len == 0 {
            return Ok(0);
        }
        if row.is_directory() {
            read_pages(rows, at, vnode, offset, out)?;
            return Ok(len);
        }
        let first = offset >> row.record_shift;
        let last = (offset + len as u64 - 1) >> row.record_shift;
        let mut parts = Vec::new();
        // What is left of `out`, and where in the file it begins.
        let (mut rest, mut position) = (out, offset);
        for found in rows.parts(at, Item::record(vnode, first))? {
            let (item, value) = found?;
            if item.index > last {
                break;
            }
            let record = Record::from_bytes(value).ok_or_else(|| {
                rows.env()
                    .corrupt(format!("record {} of vnode {vnode}", item.index))
            })?;
            let start = item.index << row.record_shift;
            let within = record_shift_range(start, record.plain_len(), offset, len);
            let Some((from, to)) = within else { continue };
            let begins = start + u64::from(from.start);
            let hole = usize::try_from(begins - position).unwrap_or(usize::MAX);
            let (zeros, after) = rest.split_at_mut(hole);
            zeros.fill(0);
            let (part, after) = after.split_at_mut(to);
            (rest, position) = (after, begins + to as u64);
            parts.push((record, from, part));
        }
        rest.fill(0);
        self.read_parts(rows.env(), parts)?;
        Ok(len)
    }

    /// Reads parts of records, on all processors if they have to be decompressed.
    fn read_parts(&self, env: &Env, mut parts: Vec<Part<'_>>) -> Result<()> {
        let read = |(record, within, out): &mut Part<'_>| {
            read_record(self, env, record, within.clone(), out)
        };
        let packed = |(record, _, _): &Part<'_>| match record {
            Record::Extent(extent) => extent.codec != Codec::Raw,
            Record::Inline { .. } => false,
        };
        if parts.iter().filter(|part| packed(part)).nth(1).is_some() {
            parts.par_iter_mut().try_for_each(read)
        } else {
            parts.iter_mut().try_for_each(read)
        }
    }
}

/// A record, what of it is wanted, and where that is to go.
type Part<'a> = (Record, Range<u32>, &'a mut [u8]);

/// Which bytes of a record that begins at `start` lie in the `len` from `offset` on: their range
/// in the record, and how many they are.
pub(crate) fn record_shift_range(
    start: u64,
    plain: u32,
    offset: u64,
    len: usize,
) -> Option<(Range<u32>, usize)> {
    let end = (start + u64::from(plain)).min(offset + len as u64);
    let begin = start.max(offset);
    if begin >= end {
        return None;
    }
    let from = u32::try_from(begin - start).ok()?;
    let to = u32::try_from(end - start).ok()?;
    Some((from..to, (to - from) as usize))
}

/// Reads a part of a record.
pub(crate) fn read_record(
    partition: &Partition,
    env: &Env,
    record: &Record,
    within: Range<u32>,
    out: &mut [u8],
) -> Result<()> {
    match record {
        Record::Extent(extent) => partition.read_plain(extent, within, out),
        Record::Inline {
            codec,
            plain,
            stored,
        } => {
            let mut whole = Vec::new();
            unpack(*codec, stored, *plain, &mut whole)
                .map_err(|error| env.corrupt(format!("a record in its row: {error}")))?;
            out.copy_from_slice(&whole[within.start as usize..within.end as usize]);
            Ok(())
        }
    }
}

fn read_pages(rows: &impl Rows, at: At, vnode: u32, offset: u64, out: &mut [u8]) -> Result<()> {
    let mut position = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut out = out;
    while !out.is_empty() {
        let page = read_page(rows, at, vnode, position / PAGE_SIZE)?;
        let from = position % PAGE_SIZE;
        let len = out.len().min(PAGE_SIZE - from);
        let (part, rest) = out.split_at_mut(len);
        part.copy_from_slice(&page[from..from + len]);
        out = rest;
        position += len;
    }
    Ok(())
}
