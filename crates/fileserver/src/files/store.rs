//! Data from clients.
//!
//! Data goes into the store as it comes and becomes the file's in one commit at the end: a client
//! that vanishes on the way leaves the file as it was. Stores to one file take turns.

use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::{StoreSource, Wait, rxafs};
use afar_store::{FileWriter, StoreOptions, VnodeStatus, Volume};
use afar_types::error::VOVERQUOTA;
use afar_types::{FetchStatus, Fid, FileType, StoreStatus, VolSync};
use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::timeout;

use super::status::attributes_after_store;
use super::visit::{Acting, EnteredVolume, Look, Visit, failed};
use crate::abort::errno;
use crate::access::{Grant, may_store_data};

/// A client that sends hardly anything for so long, though it lives, has lost its turn at the file.
const STALL_LIMIT: Duration = Duration::from_secs(120);
/// Bytes that are collected before they are written.
const BATCH: usize = 256 << 10;

pub(super) async fn store_data64(
    visit: &Visit,
    request: rxafs::store_data64::Request,
    data: &mut StoreSource<'_>,
) -> Result<rxafs::store_data64::Reply, AbortCode> {
    let wanted = Wanted {
        fid: request.fid,
        attributes: request.attributes,
        position: request.position,
        length: request.length,
        file_length: request.file_length,
    };
    let (status, vol_sync) = store(visit, wanted, data).await?;
    Ok(rxafs::store_data64::Reply { status, vol_sync })
}

pub(super) async fn store_data(
    visit: &Visit,
    request: rxafs::store_data::Request,
    data: &mut StoreSource<'_>,
) -> Result<rxafs::store_data::Reply, AbortCode> {
    let wanted = Wanted {
        fid: request.fid,
        attributes: request.attributes,
        position: request.position.into(),
        length: request.length.into(),
        file_length: request.file_length.into(),
    };
    let (status, vol_sync) = store(visit, wanted, data).await?;
    Ok(rxafs::store_data::Reply { status, vol_sync })
}

/// What is to be stored.
#[derive(Clone, Copy)]
struct Wanted {
    fid: Fid,
    attributes: StoreStatus,
    position: u64,
    length: u64,
    file_length: u64,
}

/// What was found before the data came.
struct Opened {
    volume: Volume,
    grant: Grant,
    /// The length to give to the store, for which it means the same but for stores of no data.
    file_length: u64,
}

async fn store(
    visit: &Visit,
    wanted: Wanted,
    data: &mut StoreSource<'_>,
) -> Result<(FetchStatus, VolSync), AbortCode> {
    let too_big = AbortCode(errno::EFBIG);
    let end = wanted.position.checked_add(wanted.length);
    let end = end.and_then(|end| i64::try_from(end).ok());
    let file_length = i64::try_from(wanted.file_length).ok();
    end.and(file_length).ok_or(too_big)?;
    let fid = wanted.fid;
    visit.tally.lock().file = Some(fid);
    // Before the turn, which a holder that sends what it has would wait for.
    if visit.leases.is_on() {
        let ask = move |visit: &Visit| visit.change(fid.volume)?.acting().vnode(fid).map(drop);
        visit.step(ask).await?;
    }
    // Before the length is looked at, which the store before this one may change.
    let turn = Wait::Lock.on(visit.server.stores.turn(fid)).await;
    let opened = visit.step(move |visit| open(visit, &wanted)).await?;
    let mut writer = in_place(|| {
        let _entered = visit.change(fid.volume)?;
        opened
            .volume
            .writer(fid, wanted.position, wanted.length)
            .map_err(failed)
    })?;
    receive(visit, &mut writer, data).await?;
    let stored = in_place(|| finish(visit, &wanted, &opened, writer))?;
    drop(turn);
    // The next one does not wait until hosts have heard of this one.
    visit.break_others(&[fid]).await;
    Ok(stored)
}

/// Whether all this may be done, before any of the data is taken.
fn open(visit: &Visit, wanted: &Wanted) -> Result<Opened, AbortCode> {
    let mut place = visit.change(wanted.fid.volume)?;
    let look = storable(&mut place.acting(), wanted.fid, &wanted.attributes)?;
    let old = look.vnode.length;
    // spec: afs-rpc#storing-data
    let kept = old.min(wanted.file_length);
    let new = kept.max(wanted.position + wanted.length);
    check_quota(&place, old, new)?;
    Ok(Opened {
        volume: place.volume().clone(),
        grant: look.grant,
        file_length: if wanted.length == 0 {
            new
        } else {
            wanted.file_length
        },
    })
}

/// A file that the caller may store data in, with these attributes.
pub(super) fn storable(
    acting: &mut Acting<'_>,
    fid: Fid,
    attributes: &StoreStatus,
) -> Result<Look, AbortCode> {
    let look = acting.look(fid)?;
    if look.vnode.file_type != FileType::File {
        return Err(AbortCode(errno::EISDIR));
    }
    may_store_data(&acting.visit.person, &look.vnode, look.grant, attributes)?;
    Ok(look)
}

/// Refuses what the quota will refuse in the end, before it is sent.
fn check_quota(place: &EnteredVolume<'_>, old: u64, new: u64) -> Result<(), AbortCode> {
    // spec: afs-rpc#volume-status
    let blocks = |length: u64| length.div_ceil(1024).max(1);
    let (quota, used) = (place.state.max_quota, place.state.disk_used);
    let after = used.saturating_sub(blocks(old)).saturating_add(blocks(new));
    if quota != 0 && after > used && after > quota {
        return Err(AbortCode(VOVERQUOTA));
    }
    Ok(())
}

async fn receive(
    visit: &Visit,
    writer: &mut FileWriter<'_>,
    data: &mut StoreSource<'_>,
) -> Result<(), AbortCode> {
    let mut batch: Vec<Bytes> = Vec::new();
    let mut length = 0;
    loop {
        // Others may wait for their turn at this file.
        let chunk = timeout(STALL_LIMIT, data.chunk_after(BATCH)).await;
        let chunk = chunk.map_err(|_| AbortCode::RX_CALL_TIMEOUT)??;
        let ended = chunk.is_none();
        if let Some(chunk) = chunk {
            length += chunk.len();
            batch.push(chunk);
        }
        if length >= BATCH || ended && length > 0 {
            in_place(|| {
                batch
                    .iter()
                    .try_for_each(|part| writer.write(part))
                    .map_err(failed)
            })?;
            visit.stored(length as u64);
            batch.clear();
            length = 0;
        }
        if ended {
            return Ok(());
        }
    }
}

/// What goes with data that is stored.
pub(super) fn options_of(visit: &Visit, attributes: &StoreStatus) -> StoreOptions {
    let timed = attributes.mask & StoreStatus::SET_MOD_TIME != 0;
    StoreOptions {
        author: visit.person.id,
        modify_time: timed.then_some(attributes.client_mod_time),
        file_length: None,
    }
}

/// Makes what was received the file's.
fn finish(
    visit: &Visit,
    wanted: &Wanted,
    opened: &Opened,
    writer: FileWriter<'_>,
) -> Result<(FetchStatus, VolSync), AbortCode> {
    let place = visit.change(wanted.fid.volume)?;
    let attributes = &wanted.attributes;
    let options = StoreOptions {
        file_length: Some(opened.file_length),
        ..options_of(visit, attributes)
    };
    let mut vnode: VnodeStatus = writer.finish(&options).map_err(failed)?;
    if let Some(more) = attributes_after_store(attributes, vnode.mode, &visit.person) {
        vnode = place
            .volume()
            .set_attributes(wanted.fid, &more)
            .map_err(failed)?;
    }
    Ok((place.status(&vnode, opened.grant), place.vol_sync()))
}

/// Does something that blocks, and that holds what is borrowed here. A runtime with other threads
/// moves its other tasks to them meanwhile.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let work = || Wait::Disk.blocking(work);
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => tokio::task::block_in_place(work),
    }
}
