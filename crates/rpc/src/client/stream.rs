//! Data of which nobody says beforehand how much it is: it ends where the stream ends.

use std::fmt;
use std::marker::PhantomData;

use afar_net::Connection;
use afar_xdr::{Decode, Encode};
use bytes::Bytes;

use super::{About, Open};
use crate::RpcError;

/// An operation with data from the server and no results.
pub(crate) async fn download(
    connection: &Connection,
    about: About,
    request: &impl Encode,
) -> Result<Download, RpcError> {
    let mut open = Open::start(connection, about, request).await?;
    open.end_request().await?;
    Ok(Download { open })
}

/// An operation with data from the client to the end of the request.
pub(crate) async fn upload<R: Decode>(
    connection: &Connection,
    about: About,
    request: &impl Encode,
) -> Result<Upload<R>, RpcError> {
    let open = Open::start(connection, about, request).await?;
    Ok(Upload {
        open,
        reply: PhantomData,
    })
}

/// Data on its way from the server until it ends the call. Dropping it cancels the call.
pub struct Download {
    open: Open,
}

impl Download {
    /// The next bytes in order, of any number but 0; `None` when the server has ended the call
    /// well, so that these were all.
    ///
    /// # Errors
    /// When the call fails: the server refused, or gave up amidst the data.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RpcError> {
        let next = self.open.call.recv().await;
        next.map_err(|error| self.open.failed(error))
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download")
            .field("operation", &self.open.made.operation.name)
            .field("peer", &self.open.made.peer)
            .finish_non_exhaustive()
    }
}

/// Data on its way to the server. Dropping it cancels the call; what the server then keeps of the
/// data is up to it.
pub struct Upload<R> {
    open: Open,
    reply: PhantomData<fn() -> R>,
}

impl<R: Decode> Upload<R> {
    /// Sends the next bytes; waits while the call's send queue is full.
    ///
    /// # Errors
    /// When the call fails, such as when the server refuses what came so far.
    pub async fn send(&mut self, data: Bytes) -> Result<(), RpcError> {
        let sent = self.open.call.send(data).await;
        sent.map_err(|error| self.open.failed(error))
    }

    /// Ends the data, by which the server knows that it is whole, and waits for the results.
    ///
    /// # Errors
    /// When the call fails or the results cannot be decoded.
    pub async fn finish(mut self) -> Result<R, RpcError> {
        self.open.end_request().await?;
        self.open.results(Bytes::new(), None).await
    }
}

impl<R> fmt::Debug for Upload<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("operation", &self.open.made.operation.name)
            .field("peer", &self.open.made.peer)
            .finish_non_exhaustive()
    }
}
