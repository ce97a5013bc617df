//! Data of which nobody says beforehand how much it is: it ends where the stream ends.

use std::fmt;

use afar_net::{AbortCode, Call};
use afar_xdr::Encode;
use bytes::Bytes;

use super::send_reply;
use crate::wait::Wait;

/// Takes a download operation's data to the client. The data ends where the operation does.
pub struct DownloadSink<'a> {
    call: &'a mut Call,
    sent: u64,
}

impl<'a> DownloadSink<'a> {
    pub(crate) fn new(call: &'a mut Call) -> Self {
        Self { call, sent: 0 }
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
        let sent = Wait::Window.on(self.call.send(data)).await;
        sent.map_err(|error| error.code())?;
        self.sent += length;
        Ok(())
    }

    pub(crate) async fn finish(self, reply: &impl Encode) -> Result<(), AbortCode> {
        send_reply(self.call, reply).await
    }
}

impl fmt::Debug for DownloadSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadSink")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

/// Brings an upload operation's data from the client.
pub struct UploadSource<'a> {
    call: &'a mut Call,
    head: Bytes,
    received: u64,
}

impl<'a> UploadSource<'a> {
    pub(crate) fn new(call: &'a mut Call, head: Bytes) -> Self {
        Self {
            call,
            head,
            received: 0,
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
        let head = std::mem::take(&mut self.head);
        let next = if head.is_empty() {
            let next = Wait::Data.on(self.call.recv()).await;
            next.map_err(|error| error.code())?
        } else {
            Some(head)
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
