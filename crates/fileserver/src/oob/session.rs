//! One connection of a client: what it asks for, and what is sent to it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_oob::frame::{self, ClientFrame, FromClient, Incoming};
use afar_oob::hello::{Refusal, Welcome};
use afar_oob::{FrameError, Grant, ServerFrame};
use afar_rpc::Caller;
use afar_tls::Pass;
use bytes::Buf;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::fetch::Fetching;
use super::offers;
use super::receiving::{Arriving, Ending};
use super::sending::Credit;
use super::store::Storing;
use super::transfer::{Link, Out, Serving};
use super::volumes::{Dumping, Restoring};

/// Transfers at a time on one connection.
// spec: oob#connection
const TRANSFERS: usize = 32;
/// A connection on which nothing is asked for, for so long, is closed.
// spec: oob#connection
const IDLE: Duration = Duration::from_secs(600);
/// A client with stores or restores under way says something at least every two seconds. One that has said nothing for so long is
/// gone, and others wait for its files.
// spec: oob#liveness
const SILENT: Duration = Duration::from_secs(10);
/// Messages that may wait to be sent: while one is encrypted, the next is ready.
const QUEUE: usize = 2;

/// One connection.
pub(super) struct Session {
    serving: Arc<Serving>,
    caller: Arc<Caller>,
    peer: SocketAddr,
    /// When the grant expires.
    expires: u64,
    transfers: HashMap<u32, Going>,
    /// They give their numbers back when they end.
    running: JoinSet<Done>,
    /// When a transfer began or ended last, or the connection began.
    used: Instant,
}

/// A transfer under way.
enum Going {
    /// To the client: a fetch or a dump.
    Down {
        credit: Arc<Credit>,
        task: AbortHandle,
    },
    Store(Arriving),
    Restore(Arriving),
}

impl Going {
    fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

/// A transfer that has ended.
struct Done {
    id: u32,
    ending: Ending,
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The client closed it.
    Closed,
    /// It broke, or the client takes nothing.
    #[expect(dead_code, reason = "logged")]
    Broken(io::Error),
    /// What came makes no sense.
    #[expect(dead_code, reason = "logged")]
    Damaged(Option<FrameError>),
    /// Nothing was asked for.
    Idle,
}

impl Session {
    pub(super) fn new(serving: Arc<Serving>, grant: &Grant, peer: SocketAddr) -> Self {
        Self {
            serving,
            caller: Arc::new(offers::caller(grant)),
            peer,
            expires: grant.expires,
            transfers: HashMap::new(),
            running: JoinSet::new(),
            used: Instant::now(),
        }
    }

    /// Serves it to its end.
    pub(super) async fn serve(
        mut self,
        stream: TlsStream<TcpStream>,
        mut incoming: Incoming<FromClient>,
    ) -> Ended {
        let (mut reading, writing) = tokio::io::split(stream);
        let (out, queue) = mpsc::channel(QUEUE);
        let writer = write(writing, queue, self.serving.limit);
        tokio::pin!(writer);
        let welcome = ServerFrame::Welcome(Welcome {
            transfers: u32::try_from(TRANSFERS).unwrap_or(u32::MAX),
            parts: afar_oob::no_parts(),
        });
        let served = async {
            if out.send(Out::Frame(frame::encode(&welcome))).await.is_err() {
                return Ended::Closed;
            }
            loop {
                match incoming.frame() {
                    Ok(Some(frame)) => {
                        if let Err(ended) = self.take(frame, &out).await {
                            return ended;
                        }
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) => return Ended::Damaged(Some(error)),
                }
                let has_stores = !self.transfers.values().all(Going::is_down);
                let limit = if has_stores { SILENT } else { IDLE };
                // A client does not keep a connection by anything but transfers.
                if self.transfers.is_empty() && self.used.elapsed() >= IDLE {
                    return Ended::Idle;
                }
                tokio::select! {
                    Some(done) = self.running.join_next() => {
                        if let Err(ended) = self.done(done.ok()) {
                            return ended;
                        }
                    }
                    read = timeout(limit, reading.read_buf(incoming.room())) => match read {
                        Ok(Ok(0)) => return Ended::Closed,
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return Ended::Broken(error),
                        Err(_) if has_stores => {
                            return Ended::Broken(io::ErrorKind::TimedOut.into());
                        }
                        Err(_) => {}
                    },
                }
            }
        };
        let ended = tokio::select! {
            ended = served => ended,
            written = &mut writer => return match written {
                Ok(()) => Ended::Closed,
                Err(error) => Ended::Broken(error),
            },
        };
        let refusal = match ended {
            Ended::Damaged(_) => Some(Refusal::Message),
            Ended::Idle => Some(Refusal::Idle),
            Ended::Closed | Ended::Broken(_) => None,
        };
        // Nothing is sent from now on but that, and no store gets anything.
        self.running.shutdown().await;
        self.transfers.clear();
        if let Some(refusal) = refusal {
            let close = Out::Frame(frame::encode(&ServerFrame::Close(refusal)));
            let telling = async {
                out.send(close).await.ok()?;
                out.send(Out::End).await.ok()
            };
            let (_, _written) = tokio::join!(telling, writer);
        }
        ended
    }

    /// A transfer has ended; one that panicked keeps its number until the connection ends.
    fn done(&mut self, done: Option<Done>) -> Result<(), Ended> {
        self.used = Instant::now();
        let Some(Done { id, ending }) = done else {
            return Ok(());
        };
        self.transfers.remove(&id);
        match ending {
            Ending::Told => Ok(()),
            Ending::Damaged => Err(Ended::Damaged(None)),
        }
    }

    async fn take(&mut self, next: FromClient, out: &mpsc::Sender<Out>) -> Result<(), Ended> {
        let frame = match next {
            FromClient::Frame(frame) => frame,
            FromClient::Data(data) => {
                let is_right = match self.transfers.get(&data.head.id) {
                    Some(Going::Store(arriving) | Going::Restore(arriving)) => arriving.take(data),
                    Some(Going::Down { .. }) => false,
                    // It was declined, or has failed: the client may not know that yet.
                    None => true,
                };
                return is_right.then_some(()).ok_or(Ended::Damaged(None));
            }
        };
        match frame {
            ClientFrame::Hello(_) => return Err(Ended::Damaged(None)),
            ClientFrame::Fetch(fetch) => {
                let begin = |link, credit| {
                    let fetching = Fetching {
                        link,
                        fetch,
                        credit,
                    };
                    fetching.run()
                };
                self.down(fetch.id, fetch.credit, out, begin).await?;
            }
            ClientFrame::Dump(dump) => {
                let begin = |link, credit| Dumping { link, dump, credit }.run();
                self.down(dump.id, dump.credit, out, begin).await?;
            }
            ClientFrame::Store(store) => {
                if let Some((link, pass)) = self.admit(store.id, out).await? {
                    let (storing, arriving) = Storing::new(link, store);
                    self.up(store.id, pass, storing.run());
                    self.transfers.insert(store.id, Going::Store(arriving));
                }
            }
            ClientFrame::Restore(restore) => {
                let id = restore.id;
                if let Some((link, pass)) = self.admit(id, out).await? {
                    let (restoring, arriving) = Restoring::new(link, restore);
                    self.up(id, pass, restoring.run());
                    self.transfers.insert(id, Going::Restore(arriving));
                }
            }
            ClientFrame::Finish { id } => {
                let is_right = match self.transfers.get_mut(&id) {
                    Some(Going::Restore(arriving)) => arriving.finish(),
                    Some(Going::Store(_) | Going::Down { .. }) => false,
                    // As of data.
                    None => true,
                };
                return is_right.then_some(()).ok_or(Ended::Damaged(None));
            }
            ClientFrame::Credit { id, bytes } => match self.transfers.get(&id) {
                Some(Going::Down { credit, .. }) if credit.add(bytes) => {}
                // A transfer may have ended meanwhile.
                None => {}
                Some(_) => return Err(Ended::Damaged(None)),
            },
            // A store or restore that gets no more data ends by itself.
            ClientFrame::Cancel { id } => {
                if let Some(Going::Down { task, .. }) = self.transfers.remove(&id) {
                    task.abort();
                }
            }
            ClientFrame::Ping { number } => {
                // Where the queue is full, the client gets other signs of life.
                let pong = frame::encode(&ServerFrame::Pong { number });
                let _full = out.try_send(Out::Frame(pong));
            }
        }
        Ok(())
    }

    /// Begins a transfer to the client, with so much credit, if there is room for it.
    async fn down<F>(
        &mut self,
        id: u32,
        credit: u32,
        out: &mpsc::Sender<Out>,
        begin: impl FnOnce(Link, Arc<Credit>) -> F,
    ) -> Result<(), Ended>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some((link, pass)) = self.admit(id, out).await? else {
            return Ok(());
        };
        let Some(credit) = Credit::new(credit) else {
            return Err(Ended::Damaged(None));
        };
        let credit = Arc::new(credit);
        let running = begin(link, Arc::clone(&credit));
        let task = self.running.spawn(async move {
            let _pass = pass;
            running.await;
            let ending = Ending::Told;
            Done { id, ending }
        });
        self.transfers.insert(id, Going::Down { credit, task });
        Ok(())
    }

    /// Runs a transfer from the client.
    fn up(&mut self, id: u32, pass: Pass, running: impl Future<Output = Ending> + Send + 'static) {
        // A task of its own: it does not end with the connection.
        let running = tokio::spawn(async move {
            let _pass = pass;
            running.await
        });
        self.running.spawn(async move {
            let ending = running.await.unwrap_or(Ending::Damaged);
            Done { id, ending }
        });
    }

    /// What a transfer needs to begin, if there is room for it; otherwise the client is told. Long after the grant was
    /// given, nobody knows whether the client's token still holds: it needs another one for more.
    // spec: oob#the-grant
    async fn admit(
        &mut self,
        id: u32,
        out: &mpsc::Sender<Out>,
    ) -> Result<Option<(Link, Pass)>, Ended> {
        while let Some(done) = self.running.try_join_next() {
            self.done(done.ok())?;
        }
        if self.transfers.contains_key(&id) {
            return Err(Ended::Damaged(None));
        }
        let link = Link {
            serving: Arc::clone(&self.serving),
            caller: Arc::clone(&self.caller),
            out: out.clone(),
        };
        let gate = &self.serving.gate;
        let is_valid = !self.serving.offers.has_expired(self.expires);
        let has_room = is_valid && self.transfers.len() < TRANSFERS;
        let pass = has_room.then(|| gate.enter(self.peer.ip(), Instant::now(), || true));
        let Some(pass) = pass.flatten() else {
            self.serving.counts.declined.inc();
            let there = link.tell(&ServerFrame::Decline { id }).await;
            return if there { Ok(None) } else { Err(Ended::Closed) };
        };
        self.used = Instant::now();
        Ok(Some((link, pass)))
    }
}

/// Sends what is queued, to its end. A client that takes nothing for so long is given up.
async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Out>,
    limit: Duration,
) -> io::Result<()> {
    while let Some(next) = queue.recv().await {
        match next {
            Out::End => break,
            Out::Frame(frame) => write_all(&mut stream, frame, limit).await?,
            Out::Record(head, record) => {
                write_all(&mut stream, head.chain(record), limit).await?;
            }
        }
        if queue.is_empty() {
            within(limit, stream.flush()).await?;
        }
    }
    within(limit, stream.shutdown()).await
}

async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: impl Buf,
    limit: Duration,
) -> io::Result<()> {
    while bytes.has_remaining() {
        if within(limit, stream.write_buf(&mut bytes)).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
