//! Dumps of volumes, to volume servers and from them: out of band where a server offers that, by Rx otherwise.
//!
//! A dump is long, so the first one already waits for an offer and a connection. One that has begun out of band and
//! breaks fails, as a call does whose server is gone: nobody knows what the server has done with a restore, and what
//! came of a dump may be in use.
// spec: oob#volumes

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, CallError};
use afar_oob::frame::{Data, Dump, Restore, cost};
use afar_oob::offer::{DUMP, RESTORE};
use afar_oob::{Codecs, Unpacker};
use afar_rpc::{Download, Operation, RpcCause, RpcError, Upload, afsvol};
use afar_types::{RestoreCookie, TransactionId, UnixTime};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::connection::{Connection, Event, Transfer};
use super::offer::ask;
use super::storing::{StoreEnd, Storing};
use super::{Blocked, Oob};

/// How long a transfer waits for an offer and a connection. Making the connection alone takes ten seconds at most.
const WAIT: Duration = Duration::from_secs(20);
/// Servers that are remembered before those without a connection are forgotten.
const SERVERS: usize = 1024;
/// Bytes that a record has at most.
// spec: oob#when-to-use-it
const PIECE: usize = 256 << 10;

/// What is known of volume servers: which of them have volume data out of band, and connections to them. For one user of
/// them.
#[derive(Debug, Default)]
pub struct VolumeOob(Mutex<HashMap<SocketAddr, Known>>);

/// What is known of a server.
#[derive(Debug, Clone, Default)]
struct Known {
    oob: Arc<Oob>,
    blocked: Arc<Blocked>,
}

impl VolumeOob {
    /// A connection to a server, if it offers one.
    async fn connection(&self, server: &afsvol::Client) -> Option<Arc<Connection>> {
        let address = server.connection().peer();
        let known = {
            let mut servers = self.0.lock();
            if servers.len() >= SERVERS && !servers.contains_key(&address) {
                servers.retain(|_, known| known.oob.is_connected());
            }
            servers.entry(address).or_default().clone()
        };
        let server = Clone::clone(server);
        let made = known.oob.made(address, &known.blocked, || {
            ask(DUMP | RESTORE, |question| async move {
                let reply = server.oob_offer(question).await?;
                Ok(reply.offer)
            })
        });
        timeout(WAIT, made).await.ok().flatten()
    }
}

/// A dump that a server makes: its data, from the beginning. Dropping it gives it up.
#[derive(Debug)]
pub struct VolumeDump {
    source: Source,
    request: Requested,
}

/// The dump that was asked for.
#[derive(Debug)]
struct Requested {
    server: afsvol::Client,
    transaction: TransactionId,
    from_date: UnixTime,
    flags: i32,
}

#[derive(Debug)]
enum Source {
    Rx(Download),
    OutOfBand(Coming),
    /// All has come.
    Ended,
}

/// A dump that comes out of band.
#[derive(Debug)]
struct Coming {
    transfer: Transfer,
    unpacker: Unpacker,
    /// Bytes that have come.
    at: u64,
    /// What these took of the credit since the server was told.
    unused: u32,
}

/// What comes next out of band.
enum Next {
    Data(Bytes),
    /// These were all.
    End,
    /// The server refuses with this code, as it would by Rx.
    Refused(i32),
    /// Nothing else comes.
    Left,
}

impl VolumeDump {
    /// Has a server dump the volume of a transaction, with AFSVol's Dump or, if there are flags, DumpV2: out of band, if
    /// that may be and the server offers it.
    ///
    /// # Errors
    /// When the server cannot be reached. A refusal comes with the first of the data.
    pub async fn begin(
        out_of_band: Option<&VolumeOob>,
        server: &afsvol::Client,
        transaction: TransactionId,
        from_date: UnixTime,
        flags: i32,
    ) -> Result<Self, RpcError> {
        let request = Requested {
            server: Clone::clone(server),
            transaction,
            from_date,
            flags,
        };
        let connection = match out_of_band {
            Some(out_of_band) => out_of_band.connection(server).await,
            None => None,
        };
        let transfer = connection.and_then(|connection| {
            connection.dump(Dump {
                id: 0,
                transaction,
                from_date,
                flags,
                codecs: Codecs::ALL,
                credit: 0,
            })
        });
        let source = match transfer {
            Some(transfer) => Source::OutOfBand(Coming {
                transfer,
                unpacker: Unpacker::default(),
                at: 0,
                unused: 0,
            }),
            None => Source::Rx(request.by_rx().await?),
        };
        Ok(Self { source, request })
    }

    /// The next bytes in order, of any number but 0; `None` when the server has said that these were all.
    ///
    /// # Errors
    /// When the server refused, or gave up amidst the data, or the connection broke.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RpcError> {
        loop {
            let coming = match &mut self.source {
                Source::Rx(download) => return download.chunk().await,
                Source::Ended => return Ok(None),
                Source::OutOfBand(coming) => coming,
            };
            match coming.next().await {
                Next::Data(data) => return Ok(Some(data)),
                Next::End => self.source = Source::Ended,
                Next::Refused(code) => {
                    return Err(self.request.failed(CallError::Aborted(AbortCode(code))));
                }
                // Nobody has anything of it: it can begin again.
                Next::Left if coming.at == 0 => {
                    self.source = Source::Rx(self.request.by_rx().await?);
                }
                Next::Left => return Err(self.request.failed(CallError::Dead)),
            }
        }
    }
}

impl Requested {
    async fn by_rx(&self) -> Result<Download, RpcError> {
        let (transaction, from) = (self.transaction, self.from_date);
        match self.flags {
            0 => self.server.dump(transaction, from).await,
            flags => self.server.dump_v2(transaction, from, flags).await,
        }
    }

    fn failed(&self, error: CallError) -> RpcError {
        failed(afsvol::dump_v2::OPERATION, &self.server, error)
    }
}

impl Coming {
    async fn next(&mut self) -> Next {
        // The caller has done with what came before.
        self.transfer.used(std::mem::take(&mut self.unused));
        match self.transfer.next().await {
            Some(Event::Data(Data { head, stored })) => {
                let packed = u32::try_from(stored.len()).unwrap_or(u32::MAX);
                let data = self
                    .unpacker
                    .unpack(head.codec, stored, head.plain, head.checksum);
                match data {
                    Ok(data) if head.offset == self.at => {
                        self.at += u64::from(head.plain);
                        self.unused = cost(packed);
                        return Next::Data(data);
                    }
                    problem => {
                        let problem = problem.err();
                        tracing::warn!(?problem, "a dump that comes out of band is damaged");
                    }
                }
            }
            Some(Event::Dumped(length)) if length == self.at => return Next::End,
            Some(Event::Abort(code)) => return Next::Refused(code),
            Some(Event::Decline) | None => return Next::Left,
            Some(Event::Reply(_) | Event::End(_) | Event::Dumped(_)) => {
                tracing::warn!("the length of a dump that comes out of band is wrong");
            }
        }
        self.transfer.distrust();
        Next::Left
    }
}

/// A dump on its way into a volume of a server. Dropping it gives it up: the server then knows that it has no whole one.
#[derive(Debug)]
pub struct VolumeRestore {
    target: Target,
    server: afsvol::Client,
}

#[derive(Debug)]
enum Target {
    Rx(Upload<afsvol::restore::Reply>),
    OutOfBand(Box<Going>),
    /// It is done: the server needs nothing of what follows the end of a dump.
    Restored,
    /// It has failed.
    Failed,
}

/// A dump that goes out of band.
#[derive(Debug)]
struct Going {
    storing: Storing,
    /// What was sent before the server has said that it begins: with less than the first credit, it may still decline.
    kept: Vec<Bytes>,
    request: afsvol::restore::Request,
}

impl VolumeRestore {
    /// Begins to fill the volume of a transaction, as AFSVol's Restore: out of band, if that may be and the server
    /// offers it.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn begin(
        out_of_band: Option<&VolumeOob>,
        server: &afsvol::Client,
        transaction: TransactionId,
        flags: i32,
        cookie: RestoreCookie,
    ) -> Result<Self, RpcError> {
        let connection = match out_of_band {
            Some(out_of_band) => out_of_band.connection(server).await,
            None => None,
        };
        let storing = connection.and_then(|connection| {
            connection.restore(Restore {
                id: 0,
                transaction,
                flags,
                cookie: cookie.clone(),
            })
        });
        let request = afsvol::restore::Request {
            transaction,
            flags,
            cookie,
        };
        let target = match storing {
            Some(storing) => Target::OutOfBand(Box::new(Going {
                storing,
                kept: Vec::new(),
                request,
            })),
            None => Target::Rx(by_rx(server, request).await?),
        };
        let server = Clone::clone(server);
        Ok(Self { target, server })
    }

    /// Sends the next bytes; waits while the server takes none.
    ///
    /// # Errors
    /// When it fails, such as when the server refuses what came so far, or the connection breaks.
    pub async fn send(&mut self, mut data: Bytes) -> Result<(), RpcError> {
        while !data.is_empty() {
            let going = match &mut self.target {
                Target::Rx(upload) => return upload.send(data).await,
                Target::Restored => return Ok(()),
                Target::Failed => return Err(self.failed(CallError::Dead)),
                Target::OutOfBand(going) => going,
            };
            let piece = data.split_to(data.len().min(PIECE));
            if going.storing.is_accepted() {
                going.kept = Vec::new();
            } else {
                going.kept.push(piece.clone());
            }
            if let Err(ended) = going.storing.send(piece).await {
                self.ended(ended).await?;
            }
        }
        Ok(())
    }

    /// Ends the data, by which the server knows that it is whole, and waits until the volume is filled.
    ///
    /// # Errors
    /// When it fails.
    pub async fn finish(mut self) -> Result<(), RpcError> {
        match std::mem::replace(&mut self.target, Target::Failed) {
            Target::OutOfBand(going) => {
                let Going {
                    storing,
                    kept,
                    request,
                } = *going;
                let ended = storing.finish().await;
                self.target = self.follow(ended, kept, request).await?;
            }
            other => self.target = other,
        }
        match self.target {
            Target::Rx(upload) => upload.finish().await.map(|afsvol::restore::Reply {}| ()),
            Target::Restored => Ok(()),
            Target::OutOfBand(_) | Target::Failed => Err(self.failed(CallError::Dead)),
        }
    }

    /// It has ended before all was sent.
    async fn ended(&mut self, ended: StoreEnd) -> Result<(), RpcError> {
        if let Target::OutOfBand(going) = std::mem::replace(&mut self.target, Target::Failed) {
            let Going { kept, request, .. } = *going;
            self.target = self.follow(ended, kept, request).await?;
        }
        Ok(())
    }

    /// What follows when it has ended so out of band: if the server has not begun, all goes by Rx.
    async fn follow(
        &self,
        ended: StoreEnd,
        kept: Vec<Bytes>,
        request: afsvol::restore::Request,
    ) -> Result<Target, RpcError> {
        match ended {
            StoreEnd::Restored => Ok(Target::Restored),
            StoreEnd::Refused(code) => Err(self.failed(CallError::Aborted(AbortCode(code)))),
            StoreEnd::Declined => {
                let mut upload = by_rx(&self.server, request).await?;
                for piece in kept {
                    upload.send(piece).await?;
                }
                Ok(Target::Rx(upload))
            }
            StoreEnd::Stored(_) | StoreEnd::Left => Err(self.failed(CallError::Dead)),
        }
    }

    fn failed(&self, error: CallError) -> RpcError {
        failed(afsvol::restore::OPERATION, &self.server, error)
    }
}

async fn by_rx(
    server: &afsvol::Client,
    request: afsvol::restore::Request,
) -> Result<Upload<afsvol::restore::Reply>, RpcError> {
    let afsvol::restore::Request {
        transaction,
        flags,
        cookie,
    } = request;
    server.restore(transaction, flags, cookie).await
}

fn failed(operation: &'static Operation, server: &afsvol::Client, error: CallError) -> RpcError {
    RpcError {
        operation,
        peer: server.connection().peer(),
        cause: RpcCause::Call(error),
    }
}
