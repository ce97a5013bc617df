//! One part of a file by one call.

use std::io;

use afar_rpc::rxafs::{self, store_data, store_data64};
use afar_rpc::{RpcCause, RpcError, Store};
use afar_types::{FetchStatus, Fid, StoreStatus};
use bytes::Bytes;
use tokio::sync::Notify;

use super::Source;
use crate::oob::Called;

/// Bytes asked of the source at a time.
const READ: usize = 256 << 10;

/// What is to be stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) fid: Fid,
    pub(super) attributes: StoreStatus,
    pub(super) position: u64,
    pub(super) length: u64,
    /// What the whole file's length is to be.
    pub(super) file_length: u64,
}

impl Part {
    /// The bytes behind those that are sent, of which there are some.
    pub(super) async fn read<S: Source>(&self, source: &S, sent: u64) -> io::Result<Bytes> {
        let most = usize::try_from(self.length - sent).map_or(READ, |left| left.min(READ));
        let data = source.read_at(self.position + sent, most).await?;
        // More than was asked for would be more than the call has announced.
        // spec: afs-rpc#storing-data
        if data.is_empty() || data.len() > most {
            let text = "it became shorter meanwhile";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(data)
    }
}

/// How a part whose call went well turned out.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is stored; the file's status.
    Done(FetchStatus),
    /// It could not be read, and the call was given up.
    Source(io::Error),
}

/// Either form of a store in progress.
enum Call {
    New(Store<store_data64::Reply>),
    Old(Store<store_data::Reply>),
}

impl Call {
    async fn start(server: &rxafs::Client, old: bool, part: Part) -> Result<Self, RpcError> {
        let Part {
            fid,
            attributes,
            position,
            length,
            file_length,
        } = part;
        if !old {
            let call = server.store_data64(fid, attributes, position, length, file_length);
            return call.await.map(Self::New);
        }
        let narrow = |number: u64| {
            u32::try_from(number).map_err(|_| RpcError {
                operation: store_data::OPERATION,
                peer: server.connection().peer(),
                cause: RpcCause::Data {
                    given: number.into(),
                    announced: u32::MAX.into(),
                },
            })
        };
        let (position, length) = (narrow(position)?, narrow(length)?);
        let file_length = narrow(file_length)?;
        let call = server.store_data(fid, attributes, position, length, file_length);
        call.await.map(Self::Old)
    }

    async fn send(&mut self, data: Bytes) -> Result<(), RpcError> {
        match self {
            Self::New(call) => call.send(data).await,
            Self::Old(call) => call.send(data).await,
        }
    }

    async fn finish(self) -> Result<FetchStatus, RpcError> {
        match self {
            Self::New(call) => Ok(call.finish().await?.status),
            Self::Old(call) => Ok(call.finish().await?.status),
        }
    }
}

/// Stores a part; tells `all_sent` when it only waits for the server.
pub(super) async fn store<S: Source>(
    server: &rxafs::Client,
    old: bool,
    part: Part,
    source: &S,
    all_sent: &Notify,
    called: Option<&Called>,
) -> Result<Outcome, RpcError> {
    let mut call = Call::start(server, old, part).await?;
    let mut sent = 0;
    while sent < part.length {
        let data = match part.read(source, sent).await {
            Ok(data) => data,
            Err(error) => return Ok(Outcome::Source(error)),
        };
        let length = data.len();
        call.send(data).await?;
        sent += length as u64;
        if let Some(called) = called {
            called.moved(length);
        }
    }
    // Not a matter of the answer: the next part may come while the server writes this one to its disk.
    all_sent.notify_one();
    call.finish().await.map(Outcome::Done)
}
