//! Dumps from here into transactions of other servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_cell::VolumeRestore;
use afar_net::{AbortCode, RxNull};
use afar_rpc::{Caller, afsvol};
use afar_types::{DestServer, ForwardResults, ReplicaDest, RestoreCookie, UnixTime, VolumeId};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::dump::{dump_code, options, permit};
use super::streams::Dump;
use super::transactions::Use;
use super::{Volser, codes, superuser};

/// Pieces that wait for a destination: 4 MiB, by which it may fall behind the others for a while.
const DEPTH: usize = 16;

/// A destination that takes part, or took part.
struct Destination {
    server: DestServer,
    /// Pieces, and `None` after the last; gone when it takes no more.
    pieces: Option<mpsc::Sender<Option<Bytes>>>,
    task: JoinHandle<Result<(), AbortCode>>,
    stalled: bool,
}

impl Volser {
    pub(super) async fn forward(
        &self,
        caller: &Caller,
        request: afsvol::forward::Request,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(request.transaction, "Forward")?;
        let destinations = [ReplicaDest {
            transaction: request.destination_transaction,
            server: request.destination,
        }];
        let results = self
            .send(&used, request.from_date, &destinations, &request.cookie)
            .await?;
        match results.first() {
            None | Some(0) => Ok(()),
            Some(&code) => Err(AbortCode(code)),
        }
    }

    pub(super) async fn forward_multiple(
        &self,
        caller: &Caller,
        request: afsvol::forward_multiple::Request,
    ) -> Result<ForwardResults, AbortCode> {
        superuser(caller)?;
        let used = self
            .transactions
            .find(request.transaction, "ForwardMulti")?;
        let results = self
            .send(
                &used,
                request.from_date,
                &request.destinations,
                &request.cookie,
            )
            .await?;
        ForwardResults::new(results).map_err(|_| codes::NO_MEMORY)
    }

    /// Sends one dump to all destinations and gives the code of each. Fails only if the dump does:
    /// then no destination takes what it got for a whole one.
    async fn send(
        &self,
        used: &Use,
        from: UnixTime,
        destinations: &[ReplicaDest],
        cookie: &RestoreCookie,
    ) -> Result<Vec<i32>, AbortCode> {
        let volume = used.transaction.volume.clone();
        let id = volume.id();
        let permit = permit(&self.outgoing).await?;
        let mut open: Vec<_> = destinations
            .iter()
            .map(|destination| self.open(destination, from, cookie))
            .collect();
        for destination in &open {
            tracing::info!(volume = %id, from = from.0, to = %destination.server.address(), "forwarding");
        }
        // One destination alone keeps nobody waiting who does not wait for it anyway.
        let limit = (open.len() > 1).then_some(self.config.stall_limit);
        let mut dump = Dump::start(volume, options(from, true), permit);
        while let Some(piece) = dump.piece().await {
            used.transaction.traffic.sent(piece.len());
            if !give(&mut open, &Some(piece), limit).await {
                // Nobody is left.
                return Ok(results(id, open).await);
            }
        }
        let summary = dump.finish().await;
        let summary = summary.map_err(|error| dump_code("forwarding", id, &error))?;
        give(&mut open, &None, limit).await;
        let results = results(id, open).await;
        tracing::info!(volume = %id, octets = summary.bytes, ?results, "forwarded");
        Ok(results)
    }

    /// Begins to send to a destination.
    fn open(
        &self,
        destination: &ReplicaDest,
        from: UnixTime,
        cookie: &RestoreCookie,
    ) -> Destination {
        let (pieces, from_us) = mpsc::channel(DEPTH);
        let transaction = destination.transaction;
        let flags = i32::from(from != UnixTime(0));
        let client = self.client(destination.server);
        let cookie = cookie.clone();
        let out_of_band = self.out_of_band.clone();
        let task = tokio::spawn(async move {
            let client = client.ok_or(codes::ENOTCONN)?;
            let out_of_band = out_of_band.as_deref();
            let restore = VolumeRestore::begin(out_of_band, &client, transaction, flags, cookie);
            let restore = restore.await.map_err(|error| error.code())?;
            upload(restore, from_us).await
        });
        Destination {
            server: destination.server,
            pieces: Some(pieces),
            task,
            stalled: false,
        }
    }

    fn client(&self, server: DestServer) -> Option<afsvol::Client> {
        let port = u16::try_from(server.port).ok()?;
        let address = SocketAddr::from((server.address(), port));
        if port == 0 || server.address().is_unspecified() {
            return None;
        }
        let connection = match &self.config.home {
            Some(home) if home.addresses.contains(&server.address()) => {
                home.endpoint
                    .connect(address, afsvol::SERVICE, Arc::new(RxNull))
            }
            _ => {
                let security = (self.config.security)();
                self.endpoint.connect(address, afsvol::SERVICE, security)
            }
        };
        Some(afsvol::Client::new(connection))
    }
}

/// Sends what comes to a transaction of another server. If it ends before its end, so does the
/// call, unfinished: the other side then knows that it has no whole dump.
async fn upload(
    mut restore: VolumeRestore,
    mut pieces: mpsc::Receiver<Option<Bytes>>,
) -> Result<(), AbortCode> {
    loop {
        match pieces.recv().await {
            Some(Some(piece)) => restore.send(piece).await.map_err(|error| error.code())?,
            Some(None) => break,
            None => return Err(codes::DUMPERROR),
        }
    }
    let done = restore.finish().await;
    done.map_err(|error| error.code())
}

/// Gives a piece to all destinations that still take some; whether any does. One that takes
/// nothing for as long as the limit is left behind.
async fn give(open: &mut [Destination], piece: &Option<Bytes>, limit: Option<Duration>) -> bool {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut any = false;
    for destination in open {
        let Some(pieces) = &destination.pieces else {
            continue;
        };
        let sending = pieces.send(piece.clone());
        let sent = match deadline {
            Some(deadline) => timeout_at(deadline, sending).await,
            None => Ok(sending.await),
        };
        match sent {
            Ok(Ok(())) => any = true,
            // Its task has ended and knows why.
            Ok(Err(_)) => destination.pieces = None,
            Err(_) => {
                destination.stalled = true;
                destination.pieces = None;
                destination.task.abort();
            }
        }
    }
    any
}

/// How it went at each destination.
async fn results(volume: VolumeId, open: Vec<Destination>) -> Vec<i32> {
    let mut codes = Vec::with_capacity(open.len());
    for destination in open {
        let result = match destination.task.await {
            Ok(result) => result,
            Err(_) if destination.stalled => Err(AbortCode::RX_CALL_TIMEOUT),
            Err(_) => Err(codes::DUMPERROR),
        };
        let code = result.map_or_else(|code| code.0, |()| 0);
        if code != 0 {
            tracing::warn!(%volume, to = %destination.server.address(), code,
                stalled = destination.stalled, "a destination failed");
        }
        codes.push(code);
    }
    codes
}
