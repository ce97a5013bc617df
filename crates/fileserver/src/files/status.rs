//! Statuses, one or many, and what goes with them: promises, and setting attributes.

use afar_net::AbortCode;
use afar_rpc::rxafs;
use afar_store::{SetAttributes, VnodeStatus};
use afar_types::{
    CallBack, CallBacks, FetchStatus, Fid, Fids, FileType, Statuses, StoreStatus, VolSync,
};

use super::visit::{Acting, EnteredVolume, Seen, Visit, failed, mode_bits};
use crate::abort::errno;
use crate::access::{Grant, may_store_status};

pub(super) async fn fetch_status(
    visit: &Visit,
    request: rxafs::fetch_status::Request,
) -> Result<rxafs::fetch_status::Reply, AbortCode> {
    let fid = request.fid;
    let (seen, vol_sync) = visit
        .step(move |visit| {
            let mut place = visit.enter(fid.volume)?;
            Ok((place.see(fid, false)?, place.vol_sync()))
        })
        .await?;
    Ok(rxafs::fetch_status::Reply {
        status: seen.status,
        callback: visit.callback(&seen.promise),
        vol_sync,
    })
}

/// What is known of each fid of a bulk call, and of the first volume that could be entered.
type Bulk = (Vec<Result<Seen, AbortCode>>, VolSync);

/// Looks at many vnodes in one step.
async fn bulk(visit: &Visit, fids: Fids) -> Result<Bulk, AbortCode> {
    if fids.is_empty() {
        return Err(AbortCode(errno::EINVAL));
    }
    let look = move |visit: &Visit| {
        // The volume is entered once for fids that follow each other, mostly all of them.
        let mut place: Option<EnteredVolume<'_>> = None;
        let mut vol_sync = None;
        let mut one = |fid: Fid| {
            let mut here = match place.take().filter(|here| here.volume().id() == fid.volume) {
                Some(here) => here,
                None => visit.enter(fid.volume)?,
            };
            let seen = here.see(fid, true);
            if seen.is_ok() {
                vol_sync.get_or_insert_with(|| here.vol_sync());
            }
            place = Some(here);
            seen
        };
        let seen = fids.iter().map(|fid| one(*fid)).collect();
        Ok((seen, vol_sync.unwrap_or_default()))
    };
    visit.step(look).await
}

/// Statuses and callbacks as the reply has them.
fn lists(parts: Vec<(FetchStatus, CallBack)>) -> Result<(Statuses, CallBacks), AbortCode> {
    let (statuses, callbacks): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let statuses = Statuses::new(statuses).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
    let callbacks = CallBacks::new(callbacks).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
    Ok((statuses, callbacks))
}

pub(super) async fn bulk_status(
    visit: &Visit,
    request: rxafs::bulk_status::Request,
) -> Result<rxafs::bulk_status::Reply, AbortCode> {
    let (seen, vol_sync) = bulk(visit, request.fids).await?;
    let part = |seen: Result<Seen, AbortCode>| {
        seen.map(|seen| (seen.status, visit.callback(&seen.promise)))
    };
    let (statuses, callbacks) = lists(seen.into_iter().map(part).collect::<Result<_, _>>()?)?;
    Ok(rxafs::bulk_status::Reply {
        statuses,
        callbacks,
        vol_sync,
    })
}

pub(super) async fn inline_bulk_status(
    visit: &Visit,
    request: rxafs::inline_bulk_status::Request,
) -> Result<rxafs::inline_bulk_status::Reply, AbortCode> {
    let (seen, vol_sync) = bulk(visit, request.fids).await?;
    // spec: afs-rpc#bulk-status
    let part = |seen: Result<Seen, AbortCode>| match seen {
        Ok(seen) => (seen.status, visit.callback(&seen.promise)),
        Err(code) => {
            let status = FetchStatus {
                interface_version: FetchStatus::INTERFACE_VERSION,
                error_code: visit.translate(code).0,
                ..FetchStatus::default()
            };
            (status, CallBack::default())
        }
    };
    let (statuses, callbacks) = lists(seen.into_iter().map(part).collect())?;
    Ok(rxafs::inline_bulk_status::Reply {
        statuses,
        callbacks,
        vol_sync,
    })
}

/// Gives promises up; without any fid, all of them.
// spec: afs-rpc#promises
pub(super) async fn give_up_call_backs(
    visit: &Visit,
    request: rxafs::give_up_call_backs::Request,
) -> Result<rxafs::give_up_call_backs::Reply, AbortCode> {
    let hosts = &visit.server.hosts;
    if request.fids.len() < request.callbacks.len() {
        return Err(AbortCode(errno::EINVAL));
    }
    if request.fids.is_empty() {
        hosts.give_up_all(&visit.host);
    } else {
        hosts.give_up(&visit.host, &request.fids);
    }
    Ok(rxafs::give_up_call_backs::Reply {})
}

pub(super) async fn give_up_all_call_backs(
    visit: &Visit,
    _: rxafs::give_up_all_call_backs::Request,
) -> Result<rxafs::give_up_all_call_backs::Reply, AbortCode> {
    visit.server.hosts.give_up_all(&visit.host);
    Ok(rxafs::give_up_all_call_backs::Reply {})
}

pub(super) async fn store_status(
    visit: &Visit,
    request: rxafs::store_status::Request,
) -> Result<rxafs::store_status::Reply, AbortCode> {
    let rxafs::store_status::Request { fid, attributes } = request;
    let (status, vol_sync) = visit
        .step(move |visit| {
            let mut place = visit.change(fid.volume)?;
            let (vnode, grant) = store_status_in(&mut place.acting(), fid, &attributes)?;
            Ok((place.status(&vnode, grant), place.vol_sync()))
        })
        .await?;
    visit.break_others(&[fid]).await;
    Ok(rxafs::store_status::Reply { status, vol_sync })
}

/// Sets attributes; also returns the rights on the vnode.
pub(super) fn store_status_in(
    acting: &mut Acting<'_>,
    fid: Fid,
    attributes: &StoreStatus,
) -> Result<(VnodeStatus, Grant), AbortCode> {
    let look = acting.look(fid)?;
    let person = &acting.visit.person;
    may_store_status(person, &look.vnode, look.grant, attributes)?;
    let set = |bit| attributes.mask & bit != 0;
    // spec: afs-rpc#owners-and-modes
    // Else a symlink could be made a mount point, which needs other rights.
    if look.vnode.file_type == FileType::Symlink && set(StoreStatus::SET_MODE) {
        return Err(AbortCode(errno::EINVAL));
    }
    let wanted = attributes_of(attributes, look.vnode.mode, person);
    let vnodes = &mut acting.vnodes;
    let vnode = vnodes.set_attributes(fid, &wanted).map_err(failed)?;
    // The owner of the root is the volume's.
    if let Some(owner) = wanted.owner
        && fid == Fid::root(fid.volume)
    {
        vnodes.set_owner(owner).map_err(failed)?;
    }
    Ok((vnode, look.grant))
}

/// What of a vnode is to be set. When an owner is set by someone other than an administrator, who
/// can only set the one it has, it loses the set-user-id bit, as with OpenAFS.
fn attributes_of(wanted: &StoreStatus, mode: u16, person: &crate::access::Person) -> SetAttributes {
    let set = |bit| wanted.mask & bit != 0;
    let mut attributes = SetAttributes {
        mode: set(StoreStatus::SET_MODE).then(|| mode_bits(wanted, person)),
        owner: set(StoreStatus::SET_OWNER).then_some(wanted.owner),
        group: set(StoreStatus::SET_GROUP).then_some(wanted.group),
        modify_time: set(StoreStatus::SET_MOD_TIME).then_some(wanted.client_mod_time),
    };
    // spec: afs-rpc#owners-and-modes
    if attributes.owner.is_some() && !person.is_administrator() {
        attributes.mode = attributes.mode.or(Some(mode & !0o4000));
    }
    attributes
}

/// What a store of data sets beside the data, if anything: whoever is no administrator takes the
/// set-user-id bit away by it.
pub(super) fn attributes_after_store(
    wanted: &StoreStatus,
    mode: u16,
    person: &crate::access::Person,
) -> Option<SetAttributes> {
    let wanted = StoreStatus {
        mask: wanted.mask & !StoreStatus::SET_MOD_TIME,
        ..*wanted
    };
    let mut attributes = attributes_of(&wanted, mode, person);
    // spec: afs-rpc#storing-data
    if mode & 0o4000 != 0 && !person.is_administrator() {
        attributes.mode = attributes.mode.or(Some(mode & !0o4000));
    }
    (attributes != SetAttributes::default()).then_some(attributes)
}
