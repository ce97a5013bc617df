//! One piece of a file by one call.

use std::io;
use std::sync::Arc;

use afar_rpc::rxafs::{self, fetch_data, fetch_data64};
use afar_rpc::{Fetch, RpcCause, RpcError};
use afar_types::{CallBack, DataVersion, FetchStatus, Fid, VolSync};
use bytes::Bytes;
use tokio::time::Instant;

use super::Sink;
use crate::oob::Called;
use crate::promise::Promised;
use crate::window::Permit;

/// Bytes handed to the sink at a time.
pub(super) const WRITE: u64 = 512 << 10;

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
    /// It is written: so many bytes.
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
// spec: afs-rpc#fetching-data
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
/// call of which nothing comes while other calls go on is given up, and the rest is asked for again. The version
/// told at the end is that of what came before, too, as it is the one known before, and versions only grow.
// spec: rx#how-openafs-sends
pub(super) async fn fetch<S: Sink>(
    server: &rxafs::Client,
    old: bool,
    piece: Piece,
    sink: &Arc<S>,
    mut permit: Option<&mut Permit>,
    called: Option<&Called>,
) -> Result<Outcome, RpcError> {
    let mut filling = Filling::new(sink, piece.offset);
    let end = piece.offset + piece.length;
    let mut stuck = 0;
    let status = loop {
        let begin = Instant::now();
        let offset = filling.place();
        let mut reply = Reply::ask(server, old, piece.fid, offset, end - offset).await?;
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
            if let Some(called) = called {
                called.moved(chunk.len());
            }
            filling.take(chunk);
            if filling.held >= WRITE
                && let Err(error) = filling.write().await
            {
                return Ok(Outcome::Sink(error));
            }
        };
        if !is_stuck {
            let (status, ..) = reply.finish().await?;
            break status;
        }
        stuck += 1;
        let at = filling.place();
        tracing::debug!(offset, at, "a call is stuck; asking for the rest again");
        // A reader may be waiting for just this.
        if let Err(error) = filling.write().await {
            return Ok(Outcome::Sink(error));
        }
    };
    if status.data_version != piece.version || filling.place() != end {
        return Ok(Outcome::Changed(status));
    }
    match filling.write().await {
        Ok(()) => Ok(Outcome::Done(piece.length)),
        Err(error) => Ok(Outcome::Sink(error)),
    }
}

/// What came of a piece, on its way into the sink.
pub(super) struct Filling<'a, S> {
    sink: &'a Arc<S>,
    /// Where what is held belongs.
    at: u64,
    chunks: Vec<Bytes>,
    /// Bytes of these.
    pub(super) held: u64,
}

impl<'a, S: Sink> Filling<'a, S> {
    pub(super) fn new(sink: &'a Arc<S>, at: u64) -> Self {
        Self {
            sink,
            at,
            chunks: Vec::new(),
            held: 0,
        }
    }

    pub(super) fn take(&mut self, chunk: Bytes) {
        self.held += chunk.len() as u64;
        self.chunks.push(chunk);
    }

    /// Where what comes next belongs.
    pub(super) fn place(&self) -> u64 {
        self.at + self.held
    }

    /// Writes what is held.
    pub(super) async fn write(&mut self) -> io::Result<()> {
        if self.held > 0 {
            let chunks = std::mem::take(&mut self.chunks);
            let there = chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
            debug_assert_eq!(there, self.held, "what is held at {}", self.at);
            self.sink.write(self.at, chunks).await?;
            self.at += std::mem::take(&mut self.held);
        }
        Ok(())
    }
}

/// Fetches up to `length` bytes from the beginning, with the status.
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
