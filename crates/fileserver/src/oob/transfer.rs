//! What transfers of all connections share.

use std::sync::Arc;
use std::time::Duration;

use afar_net::AbortCode;
use afar_oob::ServerFrame;
use afar_oob::frame;
use afar_rpc::{Caller, afsvol, rxafs};
use afar_telemetry::Counter;
use afar_tls::{Gate, GateLimits};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use super::config::OobConfig;
use super::counts::Counts;
use super::offers::Offers;
use super::receiving::{Ending, WIDE_WINDOW, WINDOW};
use crate::files::Files;
use crate::volser::VolumeServer;

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
    calls: rxafs::Server<Files>,
    /// Of volumes, if they are served.
    volumes: Option<afsvol::Server<VolumeServer>>,
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
    /// For the clients of these files and volumes.
    pub(super) fn new(
        files: Files,
        volumes: Option<VolumeServer>,
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
            volumes: volumes.map(afsvol::Server::new),
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

    /// What serves files.
    ///
    /// # Errors
    /// As of an operation that the service does not have, if the grant is another service's.
    pub(super) fn files(&self) -> Result<&rxafs::Server<Files>, AbortCode> {
        let is_given = self.caller.service == rxafs::SERVICE;
        let files = is_given.then_some(&self.serving.calls);
        files.ok_or(AbortCode::RXGEN_OPCODE)
    }

    /// What serves volumes.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub(super) fn volumes(&self) -> Result<&afsvol::Server<VolumeServer>, AbortCode> {
        let volumes = self.serving.volumes.as_ref();
        let volumes = volumes.filter(|_| self.caller.service == afsvol::SERVICE);
        volumes.ok_or(AbortCode::RXGEN_OPCODE)
    }

    /// Tells the client how a transfer ended, and counts it: by this counter, if it was done.
    pub(super) async fn sent(
        &self,
        id: u32,
        done: Result<ServerFrame, AbortCode>,
        count: &Counter,
    ) {
        let frame = match done {
            Ok(frame) => {
                count.inc();
                frame
            }
            Err(code) => {
                self.serving.counts.aborted.inc();
                ServerFrame::Abort { id, code: code.0 }
            }
        };
        // The connection may have ended meanwhile.
        let _there = self.tell(&frame).await;
    }

    /// The same of a transfer from the client. One that was stopped says nothing.
    pub(super) async fn received(
        &self,
        id: u32,
        done: Result<ServerFrame, AbortCode>,
        stopped: Option<Ending>,
        count: &Counter,
    ) -> Ending {
        if let (Err(_), Some(ending)) = (&done, stopped) {
            self.serving.counts.aborted.inc();
            return ending;
        }
        self.sent(id, done, count).await;
        Ending::Told
    }
}

/// Numbers beyond these are as negative ones are: no file is so long.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(-1)
}
