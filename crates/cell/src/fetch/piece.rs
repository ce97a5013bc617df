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
const WRITE: u64 = 512 << 10;

/// Times a call that is stuck is given up.
const STUCK_MOST: u32 = 2;

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
///
/// An OpenAFS server of which several packets of a call were lost may need many seconds to send them again. A
/// call of which nothing comes while other calls go on is given up, and the rest is asked for anew. The version
/// told at the end is that of what came before, too, as it is the one known before, and versions only grow.
pub(super) async fn fetch<S: Sink>(
    server: &rxafs::Client,
    old: bool,
    piece: Piece,
    sink: &Arc<S>,
    mut permit: Option<&mut Permit>,
) -> Result<Outcome, RpcError> {
    let (mut chunks, mut held, mut written) = (Vec::new(), 0, 0);
    let mut stuck = 0;
    let (status, bytes) = loop {
        let begin = Instant::now();
        let (offset, length) = (piece.offset + written, piece.length - written);
        let mut reply = Reply::ask(server, old, piece.fid, offset, length).await?;
        if let Some(permit) = &mut permit {
            permit.answered(begin.elapsed());
        }
        let is_stuck = loop {
            let next = match &mut permit {
                Some(permit) if stuck < STUCK_MOST => permit.unless_stuck(reply.chunk()).await,
                _ => Some(reply.chunk().await),
            };
            let Some(next) = next else {
                break true;
            };
            let Some(chunk) = next? else {
                break false;
            };
            if let Some(permit) = &mut permit {
                permit.received(chunk.len());
            }
            held += chunk.len() as u64;
            chunks.push(chunk);
            if held >= WRITE {
                let chunks = std::mem::take(&mut chunks);
                if let Err(error) = sink.write(piece.offset + written, chunks).await {
                    return Ok(Outcome::Sink(error));
                }
                written += std::mem::take(&mut held);
            }
        };
        if !is_stuck {
            let (status, ..) = reply.finish().await?;
            break (status, written + held);
        }
        stuck += 1;
        tracing::debug!(
            offset,
            came = held,
            "a call is stuck, the rest is asked for anew"
        );
        let chunks = std::mem::take(&mut chunks);
        if let Err(error) = sink.write(piece.offset + written, chunks).await {
            return Ok(Outcome::Sink(error));
        }
        written += std::mem::take(&mut held);
    };
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
