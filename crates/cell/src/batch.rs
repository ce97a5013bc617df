//! Many changes of a volume in one call, of servers that know batches.
//!
//! After a lost answer the same batch is sent again: the server answers it, and does not run it twice.
// spec: batches#once

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use afar_lease::wire::{Note, Word};
use afar_net::{AbortCode, CallError};
use afar_rpc::{RpcCause, RpcError, rxafs};
use afar_types::{BatchChange, BatchChanges, BatchResult, Fid, VolumeId};
use afar_xdr::{FixedOpaque, Opaque, to_bytes};
use bytes::Bytes;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::lease::{noted, word_of};
use crate::promise::Promised;
use crate::refusal::ANONYMOUS;
use crate::volume::{Failure, Repeat, Volume, Way};

/// Times a batch is sent whose answers get lost.
const TRIES: u32 = 4;

/// What came of an operation: the fid of what it made, if it makes something.
pub type Outcome = Result<Option<Fid>, Error>;

/// What came of a batch.
#[derive(Debug)]
pub enum Batched {
    /// It was run.
    Done(Ran),
    /// The session of its note is not the host's at this server, so it was not run. What the server says instead; the
    /// next batch has the same number.
    // spec: leases#batches
    Unfit(Word),
    /// The server did not run it, and runs no other of this series. Single calls may do.
    NotDone(Error),
}

/// A batch that was run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ran {
    /// What came of each change, in their order.
    pub outcomes: Vec<Outcome>,
    /// Each vnode once that was changed or made, as it was afterwards, with the server's promise.
    pub statuses: Vec<(Fid, Promised)>,
    /// What the server says to the note; `None` without a note, and from servers that give no leases.
    pub word: Option<Word>,
    /// The server that ran it.
    pub server: SocketAddr,
}

/// A series of batches for a volume: each is run once, whatever is lost on the way.
pub struct Batches {
    client: Client,
    volume: Arc<Volume>,
    series: [u8; 16],
    number: u64,
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("volume", &self.volume)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Begins a series of batches, if the volume's server is afar's and takes them.
    pub async fn batches(&self, volume: &Arc<Volume>) -> Option<Batches> {
        if volume.check_writable().is_err() || volume.way().await != Way::Afar {
            return None;
        }
        for _ in 0..TRIES {
            // Each time another one: what came late would begin again a series that goes on.
            let mut batches = self.batches_from(volume, new_series()?, 0);
            match batches.send(&BatchChanges::default(), None).await {
                Ok(_) => {
                    batches.number = 1;
                    return Some(batches);
                }
                Err(Failure::Sure(error)) => {
                    tracing::debug!("single calls instead of batches: {error}");
                    return None;
                }
                Err(Failure::InDoubt(error)) => {
                    tracing::debug!("another series of batches: {error}");
                }
            }
        }
        None
    }

    /// A series that was begun earlier, perhaps by an earlier process, of which the next batch has this number. A batch
    /// that was run under it is told and not run again.
    #[must_use]
    pub fn batches_from(&self, volume: &Arc<Volume>, series: [u8; 16], number: u64) -> Batches {
        Batches {
            client: self.clone(),
            volume: Arc::clone(volume),
            series,
            number,
        }
    }
}

fn new_series() -> Option<[u8; 16]> {
    let mut series = [0; 16];
    let got = getrandom(&mut series, GetRandomFlags::empty());
    (got == Ok(series.len())).then_some(series)
}

impl Batches {
    /// Its name at the server.
    #[must_use]
    pub fn series(&self) -> [u8; 16] {
        self.series
    }

    /// The number of the next batch.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Has changes made in one commit, in their order. As they are sent they have at most
    /// [`BATCH_BYTES`](afar_types::BATCH_BYTES). A note is of this volume's server; if it is sent again, it is as old as
    /// when this was called.
    ///
    /// # Errors
    /// [`Error::InDoubt`] if it stays unknown whether they were made. The same changes may be run again: the server
    /// tells what came of them then.
    pub async fn run(
        &mut self,
        changes: &BatchChanges,
        note: Option<&Note>,
    ) -> Result<Batched, Error> {
        let run = self.run_once(changes, note).await;
        let vnodes = changes.iter().flat_map(|change| change.operation.vnodes());
        for vnode in vnodes.flatten() {
            let fid = vnode.fid(self.volume.id());
            self.volume.forget_directory(fid);
        }
        run
    }

    async fn run_once(
        &mut self,
        changes: &BatchChanges,
        note: Option<&Note>,
    ) -> Result<Batched, Error> {
        let mut lost = None;
        for _ in 0..TRIES {
            match self.send(changes, note).await {
                Ok(answer) => return self.answered(changes, answer),
                Err(Failure::Sure(error)) if lost.is_none() => {
                    tracing::debug!("a batch was not run: {error}");
                    return Ok(Batched::NotDone(error));
                }
                // The server has forgotten the series, or the volume is at another.
                Err(Failure::Sure(error)) => return Err(Error::InDoubt(Box::new(error))),
                Err(Failure::InDoubt(error)) => {
                    tracing::debug!("a batch is sent again: {error}");
                    lost = Some(error);
                }
            }
        }
        Err(Error::InDoubt(Box::new(lost.unwrap_or(Error::Gone))))
    }

    async fn send(&self, changes: &BatchChanges, note: Option<&Note>) -> Result<Answer, Failure> {
        let (volume, number) = (self.volume.id(), self.number);
        let bytes = to_bytes(changes);
        let series = FixedOpaque(self.series);
        let note = match note {
            Some(note) => noted(note).map_err(Failure::Sure)?,
            None => Opaque::default(),
        };
        let (count, may_be_unfit) = (changes.len(), !note.is_empty());
        let request = |server: rxafs::Client| {
            let sent = send(
                server,
                (volume, series, number),
                note.clone(),
                bytes.clone(),
            );
            async move {
                let answer = sent.await?;
                let results = answer.reply.results.len();
                if results != count && !(may_be_unfit && results == 0) {
                    return Err(failed(answer.peer, AbortCode::RXGEN_CC_UNMARSHAL));
                }
                Ok(answer)
            }
        };
        let attempt = self
            .client
            .attempt(&self.volume, &request, Repeat::NeverTwice);
        attempt.await
    }

    fn answered(&mut self, changes: &BatchChanges, answer: Answer) -> Result<Batched, Error> {
        let Answer { reply, peer, begin } = answer;
        let word = word_of(&reply.word);
        if reply.results.len() != changes.len() {
            let word = word?.ok_or(Error::Nonsense("a batch without results"))?;
            return Ok(Batched::Unfit(word));
        }
        self.number += 1;
        // What was done was done, whatever else the server says.
        let word = word.unwrap_or_else(|error| {
            tracing::debug!(server = %peer, "{error}");
            None
        });
        let site = self.volume.sites().into_iter().next();
        let who = site.map_or_else(|| Arc::from(ANONYMOUS), |site| self.client.own(&site).who());
        let volume = self.volume.id();
        let one = |(change, result): (&BatchChange, _)| {
            let BatchResult { code, made } = result;
            match code {
                0 => Ok(change.operation.makes().then(|| made.fid(volume))),
                code => Err(Error::refused(
                    failed(peer, AbortCode(code)),
                    Arc::clone(&who),
                )),
            }
        };
        let outcomes = changes.iter().zip(reply.results).map(one).collect();
        let statuses = reply.statuses.into_iter().filter_map(|told| {
            let (status, callback) = (told.status, told.callback);
            let promised = Promised::new(peer, begin, status, callback, reply.vol_sync);
            Some((told.vnode.fid(volume), promised.checked().ok()?))
        });
        Ok(Batched::Done(Ran {
            outcomes,
            statuses: statuses.collect(),
            word,
            server: peer,
        }))
    }
}

fn failed(peer: SocketAddr, code: AbortCode) -> RpcError {
    RpcError {
        operation: rxafs::batch::OPERATION,
        peer,
        cause: RpcCause::Call(CallError::Aborted(code)),
    }
}

/// What a server answered.
struct Answer {
    reply: rxafs::batch::Reply,
    peer: SocketAddr,
    /// When it was asked.
    begin: Instant,
}

async fn send(
    server: rxafs::Client,
    (volume, series, number): (VolumeId, FixedOpaque<16>, u64),
    note: Opaque<65536>,
    changes: Bytes,
) -> Result<Answer, RpcError> {
    let (begin, peer) = (Instant::now(), server.connection().peer());
    // What is too long for the number is refused by the server as what is a little too long.
    let length = u32::try_from(changes.len()).unwrap_or(u32::MAX);
    let mut call = server.batch(volume, series, number, length, note).await?;
    call.send(changes).await?;
    let reply = call.finish().await?;
    Ok(Answer { reply, peer, begin })
}
