//! What transfers of all connections share.

use std::sync::Arc;
use std::time::Duration;

use afar_oob::ServerFrame;
use afar_oob::frame;
use afar_rpc::{Caller, rxafs};
use afar_tls::{Gate, GateLimits};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use super::config::OobConfig;
use super::counts::Counts;
use super::offers::Offers;
use super::store::{WIDE_WINDOW, WINDOW};
use crate::files::Files;

/// Bytes of memory that a transfer can take: the record that waits for its turn on the connection, and what is read
/// meanwhile; or what has come and is not written yet.
const MEMORY: u64 = 2 << 20;
const _: () = assert!(WINDOW as u64 <= MEMORY);
/// The part of all transfers that an address may have.
const ADDRESS_PART: usize = 2;
/// The part of the memory that is for transfers at all. The rest is for what stores over long paths take beyond that.
const MEMORY_PART: u64 = 2;

/// What serves transfers, for all connections.
pub(super) struct Serving {
    pub(super) files: Files,
    pub(super) calls: rxafs::Server<Files>,
    pub(super) offers: Arc<Offers>,
    pub(super) counts: Arc<Counts>,
    /// How long a client may leave something alone.
    pub(super) limit: Duration,
    /// How many there may be.
    pub(super) gate: Arc<Gate>,
    /// How many stores may have the wide window at a time.
    pub(super) wide: Arc<Semaphore>,
}

impl Serving {
    /// For the clients of these files.
    pub(super) fn new(
        files: Files,
        config: &OobConfig,
        offers: Arc<Offers>,
        counts: Arc<Counts>,
    ) -> Self {
        let number = |bytes: u64| {
            let memory = config.memory / MEMORY_PART;
            usize::try_from(memory / bytes).unwrap_or(Semaphore::MAX_PERMITS)
        };
        let all = number(MEMORY);
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
            wide: Arc::new(Semaphore::new(number((WIDE_WINDOW - WINDOW).into()))),
        }
    }
}

/// What waits to be sent on a connection.
pub(super) enum Out {
    /// A frame.
    Frame(Bytes),
    /// A record, with what stands before it.
    Record(Bytes, Bytes),
    /// Nothing else: stores that still run have nothing to say.
    End,
}

/// What a transfer has of its connection.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) serving: Arc<Serving>,
    pub(super) caller: Arc<Caller>,
    pub(super) out: mpsc::Sender<Out>,
}

impl Link {
    /// Tells the client something. Says whether the connection is still there.
    pub(super) async fn tell(&self, frame: &ServerFrame) -> bool {
        let frame = Out::Frame(frame::encode(frame));
        self.out.send(frame).await.is_ok()
    }
}

/// Numbers beyond these are as negative ones are: no file is so long.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(-1)
}
