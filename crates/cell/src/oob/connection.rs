//! A TLS connection to a file server, and the transfers on it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use afar_oob::frame::{self, ClientFrame, Data, End, Fetch, FromServer, Incoming, Store, cost};
use afar_oob::offer::STORE;
use afar_oob::{Codecs, EXPORTER, FrameError, Hello, PROTOCOL, Refusal, ServerFrame, VERSION};
use afar_types::Fid;
use afar_xdr::FixedOpaque;
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;

use super::blocked::Blocked;
use super::offer::{Known, Lasting};
use super::storing::{self, Storing};

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
/// Bytes that the kernel takes before it can send them. What is behind them gets there soon, and whether something is
/// sent shows that the path lets it.
const UNSENT: u32 = 128 << 10;

/// There is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// The server does not want it now.
    Refused,
    /// It did not come about.
    Blocked(String),
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no answer in time")]
    Late,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the server does not speak the protocol")]
    Protocol,
    #[error("the server refuses: {0:?}")]
    Refused(Refusal),
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
    /// Whether the server takes stores.
    stores: bool,
}

/// A transfer under way.
#[derive(Debug)]
enum Going {
    Fetch {
        events: mpsc::UnboundedSender<Event>,
        /// Bytes of records that the server may still send. Each takes something of it, so that no more events wait
        /// than there is memory for.
        credit: u32,
        replied: bool,
    },
    Store(mpsc::Sender<storing::Event>),
}

/// What comes of a fetch.
#[derive(Debug)]
pub(crate) enum Event {
    /// So many bytes will come.
    Reply(u64),
    /// Some of them.
    Data(Data),
    /// These were all.
    End(Box<End>),
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

/// A fetch: what comes of it. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Transfer {
    number: Number,
    events: mpsc::UnboundedReceiver<Event>,
    /// What was used and the server was not told of.
    used: u32,
}

impl Connection {
    /// Connects to a server by its offer.
    pub(super) async fn open(
        server: SocketAddr,
        known: &Known,
        blocked: &Arc<Blocked>,
    ) -> Result<Arc<Self>, NoConnection> {
        let opened = timeout(CONNECT, handshake(server, known)).await;
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
            stores: known.offer.operations & STORE != 0,
        });
        let reader = Arc::clone(&shared);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = read(&reader, reading, incoming) => ended,
                ended = write(writing, queue, record_queue, &reader.sent) => ended.map_err(Failure::from),
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
        let (events, receiver) = mpsc::unbounded_channel();
        let number = self.begin(Going::Fetch {
            events,
            credit: WINDOW,
            replied: false,
        })?;
        let request = ClientFrame::Fetch(Fetch {
            id: number.id,
            fid,
            offset,
            length,
            codecs: Codecs::ALL,
            credit: WINDOW,
        });
        let sent = number.shared.out.try_send(frame::encode(&request));
        sent.is_ok().then_some(Transfer {
            number,
            events: receiver,
            used: 0,
        })
    }

    /// Begins to store data into a file: all that this tells but for its number. `None` as for a fetch, or if the
    /// server takes no stores.
    pub(crate) fn store(&self, store: Store) -> Option<Storing> {
        if !self.shared.stores {
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
        sent.is_ok().then(|| Storing::new(number, &store, receiver))
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
            None | Some(Event::End(_) | Event::Abort(_) | Event::Decline)
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
            let Some(Going::Fetch { credit, .. }) = transfers.get_mut(&id) else {
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

    /// What came makes no sense: nothing else of this connection does.
    pub(super) fn distrust(&self) {
        self.blocked.note();
        self.kill();
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
            "a connection for out-of-band transfers broke; files come by Rx for the next hour"
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
        transfers
            .values()
            .any(|going| matches!(going, Going::Store(_)))
    }

    fn is_store(&self, id: u32) -> bool {
        matches!(self.transfers.lock().get(&id), Some(Going::Store(_)))
    }

    /// Something comes of a fetch.
    fn fetched(&self, id: u32, event: Event) -> Result<(), Failure> {
        let mut transfers = self.transfers.lock();
        let (events, credit, replied) = match transfers.get_mut(&id) {
            Some(Going::Fetch {
                events,
                credit,
                replied,
            }) => (events, credit, replied),
            Some(Going::Store(_)) => return Err(Failure::Protocol),
            // It may have been given up.
            None => return Ok(()),
        };
        match &event {
            Event::Reply(_) if !*replied => *replied = true,
            Event::Data(data) if *replied => {
                let cost = cost(u32::try_from(data.stored.len()).unwrap_or(u32::MAX));
                *credit = credit.checked_sub(cost).ok_or(Failure::Protocol)?;
            }
            Event::End(_) if *replied => {}
            Event::Abort(_) | Event::Decline => {}
            _ => return Err(Failure::Protocol),
        }
        let is_last = matches!(event, Event::End(_) | Event::Abort(_) | Event::Decline);
        // Nobody may want it any more.
        let _unwanted = events.send(event);
        if is_last {
            transfers.remove(&id);
        }
        Ok(())
    }

    /// Something comes of a store.
    fn stored(&self, id: u32, event: storing::Event) -> Result<(), Failure> {
        let mut transfers = self.transfers.lock();
        let events = match transfers.get(&id) {
            Some(Going::Store(events)) => events,
            Some(Going::Fetch { .. }) => return Err(Failure::Protocol),
            // It may have been given up.
            None => return Ok(()),
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

type Stream = TlsStream<TcpStream>;

/// Connects and shows the grant.
// spec: oob#connection
async fn handshake(
    server: SocketAddr,
    known: &Known,
) -> Result<(Stream, Incoming<FromServer>, u32), Failure> {
    let offer = &known.offer;
    let port = u16::try_from(offer.port).map_err(|_| Failure::Protocol)?;
    let stream = TcpStream::connect((server.ip(), port)).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
    let config = afar_tls::client(PROTOCOL, Some(offer.fingerprint.0.into()))?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(server.ip().into(), stream).await?;
    let session = stream.get_ref().1;
    if session.alpn_protocol() != Some(PROTOCOL) {
        return Err(Failure::Protocol);
    }
    let exported: [u8; 32] = session.export_keying_material([0; 32], EXPORTER, None)?;
    let hello = ClientFrame::Hello(Hello {
        version: VERSION,
        grant: offer.grant.clone(),
        proof: FixedOpaque(known.secret.proof(&exported)),
        parts: afar_oob::no_parts(),
    });
    stream.write_all(&frame::encode(&hello)).await?;
    stream.flush().await?;
    let mut incoming = Incoming::default();
    loop {
        match incoming.frame()? {
            None => {}
            Some(FromServer::Frame(ServerFrame::Welcome(welcome))) => {
                return Ok((stream, incoming, welcome.transfers));
            }
            Some(FromServer::Frame(ServerFrame::Close(refusal))) => {
                return Err(Failure::Refused(refusal));
            }
            Some(_) => return Err(Failure::Protocol),
        }
        if stream.read_buf(incoming.room()).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
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

/// Sends what is queued, frames before records. Tells how many bytes of records are sent.
async fn write(
    mut stream: WriteHalf<Stream>,
    mut frames: mpsc::Receiver<Bytes>,
    mut records: mpsc::Receiver<(Bytes, Bytes)>,
    sent: &AtomicU64,
) -> io::Result<()> {
    loop {
        tokio::select! {
            biased;
            Some(frame) = frames.recv() => write_all(&mut stream, frame, None).await?,
            Some((head, record)) = records.recv() => {
                write_all(&mut stream, head.chain(record), Some(sent)).await?;
            }
            else => return Ok(()),
        }
        if frames.is_empty() && records.is_empty() {
            stream.flush().await?;
        }
    }
}

async fn write_all(
    stream: &mut WriteHalf<Stream>,
    mut bytes: impl Buf,
    count: Option<&AtomicU64>,
) -> io::Result<()> {
    while bytes.has_remaining() {
        let written = stream.write_buf(&mut bytes).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if let Some(count) = count {
            count.fetch_add(written as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}
