//! Data of which nobody says beforehand how much it is: it ends where the stream ends. It goes in the call, or out of band.

use std::fmt;

use afar_net::{AbortCode, Call};
use afar_xdr::Encode;
use bytes::Bytes;

use super::send_reply;
use super::sink::Outlet;
use super::source::Inlet;
use crate::wait::Wait;

/// Where the data of a download goes.
enum Down<'a> {
    Call(&'a mut Call),
    Outlet(&'a mut dyn Outlet),
}

/// Takes a download operation's data to the client. The data ends where the operation does.
pub struct DownloadSink<'a> {
    path: Down<'a>,
    sent: u64,
}

impl<'a> DownloadSink<'a> {
    pub(crate) fn new(call: &'a mut Call) -> Self {
        let path = Down::Call(call);
        Self { path, sent: 0 }
    }

    /// For data that does not go into a call.
    pub(crate) fn out_of_band(outlet: &'a mut dyn Outlet) -> Self {
        let path = Down::Outlet(outlet);
        Self { path, sent: 0 }
    }

    /// Bytes sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends the next bytes; waits while the call's send queue is full.
    ///
    /// # Errors
    /// When the call has failed.
    pub async fn send(&mut self, data: Bytes) -> Result<(), AbortCode> {
        let length = data.len() as u64;
        match &mut self.path {
            Down::Call(call) => {
                let sent = Wait::Window.on(call.send(data)).await;
                sent.map_err(|error| error.code())?;
            }
            Down::Outlet(outlet) => Wait::Window.on(outlet.send(data)).await?,
        }
        self.sent += length;
        Ok(())
    }

    pub(crate) async fn finish(self, reply: &impl Encode) -> Result<(), AbortCode> {
        match self.path {
            Down::Call(call) => send_reply(call, reply).await,
            Down::Outlet(_) => Ok(()),
        }
    }
}

impl fmt::Debug for DownloadSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadSink")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

/// Where the data of an upload comes from.
enum Up<'a> {
    Call {
        call: &'a mut Call,
        /// What came with the arguments.
        head: Bytes,
    },
    Inlet(&'a mut dyn Inlet),
}

/// Brings an upload operation's data from the client.
pub struct UploadSource<'a> {
    path: Up<'a>,
    received: u64,
}

impl<'a> UploadSource<'a> {
    pub(crate) fn new(call: &'a mut Call, head: Bytes) -> Self {
        let path = Up::Call { call, head };
        Self { path, received: 0 }
    }

    /// For data that does not come in a call.
    pub(crate) fn out_of_band(inlet: &'a mut dyn Inlet) -> Self {
        let path = Up::Inlet(inlet);
        Self { path, received: 0 }
    }

    /// Bytes that came out of band so far, as they were packed; a call counts its own.
    pub(crate) fn received_beside(&self) -> u64 {
        match &self.path {
            Up::Call { .. } => 0,
            Up::Inlet(inlet) => inlet.received(),
        }
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The next bytes in order, of any number but 0; `None` when the client has ended its
    /// request, so that these were all.
    ///
    /// # Errors
    /// When the call has failed: a client that gave up does not end its request.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, AbortCode> {
        let next = match &mut self.path {
            Up::Call { head, .. } if !head.is_empty() => Some(std::mem::take(head)),
            Up::Call { call, .. } => {
                let next = Wait::Data.on(call.recv()).await;
                next.map_err(|error| error.code())?
            }
            Up::Inlet(inlet) => Wait::Data.on(inlet.next()).await?,
        };
        self.received += next.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(next)
    }
}

impl fmt::Debug for UploadSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadSource")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
