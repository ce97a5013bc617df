//! Fetching a file: in pieces, by as many calls at a time as fill the way to its server.
//!
//! **Pieces.** An OpenAFS file server begins each call with one packet, doubles that each round trip,
//! and ends at 32: 45 KB a round trip. A thread of it, of which there are about ten, is busy with a
//! call until all but the last 64 packets are acknowledged: ten long calls are all it serves at a time,
//! and they do not fill a long link. So on long links a piece is what can be sent in 63 packets,
//! 1 + 2 + 4 + 8 + 16 + 32: it takes six round trips and next to no thread's time, and as many can be
//! under way as the link holds. On short links round trips cost nothing, calls do, and pieces are
//! larger. An afar server has large windows and gets a few large pieces.
//!
//! **Nearby.** What of the version is on this machine already is [taken from there](crate::Nearby).
//!
//! **Out of band.** Large pieces of an afar server come over TCP where that works; what is left of one that is cut
//! off comes by a call.
//!
//! **Consistency.** Each reply carries the file's data version. When one differs from the version
//! begun with, all is fetched again.

mod near;
mod oob;
mod piece;
mod sink;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use afar_rpc::RpcError;
use afar_types::{DataVersion, FetchStatus, Fid};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::class::Class;
use crate::client::Client;
use crate::credentials::Secured;
use crate::ended::ended;
use crate::error::Error;
use crate::nearby::NearbyFile;
use crate::promise::{Promised, checked};
use crate::server::{FileServer, NEAR, Verdict, verdict};
use crate::volume::Volume;
use crate::waits::{Waits, carried};
use crate::window::Permit;
use near::{Gaps, Landed};
use oob::Went;
use piece::{Outcome, Piece};

pub use sink::{Memory, Ordered, Sink};

/// What fits into 63 packets of 1,416 bytes with the length before it and the status behind it.
// spec: rx#how-openafs-sends
const FAR_PIECE: u64 = 86 << 10;
/// Pieces on links so short that a round trip costs no time.
const NEAR_PIECE: u64 = 1 << 20;
/// Calls at a time there: more only wait for each other.
const NEAR_CALLS: u64 = 8;
/// Pieces asked of an afar server.
const AFAR_PIECE: u64 = 64 << 20;
/// Bytes of one that may be to come when the next is asked for, or half of a shorter one: two calls share the
/// way, and what is wanted next would come as slowly as what is wanted after it.
const AFAR_LEFT: u64 = 8 << 20;
/// Pieces asked of an afar server by those who give way, whose calls are counted.
const IDLE_PIECE: u64 = 128 << 10;
/// Times a file may change while it is read.
const CHANGES_MOST: u32 = 8;

/// How a fetch went.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// The status of the version fetched.
    pub status: FetchStatus,
    /// Bytes, all of them.
    pub bytes: u64,
    /// Those of them that were on this machine.
    pub near: u64,
    /// Calls it took.
    pub calls: u64,
    /// Servers it came from.
    pub servers: BTreeSet<SocketAddr>,
    /// Times it was restarted, as the file had changed.
    pub restarts: u32,
}

impl Fetched {
    /// Nothing yet, of the version that this status tells.
    fn begun(status: FetchStatus) -> Self {
        Self {
            status,
            bytes: 0,
            near: 0,
            calls: 0,
            servers: BTreeSet::new(),
            restarts: 0,
        }
    }
}

/// How a task that had a part of a file ended.
#[derive(Debug)]
enum Part {
    /// A piece was asked of this server, by so many calls.
    Asked(Outcome, u64, SocketAddr),
    /// It was on this machine.
    Near(Landed),
}

type PartResult = Result<Part, Error>;

impl Client {
    /// Fetches a file, as it was at one time, into a sink.
    ///
    /// # Errors
    /// When no server of the volume gives it, the sink fails, or the file changes all the time.
    /// Calls under way are given up then.
    pub async fn fetch<S: Sink>(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        status: FetchStatus,
        sink: &Arc<S>,
    ) -> Result<Fetched, Error> {
        let mut fetched = Fetched::begun(status);
        loop {
            sink.begin(&fetched.status)?;
            (fetched.bytes, fetched.near) = (0, 0);
            let all = 0..fetched.status.length;
            let Some(changed) = self
                .fetch_version(volume, fid, all, &mut fetched, sink)
                .await?
            else {
                return Ok(fetched);
            };
            fetched.restarts += 1;
            if fetched.restarts > CHANGES_MOST {
                return Err(Error::Changing(CHANGES_MOST));
            }
            fetched.status = checked(changed)?;
        }
    }

    /// Fetches a part of the version of a file that this status tells. Its beginning is not told to
    /// the sink; of what the file is shorter than the range, nothing comes.
    ///
    /// # Errors
    /// [`Error::Changing`] when the file has another version now; else as [`fetch`](Self::fetch).
    pub async fn fetch_range<S: Sink>(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        status: FetchStatus,
        range: Range<u64>,
        sink: &Arc<S>,
    ) -> Result<Fetched, Error> {
        let mut fetched = Fetched::begun(status);
        let range = range.start..range.end.min(status.length);
        let changed = self
            .fetch_version(volume, fid, range, &mut fetched, sink)
            .await?;
        match changed {
            None => Ok(fetched),
            // Asked for again, it would be as short as before.
            Some(new) if new.data_version == status.data_version => {
                Err(Error::Nonsense("fewer bytes than the file's status says"))
            }
            Some(_) => Err(Error::Changing(1)),
        }
    }

    /// Fetches a part of one version; returns the status of another, if the file has changed.
    async fn fetch_version<S: Sink>(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        range: Range<u64>,
        fetched: &mut Fetched,
        sink: &Arc<S>,
    ) -> Result<Option<FetchStatus>, Error> {
        let version = fetched.status.data_version;
        let mut running = JoinSet::new();
        let mut gaps = Gaps::from(range.clone());
        if let Some(file) = self.find_nearby(volume, fid, version).await {
            let parts = gaps.take_out(file.ranges());
            running.spawn(near::land(file, parts, Arc::clone(sink)));
        }
        let length = gaps.bytes();
        let mut size = None;
        let mut left = u64::MAX;
        loop {
            while let Some(done) = running.try_join_next() {
                if let Some(changed) = settle(done, fetched, &mut gaps).await? {
                    return Ok(Some(changed));
                }
            }
            if gaps.is_empty() {
                sink.asked(left);
                let Some(done) = running.join_next().await else {
                    let wanted = range.end.saturating_sub(range.start);
                    debug_assert_eq!(fetched.bytes, wanted, "of {range:?}");
                    return Ok(None);
                };
                if let Some(changed) = settle(done, fetched, &mut gaps).await? {
                    return Ok(Some(changed));
                }
                continue;
            }
            let server = self.best_site(volume)?;
            let size = match size {
                Some(size) => size,
                None => {
                    let found = self.piece_size(&server, length).await;
                    if found == AFAR_PIECE {
                        // What the way holds is on it in any case; before that is known, all may be.
                        let held = server.held().await.unwrap_or(u64::MAX);
                        left = held.max(AFAR_LEFT.min(length / 2));
                    }
                    *size.insert(found)
                }
            };
            let Some(part) = gaps.next(size) else {
                continue;
            };
            let piece = Piece {
                fid,
                offset: part.start,
                length: part.end - part.start,
                version,
            };
            self.start(&mut running, volume, server, piece, sink).await;
        }
    }

    /// What there is of a version of a file on this machine.
    async fn find_nearby(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        version: DataVersion,
    ) -> Option<Arc<dyn NearbyFile>> {
        let nearby = self.nearby().filter(|_| !fid.vnode.is_directory())?;
        nearby.find(volume, fid, version).await
    }

    /// Starts the fetch of a piece once the server may have another call.
    async fn start<S: Sink>(
        &self,
        running: &mut JoinSet<PartResult>,
        volume: &Arc<Volume>,
        server: Arc<FileServer>,
        piece: Piece,
        sink: &Arc<S>,
    ) {
        let (client, volume, sink) = (self.clone(), Arc::clone(volume), Arc::clone(sink));
        let window = server.window(self.class());
        if self.class() == Class::First {
            window.come_first();
        }
        let waiting = Waits::on(server.address());
        // Here and not in the task, so that pieces begin in their order.
        let permit = window.acquire(piece.length).await;
        drop(waiting);
        running.spawn(carried(async move {
            // A server nobody has talked to yet gets one call at first, as `retry` makes it.
            if server.is_known()
                && let Some(outcome) = client
                    .first_try(&volume, &server, permit, piece, &sink)
                    .await?
            {
                return Ok(Part::Asked(outcome, 1, server.address()));
            }
            client.retry(&volume, piece, &sink).await
        }));
    }

    /// Fetches a piece that failed once, from whichever server will give it.
    async fn retry<S: Sink>(
        &self,
        volume: &Arc<Volume>,
        piece: Piece,
        sink: &Arc<S>,
    ) -> PartResult {
        self.on_volume(volume, |server| {
            let (client, sink) = (self.clone(), Arc::clone(sink));
            let volume = Arc::clone(volume);
            async move {
                let peer = server.connection().peer();
                let known = client.server_at(volume.cell_name(), peer);
                let old = known.as_ref().is_some_and(|known| known.is_old());
                let outcome = match piece::fetch(&server, old, piece, &sink, None, None).await {
                    // spec: afs-rpc#unknown-operations
                    Err(error) if !old && error.is_unknown_operation() => {
                        if let Some(known) = known {
                            known.set_old();
                        }
                        piece::fetch(&server, true, piece, &sink, None, None).await
                    }
                    other => other,
                };
                Ok(Part::Asked(outcome?, 2, peer))
            }
        })
        .await
    }

    /// The first try of a piece, which the server's window counts. `None` if it failed in a way that
    /// another try, or another server, may mend.
    async fn first_try<S: Sink>(
        &self,
        volume: &Arc<Volume>,
        server: &Arc<FileServer>,
        mut permit: Permit,
        piece: Piece,
        sink: &Arc<S>,
    ) -> Result<Option<Outcome>, Error> {
        let whole = piece;
        let mut piece = piece;
        let went = self.out_of_band(server, &mut permit, piece, sink).await;
        let has_begun = went.is_some();
        match went {
            None => {}
            Some(Went::Ended(outcome)) => return Ok(Some(outcome)),
            Some(Went::Refused(error)) => {
                let old = server.is_old();
                return self.failed(server, permit, error, (old, None)).await;
            }
            Some(Went::Left(at)) => {
                piece.length -= at - piece.offset;
                piece.offset = at;
            }
        }
        let mut lane = server.data_lane().await;
        if !has_begun {
            permit.begin();
        }
        server.ask_for_shares();
        server.watch_start(&lane).await;
        let (client, old) = (lane.client(), server.is_old());
        // What calls bring is measured where TCP might.
        let called = self.is_large(piece.length).then(|| server.call_fetch());
        let called = called.as_ref();
        let call = piece::fetch(&client, old, piece, sink, Some(&mut permit), called);
        match self.unless_elsewhere(volume, &lane, call).await {
            Ok(Outcome::Done(_)) => Ok(Some(Outcome::Done(whole.length))),
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) => {
                lane.failed();
                let secured = lane.secured().cloned();
                self.failed(server, permit, error, (old, secured)).await
            }
        }
    }

    /// A piece from where there may be a connection out of band; `None` if there is none for it.
    async fn out_of_band<S: Sink>(
        &self,
        server: &Arc<FileServer>,
        permit: &mut Permit,
        piece: Piece,
        sink: &Arc<S>,
    ) -> Option<Went> {
        if !self.is_large(piece.length) {
            return None;
        }
        let connection = server.out_of_band()?;
        let transfer = connection.fetch(piece.fid, piece.offset, piece.length)?;
        permit.begin();
        let _waiting = Waits::call(server.address());
        let counted = server.count_fetch();
        Some(oob::fetch(transfer, counted, server.address(), piece, sink, permit).await)
    }

    /// The first try of a piece failed, which was asked for in the form of old servers or not, with this token; `None`
    /// if another try may mend that.
    async fn failed(
        &self,
        server: &Arc<FileServer>,
        permit: Permit,
        error: RpcError,
        (old, secured): (bool, Option<Secured>),
    ) -> Result<Option<Outcome>, Error> {
        tracing::debug!("{error}: {}", error.cause);
        match verdict(&error) {
            Verdict::Down => {
                permit.refused();
                server.silent();
                Ok(None)
            }
            Verdict::Busy => {
                permit.refused();
                Ok(None)
            }
            Verdict::Token if let Some(refused) = &secured => {
                // Another try asks for a newer token as well, and tells why there is none.
                server.renew(refused).await.ok();
                Ok(None)
            }
            Verdict::OtherSite => Ok(None),
            Verdict::Final if error.is_unknown_operation() && !old => {
                server.set_old();
                Ok(None)
            }
            Verdict::Final | Verdict::Token => Err(Error::refused(error, server.who())),
        }
    }

    /// Data from the beginning of a file, at most `length` bytes, with its status.
    pub(crate) async fn fetch_head(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        length: u64,
    ) -> Result<(Promised, Bytes), Error> {
        let (promised, data) = self
            .on_volume(volume, |server| async move {
                match piece::head(&server, false, fid, length).await {
                    Err(error) if error.is_unknown_operation() => {
                        piece::head(&server, true, fid, length).await
                    }
                    other => other,
                }
            })
            .await?;
        Ok((promised.checked()?, data))
    }

    /// The site to ask first.
    fn best_site(&self, volume: &Arc<Volume>) -> Result<Arc<FileServer>, Error> {
        let sites = volume.sites();
        let up = sites.iter().find(|site| !site.is_down());
        up.or_else(|| sites.first())
            .map(|site| self.own(site))
            .ok_or_else(|| Error::NoSite {
                cell: volume.cell_name().clone(),
                volume: volume.asked().to_owned(),
                problem: "it has no site".to_owned(),
            })
    }

    /// Bytes to fetch with one call to this server.
    async fn piece_size(&self, server: &Arc<FileServer>, length: u64) -> u64 {
        if let Some(size) = self.config().piece {
            return size.max(1);
        }
        // A file of one piece needs no decision.
        if length <= FAR_PIECE {
            return FAR_PIECE;
        }
        let path = server.path().await;
        server.set_afar(path.is_some_and(|path| path.afar));
        if let Some(round_trip) = path.and_then(|path| path.rtt_min) {
            server.window(self.class()).learn(round_trip);
        }
        match path {
            Some(path) if path.afar && self.class() == Class::Idle => IDLE_PIECE,
            Some(path) if path.afar => AFAR_PIECE,
            Some(path) if path.rtt_min.is_some_and(|rtt| rtt < NEAR) => {
                // Small enough for all calls to have a share.
                let share = length.div_ceil(NEAR_CALLS).next_multiple_of(4096);
                share.clamp(FAR_PIECE, NEAR_PIECE)
            }
            _ => FAR_PIECE,
        }
    }
}

/// Takes a part's result; returns the file's new status if it has changed.
async fn settle(
    done: Result<PartResult, tokio::task::JoinError>,
    fetched: &mut Fetched,
    gaps: &mut Gaps,
) -> Result<Option<FetchStatus>, Error> {
    let result = match done {
        Ok(result) => result,
        Err(error) => ended(error).await,
    };
    let (outcome, calls, server) = match result? {
        Part::Asked(outcome, calls, server) => (outcome, calls, server),
        Part::Near(landed) => {
            fetched.bytes += landed.bytes;
            fetched.near += landed.bytes;
            gaps.put_back(landed.missing);
            return Ok(None);
        }
    };
    fetched.calls += calls;
    match outcome {
        Outcome::Done(bytes) => {
            fetched.bytes += bytes;
            fetched.servers.insert(server);
            Ok(None)
        }
        Outcome::Changed(status) => Ok(Some(status)),
        Outcome::Sink(error) => Err(error.into()),
    }
}
