//! A part of a file on its way from a client.
//!
//! A store that has begun comes to its end whatever happens to the connection: it has to tell other hosts of what
//! it has changed. One whose data does not come any more changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use afar_net::AbortCode;
use afar_oob::frame::{Data, STORE_CREDIT, Store, Stored, cost};
use afar_oob::{ServerFrame, Unpacker};
use afar_rpc::{Inlet, Outletting, rxafs};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::transfer::Link;

/// Bytes that may come to a store that has its turn, before some of them are written.
pub(super) const WINDOW: u32 = 2 << 20;
/// The same while there is memory for it: what a long path holds.
pub(super) const WIDE_WINDOW: u32 = 16 << 20;
/// The part of a window that is written when the client is told of it.
const WINDOW_PART: u32 = 4;

/// Where a store's records arrive.
pub(super) struct Arriving {
    records: mpsc::UnboundedSender<Data>,
    /// Bytes of records that the client may still send. Each record takes something of it, so that no more wait than
    /// there is memory for.
    credit: Arc<AtomicU32>,
}

impl Arriving {
    /// Takes in a record. Says whether the client was allowed to send it.
    pub(super) fn take(&self, data: Data) -> bool {
        let cost = cost(u32::try_from(data.stored.len()).unwrap_or(u32::MAX));
        // It alone takes credit off.
        if self.credit.load(Ordering::Acquire) < cost {
            return false;
        }
        self.credit.fetch_sub(cost, Ordering::AcqRel);
        // The store may have failed meanwhile: then nobody needs it.
        let _unneeded = self.records.send(data);
        true
    }
}

/// How a store ended, for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// As the client was told, or nobody waits for it any more.
    Told,
    /// What came makes no sense.
    Damaged,
}

/// A part of a file from a client.
pub(super) struct Storing {
    link: Link,
    store: Store,
    records: mpsc::UnboundedReceiver<Data>,
    credit: Arc<AtomicU32>,
}

impl Storing {
    /// One that begins, and where its records are to arrive.
    pub(super) fn new(link: Link, store: Store) -> (Self, Arriving) {
        let (sender, records) = mpsc::unbounded_channel();
        let credit = Arc::new(AtomicU32::new(STORE_CREDIT));
        let arriving = Arriving {
            records: sender,
            credit: Arc::clone(&credit),
        };
        let storing = Self {
            link,
            store,
            records,
            credit,
        };
        (storing, arriving)
    }

    /// Does it, and tells the client how it ended.
    pub(super) async fn run(self) -> Ending {
        let Store {
            id,
            fid,
            attributes,
            offset,
            length,
            file_length,
        } = self.store;
        let request = rxafs::store_data64::Request {
            fid,
            attributes,
            position: offset,
            length,
            file_length,
        };
        let link = self.link.clone();
        let serving = &link.serving;
        let mut inlet = Receiving {
            at: offset,
            left: length,
            storing: self,
            window: None,
            used: 0,
            received: 0,
            stopped: None,
            unpacker: Unpacker::default(),
        };
        let result = serving
            .calls
            .store_out_of_band(&link.caller, request, &mut inlet)
            .await;
        let frame = match (result, inlet.stopped) {
            (Ok(reply), _) => {
                serving.counts.stored.inc();
                ServerFrame::Stored(Stored {
                    id,
                    status: reply.status,
                    vol_sync: reply.vol_sync,
                })
            }
            (Err(_), Some(ending)) => {
                serving.counts.aborted.inc();
                return ending;
            }
            (Err(code), None) => {
                serving.counts.aborted.inc();
                ServerFrame::Abort { id, code: code.0 }
            }
        };
        // The connection may have ended meanwhile.
        let _there = link.tell(&frame).await;
        Ending::Told
    }
}

/// Brings a store its data.
struct Receiving {
    storing: Storing,
    /// Where in the file what comes next belongs.
    at: u64,
    /// Bytes to come.
    left: u64,
    /// Its window, once it has its turn.
    window: Option<Window>,
    /// What was written of the credit, and the client was not told of.
    used: u32,
    /// Bytes as they were packed.
    received: u64,
    /// Why nothing else comes, if that is so.
    stopped: Option<Ending>,
    unpacker: Unpacker,
}

/// How much may come before some of it is written.
struct Window {
    bytes: u32,
    /// That there is memory for a wide one.
    _wide: Option<OwnedSemaphorePermit>,
}

impl Receiving {
    /// Lets the client send more.
    async fn grant(&self, bytes: u32) -> Result<(), AbortCode> {
        let Storing {
            link,
            store,
            credit,
            ..
        } = &self.storing;
        credit.fetch_add(bytes, Ordering::AcqRel);
        let credit = ServerFrame::Credit {
            id: store.id,
            bytes,
        };
        let there = link.tell(&credit).await;
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
        let is_long = self.left > WINDOW.into();
        let wide = Arc::clone(&self.storing.link.serving.wide);
        let wide = is_long.then(|| wide.try_acquire_owned().ok()).flatten();
        let bytes = if wide.is_some() { WIDE_WINDOW } else { WINDOW };
        self.window = Some(Window { bytes, _wide: wide });
        self.grant(bytes - STORE_CREDIT).await
    }

    async fn record(&mut self) -> Result<Bytes, AbortCode> {
        // It is asked for more when all before was written.
        self.give_credit().await?;
        let Some(Data { head, stored }) = self.storing.records.recv().await else {
            self.stopped = Some(Ending::Told);
            return Err(AbortCode::RX_USER_ABORT);
        };
        let packed = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        let is_next = head.offset == self.at && u64::from(head.plain) <= self.left;
        let data = self
            .unpacker
            .unpack(head.codec, stored, head.plain, head.checksum);
        let data = match data {
            Ok(data) if is_next => data,
            problem => {
                let problem = problem.err();
                tracing::info!(client = %self.storing.link.caller.peer, ?problem, "a store out of band is damaged");
                self.stopped = Some(Ending::Damaged);
                return Err(AbortCode::RXGEN_SS_UNMARSHAL);
            }
        };
        self.used += cost(packed);
        self.at += u64::from(head.plain);
        self.left -= u64::from(head.plain);
        self.received += u64::from(packed);
        let counts = &self.storing.link.serving.counts;
        counts.received.add(packed.into());
        counts.received_data.add(head.plain.into());
        Ok(data)
    }
}

impl Inlet for Receiving {
    fn next(&mut self) -> Outletting<'_, Bytes> {
        Box::pin(self.record())
    }

    fn received(&self) -> u64 {
        self.received
    }
}
