//! Data on its way from a client, a record at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use afar_net::AbortCode;
use afar_oob::frame::{Data, STORE_CREDIT, cost};
use afar_oob::{RecordError, ServerFrame, Unpacker};
use afar_rpc::{Inlet, Outletting};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::transfer::Link;

/// Bytes that may come to a transfer that has its turn, before some of them are written.
pub(super) const WINDOW: u32 = 2 << 20;
/// The same while there is memory for it: what a long path holds.
pub(super) const WIDE_WINDOW: u32 = 16 << 20;
/// The part of a window that is written when the client is told of it.
const WINDOW_PART: u32 = 4;

/// What arrives.
enum Arrived {
    Record(Data),
    /// These were all, says the client.
    All,
}

/// Where a transfer's records arrive.
pub(super) struct Arriving {
    records: mpsc::UnboundedSender<Arrived>,
    /// Whether the client has said that these were all.
    is_all: bool,
    /// Bytes of records that the client may still send. Each record takes something of it, so that no more wait than
    /// there is memory for.
    credit: Arc<AtomicU32>,
}

impl Arriving {
    /// Takes in a record. Says whether the client was allowed to send it.
    pub(super) fn take(&self, data: Data) -> bool {
        let cost = cost(u32::try_from(data.stored.len()).unwrap_or(u32::MAX));
        // It alone takes credit off.
        if self.is_all || self.credit.load(Ordering::Acquire) < cost {
            return false;
        }
        self.credit.fetch_sub(cost, Ordering::AcqRel);
        // The transfer may have failed meanwhile: then nobody needs it.
        let _unneeded = self.records.send(Arrived::Record(data));
        true
    }

    /// Takes in that these were all. Says whether the client had not said so before.
    pub(super) fn finish(&mut self) -> bool {
        if std::mem::replace(&mut self.is_all, true) {
            return false;
        }
        let _unneeded = self.records.send(Arrived::All);
        true
    }
}

/// How a transfer ended, for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// As the client was told, or nobody waits for it any more.
    Told,
    /// What came makes no sense.
    Damaged,
}

/// Brings a transfer its data.
pub(super) struct Receiving {
    link: Link,
    id: u32,
    records: mpsc::UnboundedReceiver<Arrived>,
    credit: Arc<AtomicU32>,
    /// Where in the file, or the dump, what comes next belongs.
    at: u64,
    /// Bytes to come, unless the client says at their end that these were all.
    left: Option<u64>,
    /// Its window, once it has its turn.
    window: Option<Window>,
    /// What was written of the credit, and the client was not told of.
    used: u32,
    /// Bytes as they were packed.
    received: u64,
    /// Why nothing else comes, if that is so.
    pub(super) stopped: Option<Ending>,
    unpacker: Unpacker,
}

/// How much may come before some of it is written.
struct Window {
    bytes: u32,
    /// That there is memory for a wide one.
    _wide: Option<OwnedSemaphorePermit>,
}

impl Receiving {
    /// For a transfer that begins at this place with so many bytes to come, and where its records are to arrive.
    pub(super) fn new(link: Link, id: u32, at: u64, left: Option<u64>) -> (Self, Arriving) {
        let (sender, records) = mpsc::unbounded_channel();
        let credit = Arc::new(AtomicU32::new(STORE_CREDIT));
        let arriving = Arriving {
            records: sender,
            is_all: false,
            credit: Arc::clone(&credit),
        };
        let receiving = Self {
            link,
            id,
            records,
            credit,
            at,
            left,
            window: None,
            used: 0,
            received: 0,
            stopped: None,
            unpacker: Unpacker::default(),
        };
        (receiving, arriving)
    }

    /// Lets the client send more.
    async fn grant(&self, bytes: u32) -> Result<(), AbortCode> {
        self.credit.fetch_add(bytes, Ordering::AcqRel);
        let id = self.id;
        let there = self.link.tell(&ServerFrame::Credit { id, bytes }).await;
        there.then_some(()).ok_or(AbortCode::RX_USER_ABORT)
    }

    /// Lets the client send what may come: the first time at all, and later when enough was written.
    async fn give_credit(&mut self) -> Result<(), AbortCode> {
        if let Some(window) = &self.window {
            if self.used >= window.bytes / WINDOW_PART {
                let bytes = std::mem::take(&mut self.used);
                self.grant(bytes).await?;
            }
            return Ok(());
        }
        // What comes at once needs no more.
        let is_long = self.left.is_none_or(|left| left > WINDOW.into());
        let wide = Arc::clone(&self.link.serving.wide);
        let wide = is_long.then(|| wide.try_acquire_owned().ok()).flatten();
        let bytes = if wide.is_some() { WIDE_WINDOW } else { WINDOW };
        self.window = Some(Window { bytes, _wide: wide });
        self.grant(bytes - STORE_CREDIT).await
    }

    async fn record(&mut self) -> Result<Option<Bytes>, AbortCode> {
        // It is asked for more when all before was written.
        self.give_credit().await?;
        let Data { head, stored } = match self.records.recv().await {
            Some(Arrived::Record(data)) => data,
            Some(Arrived::All) if self.left.is_none() => return Ok(None),
            Some(Arrived::All) => return Err(self.damaged(None)),
            None => {
                self.stopped = Some(Ending::Told);
                return Err(AbortCode::RX_USER_ABORT);
            }
        };
        let packed = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        let is_next =
            head.offset == self.at && self.left.is_none_or(|left| u64::from(head.plain) <= left);
        let data = self
            .unpacker
            .unpack(head.codec, stored, head.plain, head.checksum);
        let data = match data {
            Ok(data) if is_next => data,
            problem => return Err(self.damaged(problem.err())),
        };
        self.used += cost(packed);
        self.at += u64::from(head.plain);
        if let Some(left) = &mut self.left {
            *left -= u64::from(head.plain);
        }
        self.received += u64::from(packed);
        let counts = &self.link.serving.counts;
        counts.received.add(packed.into());
        counts.received_data.add(head.plain.into());
        Ok(Some(data))
    }

    /// What came makes no sense.
    fn damaged(&mut self, problem: Option<RecordError>) -> AbortCode {
        let client = self.link.caller.peer;
        tracing::info!(%client, ?problem, "what comes out of band is damaged");
        self.stopped = Some(Ending::Damaged);
        AbortCode::RXGEN_SS_UNMARSHAL
    }
}

impl Inlet for Receiving {
    fn next(&mut self) -> Outletting<'_, Option<Bytes>> {
        Box::pin(self.record())
    }

    fn received(&self) -> u64 {
        self.received
    }
}
