//! Data to clients.

use afar_net::AbortCode;
use afar_rpc::{FetchSink, Wait, rxafs};
use afar_types::{CallBack, FetchStatus, Fid, VolSync};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;

use super::snapshot::{Piece, Snapshot, Taking};
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
    first: Vec<Piece>,
}

/// Bytes that a call must be granted for the next piece to be read while one is sent.
const AHEAD: usize = 512 << 10;
/// Reads at a time for calls that are granted less. Each has a whole record in memory for a moment, of which
/// a small part is kept.
static SMALL_READS: Semaphore = Semaphore::const_new(32);

/// Sends what of a vnode's data the client asked for and there is. While one piece is sent the
/// next is read; no more of a call is in memory, and less while the client has taken nothing yet.
async fn fetch(
    visit: &Visit,
    fid: Fid,
    position: i64,
    data: &mut FetchSink<'_>,
) -> Result<(FetchStatus, CallBack, VolSync), AbortCode> {
    let too_big = AbortCode(errno::EFBIG);
    let asked = data.asked();
    // spec: afs-rpc#fetching-data
    let position = u64::try_from(position).map_err(|_| too_big)?;
    let end = position
        .checked_add(asked)
        .and_then(|end| i64::try_from(end).ok());
    end.ok_or(too_big)?;
    visit.tally.lock().file = Some(fid);
    let taking = Taking::of(data);
    let opened = loop {
        let turn = Wait::Disk.on(small_read(taking.granted())).await;
        let opened = visit
            .step_once(move |visit| open(visit, fid, (position, asked), taking))
            .await;
        drop(turn);
        if !visit.waits().await? {
            break opened?;
        }
    };
    let Opened {
        mut snapshot,
        status,
        promise,
        vol_sync,
        first,
    } = opened;
    let count = |pieces: &[Piece]| {
        pieces
            .iter()
            .map(|piece| piece.length() as u64)
            .sum::<u64>()
    };
    data.announce(snapshot.remaining() + count(&first)).await?;
    let mut pieces = first;
    loop {
        visit.fetched(count(&pieces));
        if snapshot.remaining() == 0 {
            send(data, pieces).await?;
            break;
        }
        let granted = data.granted();
        let mut turn = None;
        let reading = if granted >= AHEAD {
            let reading = read(snapshot, taking.with(granted));
            send(data, pieces).await?;
            reading
        } else {
            send(data, pieces).await?;
            let granted = data.room().await?;
            turn = Wait::Disk.on(small_read(granted)).await;
            read(snapshot, taking.with(granted))
        };
        let read = Wait::Disk.on(reading).await;
        let read = read.unwrap_or(Err(AbortCode(errno::EIO)));
        drop(turn);
        (snapshot, pieces) = read?;
    }
    Ok((status, visit.callback(&promise), vol_sync))
}

async fn send(data: &mut FetchSink<'_>, pieces: Vec<Piece>) -> Result<(), AbortCode> {
    for piece in pieces {
        match piece {
            Piece::Plain(bytes) => data.send(bytes).await?,
            Piece::Packed(packed) => data.send_packed(packed).await?,
        }
    }
    Ok(())
}

/// Waits for a turn to read a small piece; a large one needs none.
async fn small_read(granted: usize) -> Option<SemaphorePermit<'static>> {
    if granted >= AHEAD {
        return None;
    }
    // It is never closed.
    SMALL_READS.acquire().await.ok()
}

/// A snapshot and its next pieces.
type Read = Result<(Snapshot, Vec<Piece>), AbortCode>;

/// Reads the next pieces beside what is going on.
fn read(mut snapshot: Snapshot, taking: Taking) -> JoinHandle<Read> {
    afar_rpc::spawn_blocking(move || {
        let pieces = snapshot.next(taking)?;
        Ok((snapshot, pieces))
    })
}

fn open(
    visit: &Visit,
    fid: Fid,
    (position, asked): (u64, u64),
    taking: Taking,
) -> Result<Opened, AbortCode> {
    let mut place = visit.enter(fid.volume)?;
    let look = place.look(fid)?;
    may_fetch_data(&visit.person, &look.vnode, look.grant, place.state.owner)?;
    // Before the data is looked at, so that a change that comes later finds the promise.
    let promise = place.promise(fid, false);
    let granted = taking.granted();
    let (mut snapshot, vnode) = Snapshot::take(place.volume(), fid, position, asked, granted)?;
    let first = snapshot.next(taking)?;
    Ok(Opened {
        status: place.status(&vnode, look.grant),
        vol_sync: place.vol_sync(),
        snapshot,
        promise,
        first,
    })
}
