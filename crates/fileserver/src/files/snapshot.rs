//! A vnode's data as of one version, to be read piece by piece while others change it.
//!
//! A client is told beforehand how much comes, and with the data what version it is, so all of it
//! must be of one version. OpenAFS keeps writers out until the last byte is sent. Here the records
//! of the version are collected first, which keeps their bytes on the disk: a reader may be as
//! slow as it likes, holds nobody up, and gets what was there when it asked.

use std::collections::VecDeque;

use afar_net::AbortCode;
use afar_rpc::{FetchSink, Packed};
use afar_store::segment::{Codec, unpack};
use afar_store::{StoreError, StoredRecord, VnodeStatus, Volume};
use afar_types::error::VBUSY;
use afar_types::{Fid, FileType};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::visit::failed;
use crate::abort::errno;

/// Data up to this length is read at once.
const AT_ONCE: u64 = 256 << 10;
/// What is read ahead while data is sent.
const PIECE: usize = 512 << 10;
/// Bytes a call must be granted for each record that is collected: as many as it takes, and as much
/// again. Of 512 KiB that are 2,048 records of 128 KiB or 1 MiB, so that 256 MiB or 2 GiB of a file are of
/// one version whatever happens.
const BYTES_PER_RECORD: usize = 256;
/// Records that are asked for at a time.
const BATCH: usize = 512;
/// How often a vnode may change while it is looked at.
const TRIES: usize = 16;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What is next of a file.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes of it.
    Plain(Bytes),
    /// A record as it is stored.
    Packed(Packed),
}

impl Piece {
    /// Bytes of the file.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Plain(data) => data.len(),
            Self::Packed(packed) => packed.plain as usize,
        }
    }
}

/// What a client takes of a file at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking {
    /// Bytes of it that may be ready.
    granted: usize,
    /// Codecs of records that it unpacks itself, as bits.
    codecs: u8,
}

impl Taking {
    /// As it is now.
    pub(super) fn of(data: &FetchSink<'_>) -> Self {
        let codecs = [Codec::Raw, Codec::Zstd, Codec::Lz4].map(Codec::to_u8);
        let taken = codecs.into_iter().filter(|codec| data.takes(*codec));
        Self {
            granted: data.granted(),
            codecs: taken.fold(0, |codecs, codec| codecs | 1 << codec),
        }
    }

    /// So many bytes, unpacked.
    pub(super) fn plain(granted: usize) -> Self {
        Self { granted, codecs: 0 }
    }

    /// With so many bytes that may be ready.
    pub(super) fn with(self, granted: usize) -> Self {
        Self { granted, ..self }
    }

    /// Bytes that may be ready.
    pub(super) fn granted(self) -> usize {
        self.granted
    }

    fn unpacks(self, codec: Codec) -> bool {
        self.granted >= PIECE && self.codecs & 1 << codec.to_u8() != 0
    }
}

/// Data of a vnode as of one version, from a position on.
pub(super) struct Snapshot {
    volume: Volume,
    fid: Fid,
    position: u64,
    end: u64,
    source: Source,
}

enum Source {
    /// All there is.
    Whole(Bytes),
    /// Nothing yet: it is read as it is sent, for a client that may not have all of it in memory.
    Unread { version: VnodeStatus },
    /// The records up to `covered`; where there is none are zeros.
    Records {
        records: VecDeque<StoredRecord>,
        covered: u64,
        version: VnodeStatus,
    },
}

impl Snapshot {
    /// Takes what of `length` bytes at `position` there is, and the status it belongs to. Of the data no more
    /// than `granted` bytes are in memory.
    ///
    /// # Errors
    /// VBUSY if the vnode changes all the time; the store's.
    pub(super) fn take(
        volume: &Volume,
        fid: Fid,
        position: u64,
        length: u64,
        granted: usize,
    ) -> Result<(Self, VnodeStatus), AbortCode> {
        for _ in 0..TRIES {
            let vnode = volume.status(fid).map_err(failed)?;
            let end = position
                .saturating_add(length)
                .min(vnode.length)
                .max(position);
            let source = read(volume, &vnode, (position, end), granted)?;
            // Versions only grow, so what was read in between is of this one.
            if let Some(source) = source
                && is_same(volume, &vnode)?
            {
                let snapshot = Self {
                    volume: volume.clone(),
                    fid,
                    position,
                    end,
                    source,
                };
                return Ok((snapshot, vnode));
            }
        }
        Err(AbortCode(VBUSY))
    }

    /// Bytes still to come.
    pub(super) fn remaining(&self) -> u64 {
        self.end - self.position
    }

    /// What is next, 512 KiB or so, or as many as are granted; nothing after the last. Blocks.
    ///
    /// # Errors
    /// VBUSY if the file is larger than what is of one version for sure, and has changed.
    pub(super) fn next(&mut self, taking: Taking) -> Result<Vec<Piece>, AbortCode> {
        let mut pieces = Vec::new();
        let mut length = 0;
        let most = PIECE.min(taking.granted);
        while self.position < self.end && length < most {
            let mut piece = self.piece(taking)?;
            if let Piece::Plain(data) = &mut piece
                && most < PIECE
                && data.len() > most - length
            {
                // A copy, as a part keeps the whole.
                *data = Bytes::copy_from_slice(&data[..most - length]);
            }
            self.position += piece.length() as u64;
            length += piece.length();
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn piece(&mut self, taking: Taking) -> Result<Piece, AbortCode> {
        let granted = taking.granted;
        let (records, covered) = match &mut self.source {
            Source::Whole(data) => return Ok(Piece::Plain(std::mem::take(data))),
            Source::Unread { .. } => return self.read_part(granted).map(Piece::Plain),
            Source::Records {
                records, covered, ..
            } => (records, *covered),
        };
        while records
            .front()
            .is_some_and(|record| end_of(record) <= self.position)
        {
            records.pop_front();
        }
        let limit = self.end.min(covered);
        match records.front() {
            Some(record)
                if record.offset() == self.position
                    && end_of(record) <= limit
                    && taking.unpacks(record.codec()) =>
            {
                packed(record).map(Piece::Packed).map_err(failed)
            }
            Some(record) if record.offset() <= self.position => {
                let plain = plain(record).map_err(failed)?;
                let from = self.position - record.offset();
                let to = (limit - record.offset()).min(plain.len() as u64);
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                Ok(Piece::Plain(plain.slice(index(from)..index(to))))
            }
            Some(record) => Ok(Piece::Plain(zeros(
                record.offset().min(limit) - self.position,
            ))),
            None if self.position < limit => Ok(Piece::Plain(zeros(limit - self.position))),
            None => {
                self.collect_more(granted)?;
                self.piece(taking)
            }
        }
    }

    /// Reads a part of what is not collected, if it is still of the same version.
    fn read_part(&mut self, granted: usize) -> Result<Bytes, AbortCode> {
        let Source::Unread { version } = &self.source else {
            return Err(AbortCode(errno::EIO));
        };
        let left = usize::try_from(self.remaining()).unwrap_or(usize::MAX);
        let mut data = vec![0; left.min(granted)];
        let read = (self.volume).read(self.fid, self.position, &mut data);
        let read = read.map_err(failed)?;
        if read < data.len() || !is_same(&self.volume, version)? {
            return Err(AbortCode(VBUSY));
        }
        Ok(Bytes::from(data))
    }

    /// Collects the records after those that are sent, if they are still of the same version.
    fn collect_more(&mut self, granted: usize) -> Result<(), AbortCode> {
        let Source::Records { version, .. } = &self.source else {
            return Err(AbortCode(errno::EIO));
        };
        let version = version.clone();
        let part = (self.position, self.end);
        let (records, covered) = collect(&self.volume, self.fid, part, granted)?;
        if !is_same(&self.volume, &version)? {
            return Err(AbortCode(VBUSY));
        }
        self.source = Source::Records {
            records,
            covered,
            version,
        };
        Ok(())
    }
}

/// Whether a vnode's data is still what it was.
fn is_same(volume: &Volume, vnode: &VnodeStatus) -> Result<bool, AbortCode> {
    let now = volume.status(vnode.fid).map_err(failed)?;
    Ok(now.data_version == vnode.data_version && now.length == vnode.length)
}

/// Reads what is short, and collects the records of what is not. `None` if there is less than
/// there was.
fn read(
    volume: &Volume,
    vnode: &VnodeStatus,
    (position, end): (u64, u64),
    granted: usize,
) -> Result<Option<Source>, AbortCode> {
    let length = end - position;
    let at_once = AT_ONCE.min(granted as u64);
    // A directory has 2 MiB at most, and no records. One that changes all the time is whole for clients
    // that take what they are sent; others get it as it is, or come again.
    let is_directory = vnode.file_type == FileType::Directory;
    if is_directory && granted < PIECE && length > at_once {
        return Ok(Some(Source::Unread {
            version: vnode.clone(),
        }));
    }
    if length <= at_once || is_directory {
        let length = usize::try_from(length).map_err(|_| AbortCode(errno::EFBIG))?;
        let mut data = vec![0; length];
        let read = volume
            .read(vnode.fid, position, &mut data)
            .map_err(failed)?;
        return Ok((read == length).then(|| Source::Whole(Bytes::from(data))));
    }
    let (records, covered) = collect(volume, vnode.fid, (position, end), granted)?;
    Ok(Some(Source::Records {
        records,
        covered,
        version: vnode.clone(),
    }))
}

/// The records that hold data from `position` to `end`, and up to where these are all.
fn collect(
    volume: &Volume,
    fid: Fid,
    (position, end): (u64, u64),
    granted: usize,
) -> Result<(VecDeque<StoredRecord>, u64), AbortCode> {
    let most = (granted / BYTES_PER_RECORD).max(1);
    let asked = BATCH.min(most);
    let mut records: VecDeque<StoredRecord> = VecDeque::new();
    let mut from = position;
    while records.len() < most {
        let batch = volume.stored_records(fid, from, asked).map_err(failed)?;
        let whole = batch.len() == asked;
        let last = records.back().map(StoredRecord::offset);
        // A short record is found again from where it ends.
        let new = batch
            .into_iter()
            .filter(|record| last.is_none_or(|last| record.offset() > last));
        records.extend(new);
        let Some(newest) = records
            .back()
            .filter(|newest| Some(newest.offset()) != last)
        else {
            return Ok((records, end));
        };
        if !whole || end_of(newest) >= end {
            return Ok((records, end));
        }
        from = end_of(newest);
    }
    let covered = records.back().map_or(end, |last| end_of(last).min(end));
    Ok((records, covered))
}

fn end_of(record: &StoredRecord) -> u64 {
    record.offset() + u64::from(record.plain_len())
}

fn zeros(length: u64) -> Bytes {
    let length = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(ZEROS.len());
    Bytes::from_static(&ZEROS[..length])
}

/// A record as it is stored, verified.
fn packed(record: &StoredRecord) -> Result<Packed, StoreError> {
    let stored = Bytes::from(record.stored()?);
    let known = record.extent().map(|extent| extent.checksum);
    Ok(Packed {
        codec: record.codec().to_u8(),
        plain: record.plain_len(),
        checksum: known.unwrap_or_else(|| xxh3_128(&stored)),
        stored,
    })
}

/// A record's data, verified.
fn plain(record: &StoredRecord) -> Result<Bytes, StoreError> {
    let stored = record.stored()?;
    if record.codec() == Codec::Raw {
        return Ok(Bytes::from(stored));
    }
    let mut plain = Vec::new();
    unpack(record.codec(), &stored, record.plain_len(), &mut plain).map_err(|error| {
        StoreError::Io {
            what: format!("unpacking a record at {}", record.offset()),
            source: std::sync::Arc::new(std::io::Error::other(error)),
        }
    })?;
    Ok(Bytes::from(plain))
}
