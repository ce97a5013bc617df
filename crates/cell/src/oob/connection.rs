//! A TLS connection to a server, and the transfers on it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use afar_oob::frame::{
    self, ClientFrame, Data, Dump, End, Fetch, FromServer, Incoming, Restore, Store, cost,
};
use afar_oob::offer::{DUMP, RESTORE, STORE};
use afar_oob::{Codecs, Refusal, ServerFrame};
use afar_types::Fid;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::blocked::Blocked;
use super::offer::{Known, Lasting};
use super::storing::{self, Storing};
use super::wire::{self, Failure, Stream};

/// How long a connection may take to come about, all in all.
// spec: oob#when-to-use-it
const CONNECT: Duration = Duration::from_secs(10);
/// When nothing came for so long while transfers are under way, the server is asked whether it is there.
// spec: oob#liveness
const QUIET: Duration = Duration::from_secs(2);
/// After so many times of that without a sign of life the connection is dead.
// spec: oob#liveness
const QUIET_MOST: u32 = 3;
/// Bytes of records that may come before some of them are used.
// spec: oob#flow-control
const WINDOW: u32 = 16 << 20;
/// The part of these whose use the server is told of at once.
const WINDOW_PART: u32 = 4;
/// Messages that may wait to be sent.
const QUEUE: usize = 64;
/// Records that may: while one is encrypted, others are read and checked.
const RECORDS: usize = 4;
/// There is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// The server does not want it now.
    Refused,
    /// It did not come about.
    Blocked(String),
}

/// A connection to a server, as one user.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    lasting: Lasting,
}

#[derive(Debug)]
pub(super) struct Shared {
    server: SocketAddr,
    out: mpsc::Sender<Bytes>,
    /// Records, each with what stands before it.
    records: mpsc::Sender<(Bytes, Bytes)>,
    /// Bytes of these that are sent.
    sent: AtomicU64,
    transfers: Mutex<HashMap<u32, Going>>,
    next: AtomicU32,
    dead: AtomicBool,
    /// Whether no other transfer will begin.
    left: AtomicBool,
    blocked: Arc<Blocked>,
    /// Transfers that may be under way at a time.
    most: usize,
    /// What the server offers, as bits.
    operations: u32,
}

/// A transfer under way.
#[derive(Debug)]
enum Going {
    Down {
        events: mpsc::UnboundedSender<Event>,
        /// Bytes of records that the server may still send. Each takes something of it, so that no more events wait
        /// than there is memory for.
        credit: u32,
        what: Down,
    },
    Store(mpsc::Sender<storing::Event>),
    Restore(mpsc::Sender<storing::Event>),
}

/// What comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    /// A file, of which nobody has said how much comes.
    Fetch,
    /// The same when that was said.
    Fetched,
    Dump,
}

/// What comes of a fetch or a dump.
#[derive(Debug)]
pub(crate) enum Event {
    /// So many bytes will come.
    Reply(u64),
    /// Some of them.
    Data(Data),
    /// These were all.
    End(Box<End>),
    /// These were all of a dump, so many bytes.
    Dumped(u64),
    /// It failed, with this code.
    Abort(i32),
    /// The server has no room for it.
    Decline,
}

/// A transfer's number. Dropping it gives the transfer up if that is not over.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u32,
    pub(super) over: bool,
}

/// A fetch or a dump: what comes of it. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Transfer {
    number: Number,
    events: mpsc::UnboundedReceiver<Event>,
    /// What was used and the server was not told of.
    used: u32,
}

impl Going {
    fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

impl Connection {
    /// Connects to a server by its offer.
    pub(super) async fn open(
        server: SocketAddr,
        known: &Known,
        blocked: &Arc<Blocked>,
    ) -> Result<Arc<Self>, NoConnection> {
        let opened = timeout(CONNECT, wire::handshake(server, known)).await;
        let (stream, incoming, transfers) = match opened.unwrap_or(Err(Failure::Late)) {
            Ok(opened) => opened,
            Err(Failure::Refused(refusal)) => {
                tracing::debug!(%server, ?refusal, "no connection for out-of-band transfers");
                return Err(NoConnection::Refused);
            }
            Err(failure) => return Err(NoConnection::Blocked(failure.to_string())),
        };
        tracing::debug!(%server, "transfers go out of band from now on");
        let (reading, writing) = tokio::io::split(stream);
        let (out, queue) = mpsc::channel(QUEUE);
        let (records, record_queue) = mpsc::channel(RECORDS);
        let shared = Arc::new(Shared {
            server,
            out,
            records,
            sent: AtomicU64::new(0),
            transfers: Mutex::default(),
            next: AtomicU32::new(1),
            dead: AtomicBool::new(false),
            left: AtomicBool::new(false),
            blocked: Arc::clone(blocked),
            most: usize::try_from(transfers).unwrap_or(usize::MAX),
            operations: known.offer.operations,
        });
        let reader = Arc::clone(&shared);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = read(&reader, reading, incoming) => ended,
                ended = wire::write(writing, queue, record_queue, &reader.sent) => {
                    ended.map_err(Failure::from)
                }
            };
            reader.end(ended);
        });
        Ok(Arc::new(Self {
            shared,
            lasting: known.lasting,
        }))
    }

    /// Whether another transfer may begin on it.
    pub(super) fn is_usable(&self) -> bool {
        !self.shared.dead.load(Ordering::Acquire) && !self.lasting.is_over()
    }

    /// Whether there should be another one.
    pub(super) fn is_aging(&self) -> bool {
        self.lasting.is_aging()
    }

    /// Asks for data of a file. `None` if there are as many transfers as may be, or the connection is dead.
    pub(crate) fn fetch(&self, fid: Fid, offset: u64, length: u64) -> Option<Transfer> {
        self.down(Down::Fetch, |id| {
            ClientFrame::Fetch(Fetch {
                id,
                fid,
                offset,
                length,
                codecs: Codecs::ALL,
                credit: WINDOW,
            })
        })
    }

    /// Asks for a dump of a volume: all that this tells but for its number and what may come. `None` as for a fetch, or
    /// if the server makes none.
    pub(crate) fn dump(&self, dump: Dump) -> Option<Transfer> {
        if self.shared.operations & DUMP == 0 {
            return None;
        }
        self.down(Down::Dump, |id| {
            ClientFrame::Dump(Dump {
                id,
                codecs: Codecs::ALL,
                credit: WINDOW,
                ..dump
            })
        })
    }

    fn down(&self, what: Down, request: impl FnOnce(u32) -> ClientFrame) -> Option<Transfer> {
        let (events, receiver) = mpsc::unbounded_channel();
        let number = self.begin(Going::Down {
            events,
            credit: WINDOW,
            what,
        })?;
        let request = frame::encode(&request(number.id));
        let sent = number.shared.out.try_send(request);
        sent.is_ok().then_some(Transfer {
            number,
            events: receiver,
            used: 0,
        })
    }

    /// Begins to store data into a file: all that this tells but for its number. `None` as for a fetch, or if the
    /// server takes no stores.
    pub(crate) fn store(&self, store: Store) -> Option<Storing> {
        if self.shared.operations & STORE == 0 {
            return None;
        }
        let (events, receiver) = mpsc::channel(storing::EVENTS);
        let number = self.begin(Going::Store(events))?;
        let store = Store {
            id: number.id,
            ..store
        };
        let request = frame::encode(&ClientFrame::Store(store));
        let sent = number.shared.out.try_send(request);
        let (at, left) = (store.offset, Some(store.length));
        sent.is_ok()
            .then(|| Storing::new(number, at, left, receiver))
    }

    /// Begins to fill a volume from a dump: all that this tells but for its number. `None` as for a fetch, or if the
    /// server takes none.
    pub(crate) fn restore(&self, restore: Restore) -> Option<Storing> {
        if self.shared.operations & RESTORE == 0 {
            return None;
        }
        let (events, receiver) = mpsc::channel(storing::EVENTS);
        let number = self.begin(Going::Restore(events))?;
        let restore = Restore {
            id: number.id,
            ..restore
        };
        let request = frame::encode(&ClientFrame::Restore(restore));
        let sent = number.shared.out.try_send(request);
        sent.is_ok()
            .then(|| Storing::new(number, 0, None, receiver))
    }

    /// Takes a number for a transfer.
    fn begin(&self, going: Going) -> Option<Number> {
        let shared = &self.shared;
        let mut transfers = shared.transfers.lock();
        if transfers.len() >= shared.most || shared.dead.load(Ordering::Acquire) {
            return None;
        }
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        transfers.insert(id, going);
        Some(Number {
            shared: Arc::clone(shared),
            id,
            over: false,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Its tasks end soon after the last transfer.
        self.shared.left.store(true, Ordering::Release);
    }
}

impl Transfer {
    /// What comes next; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        self.number.over |= matches!(
            event,
            None | Some(Event::End(_) | Event::Dumped(_) | Event::Abort(_) | Event::Decline)
        );
        event
    }

    /// Records that took so much of the credit are used: others may come.
    pub(crate) fn used(&mut self, cost: u32) {
        self.used = self.used.saturating_add(cost);
        if self.used < WINDOW / WINDOW_PART {
            return;
        }
        let (id, bytes) = (self.number.id, self.used);
        {
            let shared = &self.number.shared;
            let mut transfers = shared.transfers.lock();
            let Some(Going::Down { credit, .. }) = transfers.get_mut(&id) else {
                return;
            };
            let Ok(permit) = shared.out.try_reserve() else {
                // It is told with the next.
                return;
            };
            *credit = credit.saturating_add(bytes);
            let credit = ClientFrame::Credit { id, bytes };
            permit.send(frame::encode(&credit));
        }
        self.used = 0;
    }

    /// What came makes no sense: nothing else of this connection does.
    pub(crate) fn distrust(&self) {
        self.number.shared.distrust();
    }

    /// Calls are faster.
    pub(crate) fn too_slow(&self) {
        self.number.shared.too_slow();
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.shared.transfers.lock().remove(&self.id);
        if !self.over {
            let cancel = ClientFrame::Cancel { id: self.id };
            if self.shared.out.try_send(frame::encode(&cancel)).is_err() {
                // A server that goes on sending what nobody wants is in the way.
                self.shared.kill();
            }
        }
    }
}

impl Shared {
    /// No other transfer begins, and those under way end.
    fn kill(&self) {
        self.dead.store(true, Ordering::Release);
        self.transfers.lock().clear();
    }

    /// What came makes no sense: nothing else of this connection does, and no other is made for a while.
    pub(super) fn distrust(&self) {
        self.blocked.note();
        self.kill();
    }

    /// Calls are faster, also for the transfers under way.
    pub(super) fn too_slow(&self) {
        self.distrust();
        tracing::info!(
            server = %self.server,
            "out-of-band transfers are slower than calls; data passes by Rx for the next hour"
        );
    }

    /// Sends a record, with what stands before it, when there is room. Says whether the connection is still there.
    pub(super) async fn send_record(&self, head: Bytes, record: Bytes) -> bool {
        self.records.send((head, record)).await.is_ok()
    }

    /// The connection has ended.
    fn end(&self, ended: Result<(), Failure>) {
        let server = self.server;
        let is_meant = matches!(
            ended,
            Err(Failure::Refused(
                Refusal::Ending | Refusal::Idle | Refusal::Grant
            ))
        );
        let cut = {
            // Nobody finds it dead and does not know why.
            let mut transfers = self.transfers.lock();
            let cut = std::mem::take(&mut *transfers).len();
            if cut > 0 && !is_meant {
                self.blocked.note();
            }
            self.dead.store(true, Ordering::Release);
            cut
        };
        if cut == 0 || is_meant {
            tracing::debug!(%server, ?ended, "a connection for out-of-band transfers ends");
            return;
        }
        let problem = match ended {
            Err(failure) => failure.to_string(),
            Ok(()) => "it was closed".to_owned(),
        };
        tracing::info!(
            %server,
            %problem,
            cut,
            "a connection for out-of-band transfers broke; data passes by Rx for the next hour"
        );
    }

    /// Takes in a frame.
    fn take(&self, frame: FromServer) -> Result<(), Failure> {
        let frame = match frame {
            FromServer::Data(data) => return self.fetched(data.head.id, Event::Data(data)),
            FromServer::Frame(frame) => frame,
        };
        match frame {
            ServerFrame::Reply { id, length } => self.fetched(id, Event::Reply(length)),
            ServerFrame::End(end) => self.fetched(end.id, Event::End(Box::new(end))),
            ServerFrame::Credit { id, bytes } => self.stored(id, storing::Event::Credit(bytes)),
            ServerFrame::Stored(stored) => {
                self.stored(stored.id, storing::Event::Stored(Box::new(stored.status)))
            }
            ServerFrame::Dumped { id, length } => self.fetched(id, Event::Dumped(length)),
            ServerFrame::Restored { id } => self.stored(id, storing::Event::Restored),
            ServerFrame::Abort { id, code } if self.is_store(id) => {
                self.stored(id, storing::Event::Abort(code))
            }
            ServerFrame::Abort { id, code } => self.fetched(id, Event::Abort(code)),
            ServerFrame::Decline { id } if self.is_store(id) => {
                self.stored(id, storing::Event::Decline)
            }
            ServerFrame::Decline { id } => self.fetched(id, Event::Decline),
            ServerFrame::Pong { .. } => Ok(()),
            ServerFrame::Close(refusal) => Err(Failure::Refused(refusal)),
            ServerFrame::Welcome(_) => Err(Failure::Protocol),
        }
    }

    /// Asks whether the server is there.
    fn ping(&self, number: u32) {
        let ping = ClientFrame::Ping { number };
        // A queue that is full is a sign of death, which shows soon.
        let _full = self.out.try_send(frame::encode(&ping));
    }

    fn has_stores(&self) -> bool {
        let transfers = self.transfers.lock();
        !transfers.values().all(Going::is_down)
    }

    fn is_store(&self, id: u32) -> bool {
        let transfers = self.transfers.lock();
        transfers.get(&id).is_some_and(|going| !going.is_down())
    }

    /// Something comes of a fetch or a dump.
    fn fetched(&self, id: u32, event: Event) -> Result<(), Failure> {
        let mut transfers = self.transfers.lock();
        let (events, credit, what) = match transfers.get_mut(&id) {
            Some(Going::Down {
                events,
                credit,
                what,
            }) => (events, credit, what),
            Some(Going::Store(_) | Going::Restore(_)) => return Err(Failure::Protocol),
            // It may have been given up.
            None => return Ok(()),
        };
        match (&event, *what) {
            (Event::Reply(_), Down::Fetch) => *what = Down::Fetched,
            (Event::Data(data), Down::Fetched | Down::Dump) => {
                let cost = cost(u32::try_from(data.stored.len()).unwrap_or(u32::MAX));
                *credit = credit.checked_sub(cost).ok_or(Failure::Protocol)?;
            }
            (Event::End(_), Down::Fetched) | (Event::Dumped(_), Down::Dump) => {}
            (Event::Abort(_) | Event::Decline, _) => {}
            _ => return Err(Failure::Protocol),
        }
        let is_last = !matches!(event, Event::Reply(_) | Event::Data(_));
        // Nobody may want it any more.
        let _unwanted = events.send(event);
        if is_last {
            transfers.remove(&id);
        }
        Ok(())
    }

    /// Something comes of a store or a restore.
    fn stored(&self, id: u32, event: storing::Event) -> Result<(), Failure> {
        let mut transfers = self.transfers.lock();
        let events = match (transfers.get(&id), &event) {
            (Some(Going::Store(_)), storing::Event::Restored)
            | (Some(Going::Restore(_)), storing::Event::Stored(_))
            | (Some(Going::Down { .. }), _) => return Err(Failure::Protocol),
            (Some(Going::Store(events) | Going::Restore(events)), _) => events,
            // It may have been given up.
            (None, _) => return Ok(()),
        };
        let is_last = !matches!(event, storing::Event::Credit(_));
        // A server tells of credit when a good part of it was used, so no more of that waits.
        if let Err(mpsc::error::TrySendError::Full(_)) = events.try_send(event) {
            return Err(Failure::Protocol);
        }
        if is_last {
            transfers.remove(&id);
        }
        Ok(())
    }
}

/// Takes in what comes, until the connection ends or nobody needs it.
// spec: oob#liveness
async fn read(
    shared: &Shared,
    mut stream: ReadHalf<Stream>,
    mut incoming: Incoming<FromServer>,
) -> Result<(), Failure> {
    let (mut quiet, mut sent) = (0, 0);
    let mut told = Instant::now();
    loop {
        while let Some(frame) = incoming.frame()? {
            shared.take(frame)?;
        }
        if shared.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        match timeout(QUIET, stream.read_buf(incoming.room())).await {
            Ok(read) => match read? {
                0 => return Ok(()),
                // A server that hears nothing of a store gives it up, whatever it sends meanwhile.
                _ if told.elapsed() >= QUIET && shared.has_stores() => {
                    told = Instant::now();
                    shared.ping(0);
                    quiet = 0;
                }
                _ => quiet = 0,
            },
            Err(_) if shared.transfers.lock().is_empty() => {
                if shared.left.load(Ordering::Acquire) {
                    return Ok(());
                }
                quiet = 0;
            }
            Err(_) => {
                // On a slow path, an answer comes when what is before its question has passed.
                let before = std::mem::replace(&mut sent, shared.sent.load(Ordering::Relaxed));
                quiet = if sent == before { quiet + 1 } else { 1 };
                if quiet >= QUIET_MOST {
                    return Err(Failure::Late);
                }
                told = Instant::now();
                shared.ping(quiet);
            }
        }
    }
}
