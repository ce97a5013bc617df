//! Data to clients.

use afar_net::AbortCode;
use afar_rpc::{FetchSink, rxafs};
use afar_types::{CallBack, FetchStatus, Fid, VolSync};
use bytes::Bytes;
use tokio::task::JoinHandle;

use super::snapshot::Snapshot;
use super::visit::Visit;
use crate::abort::errno;
use crate::access::may_fetch_data;
use crate::hosts::Promise;

pub(super) async fn fetch_data64(
    visit: &Visit,
    request: rxafs::fetch_data64::Request,
    data: &mut FetchSink<'_>,
) -> Result<rxafs::fetch_data64::Reply, AbortCode> {
    let (status, callback, vol_sync) = fetch(visit, request.fid, request.position, data).await?;
    Ok(rxafs::fetch_data64::Reply {
        status,
        callback,
        vol_sync,
    })
}

pub(super) async fn fetch_data(
    visit: &Visit,
    request: rxafs::fetch_data::Request,
    data: &mut FetchSink<'_>,
) -> Result<rxafs::fetch_data::Reply, AbortCode> {
    let position = request.position.into();
    let (status, callback, vol_sync) = fetch(visit, request.fid, position, data).await?;
    Ok(rxafs::fetch_data::Reply {
        status,
        callback,
        vol_sync,
    })
}

/// What a fetch begins with.
struct Opened {
    snapshot: Snapshot,
    status: FetchStatus,
    promise: Promise,
    vol_sync: VolSync,
    first: Vec<Bytes>,
}

/// Sends what of a vnode's data the client asked for and there is. While one piece is sent the
/// next is read; no more of a call is in memory.
async fn fetch(
    visit: &Visit,
    fid: Fid,
    position: i64,
    data: &mut FetchSink<'_>,
) -> Result<(FetchStatus, CallBack, VolSync), AbortCode> {
    let too_big = AbortCode(errno::EFBIG);
    let asked = data.asked();
    let position = u64::try_from(position).map_err(|_| too_big)?;
    let end = position
        .checked_add(asked)
        .and_then(|end| i64::try_from(end).ok());
    end.ok_or(too_big)?;
    let opened = visit
        .step(move |visit| open(visit, fid, position, asked))
        .await?;
    let Opened {
        snapshot,
        status,
        promise,
        vol_sync,
        first,
    } = opened;
    let count = |pieces: &[Bytes]| pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
    let mut left = snapshot.remaining();
    data.announce(left + count(&first)).await?;
    let mut reading = (left > 0).then(|| read_ahead(snapshot));
    let mut pieces = first;
    loop {
        visit.server.stats.add_fetched(count(&pieces));
        for piece in pieces {
            data.send(piece).await?;
        }
        let Some(read) = reading else { break };
        let read = read.await.unwrap_or(Err(AbortCode(errno::EIO)));
        let (snapshot, next) = read?;
        left = snapshot.remaining();
        reading = (left > 0).then(|| read_ahead(snapshot));
        pieces = next;
    }
    Ok((status, visit.callback(&promise), vol_sync))
}

/// A snapshot and its next pieces.
type Read = Result<(Snapshot, Vec<Bytes>), AbortCode>;

/// Reads the next pieces beside what is going on.
fn read_ahead(mut snapshot: Snapshot) -> JoinHandle<Read> {
    tokio::task::spawn_blocking(move || {
        let pieces = snapshot.next()?;
        Ok((snapshot, pieces))
    })
}

fn open(visit: &Visit, fid: Fid, position: u64, asked: u64) -> Result<Opened, AbortCode> {
    let mut place = visit.enter(fid.volume)?;
    let look = place.look(fid)?;
    may_fetch_data(&visit.person, &look.vnode, look.grant, place.state.owner)?;
    let promise = place.promise(fid, false);
    let (mut snapshot, vnode) = Snapshot::take(place.volume(), fid, position, asked)?;
    let first = snapshot.next()?;
    Ok(Opened {
        status: place.status(&vnode, look.grant),
        vol_sync: place.vol_sync(),
        snapshot,
        promise,
        first,
    })
}
