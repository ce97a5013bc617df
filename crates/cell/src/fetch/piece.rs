//! One piece of a file by one call.

use std::io;
use std::sync::Arc;

use afar_rpc::rxafs::{self, fetch_data, fetch_data64};
use afar_rpc::{Fetch, RpcCause, RpcError};
use afar_types::{CallBack, DataVersion, FetchStatus, Fid, VolSync};
use bytes::Bytes;
use tokio::time::Instant;

use super::Sink;
use crate::promise::Promised;
use crate::window::Permit;

/// Octets handed to the sink at a time.
const WRITE: usize = 512 << 10;

/// What is to be fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) fid: Fid,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) version: DataVersion,
}

/// How a piece whose call went well turned out.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is written: so many octets.
    Done(u64),
    /// The file has another version now.
    Changed(FetchStatus),
    /// It could not be written.
    Sink(io::Error),
}

/// Either form of a fetch's reply.
enum Reply {
    New(Fetch<fetch_data64::Reply>),
    Old(Fetch<fetch_data::Reply>),
}

impl Reply {
    /// Asks for data in 64-bit or 32-bit form.
    async fn ask(
        server: &rxafs::Client,
        old: bool,
        fid: Fid,
        offset: u64,
        length: u64,
    ) -> Result<Self, RpcError> {
        if old {
            let (offset, length) = (narrow(server, offset)?, narrow(server, length)?);
            server.fetch_data(fid, offset, length).await.map(Self::Old)
        } else {
            let (offset, length) = (narrow(server, offset)?, narrow(server, length)?);
            server
                .fetch_data64(fid, offset, length)
                .await
                .map(Self::New)
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, RpcError> {
        match self {
            Self::New(fetch) => fetch.chunk().await,
            Self::Old(fetch) => fetch.chunk().await,
        }
    }

    async fn finish(self) -> Result<(FetchStatus, CallBack, VolSync), RpcError> {
        match self {
            Self::New(fetch) => {
                let reply = fetch.finish().await?;
                Ok((reply.status, reply.callback, reply.vol_sync))
            }
            Self::Old(fetch) => {
                let reply = fetch.finish().await?;
                Ok((reply.status, reply.callback, reply.vol_sync))
            }
        }
    }
}

/// A place or length in the form a call takes; too large a one cannot be asked for.
fn narrow<T: TryFrom<u64>>(server: &rxafs::Client, number: u64) -> Result<T, RpcError> {
    T::try_from(number).map_err(|_| RpcError {
        operation: fetch_data::OPERATION,
        peer: server.connection().peer(),
        cause: RpcCause::Length {
            announced: number.into(),
            asked: i32::MAX.unsigned_abs().into(),
        },
    })
}

/// Fetches a piece into a sink, and tells the window how it goes. What came of it when the call fails
/// is in the sink too.
pub(super) async fn fetch<S: Sink>(
    server: &rxafs::Client,
    old: bool,
    piece: Piece,
    sink: &Arc<S>,
    mut permit: Option<&mut Permit>,
) -> Result<Outcome, RpcError> {
    let begin = Instant::now();
    let mut reply = Reply::ask(server, old, piece.fid, piece.offset, piece.length).await?;
    if let Some(permit) = &mut permit {
        permit.answered(begin.elapsed());
    }
    let (mut chunks, mut held, mut written) = (Vec::new(), 0, 0);
    while let Some(chunk) = reply.chunk().await? {
        if let Some(permit) = &mut permit {
            permit.received(chunk.len());
        }
        held += chunk.len();
        chunks.push(chunk);
        if held >= WRITE {
            let chunks = std::mem::take(&mut chunks);
            if let Err(error) = sink.write(piece.offset + written, chunks).await {
                return Ok(Outcome::Sink(error));
            }
            written += held as u64;
            held = 0;
        }
    }
    let (status, ..) = reply.finish().await?;
    let bytes = written + held as u64;
    if status.data_version != piece.version || bytes != piece.length {
        return Ok(Outcome::Changed(status));
    }
    if held > 0
        && let Err(error) = sink.write(piece.offset + written, chunks).await
    {
        return Ok(Outcome::Sink(error));
    }
    Ok(Outcome::Done(bytes))
}

/// Fetches up to `length` octets from the beginning, with the status.
pub(super) async fn head(
    server: &rxafs::Client,
    old: bool,
    fid: Fid,
    length: u64,
) -> Result<(Promised, Bytes), RpcError> {
    let begin = Instant::now();
    let mut reply = Reply::ask(server, old, fid, 0, length).await?;
    let mut data = Vec::new();
    while let Some(chunk) = reply.chunk().await? {
        data.extend_from_slice(&chunk);
    }
    let (status, callback, vol_sync) = reply.finish().await?;
    let peer = server.connection().peer();
    let promised = Promised::new(peer, begin, status, callback, vol_sync);
    Ok((promised, data.into()))
}
