//! Many changes of a volume in one call, of servers that know batches.
//!
//! After a lost answer the same batch is sent again: the server answers it, and does not run it twice.
// spec: batches#once

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use afar_net::{AbortCode, CallError};
use afar_rpc::{RpcCause, RpcError, rxafs};
use afar_types::{BatchOperation, BatchOperations, BatchResult, Fid, VolumeId};
use afar_xdr::{FixedOpaque, to_bytes};
use bytes::Bytes;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::client::Client;
use crate::error::Error;
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
    Done(Vec<Outcome>),
    /// The server did not run it, and runs no other of this series. Single calls may do.
    NotDone(Error),
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
            let mut batches = Batches {
                client: self.clone(),
                volume: Arc::clone(volume),
                series: new_series()?,
                number: 0,
            };
            match batches.send(&BatchOperations::default()).await {
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
}

fn new_series() -> Option<[u8; 16]> {
    let mut series = [0; 16];
    let got = getrandom(&mut series, GetRandomFlags::empty());
    (got == Ok(series.len())).then_some(series)
}

impl Batches {
    /// Has changes made in one commit, in their order. As they are sent they have at most
    /// [`BATCH_BYTES`](afar_types::BATCH_BYTES).
    ///
    /// # Errors
    /// [`Error::InDoubt`] if it stays unknown whether they were made.
    pub async fn run(&mut self, operations: BatchOperations) -> Result<Batched, Error> {
        let run = self.run_once(&operations).await;
        for vnode in operations.iter().flat_map(BatchOperation::vnodes).flatten() {
            let fid = vnode.fid(self.volume.id());
            self.volume.forget_directory(fid);
        }
        run
    }

    async fn run_once(&mut self, operations: &BatchOperations) -> Result<Batched, Error> {
        let mut lost = None;
        for _ in 0..TRIES {
            match self.send(operations).await {
                Ok(answer) => {
                    self.number += 1;
                    return Ok(Batched::Done(self.outcomes(operations, answer)));
                }
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

    async fn send(&self, operations: &BatchOperations) -> Result<Answer, Failure> {
        let (volume, number) = (self.volume.id(), self.number);
        let bytes = to_bytes(operations);
        let series = FixedOpaque(self.series);
        let count = operations.len();
        let request = |server: rxafs::Client| {
            let sent = send(server, (volume, series, number), bytes.clone());
            async move {
                let answer = sent.await?;
                if answer.results.len() != count {
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

    fn outcomes(&self, operations: &BatchOperations, answer: Answer) -> Vec<Outcome> {
        let Answer { results, peer } = answer;
        let site = self.volume.sites().into_iter().next();
        let who = site.map_or_else(|| Arc::from(ANONYMOUS), |site| self.client.own(&site).who());
        let one = |(operation, result): (&BatchOperation, BatchResult)| match result.code {
            0 => Ok(operation.makes().then(|| result.made.fid(self.volume.id()))),
            code => Err(Error::refused(
                failed(peer, AbortCode(code)),
                Arc::clone(&who),
            )),
        };
        operations.iter().zip(results).map(one).collect()
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
    results: Vec<BatchResult>,
    peer: SocketAddr,
}

async fn send(
    server: rxafs::Client,
    (volume, series, number): (VolumeId, FixedOpaque<16>, u64),
    operations: Bytes,
) -> Result<Answer, RpcError> {
    let peer = server.connection().peer();
    // What is too long for the number is refused by the server as what is a little too long.
    let length = u32::try_from(operations.len()).unwrap_or(u32::MAX);
    let mut call = server.batch(volume, series, number, length).await?;
    call.send(operations).await?;
    let reply = call.finish().await?;
    Ok(Answer {
        results: reply.results.into_vec(),
        peer,
    })
}
