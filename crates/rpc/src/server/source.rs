//! Data of a store on its way from the client: in the call, or out of band.

use std::fmt;

use afar_net::{AbortCode, Call};
use bytes::Bytes;

use super::sink::Outletting;
use crate::operation::Length;
use crate::wait::Wait;

/// Brings data from a client by another path than the call's.
pub trait Inlet: Send {
    /// The next bytes, of any number but 0; `None` when the client has said that these were all. Of a store it is asked
    /// for no more than the store said would come.
    fn next(&mut self) -> Outletting<'_, Option<Bytes>>;

    /// Bytes that have come, as they were packed.
    fn received(&self) -> u64;
}

/// Where the data comes from.
enum Path<'a> {
    Call {
        call: &'a mut Call,
        /// What came with the arguments.
        head: Bytes,
    },
    Inlet(&'a mut dyn Inlet),
}

/// Brings a store operation's data from the client.
pub struct StoreSource<'a> {
    path: Path<'a>,
    remaining: u64,
    received: u64,
}

impl<'a> StoreSource<'a> {
    pub(crate) fn new<L: Length>(
        call: &'a mut Call,
        head: Bytes,
        length: L,
    ) -> Result<Self, AbortCode> {
        Self::with(Path::Call { call, head }, length)
    }

    /// For data that does not come in a call.
    pub(crate) fn out_of_band<L: Length>(
        inlet: &'a mut dyn Inlet,
        length: L,
    ) -> Result<Self, AbortCode> {
        Self::with(Path::Inlet(inlet), length)
    }

    fn with<L: Length>(path: Path<'a>, length: L) -> Result<Self, AbortCode> {
        let remaining = length.bytes().ok_or(AbortCode::RXGEN_SS_UNMARSHAL)?;
        Ok(Self {
            path,
            remaining,
            received: 0,
        })
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes that came out of band so far, as they were packed; a call counts its own.
    pub(crate) fn received_beside(&self) -> u64 {
        match &self.path {
            Path::Call { .. } => 0,
            Path::Inlet(inlet) => inlet.received(),
        }
    }

    /// Bytes still to come.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The next bytes in order, of any number but 0; `None` after the last. What the client sends
    /// beyond the length it gave is ignored.
    ///
    /// # Errors
    /// When the call has failed; RX_EOF when the client sent less than it said.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, AbortCode> {
        self.chunk_after(1).await
    }

    /// The same once `least` bytes have come, or all the client sends
    /// ([`Call::recv_after`](afar_net::Call::recv_after)); out of band, with the next record.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn chunk_after(&mut self, least: usize) -> Result<Option<Bytes>, AbortCode> {
        if self.remaining == 0 {
            return Ok(None);
        }
        let mut chunk = match &mut self.path {
            Path::Call { head, .. } if !head.is_empty() => std::mem::take(head),
            Path::Call { call, .. } => {
                let least = usize::try_from(self.remaining).map_or(least, |rest| least.min(rest));
                let next = Wait::Data.on(call.recv_after(least)).await;
                let next = next.map_err(|error| error.code())?;
                next.ok_or(AbortCode::RX_EOF)?
            }
            Path::Inlet(inlet) => {
                let next = Wait::Data.on(inlet.next()).await?;
                next.ok_or(AbortCode::RX_EOF)?
            }
        };
        if let Ok(rest) = usize::try_from(self.remaining) {
            chunk.truncate(rest);
        }
        self.remaining -= chunk.len() as u64;
        self.received += chunk.len() as u64;
        Ok(Some(chunk))
    }
}

impl fmt::Debug for StoreSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSource")
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}
