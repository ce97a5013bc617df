//! The records of the journal, and the header before them.

use std::io::{self, Read};

use afar_types::{BATCH_BYTES, BATCH_OPERATIONS, BatchChange, VolumeId};
use afar_xdr::{BytesMut, Decode, Encode, FixedOpaque, List, XdrString, from_bytes, to_bytes};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What the file begins with.
const MAGIC: &[u8; 8] = b"AFARJRNL";
/// The version of its form.
const VERSION: u32 = 1;
/// Bytes of the header.
pub(super) const HEADER: u64 = HEADER_SIZE as u64;
const HEADER_SIZE: usize = 20;
/// Bytes of a record before its payload.
const HEAD: usize = 16;
/// The most bytes of a payload. A length that is greater is none.
const PAYLOAD_MOST: usize = BATCH_BYTES + (64 << 10);
/// The most changes that a record names.
pub(super) const NUMBERS: usize = BATCH_OPERATIONS;

const MADE: u32 = 1;
const SENT: u32 = 2;
const DONE: u32 = 3;

const _: () = assert!(
    Record::MAX_LEN <= PAYLOAD_MOST,
    "every record can be read again"
);

/// A change that a server does not have yet.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Made {
    /// Counts up over all volumes and all processes, and is never given twice.
    pub(crate) number: u64,
    /// The name of the cell.
    pub(crate) cell: XdrString<255>,
    /// The volume.
    pub(crate) volume: VolumeId,
    /// The user of this machine who made it.
    pub(crate) user: u32,
    /// The change.
    pub(crate) change: BatchChange,
}

/// A batch that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SentBatch {
    /// The name of the cell.
    pub(crate) cell: XdrString<255>,
    /// The volume.
    pub(crate) volume: VolumeId,
    /// The user of this machine as whom it is sent.
    pub(crate) user: u32,
    /// The series it belongs to.
    pub(crate) series: FixedOpaque<16>,
    /// Its number there.
    pub(crate) batch: u64,
    /// The changes in it, in their order.
    pub(crate) numbers: List<u64, NUMBERS>,
}

/// What a record tells.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) enum Record {
    /// A change was made.
    #[xdr(case = MADE)]
    Made(Made),
    /// A batch is about to be sent.
    #[xdr(case = SENT)]
    Sent(SentBatch),
    /// Nothing more is to come of these changes.
    #[xdr(case = DONE)]
    Done(List<u64, NUMBERS>),
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) length: u64,
}

/// A record that is to be written.
#[derive(Debug)]
pub(super) struct Draft(BytesMut);

impl Draft {
    pub(super) fn made(made: &Made) -> Self {
        Self::of(MADE, made)
    }

    pub(super) fn sent(batch: &SentBatch) -> Self {
        Self::of(SENT, batch)
    }

    pub(super) fn done(numbers: &List<u64, NUMBERS>) -> Self {
        Self::of(DONE, numbers)
    }

    fn of(kind: u32, value: &impl Encode) -> Self {
        let mut bytes = BytesMut::zeroed(HEAD);
        kind.encode(&mut bytes);
        value.encode(&mut bytes);
        Self(bytes)
    }

    /// The same as a record that is elsewhere.
    pub(super) fn again(payload: &[u8]) -> Self {
        let mut bytes = BytesMut::zeroed(HEAD);
        bytes.extend_from_slice(payload);
        Self(bytes)
    }

    /// Its bytes at this place.
    pub(super) fn at(&mut self, at: u64) -> &[u8] {
        if let Some((space, payload)) = self.0.split_first_chunk_mut::<HEAD>() {
            *space = head(at, payload);
        }
        &self.0
    }
}

/// What precedes a payload that is recorded at this place.
pub(super) fn head(at: u64, payload: &[u8]) -> [u8; HEAD] {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let length = length.to_be_bytes();
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&length);
    head[4..8].copy_from_slice(&check(at, length));
    head[8..].copy_from_slice(&xxh3_64_with_seed(payload, at).to_be_bytes());
    head
}

/// By which a length that is damaged is known. Without it, what follows would count as cut off.
fn check(at: u64, length: [u8; 4]) -> [u8; 4] {
    let [.., a, b, c, d] = xxh3_64_with_seed(&length, at).to_be_bytes();
    [a, b, c, d]
}

/// The payload of a record that is all of these bytes, from this place; none if they are not.
pub(super) fn payload(at: u64, bytes: &[u8]) -> Option<&[u8]> {
    let (space, payload) = bytes.split_first_chunk::<HEAD>()?;
    (*space == head(at, payload)).then_some(payload)
}

/// What a payload tells, if it was written as it is.
fn decode(payload: &[u8]) -> Option<Record> {
    let record: Record = from_bytes(payload).ok()?;
    // The decoder does not look at padding.
    (*to_bytes(&record) == *payload).then_some(record)
}

/// The header of a file.
pub(super) fn header() -> [u8; HEADER_SIZE] {
    header_of(VERSION)
}

/// The header of a file of any version.
pub(super) fn header_of(version: u32) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&version.to_be_bytes());
    let sum = xxh3_64(&header[..12]);
    header[12..].copy_from_slice(&sum.to_be_bytes());
    header
}

/// What a file is, by what it begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A journal.
    Known,
    /// One that was being made.
    Torn,
    /// A journal of this version, which is not known.
    Newer { found: u32, known: u32 },
    /// No journal.
    Damaged,
}

impl Header {
    /// Of the bytes up to where a header ends, or fewer if there are no more.
    pub(super) fn of(start: &[u8]) -> Self {
        let ours = header();
        if start == ours {
            return Self::Known;
        }
        if start.len() < HEADER_SIZE && ours.starts_with(start) {
            return Self::Torn;
        }
        let version: Option<[u8; 4]> = start.get(8..12).and_then(|bytes| bytes.try_into().ok());
        match version.map(u32::from_be_bytes) {
            Some(found) if found > VERSION && start == header_of(found) => Self::Newer {
                found,
                known: VERSION,
            },
            _ => Self::Damaged,
        }
    }
}

/// What is found where a record may begin.
#[derive(Debug)]
pub(super) enum Found {
    /// One.
    Record(Record, Place),
    /// Nothing more.
    End,
    /// The beginning of the last one.
    Torn,
    /// Something else.
    Damaged,
}

/// Reads records one after the other.
#[derive(Debug)]
pub(super) struct Reader<R> {
    input: R,
    at: u64,
    end: u64,
}

impl<R: Read> Reader<R> {
    /// `input` is what follows the header of a file of `end` bytes.
    pub(super) fn new(input: R, end: u64) -> Self {
        Self {
            input,
            at: HEADER,
            end,
        }
    }

    /// Where what follows begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// What follows. A record is passed, and anything else is not.
    pub(super) fn read(&mut self) -> io::Result<Found> {
        let left = self.end.saturating_sub(self.at);
        if left == 0 {
            return Ok(Found::End);
        }
        let Some(left) = left.checked_sub(HEAD as u64) else {
            return Ok(Found::Torn);
        };
        let mut bytes = vec![0; HEAD];
        self.input.read_exact(&mut bytes)?;
        let Some((length, rest)) = bytes.split_first_chunk() else {
            return Ok(Found::Damaged);
        };
        let payload_length = u32::from_be_bytes(*length);
        let size = usize::try_from(payload_length).unwrap_or(usize::MAX);
        if size > PAYLOAD_MOST || !rest.starts_with(&check(self.at, *length)) {
            return Ok(Found::Damaged);
        }
        if u64::from(payload_length) > left {
            return Ok(Found::Torn);
        }
        bytes.resize(HEAD + size, 0);
        self.input.read_exact(&mut bytes[HEAD..])?;
        let Some(record) = payload(self.at, &bytes).and_then(decode) else {
            return Ok(Found::Damaged);
        };
        let place = Place {
            at: self.at,
            length: bytes.len() as u64,
        };
        self.at += place.length;
        Ok(Found::Record(record, place))
    }
}
