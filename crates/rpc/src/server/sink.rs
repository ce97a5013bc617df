//! Data of a fetch on its way to the client: in the call, or out of band.

use std::fmt;
use std::pin::Pin;

use afar_net::{AbortCode, Call};
use afar_xdr::{Encode, to_bytes};
use bytes::Bytes;

use super::send_reply;
use crate::operation::Length;
use crate::wait::Wait;

/// What an [`Outlet`] answers when it has waited as long as it must.
pub type Outletting<'a, T> = Pin<Box<dyn Future<Output = Result<T, AbortCode>> + Send + 'a>>;

/// A piece of a file as it is stored, which the client can check and unpack.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The number of the codec: 0 raw, 1 zstd, 2 LZ4.
    pub codec: u8,
    /// Bytes that it has when it is unpacked.
    pub plain: u32,
    /// Its bytes as they are stored.
    pub stored: Bytes,
    /// XXH3-128 of these.
    pub checksum: u128,
}

/// Takes data to a client by another path than the call's.
pub trait Outlet: Send {
    /// So many bytes will come. Data of which nobody knows that comes without.
    fn announce(&mut self, length: u64) -> Outletting<'_, ()>;

    /// Bytes that may be ready for the client now, as [`Call::granted`] says it of a call.
    fn granted(&self) -> usize;

    /// Waits until more could be sent, and says the same.
    fn room(&mut self) -> Outletting<'_, usize>;

    /// Takes the next bytes.
    fn send(&mut self, data: Bytes) -> Outletting<'_, ()>;

    /// Whether the client can unpack this codec.
    fn takes(&self, codec: u8) -> bool;

    /// Takes the next bytes as they are stored, in a codec that it takes.
    fn send_packed(&mut self, packed: Packed) -> Outletting<'_, ()>;
}

/// Where the data goes.
enum Path<'a> {
    Call {
        call: &'a mut Call,
        /// Encodes the length word in the operation's form.
        encode_length: fn(u64) -> Option<Bytes>,
    },
    Outlet(&'a mut dyn Outlet),
}

/// Takes a fetch operation's data to the client: first announced, then sent.
pub struct FetchSink<'a> {
    path: Path<'a>,
    asked: u64,
    sent: u64,
    sent_beside: u64,
    /// Bytes still to be sent, once announced.
    remaining: Option<u64>,
}

impl<'a> FetchSink<'a> {
    pub(crate) fn new<L: Length>(call: &'a mut Call, asked: L) -> Result<Self, AbortCode> {
        let encode_length = |bytes| L::from_bytes(bytes).map(|length| to_bytes(&length));
        let path = Path::Call {
            call,
            encode_length,
        };
        Self::with(path, asked)
    }

    /// For data that does not go into a call.
    pub(crate) fn out_of_band<L: Length>(
        outlet: &'a mut dyn Outlet,
        asked: L,
    ) -> Result<Self, AbortCode> {
        Self::with(Path::Outlet(outlet), asked)
    }

    fn with<L: Length>(path: Path<'a>, asked: L) -> Result<Self, AbortCode> {
        // A negative length means nothing that a server could do.
        let asked = asked.bytes().ok_or(AbortCode::RXGEN_SS_UNMARSHAL)?;
        Ok(Self {
            path,
            asked,
            sent: 0,
            sent_beside: 0,
            remaining: None,
        })
    }

    /// Bytes the client asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Bytes of the file sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes sent out of band so far, as they were stored; a call counts its own.
    pub(crate) fn sent_beside(&self) -> u64 {
        self.sent_beside
    }

    /// Tells the client how many bytes come: at most as many as it asked for. Once.
    ///
    /// # Errors
    /// When the call has failed; RXGEN_SS_MARSHAL when it is more than was asked for, or was
    /// announced before.
    pub async fn announce(&mut self, length: u64) -> Result<(), AbortCode> {
        if self.remaining.is_some() || length > self.asked {
            return Err(AbortCode::RXGEN_SS_MARSHAL);
        }
        match &mut self.path {
            Path::Call {
                call,
                encode_length,
            } => {
                let word = encode_length(length).ok_or(AbortCode::RXGEN_SS_MARSHAL)?;
                self.remaining = Some(length);
                call.send(word).await.map_err(|error| error.code())
            }
            Path::Outlet(outlet) => {
                self.remaining = Some(length);
                outlet.announce(length).await
            }
        }
    }

    /// Bytes that may be ready for the client now, sent or to be sent: see [`Call::room`].
    #[must_use]
    pub fn granted(&self) -> usize {
        match &self.path {
            Path::Call { call, .. } => call.granted(),
            Path::Outlet(outlet) => outlet.granted(),
        }
    }

    /// The same once the call's send queue has room.
    ///
    /// # Errors
    /// When the call has failed.
    pub async fn room(&mut self) -> Result<usize, AbortCode> {
        match &mut self.path {
            Path::Call { call, .. } => {
                let room = Wait::Window.on(call.room()).await;
                room.map_err(|error| error.code())
            }
            Path::Outlet(outlet) => Wait::Window.on(outlet.room()).await,
        }
    }

    /// Sends the next bytes; waits while the call's send queue is full.
    ///
    /// # Errors
    /// When the call has failed; RXGEN_SS_MARSHAL when more bytes come than were announced.
    pub async fn send(&mut self, data: Bytes) -> Result<(), AbortCode> {
        let length = data.len() as u64;
        self.take_off(length)?;
        match &mut self.path {
            Path::Call { call, .. } => {
                let sent = Wait::Window.on(call.send(data)).await;
                sent.map_err(|error| error.code())?;
            }
            Path::Outlet(outlet) => {
                self.sent_beside += length;
                Wait::Window.on(outlet.send(data)).await?;
            }
        }
        self.sent += length;
        Ok(())
    }

    /// Whether the client takes bytes as they are stored, packed by the codec of this number. A call takes none.
    #[must_use]
    pub fn takes(&self, codec: u8) -> bool {
        match &self.path {
            Path::Call { .. } => false,
            Path::Outlet(outlet) => outlet.takes(codec),
        }
    }

    /// Sends the next bytes as they are stored; what they stand for counts as sent.
    ///
    /// # Errors
    /// As [`send`](Self::send); RXGEN_SS_MARSHAL when the client does not take them.
    pub async fn send_packed(&mut self, packed: Packed) -> Result<(), AbortCode> {
        let plain = packed.plain.into();
        self.take_off(plain)?;
        match &mut self.path {
            Path::Outlet(outlet) if outlet.takes(packed.codec) => {
                self.sent_beside += packed.stored.len() as u64;
                Wait::Window.on(outlet.send_packed(packed)).await?;
            }
            _ => return Err(AbortCode::RXGEN_SS_MARSHAL),
        }
        self.sent += plain;
        Ok(())
    }

    fn take_off(&mut self, bytes: u64) -> Result<(), AbortCode> {
        let remaining = self.remaining.and_then(|left| left.checked_sub(bytes));
        self.remaining = Some(remaining.ok_or(AbortCode::RXGEN_SS_MARSHAL)?);
        Ok(())
    }

    /// Whether all that was announced was sent. Otherwise the call fails, because the client would take
    /// results for data.
    pub(crate) fn is_whole(&self) -> Result<(), AbortCode> {
        match self.remaining {
            Some(0) => Ok(()),
            _ => Err(AbortCode::RXGEN_SS_MARSHAL),
        }
    }

    /// Sends the results.
    pub(crate) async fn finish(self, reply: &impl Encode) -> Result<(), AbortCode> {
        self.is_whole()?;
        match self.path {
            Path::Call { call, .. } => send_reply(call, reply).await,
            Path::Outlet(_) => Ok(()),
        }
    }
}

impl fmt::Debug for FetchSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchSink")
            .field("asked", &self.asked)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}
