//! The wire of rxperf: what a request says, what each side then sends.
//!
//! Follows OpenAFS's `src/tools/rxperf` (version 3 of its protocol). A call starts with words of
//! 32 bits, most significant byte first: version, operation, the client's read size, its write
//! size (each at most 512 KiB), and the operation's own words. After that the client sends
//! payload, then the server, and the reply to every operation except `file` ends with the word
//! [`COOKIE`]. So each operation comes down to one [`Exchange`].

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The service that rxperf servers offer.
pub(crate) const SERVICE: u16 = 147;
/// The UDP port a server uses unless told otherwise.
pub(crate) const PORT: u16 = 7009;
/// The largest read or write size that a server of either make accepts, in bytes.
pub(crate) const IO_SIZE_MAX: u32 = 512 * 1024;
/// The words each request starts with, the first word of the operation's own among them, in bytes.
pub(crate) const HEADER_LEN: usize = 20;
/// The most entries of a `file` request that this server takes; OpenAFS's takes what its memory
/// allows.
pub(crate) const FILE_ENTRIES_MAX: usize = 1 << 16;
/// The last word of a reply.
const COOKIE: [u8; 4] = 0x4711_u32.to_be_bytes();

const VERSION: u32 = 3;
/// Byte counts are signed words in OpenAFS.
const WORD_BYTES_MAX: u64 = i32::MAX as u64;
/// The largest entry of a `file` request, in words of four bytes: OpenAFS keeps its bytes in a
/// signed word.
const FILE_ENTRY_MAX: u32 = i32::MAX as u32 / 4;
/// The entry size into which amounts that no single word can say are cut: 1 GiB, in words of four
/// bytes.
const FILE_ENTRY_STEP: u64 = 1 << 28;

const OP_SEND: u32 = 0;
const OP_RECV: u32 = 1;
const OP_RPC: u32 = 3;
const OP_FILE: u32 = 4;

/// Zero bytes in memory that is never copied: every payload is made of slices of it.
static ZEROS: [u8; IO_SIZE_MAX as usize] = [0; IO_SIZE_MAX as usize];
/// The end of a reply: zeros, then the cookie. Short replies are one slice of it.
static TAIL: [u8; TAIL_LEN] = {
    let mut tail = [0; TAIL_LEN];
    let (_, cookie) = tail.split_at_mut(TAIL_LEN - COOKIE.len());
    cookie.copy_from_slice(&COOKIE);
    tail
};
const TAIL_LEN: usize = 16 * 1024 + COOKIE.len();
/// Requests with at most this much payload are sent as one piece, words and payload together.
const PIECE_LEN_MAX: u64 = 16 * 1024;

/// One operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The client sends so many bytes.
    Send(u64),
    /// The server sends so many bytes.
    Recv(u64),
    /// The client sends `request` bytes, then the server `reply` bytes.
    Rpc { request: u64, reply: u64 },
    /// Amounts in words of four bytes; a zero changes the direction, which is at first from client
    /// to server.
    File(Vec<u32>),
}

/// What moves in one call, apart from the request's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Payload from client to server, in bytes.
    pub(crate) request: u64,
    /// Payload from server to client, in bytes.
    pub(crate) reply: u64,
    /// Whether the reply ends with the cookie.
    pub(crate) cookie: bool,
}

/// An encoded request, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The words, and the payload too if it is short.
    pub(crate) head: Bytes,
    /// Payload that follows `head`, in bytes.
    pub(crate) rest: u64,
    /// What the call moves.
    pub(crate) exchange: Exchange,
}

/// What a server knows after the first [`HEADER_LEN`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// How much the client wants written at a time, in bytes; never 0.
    pub(crate) write_size: usize,
    /// What is still to be read before the payload.
    pub(crate) next: Next,
}

/// The rest of a request's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the payload follows.
    Payload(Exchange),
    /// One word, the reply's bytes; the request's are known.
    ReplyBytes { request: u64 },
    /// So many words, the entries of a `file` request.
    Entries(usize),
}

/// Why a request or a reply is not of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// Another version of the protocol.
    #[error("rxperf protocol version {0} instead of {VERSION}")]
    Version(u32),
    /// An operation that nobody knows.
    #[error("unknown rxperf operation {0}")]
    Operation(u32),
    /// A read or write size beyond [`IO_SIZE_MAX`].
    #[error("a read or write size of {0} bytes is above {IO_SIZE_MAX}")]
    IoSize(u32),
    /// An amount that the protocol's words cannot say.
    #[error("an amount of {0} bytes cannot be requested in one rxperf call")]
    Amount(u64),
    /// A `file` entry whose bytes exceed a signed word.
    #[error("a file entry of {0} words is above {FILE_ENTRY_MAX}")]
    Entry(u32),
    /// More `file` entries than [`FILE_ENTRIES_MAX`].
    #[error("{0} file entries are more than {FILE_ENTRIES_MAX}")]
    Entries(u32),
    /// The client was to send again after the server had begun: an Rx call turns around only once.
    #[error("a file request goes back to sending, but an Rx call turns around only once")]
    TurnsBack,
    /// The peer sent more or less than agreed.
    #[error("the peer sent {got} bytes instead of {expected}")]
    Length { expected: u64, got: u64 },
    /// The reply does not end with the cookie.
    #[error("the reply ends with 0x{0:08x} instead of the cookie 0x4711")]
    Cookie(u32),
}

impl Request {
    /// Encodes an operation. Amounts above 2^31 − 1 bytes, which one word cannot say, become a
    /// `file` request of several entries, which OpenAFS's server understands as well.
    ///
    /// # Errors
    /// `IoSize`, `Amount` (too large and not a multiple of four), `Entry`, `Entries`, `TurnsBack`.
    pub(crate) fn encode(
        operation: &Operation,
        read_size: u32,
        write_size: u32,
    ) -> Result<Self, WireError> {
        for size in [read_size, write_size] {
            if size == 0 || size > IO_SIZE_MAX {
                return Err(WireError::IoSize(size));
            }
        }
        let mut words = BytesMut::with_capacity(HEADER_LEN + 4);
        let mut begin = |code: u32| {
            for word in [VERSION, code, read_size, write_size] {
                words.put_u32(word);
            }
        };
        let mut exchange = Exchange {
            request: 0,
            reply: 0,
            cookie: true,
        };
        match *operation {
            Operation::Send(bytes) if bytes <= WORD_BYTES_MAX => {
                begin(OP_SEND);
                put_amount(&mut words, bytes)?;
                exchange.request = bytes;
            }
            Operation::Recv(bytes) if bytes <= WORD_BYTES_MAX => {
                begin(OP_RECV);
                put_amount(&mut words, bytes)?;
                exchange.reply = bytes;
            }
            Operation::Rpc { request, reply } => {
                begin(OP_RPC);
                put_amount(&mut words, request)?;
                put_amount(&mut words, reply)?;
                exchange = Exchange {
                    request,
                    reply,
                    cookie: true,
                };
            }
            Operation::Send(bytes) => {
                let entries = cut(bytes)?;
                return Self::encode(&Operation::File(entries), read_size, write_size);
            }
            Operation::Recv(bytes) => {
                let mut entries = cut(bytes)?;
                entries.insert(0, 0);
                return Self::encode(&Operation::File(entries), read_size, write_size);
            }
            Operation::File(ref entries) => {
                let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                if entries.len() > FILE_ENTRIES_MAX {
                    return Err(WireError::Entries(count));
                }
                exchange = Exchange::of_entries(entries.iter().copied())?;
                begin(OP_FILE);
                words.put_u32(count);
                for entry in entries {
                    words.put_u32(*entry);
                }
            }
        }
        let mut rest = exchange.request;
        if rest <= PIECE_LEN_MAX {
            words.extend_from_slice(&zeros(rest));
            rest = 0;
        }
        Ok(Self {
            head: words.freeze(),
            rest,
            exchange,
        })
    }
}

impl Exchange {
    /// Decodes the entries of a `file` request.
    ///
    /// # Errors
    /// `Entry` and `TurnsBack`.
    pub(crate) fn decode_entries(mut words: &[u8]) -> Result<Self, WireError> {
        Self::of_entries(std::iter::from_fn(|| words.try_get_u32().ok()))
    }

    fn of_entries(entries: impl Iterator<Item = u32>) -> Result<Self, WireError> {
        let mut exchange = Self {
            request: 0,
            reply: 0,
            cookie: false,
        };
        let mut to_server = true;
        for entry in entries {
            if entry > FILE_ENTRY_MAX {
                return Err(WireError::Entry(entry));
            }
            let bytes = u64::from(entry) * 4;
            match (entry, to_server) {
                (0, _) => to_server = !to_server,
                (_, false) => exchange.reply += bytes,
                (_, true) if exchange.reply > 0 => return Err(WireError::TurnsBack),
                (_, true) => exchange.request += bytes,
            }
        }
        Ok(exchange)
    }
}

impl Header {
    /// Decodes the start of a request.
    ///
    /// # Errors
    /// `Version`, `Operation`, `IoSize`, `Amount` (a negative word), `Entries`.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, WireError> {
        let mut words = &bytes[..];
        let version = words.get_u32();
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let code = words.get_u32();
        let (read_size, write_size) = (words.get_u32(), words.get_u32());
        if let Some(size) = [read_size, write_size]
            .into_iter()
            .find(|size| *size > IO_SIZE_MAX)
        {
            return Err(WireError::IoSize(size));
        }
        let argument = words.get_u32();
        let amount = || decode_amount(argument);
        let next = match code {
            OP_SEND => Next::Payload(Exchange {
                request: amount()?,
                reply: 0,
                cookie: true,
            }),
            OP_RECV => Next::Payload(Exchange {
                request: 0,
                reply: amount()?,
                cookie: true,
            }),
            OP_RPC => Next::ReplyBytes { request: amount()? },
            OP_FILE => match usize::try_from(argument) {
                Ok(count) if count <= FILE_ENTRIES_MAX => Next::Entries(count),
                _ => return Err(WireError::Entries(argument)),
            },
            unknown => return Err(WireError::Operation(unknown)),
        };
        // A write size of 0 would never get a reply out; OpenAFS's server would spin on it.
        let write_size = write_size.clamp(1, IO_SIZE_MAX) as usize;
        Ok(Self { write_size, next })
    }
}

/// Reads a byte count: a word that must not be negative.
///
/// # Errors
/// `Amount`.
pub(crate) fn decode_amount(word: u32) -> Result<u64, WireError> {
    let bytes = u64::from(word);
    if bytes > WORD_BYTES_MAX {
        Err(WireError::Amount(bytes))
    } else {
        Ok(bytes)
    }
}

/// At most `len` zero bytes, at most `IO_SIZE_MAX`, without allocating.
pub(crate) fn zeros(len: u64) -> Bytes {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len());
    Bytes::from_static(&ZEROS[..len])
}

/// The end of a reply that has `left` bytes of payload to go, cookie included, if it fits one
/// piece.
pub(crate) fn tail(left: u64, cookie: bool) -> Option<Bytes> {
    let payload = usize::try_from(left)
        .ok()
        .filter(|left| *left <= TAIL_LEN - COOKIE.len())?;
    let end = if cookie {
        TAIL_LEN
    } else {
        TAIL_LEN - COOKIE.len()
    };
    let start = TAIL_LEN - COOKIE.len() - payload;
    Some(Bytes::from_static(&TAIL[start..end]))
}

fn put_amount(words: &mut BytesMut, bytes: u64) -> Result<(), WireError> {
    match u32::try_from(bytes) {
        Ok(word) if bytes <= WORD_BYTES_MAX => words.put_u32(word),
        _ => return Err(WireError::Amount(bytes)),
    }
    Ok(())
}

/// Cuts an amount into the entries of a `file` request.
fn cut(bytes: u64) -> Result<Vec<u32>, WireError> {
    let words = bytes / 4;
    let steps = words.div_ceil(FILE_ENTRY_STEP);
    if !bytes.is_multiple_of(4) || steps >= FILE_ENTRIES_MAX as u64 {
        return Err(WireError::Amount(bytes));
    }
    let entry = |step: u64| (words - step * FILE_ENTRY_STEP).min(FILE_ENTRY_STEP);
    (0..steps)
        .map(|step| u32::try_from(entry(step)).map_err(|_| WireError::Amount(bytes)))
        .collect()
}

/// Checks a reply as its pieces arrive: so much payload, then the cookie, then the end.
#[derive(Debug)]
pub(crate) struct ReplyCheck {
    exchange: Exchange,
    got: u64,
    cookie: u32,
}

impl ReplyCheck {
    pub(crate) fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            got: 0,
            cookie: 0,
        }
    }

    /// Takes the next piece and says how much of it is payload, in bytes.
    ///
    /// # Errors
    /// `Length` as soon as the reply is longer than agreed.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<u64, WireError> {
        let before = self.got;
        self.got += piece.len() as u64;
        if self.got > self.expected() {
            return Err(self.length());
        }
        let payload = self
            .exchange
            .reply
            .saturating_sub(before)
            .min(piece.len() as u64);
        let rest = &piece[usize::try_from(payload).unwrap_or(piece.len())..];
        for byte in rest {
            self.cookie = self.cookie << 8 | u32::from(*byte);
        }
        Ok(payload)
    }

    /// Checks what can be checked only at the end of the reply.
    ///
    /// # Errors
    /// `Length` if the reply is short, `Cookie` if it ends with something else.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.got != self.expected() {
            return Err(self.length());
        }
        if self.exchange.cookie && self.cookie != u32::from_be_bytes(COOKIE) {
            return Err(WireError::Cookie(self.cookie));
        }
        Ok(())
    }

    fn expected(&self) -> u64 {
        self.exchange.reply
            + if self.exchange.cookie {
                COOKIE.len() as u64
            } else {
                0
            }
    }

    fn length(&self) -> WireError {
        WireError::Length {
            expected: self.expected(),
            got: self.got,
        }
    }
}

#[cfg(test)]
mod tests;
