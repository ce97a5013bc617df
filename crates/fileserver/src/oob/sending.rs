//! Data on its way to a client, a record at a time.

use afar_net::AbortCode;
use afar_oob::frame::{self, DataHead, cost};
use afar_oob::record::{RECORD_MAX, checksum};
use afar_oob::{Codec, Codecs, ServerFrame};
use afar_rpc::{Outlet, Outletting, Packed};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::transfer::{Link, Out};

/// The most credit that a transfer may have at a time.
// spec: oob#flow-control
const CREDIT_MOST: usize = 1 << 30;
/// Bytes that may be ready for a client.
const READY: usize = RECORD_MAX as usize;

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

/// Takes the data of a transfer to its connection.
pub(super) struct Sending<'l> {
    pub(super) link: &'l Link,
    pub(super) id: u32,
    /// How records may be packed.
    pub(super) codecs: Codecs,
    pub(super) credit: &'l Credit,
    /// Where in the file, or the dump, what comes next belongs.
    pub(super) at: u64,
}

impl Sending<'_> {
    async fn push(&self, out: Out) -> Result<(), AbortCode> {
        let sent = self.link.out.send(out).await;
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
        let taking = self.credit.take(cost(length));
        let taken = timeout(self.link.serving.limit, taking).await;
        taken.map_err(|_| AbortCode::RX_CALL_TIMEOUT)?;
        let head = DataHead {
            id: self.id,
            offset: self.at,
            plain,
            codec,
            checksum,
        };
        self.push(Out::Record(head.encode(length), stored)).await?;
        self.at += u64::from(plain);
        let counts = &self.link.serving.counts;
        counts.sent.add(length.into());
        counts.data.add(plain.into());
        Ok(())
    }
}

impl Outlet for Sending<'_> {
    fn announce(&mut self, length: u64) -> Outletting<'_, ()> {
        let id = self.id;
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
        codec.is_some_and(|codec| self.codecs.has(codec))
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
