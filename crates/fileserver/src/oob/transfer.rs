//! One file on its way to a client.

use std::sync::Arc;
use std::time::Duration;

use afar_net::AbortCode;
use afar_oob::frame::{self, DataHead, End, Fetch, cost};
use afar_oob::record::{RECORD_MAX, checksum};
use afar_oob::{Codec, ServerFrame};
use afar_rpc::{Caller, Outlet, Outletting, Packed, rxafs};
use afar_tls::{Gate, GateLimits};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::config::OobConfig;
use super::counts::Counts;
use super::offers::Offers;
use crate::files::Files;

/// The most credit that a transfer may have at a time.
// spec: oob#flow-control
const CREDIT_MOST: usize = 1 << 30;
/// Bytes that may be ready for a client.
const READY: usize = RECORD_MAX as usize;

/// Bytes of memory that a transfer can take: what is sent, what is read meanwhile, and what waits to be encrypted.
const MEMORY: u64 = 4 << 20;
/// The part of all transfers that an address may have.
const ADDRESS_PART: usize = 4;

/// What serves transfers, for all connections.
pub(super) struct Serving {
    pub(super) files: Files,
    calls: rxafs::Server<Files>,
    pub(super) offers: Arc<Offers>,
    pub(super) counts: Arc<Counts>,
    /// How long a client may leave something alone.
    pub(super) limit: Duration,
    /// How many there may be.
    pub(super) gate: Arc<Gate>,
}

impl Serving {
    /// For the clients of these files.
    pub(super) fn new(
        files: Files,
        config: &OobConfig,
        offers: Arc<Offers>,
        counts: Arc<Counts>,
    ) -> Self {
        let all = usize::try_from(config.memory / MEMORY).unwrap_or(usize::MAX);
        let limits = GateLimits {
            all: all.max(1),
            each: (all / ADDRESS_PART).max(1),
            kept: 0,
            burst: 1,
            pause: Duration::ZERO,
        };
        Self {
            calls: rxafs::Server::new(files.clone()),
            files,
            offers,
            counts,
            limit: config.idle_limit,
            gate: Arc::new(Gate::new(limits)),
        }
    }
}

/// What waits to be sent on a connection.
pub(super) enum Out {
    /// A frame.
    Frame(Bytes),
    /// A record, with what stands before it.
    Record(Bytes, Bytes),
}

/// How much a client lets a transfer send.
#[derive(Debug)]
pub(super) struct Credit(Semaphore);

impl Credit {
    /// So many bytes; `None` if that is more than there may be.
    pub(super) fn new(bytes: u32) -> Option<Self> {
        let credit = Self(Semaphore::new(0));
        credit.add(bytes).then_some(credit)
    }

    /// So many bytes more. Says whether that is not more than there may be.
    pub(super) fn add(&self, bytes: u32) -> bool {
        let bytes = bytes as usize;
        let fits = self.0.available_permits() + bytes <= CREDIT_MOST;
        if fits {
            self.0.add_permits(bytes);
        }
        fits
    }

    /// Waits until so many bytes may be sent, and takes them off.
    async fn take(&self, bytes: u32) {
        // It is never closed.
        if let Ok(permit) = self.0.acquire_many(bytes).await {
            permit.forget();
        }
    }
}

/// One transfer.
pub(super) struct Transfer {
    pub(super) serving: Arc<Serving>,
    pub(super) caller: Arc<Caller>,
    pub(super) fetch: Fetch,
    pub(super) credit: Arc<Credit>,
    pub(super) out: mpsc::Sender<Out>,
}

impl Transfer {
    /// Does it, and tells the client how it ended.
    pub(super) async fn run(self) {
        let Fetch {
            id,
            fid,
            offset,
            length,
            ..
        } = self.fetch;
        // Numbers beyond these are as negative ones are: no file is so long.
        let signed = |number: u64| i64::try_from(number).unwrap_or(-1);
        let request = rxafs::fetch_data64::Request {
            fid,
            position: signed(offset),
            length: signed(length),
        };
        let mut outlet = Sending {
            transfer: &self,
            at: offset,
            limit: self.serving.limit,
        };
        let calls = &self.serving.calls;
        let result = calls.fetch_out_of_band(&self.caller, request, &mut outlet);
        let counts = &self.serving.counts;
        let frame = match result.await {
            Ok(reply) => {
                counts.done.inc();
                ServerFrame::End(End {
                    id,
                    status: reply.status,
                    callback: reply.callback,
                    vol_sync: reply.vol_sync,
                })
            }
            Err(code) => {
                counts.aborted.inc();
                ServerFrame::Abort { id, code: code.0 }
            }
        };
        // The connection may have ended meanwhile.
        let _ended = self.out.send(Out::Frame(frame::encode(&frame))).await;
    }
}

/// Takes the data of a transfer to its connection.
struct Sending<'t> {
    transfer: &'t Transfer,
    /// Where in the file what comes next belongs.
    at: u64,
    /// How long the client may leave it alone.
    limit: Duration,
}

impl Sending<'_> {
    async fn push(&self, out: Out) -> Result<(), AbortCode> {
        let sent = self.transfer.out.send(out).await;
        sent.map_err(|_| AbortCode::RX_USER_ABORT)
    }

    async fn record(
        &mut self,
        codec: Codec,
        plain: u32,
        stored: Bytes,
        checksum: u128,
    ) -> Result<(), AbortCode> {
        let length = u32::try_from(stored.len()).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
        let taking = self.transfer.credit.take(cost(length));
        let taken = timeout(self.limit, taking).await;
        taken.map_err(|_| AbortCode::RX_CALL_TIMEOUT)?;
        let head = DataHead {
            id: self.transfer.fetch.id,
            offset: self.at,
            plain,
            codec,
            checksum,
        };
        self.push(Out::Record(head.encode(length), stored)).await?;
        self.at += u64::from(plain);
        let counts = &self.transfer.serving.counts;
        counts.sent.add(length.into());
        counts.data.add(plain.into());
        Ok(())
    }
}

impl Outlet for Sending<'_> {
    fn announce(&mut self, length: u64) -> Outletting<'_, ()> {
        let id = self.transfer.fetch.id;
        let reply = frame::encode(&ServerFrame::Reply { id, length });
        Box::pin(async move { self.push(Out::Frame(reply)).await })
    }

    fn granted(&self) -> usize {
        READY
    }

    fn room(&mut self) -> Outletting<'_, usize> {
        Box::pin(std::future::ready(Ok(READY)))
    }

    fn send(&mut self, mut data: Bytes) -> Outletting<'_, ()> {
        Box::pin(async move {
            while !data.is_empty() {
                let next = data.split_to(data.len().min(READY));
                let length = u32::try_from(next.len()).unwrap_or(RECORD_MAX);
                let sum = checksum(&next);
                self.record(Codec::Raw, length, next, sum).await?;
            }
            Ok(())
        })
    }

    fn takes(&self, codec: u8) -> bool {
        let codec = Codec::from_number(codec.into());
        codec.is_some_and(|codec| self.transfer.fetch.codecs.has(codec))
    }

    fn send_packed(&mut self, packed: Packed) -> Outletting<'_, ()> {
        Box::pin(async move {
            let codec = Codec::from_number(packed.codec.into());
            let codec = codec.ok_or(AbortCode::RXGEN_SS_MARSHAL)?;
            self.record(codec, packed.plain, packed.stored, packed.checksum)
                .await
        })
    }
}
