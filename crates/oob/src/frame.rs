//! Frames: all that passes on a connection. Each is its length in a word of 32 bits, then so many bytes: what the frame
//! is, in XDR. Behind [`DataHead`] come a record's bytes, without padding.
// spec: oob#frames

use std::marker::PhantomData;

use afar_types::{
    CallBack, FetchStatus, Fid, RestoreCookie, StoreStatus, TransactionId, UnixTime, VolSync,
};
use afar_xdr::{Decode, DecodeError, Decoder, Encode, FixedOpaque, from_bytes};
use bytes::{BufMut, Bytes, BytesMut};

use crate::hello::{Hello, Refusal, Welcome};
use crate::record::{Codec, Codecs, RECORD_MAX, RecordError, check_lengths};

/// Bytes of a frame without a record, at most.
pub const FRAME_MAX: usize = 1024;
/// The number of the frame that a record follows.
const DATA: u32 = 6;
/// Bytes of a length.
const LENGTH: usize = 4;
/// The least credit that a client gives to a transfer at a time: with less, a record might never pass.
pub const CREDIT_LEAST: u32 = RECORD_MAX;

/// The credit that a store or restore begins with: what it sends before it knows whether the server takes it.
// spec: oob#flow-control
pub const STORE_CREDIT: u32 = RECORD_MAX;

/// What a record so long takes of a transfer's credit: short ones take memory, too.
// spec: oob#flow-control
#[must_use]
pub const fn cost(stored: u32) -> u32 {
    if stored < COST_LEAST {
        COST_LEAST
    } else {
        stored
    }
}

/// What a record takes at least.
const COST_LEAST: u32 = 4 << 10;

/// What a client sends, but for records.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ClientFrame {
    /// Shows the grant. It comes first, and once.
    #[xdr(case = 1)]
    Hello(Hello),
    /// Asks for data of a file, as RXAFS's FetchData64 does.
    #[xdr(case = 3)]
    Fetch(Fetch),
    /// Lets a transfer send so many bytes of records more.
    #[xdr(case = 4)]
    Credit {
        /// The transfer.
        id: u32,
        /// Bytes.
        bytes: u32,
    },
    /// Gives a transfer up.
    #[xdr(case = 9)]
    Cancel {
        /// The transfer.
        id: u32,
    },
    /// Asks whether the server is there.
    #[xdr(case = 10)]
    Ping {
        /// Comes back with the answer.
        number: u32,
    },
    /// Stores data into a file, as RXAFS's StoreData64 does. Records follow.
    #[xdr(case = 14)]
    Store(Store),
    /// Asks for a dump of a volume, as AFSVol's DumpV2 does.
    #[xdr(case = 17)]
    Dump(Dump),
    /// Fills a volume from a dump, as AFSVol's Restore does. Records follow, and then that these were all.
    #[xdr(case = 18)]
    Restore(Restore),
    /// All records of a restore were sent: the dump is whole.
    #[xdr(case = 19)]
    Finish {
        /// The transfer.
        id: u32,
    },
}

/// What a server sends, but for records.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ServerFrame {
    /// The client is taken in. It comes first.
    #[xdr(case = 2)]
    Welcome(Welcome),
    /// So many bytes of a transfer will come, at most as many as asked for.
    #[xdr(case = 5)]
    Reply {
        /// The transfer.
        id: u32,
        /// Bytes of data.
        length: u64,
    },
    /// A transfer has ended well.
    #[xdr(case = 7)]
    End(End),
    /// A transfer has failed, or a fetch was refused.
    #[xdr(case = 8)]
    Abort {
        /// The transfer.
        id: u32,
        /// The code with which a call over Rx would have ended.
        code: i32,
    },
    /// The answer to a ping.
    #[xdr(case = 11)]
    Pong {
        /// The number that came.
        number: u32,
    },
    /// The server has no room for a transfer now: it is to be asked for by Rx.
    #[xdr(case = 12)]
    Decline {
        /// The transfer.
        id: u32,
    },
    /// The server ends the connection.
    #[xdr(case = 13)]
    Close(Refusal),
    /// Lets a store or restore send so many bytes of records more.
    #[xdr(case = 15)]
    Credit {
        /// The transfer.
        id: u32,
        /// Bytes.
        bytes: u32,
    },
    /// A store has ended well: what it sent is durable.
    #[xdr(case = 16)]
    Stored(Stored),
    /// A dump has ended well: what came is all of it.
    #[xdr(case = 20)]
    Dumped {
        /// The transfer.
        id: u32,
        /// Bytes of data that it has.
        length: u64,
    },
    /// A restore has ended well.
    #[xdr(case = 21)]
    Restored {
        /// The transfer.
        id: u32,
    },
}

/// A client asks for data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Fetch {
    /// The client's number for the transfer, not that of another one under way.
    pub id: u32,
    /// The file.
    pub fid: Fid,
    /// Where in the file to begin.
    pub offset: u64,
    /// Bytes wanted.
    pub length: u64,
    /// How records may be packed.
    pub codecs: Codecs,
    /// Bytes of records that may come until there is more credit.
    pub credit: u32,
}

/// A client stores data into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Store {
    /// The client's number for the transfer, not that of another one under way.
    pub id: u32,
    /// The file.
    pub fid: Fid,
    /// What else changes of it.
    pub attributes: StoreStatus,
    /// Where in the file the data begins.
    pub offset: u64,
    /// Bytes of data that will come.
    pub length: u64,
    /// What the whole file's length is to be.
    pub file_length: u64,
}

/// A client asks for a dump of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Dump {
    /// The client's number for the transfer, not that of another one under way.
    pub id: u32,
    /// The transaction of the volume.
    pub transaction: TransactionId,
    /// What changed since then; all with time 0.
    pub from_date: UnixTime,
    /// Those of AFSVol's DumpV2.
    pub flags: i32,
    /// How records may be packed.
    pub codecs: Codecs,
    /// Bytes of records that may come until there is more credit.
    pub credit: u32,
}

/// A client fills a volume from a dump.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Restore {
    /// The client's number for the transfer, not that of another one under way.
    pub id: u32,
    /// The transaction of the volume.
    pub transaction: TransactionId,
    /// Those of AFSVol's Restore.
    pub flags: i32,
    /// What the volume is called and belongs to.
    pub cookie: RestoreCookie,
}

/// What a store ends with: the results of StoreData64.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Stored {
    /// The transfer.
    pub id: u32,
    /// The file's status.
    pub status: FetchStatus,
    /// The volume's times.
    pub vol_sync: VolSync,
}

/// What a fetch ends with: the results of FetchData64.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct End {
    /// The transfer.
    pub id: u32,
    /// The file's status.
    pub status: FetchStatus,
    /// The promise.
    pub callback: CallBack,
    /// The volume's times.
    pub vol_sync: VolSync,
}

/// What stands before a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// The transfer.
    pub id: u32,
    /// Where in the file, or the dump, its data belongs.
    pub offset: u64,
    /// Bytes of data.
    pub plain: u32,
    /// How it is packed.
    pub codec: Codec,
    /// XXH3-128 of the record as it is packed.
    pub checksum: u128,
}

/// [`DataHead`] on the wire, behind the frame's number.
#[derive(Encode, Decode)]
struct DataForm {
    id: u32,
    offset: u64,
    plain: u32,
    codec: u32,
    checksum: FixedOpaque<16>,
}

/// A record as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// What it is.
    pub head: DataHead,
    /// Its bytes as they are packed. They are not checked yet.
    pub stored: Bytes,
}

/// Anything that passes, of which the frames are of this kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passing<F> {
    /// A record.
    Data(Data),
    /// Anything else.
    Frame(F),
}

/// Anything that a server sends.
pub type FromServer = Passing<ServerFrame>;
/// Anything that a client sends whose grant was checked.
pub type FromClient = Passing<ClientFrame>;

/// What came is no frame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It is longer than any.
    #[error("a frame of {length} bytes is announced; the maximum is {most}")]
    TooLong {
        /// Bytes announced.
        length: u32,
        /// The most there may be.
        most: usize,
    },
    /// It cannot be read.
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    /// The record in it is none.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl DataHead {
    /// Bytes on the wire before the record, with the frame's length and number.
    pub const LEN: usize = LENGTH + Self::BODY;
    /// Without the length.
    const BODY: usize = 4 + <DataForm as Decode>::MAX_LEN;

    /// The bytes before a record that has so many as it is packed.
    #[must_use]
    pub fn encode(&self, stored: u32) -> Bytes {
        let mut out = BytesMut::with_capacity(Self::LEN);
        let body = u32::try_from(Self::BODY).unwrap_or(u32::MAX);
        out.put_u32(body.saturating_add(stored));
        out.put_u32(DATA);
        let form = DataForm {
            id: self.id,
            offset: self.offset,
            plain: self.plain,
            codec: self.codec.number(),
            checksum: FixedOpaque(self.checksum.to_be_bytes()),
        };
        form.encode(&mut out);
        out.freeze()
    }
}

/// The bytes of a frame.
#[must_use]
pub fn encode(frame: &impl Encode) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_u32(0);
    frame.encode(&mut out);
    let length = u32::try_from(out.len() - LENGTH).unwrap_or(u32::MAX);
    out[..LENGTH].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

/// A kind of frames that can be told apart in a stream.
pub trait Read: Sized {
    /// Bytes of one, at most.
    const MOST: usize;

    /// Reads the body of one, all of it.
    ///
    /// # Errors
    /// [`FrameError`].
    fn read(body: Bytes) -> Result<Self, FrameError>;
}

impl Read for ClientFrame {
    const MOST: usize = FRAME_MAX;

    fn read(body: Bytes) -> Result<Self, FrameError> {
        Ok(from_bytes(&body)?)
    }
}

impl<F: Decode> Read for Passing<F> {
    const MOST: usize = DataHead::BODY + RECORD_MAX as usize;

    fn read(mut body: Bytes) -> Result<Self, FrameError> {
        let number: u32 = Decoder::new(&body).read()?;
        if number != DATA {
            if body.len() > FRAME_MAX {
                return Err(too_long(body.len(), FRAME_MAX));
            }
            return Ok(Self::Frame(from_bytes(&body)?));
        }
        let mut input = Decoder::new(&body);
        input.read::<u32>()?;
        let form: DataForm = input.read()?;
        let codec = Codec::from_number(form.codec).ok_or(RecordError::Codec(form.codec))?;
        let stored = body.split_off(DataHead::BODY);
        check_lengths(codec, stored.len() as u64, form.plain)?;
        let head = DataHead {
            id: form.id,
            offset: form.offset,
            plain: form.plain,
            codec,
            checksum: u128::from_be_bytes(form.checksum.0),
        };
        Ok(Self::Data(Data { head, stored }))
    }
}

fn too_long(length: usize, most: usize) -> FrameError {
    FrameError::TooLong {
        length: u32::try_from(length).unwrap_or(u32::MAX),
        most,
    }
}

/// Frames in a stream of bytes.
#[derive(Debug)]
pub struct Incoming<T> {
    bytes: BytesMut,
    kind: PhantomData<fn() -> T>,
}

impl<T> Default for Incoming<T> {
    fn default() -> Self {
        Self {
            bytes: BytesMut::new(),
            kind: PhantomData,
        }
    }
}

/// Bytes that are read at a time while it is not known how many there will be.
const READ: usize = 4 << 10;

impl<T> Incoming<T> {
    /// The same stream, in which frames of another kind come from now on.
    #[must_use]
    pub fn change<U>(self) -> Incoming<U> {
        Incoming {
            bytes: self.bytes,
            kind: PhantomData,
        }
    }
}

impl<T: Read> Incoming<T> {
    /// The next frame, if all of it is here.
    ///
    /// # Errors
    /// [`FrameError`]: nothing that comes later means anything.
    pub fn frame(&mut self) -> Result<Option<T>, FrameError> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        if self.bytes.len() < LENGTH + length {
            return Ok(None);
        }
        let mut frame = self.bytes.split_to(LENGTH + length).freeze();
        T::read(frame.split_off(LENGTH)).map(Some)
    }

    /// The bytes of the body that comes next.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let most = T::MOST;
        match usize::try_from(length) {
            Ok(length) if length <= most => Ok(Some(length)),
            _ => Err(FrameError::TooLong { length, most }),
        }
    }

    /// Where to put the bytes that come, with room for the rest of the frame that has begun, and little more. A frame
    /// that would be too long gets no room.
    pub fn room(&mut self) -> &mut BytesMut {
        let rest = match self.announced() {
            Ok(Some(length)) => (LENGTH + length).saturating_sub(self.bytes.len()),
            _ => 0,
        };
        if self.bytes.is_empty() {
            // What is left of a record's allocation would stay for as long as nothing comes.
            self.bytes = BytesMut::new();
        }
        self.bytes.reserve(rest.max(READ));
        &mut self.bytes
    }

    /// Whether nothing of another frame is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests;
