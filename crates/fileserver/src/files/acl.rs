//! ACLs: ids in the store, names on the wire.

use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::rxafs;
use afar_types::{
    Acl, AclEntry, AclRecord, AclRecordEntry, AclText, FetchStatus, Fid, PtsId, VolSync,
};

use super::visit::{Visit, failed};
use crate::abort::errno;
use crate::access::{may_fetch_acl, may_store_acl};

pub(super) async fn fetch_acl(
    visit: &Visit,
    request: rxafs::fetch_acl::Request,
) -> Result<rxafs::fetch_acl::Reply, AbortCode> {
    let fid = request.fid;
    let (record, status, vol_sync) = visit
        .step(move |visit| {
            let mut place = visit.enter(fid.volume)?;
            let look = place.look(fid)?;
            may_fetch_acl(&visit.person, &look.vnode, look.grant, place.state.owner)?;
            let status = place.status(&look.vnode, look.grant);
            Ok((look.acl, status, place.vol_sync()))
        })
        .await?;
    let acl = text_of(visit, &record).await?;
    Ok(rxafs::fetch_acl::Reply {
        acl,
        status,
        vol_sync,
    })
}

async fn text_of(visit: &Visit, record: &AclRecord) -> Result<AclText, AbortCode> {
    let all = record.positive().iter().chain(record.negative());
    let ids: Vec<_> = all.map(|entry| entry.id).collect();
    let names = visit.server.protection.names(&ids).await;
    let names = names.map_err(|_| AbortCode(errno::EIO))?;
    let entries = |list: &[AclRecordEntry], names: &[Arc<str>]| {
        let pairs = list.iter().zip(names);
        pairs
            .map(|(entry, name)| AclEntry {
                // A name that the text cannot carry must not make the list unreadable.
                name: match Acl::carries(name) {
                    true => name.to_string(),
                    false => entry.id.to_string(),
                },
                rights: entry.rights,
            })
            .collect()
    };
    let (positive, negative) = names.split_at(record.positive().len());
    let acl = Acl {
        positive: entries(record.positive(), positive),
        negative: entries(record.negative(), negative),
    };
    let text = acl.to_text().map_err(|_| AbortCode(errno::EIO))?;
    AclText::new(text).map_err(|_| AbortCode(errno::E2BIG))
}

pub(super) async fn store_acl(
    visit: &Visit,
    request: rxafs::store_acl::Request,
) -> Result<rxafs::store_acl::Reply, AbortCode> {
    let (status, vol_sync) = replace(visit, request.fid, &request.acl).await?;
    Ok(rxafs::store_acl::Reply { status, vol_sync })
}

pub(super) async fn old_store_acl(
    visit: &Visit,
    request: rxafs::old_store_acl::Request,
) -> Result<rxafs::old_store_acl::Reply, AbortCode> {
    let (status, vol_sync) = replace(visit, request.fid, &request.acl).await?;
    Ok(rxafs::old_store_acl::Reply { status, vol_sync })
}

async fn replace(
    visit: &Visit,
    fid: Fid,
    text: &[u8],
) -> Result<(FetchStatus, VolSync), AbortCode> {
    // spec: afs-rpc#access-lists
    // As OpenAFS: a text that does not end may have been cut on its way (check_acl).
    if !text.contains(&0) {
        return Err(AbortCode(errno::EINVAL));
    }
    let acl = Acl::parse(text).map_err(|_| AbortCode(errno::EINVAL))?;
    // Names are not looked up for those who may not use them.
    let present = visit
        .step(move |visit| {
            let mut place = visit.change(fid.volume)?;
            let look = place.directory(fid)?;
            may_store_acl(&visit.person, look.grant, place.state.owner)?;
            Ok(look.acl)
        })
        .await?;
    let record = record_of(visit, &acl, &present).await?;
    let stored = visit
        .step(move |visit| {
            let mut place = visit.change_alone(fid.volume)?;
            let look = place.directory(fid)?;
            may_store_acl(&visit.person, look.grant, place.state.owner)?;
            let vnode = place.volume().set_acl(fid, &record).map_err(failed)?;
            Ok((place.status(&vnode, look.grant), place.vol_sync()))
        })
        .await?;
    visit.break_others(&[fid]).await;
    Ok(stored)
}

/// The ids of a list that is to take the place of the one that is `present`.
async fn record_of(visit: &Visit, acl: &Acl, present: &AclRecord) -> Result<AclRecord, AbortCode> {
    let all = acl.positive.iter().chain(&acl.negative);
    let names: Vec<Arc<str>> = all.map(|entry| Arc::from(&*entry.name)).collect();
    let ids = visit.server.protection.ids(&names).await;
    let ids = ids.map_err(|_| AbortCode(errno::EIO))?;
    let there = |id: &PtsId| {
        let mut all = present.positive().iter().chain(present.negative());
        all.any(|entry| entry.id == *id)
    };
    let id = |(id, name): (&PtsId, &Arc<str>)| match *id {
        // spec: afs-rpc#access-lists
        // A name that is not known. That of a user who is gone is the id, as lists tell it: a client that
        // changes a list sends it back. Numbers that were not there are refused, as OpenAFS does.
        PtsId::ANONYMOUS => name.parse().ok().filter(there).unwrap_or(PtsId::ANONYMOUS),
        id => id,
    };
    let ids: Vec<_> = ids.iter().zip(&names).map(id).collect();
    if ids.contains(&PtsId::ANONYMOUS) {
        return Err(AbortCode(errno::EINVAL));
    }
    let entries = |list: &[AclEntry], ids: &[PtsId]| {
        let pairs = list.iter().zip(ids);
        pairs
            .map(|(entry, id)| AclRecordEntry {
                id: *id,
                rights: entry.rights,
            })
            .collect()
    };
    let (positive, negative) = ids.split_at(acl.positive.len().min(ids.len()));
    let (positive, negative) = (
        entries(&acl.positive, positive),
        entries(&acl.negative, negative),
    );
    AclRecord::new(positive, negative).map_err(|_| AbortCode(errno::EINVAL))
}
