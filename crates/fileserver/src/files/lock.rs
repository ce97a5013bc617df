//! Advisory locks. The locks themselves are in `crate::locks`.

use std::time::Instant;

use afar_net::AbortCode;
use afar_rpc::{Wait, rxafs};
use afar_types::{Fid, VolSync, VolumeType};

use super::visit::{EnteredVolume, Visit};
use crate::abort::errno;
use crate::access::may_lock;
use crate::locks::{LockError, MayRelease};

const READ: i32 = 0;
const WRITE: i32 = 1;

impl From<LockError> for AbortCode {
    fn from(error: LockError) -> Self {
        Self(match error {
            LockError::Held => errno::EAGAIN,
            LockError::NotHeld => errno::EINVAL,
            LockError::TooMany => errno::ENOLCK,
            LockError::Denied => errno::EACCES,
        })
    }
}

/// A step on a file's locks. What does not change needs none: there `changeable` is false, and
/// nothing is kept.
async fn step<T: Send + 'static>(
    visit: &Visit,
    fid: Fid,
    work: impl Fn(&mut EnteredVolume<'_>, bool) -> Result<T, AbortCode> + Send + Sync + 'static,
) -> Result<(T, VolSync), AbortCode> {
    visit
        .step(move |visit| {
            let mut place = visit.enter(fid.volume)?;
            let changeable = place.state.kind == VolumeType::ReadWrite;
            Ok((work(&mut place, changeable)?, place.vol_sync()))
        })
        .await
}

async fn set(visit: &Visit, fid: Fid, kind: i32) -> Result<VolSync, AbortCode> {
    let exclusive = match kind {
        READ => false,
        WRITE => true,
        _ => return Err(AbortCode(errno::EINVAL)),
    };
    let person = visit.person.clone();
    let locked = visit.clone();
    let ((), vol_sync) = step(visit, fid, move |place, changeable| {
        let look = place.look(fid)?;
        // spec: afs-rpc#locks
        if !changeable {
            return if exclusive {
                Err(AbortCode(errno::EROFS))
            } else {
                Ok(())
            };
        }
        may_lock(&person, &look.vnode, look.grant, exclusive)?;
        // spec: leases#what-a-lease-means
        place.take(fid)?;
        let locks = &locked.server.locks;
        Ok(locks.set(fid, locked.lock_owner(), exclusive, Instant::now())?)
    })
    .await?;
    // That it is free is told by breaks. One that comes to the host that has the lock by now says that there is something
    // new, when there is not; its kernel may then drop the length that a program is just being told.
    let hearing = visit.server.hosts.heard_of(fid);
    Wait::Callbacks.on(hearing).await;
    Ok(vol_sync)
}

/// Keeps the locks of a host. No right is asked for: OpenAFS's client keeps its locks as anonymous.
// spec: afs-rpc#locks
async fn extend(visit: &Visit, fid: Fid) -> Result<VolSync, AbortCode> {
    let locked = visit.clone();
    let ((), vol_sync) = step(visit, fid, move |place, changeable| {
        place.look(fid)?;
        if changeable {
            let locks = &locked.server.locks;
            locks.extend(fid, &locked.lock_owner(), Instant::now())?;
        }
        Ok(())
    })
    .await?;
    Ok(vol_sync)
}

/// Gives a lock up. When it was the last one, others who wait for it are told by a break.
async fn release(visit: &Visit, fid: Fid) -> Result<VolSync, AbortCode> {
    let locked = visit.clone();
    let (telling, vol_sync) = step(visit, fid, move |place, changeable| {
        let look = place.look(fid)?;
        if !changeable {
            return Ok(None);
        }
        place.take(fid)?;
        let may = |exclusive| may_lock(&locked.person, &look.vnode, look.grant, exclusive).is_ok();
        let may = MayRelease {
            shared: may(false),
            exclusive: may(true),
        };
        let server = &locked.server;
        // Before somebody else gets the lock.
        let telling = server.hosts.about_to_break(fid);
        let free = server.locks.release(fid, &locked.lock_owner(), may)?;
        Ok(free.then_some(telling))
    })
    .await?;
    if telling.is_some() {
        // In this order: the breaks begin before others stop waiting for that, and would wait for it themselves.
        let fids = [fid];
        tokio::join!(biased; visit.break_others(&fids), async move { drop(telling) });
    }
    Ok(vol_sync)
}

pub(super) async fn set_lock(
    visit: &Visit,
    request: rxafs::set_lock::Request,
) -> Result<rxafs::set_lock::Reply, AbortCode> {
    let vol_sync = set(visit, request.fid, request.kind).await?;
    Ok(rxafs::set_lock::Reply { vol_sync })
}

pub(super) async fn extend_lock(
    visit: &Visit,
    request: rxafs::extend_lock::Request,
) -> Result<rxafs::extend_lock::Reply, AbortCode> {
    let vol_sync = extend(visit, request.fid).await?;
    Ok(rxafs::extend_lock::Reply { vol_sync })
}

pub(super) async fn release_lock(
    visit: &Visit,
    request: rxafs::release_lock::Request,
) -> Result<rxafs::release_lock::Reply, AbortCode> {
    let vol_sync = release(visit, request.fid).await?;
    Ok(rxafs::release_lock::Reply { vol_sync })
}

pub(super) async fn old_set_lock(
    visit: &Visit,
    request: rxafs::old_set_lock::Request,
) -> Result<rxafs::old_set_lock::Reply, AbortCode> {
    set(visit, request.fid, request.kind).await?;
    Ok(rxafs::old_set_lock::Reply {})
}

pub(super) async fn old_extend_lock(
    visit: &Visit,
    request: rxafs::old_extend_lock::Request,
) -> Result<rxafs::old_extend_lock::Reply, AbortCode> {
    extend(visit, request.fid).await?;
    Ok(rxafs::old_extend_lock::Reply {})
}

pub(super) async fn old_release_lock(
    visit: &Visit,
    request: rxafs::old_release_lock::Request,
) -> Result<rxafs::old_release_lock::Reply, AbortCode> {
    release(visit, request.fid).await?;
    Ok(rxafs::old_release_lock::Reply {})
}
