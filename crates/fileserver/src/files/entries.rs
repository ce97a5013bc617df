//! Entries of directories: making, linking, removing, renaming.
//!
//! Which promises are broken is as with OpenAFS: others' on the directories, since the caller
//! learns their new versions from the reply; everyone's on what changed beside and is not in the
//! reply; and none on what is gone, as nobody can come to it any more.

use afar_net::AbortCode;
use afar_rpc::rxafs;
use afar_store::{Created, Linked, NewVnode, Removed, Renamed, VnodeStatus};
use afar_types::{CallBack, FetchStatus, Fid, FileName, FileType, Rights, StoreStatus, VolSync};

use super::visit::{Acting, EnteredVolume, Visit, as_owner, failed, mode_bits};
use crate::abort::errno;
use crate::access::{Grant, may_change_entries};
use crate::hosts::Promise;

const MAX_NAME: usize = 255;

/// A name that is to be given. `@sys` at its end would be replaced by clients.
pub(super) fn new_name(name: &FileName) -> Result<Vec<u8>, AbortCode> {
    let name = old_name(name)?;
    if name.contains(&b'/') || name.ends_with(b"@sys") {
        return Err(AbortCode(errno::EINVAL));
    }
    Ok(name)
}

/// A name that is there, perhaps.
pub(super) fn old_name(name: &FileName) -> Result<Vec<u8>, AbortCode> {
    let name = name.as_bytes();
    if name.len() > MAX_NAME {
        return Err(AbortCode(errno::ENAMETOOLONG));
    }
    if matches!(name, b"" | b"." | b"..") {
        return Err(AbortCode(errno::EINVAL));
    }
    Ok(name.to_vec())
}

/// What a new vnode is.
pub(super) enum New {
    File,
    Directory,
    Symlink(Vec<u8>),
}

/// A vnode that was made.
struct Made {
    fid: Fid,
    status: FetchStatus,
    directory: FetchStatus,
    promise: Option<Promise>,
    vol_sync: VolSync,
}

impl Made {
    fn callback(&self, visit: &Visit) -> CallBack {
        let promise = self.promise.as_ref();
        promise.map_or_else(CallBack::default, |promise| visit.callback(promise))
    }
}

async fn make(
    visit: &Visit,
    directory: Fid,
    name: &FileName,
    attributes: StoreStatus,
    new: New,
) -> Result<Made, AbortCode> {
    let name = new_name(name)?;
    let made = visit
        .step(move |visit| {
            let mut place = visit.change(directory.volume)?;
            let acting = &mut place.acting();
            let (made, above) = make_in(acting, directory, &name, &attributes, &new, None)?;
            let grant = match new {
                // spec: afs-rpc#changing-directories
                New::File => as_owner(above),
                New::Directory | New::Symlink(_) => above,
            };
            Ok(tell_made(&place, made, grant, above))
        })
        .await?;
    visit.break_others(&[directory]).await;
    Ok(made)
}

/// Makes a vnode, of this fid if one is given; also returns the rights on the directory.
pub(super) fn make_in(
    acting: &mut Acting<'_>,
    directory: Fid,
    name: &[u8],
    attributes: &StoreStatus,
    new: &New,
    wanted: Option<Fid>,
) -> Result<(Created, Grant), AbortCode> {
    let look = acting.directory(directory)?;
    may_change_entries(look.grant, Rights::INSERT)?;
    let wanted = NewVnode {
        fid: wanted,
        ..acting.visit.new_vnode(attributes)
    };
    let vnodes = &mut acting.vnodes;
    let made = match new {
        New::File => vnodes.create_file(directory, name, &wanted),
        New::Directory => vnodes.make_directory(directory, name, &wanted),
        New::Symlink(target) => {
            may_make_symlink(acting.visit, look.grant, attributes)?;
            vnodes.symlink(directory, name, target, &wanted)
        }
    };
    Ok((made.map_err(failed)?, look.grant))
}

/// A symlink without x bits is a mount point, which takes the right to administrate.
// spec: afs-rpc#owners-and-modes, volumes#symbolic-links-and-mount-points
fn may_make_symlink(
    visit: &Visit,
    grant: Grant,
    attributes: &StoreStatus,
) -> Result<(), AbortCode> {
    let sets = attributes.mask & StoreStatus::SET_MODE != 0;
    let is_mount_point = sets && mode_bits(attributes, &visit.person) & 0o111 == 0;
    if is_mount_point && !visit.person.is_administrator() {
        may_change_entries(grant, Rights::ADMINISTER)?;
    }
    Ok(())
}

/// The results of making a vnode. It is promised now that it has a fid, so its status is read once
/// more: others may have found it in the directory and changed it before the promise.
fn tell_made(place: &EnteredVolume<'_>, made: Created, grant: Grant, above: Grant) -> Made {
    let fid = made.vnode.fid;
    let promise = place.promise(fid, false);
    // After the promise: a change in between breaks it.
    let seen = place.vnode(fid).ok();
    let promise = seen.is_some().then_some(promise);
    Made {
        fid,
        status: place.status(seen.as_ref().unwrap_or(&made.vnode), grant),
        directory: place.status(&made.directory, above),
        promise,
        vol_sync: place.vol_sync(),
    }
}

pub(super) async fn create_file(
    visit: &Visit,
    request: rxafs::create_file::Request,
) -> Result<rxafs::create_file::Reply, AbortCode> {
    let rxafs::create_file::Request {
        directory,
        name,
        attributes,
    } = request;
    let made = make(visit, directory, &name, attributes, New::File).await?;
    Ok(rxafs::create_file::Reply {
        fid: made.fid,
        status: made.status,
        directory_status: made.directory,
        callback: made.callback(visit),
        vol_sync: made.vol_sync,
    })
}

pub(super) async fn make_dir(
    visit: &Visit,
    request: rxafs::make_dir::Request,
) -> Result<rxafs::make_dir::Reply, AbortCode> {
    let rxafs::make_dir::Request {
        directory,
        name,
        attributes,
    } = request;
    let made = make(visit, directory, &name, attributes, New::Directory).await?;
    Ok(rxafs::make_dir::Reply {
        fid: made.fid,
        status: made.status,
        directory_status: made.directory,
        callback: made.callback(visit),
        vol_sync: made.vol_sync,
    })
}

pub(super) async fn symlink(
    visit: &Visit,
    request: rxafs::symlink::Request,
) -> Result<rxafs::symlink::Reply, AbortCode> {
    let new = New::Symlink(request.target.into_bytes());
    let made = make(
        visit,
        request.directory,
        &request.name,
        request.attributes,
        new,
    )
    .await?;
    Ok(rxafs::symlink::Reply {
        fid: made.fid,
        status: made.status,
        directory_status: made.directory,
        vol_sync: made.vol_sync,
    })
}

pub(super) async fn link(
    visit: &Visit,
    request: rxafs::link::Request,
) -> Result<rxafs::link::Reply, AbortCode> {
    let (directory, existing) = (request.directory, request.existing);
    if directory.volume != existing.volume {
        return Err(AbortCode(errno::EXDEV));
    }
    let name = new_name(&request.name)?;
    let reply = visit
        .step(move |visit| {
            let mut place = visit.change(directory.volume)?;
            let (linked, above) = link_in(&mut place.acting(), directory, &name, existing)?;
            let grant = above.on(&linked.vnode, &visit.person);
            Ok(rxafs::link::Reply {
                status: place.status(&linked.vnode, grant),
                directory_status: place.status(&linked.directory, above),
                vol_sync: place.vol_sync(),
            })
        })
        .await?;
    visit.break_others(&[directory, existing]).await;
    Ok(reply)
}

/// Gives a file another name; also returns the rights on the directory.
pub(super) fn link_in(
    acting: &mut Acting<'_>,
    directory: Fid,
    name: &[u8],
    existing: Fid,
) -> Result<(Linked, Grant), AbortCode> {
    let look = acting.directory(directory)?;
    may_change_entries(look.grant, Rights::INSERT)?;
    // spec: afs-rpc#changing-directories
    // Only files have several names.
    if acting.vnode(existing)?.file_type != FileType::File {
        return Err(AbortCode(errno::EISDIR));
    }
    let linked = acting.vnodes.link(directory, name, existing);
    Ok((linked.map_err(failed)?, look.grant))
}

pub(super) async fn remove_file(
    visit: &Visit,
    request: rxafs::remove_file::Request,
) -> Result<rxafs::remove_file::Reply, AbortCode> {
    let removed = remove(visit, request.directory, &request.name, false).await?;
    let (directory_status, vol_sync) = removed;
    Ok(rxafs::remove_file::Reply {
        directory_status,
        vol_sync,
    })
}

pub(super) async fn remove_dir(
    visit: &Visit,
    request: rxafs::remove_dir::Request,
) -> Result<rxafs::remove_dir::Reply, AbortCode> {
    let removed = remove(visit, request.directory, &request.name, true).await?;
    let (directory_status, vol_sync) = removed;
    Ok(rxafs::remove_dir::Reply {
        directory_status,
        vol_sync,
    })
}

async fn remove(
    visit: &Visit,
    directory: Fid,
    name: &FileName,
    is_directory: bool,
) -> Result<(FetchStatus, VolSync), AbortCode> {
    let name = old_name(name)?;
    let (removed, status, vol_sync) = visit
        .step(move |visit| {
            let mut place = visit.change(directory.volume)?;
            let (removed, grant) = remove_in(&mut place.acting(), directory, &name, is_directory)?;
            let status = place.status(&removed.directory, grant);
            Ok((removed, status, place.vol_sync()))
        })
        .await?;
    let changed = less(visit, removed.fid, removed.vnode.as_ref());
    let directories = [directory];
    tokio::join!(visit.break_others(&directories), visit.break_all(&changed));
    Ok((status, vol_sync))
}

/// Removes a name; also returns the rights on the directory.
pub(super) fn remove_in(
    acting: &mut Acting<'_>,
    directory: Fid,
    name: &[u8],
    is_directory: bool,
) -> Result<(Removed, Grant), AbortCode> {
    let look = acting.directory(directory)?;
    may_change_entries(look.grant, Rights::DELETE)?;
    acting.named(directory, name)?;
    let removed = match is_directory {
        true => acting.vnodes.remove_directory(directory, name),
        false => acting.vnodes.remove_file(directory, name),
    };
    Ok((removed.map_err(failed)?, look.grant))
}

/// A vnode has lost a name: whose promises are to be broken, which is nobody's if it is gone.
// spec: afs-rpc#changing-directories
pub(super) fn less(visit: &Visit, fid: Fid, left: Option<&VnodeStatus>) -> Vec<Fid> {
    if left.is_some() {
        return vec![fid];
    }
    visit.server.hosts.discard(fid);
    visit.server.locks.discard(fid);
    Vec::new()
}

/// A rename that is to be done.
pub(super) struct Move {
    pub(super) from: Fid,
    pub(super) name: Vec<u8>,
    pub(super) to: Fid,
    pub(super) new_name: Vec<u8>,
}

/// What a rename did, and the statuses of the directories.
struct Moved {
    renamed: Renamed,
    from: FetchStatus,
    to: FetchStatus,
    vol_sync: VolSync,
}

pub(super) async fn rename(
    visit: &Visit,
    request: rxafs::rename::Request,
) -> Result<rxafs::rename::Reply, AbortCode> {
    let wanted = Move {
        new_name: new_name(&request.new_name)?,
        name: old_name(&request.old_name)?,
        from: request.old_directory,
        to: request.new_directory,
    };
    if wanted.from.volume != wanted.to.volume {
        return Err(AbortCode(errno::EXDEV));
    }
    let (from, to) = (wanted.from, wanted.to);
    let moved = visit.step(move |visit| move_entry(visit, &wanted)).await?;
    let mut directories = vec![to];
    let mut changed = Vec::new();
    if from != to {
        directories.push(from);
        // spec: afs-rpc#changing-directories
        // Its "..", which is not in the reply.
        if moved.renamed.vnode.file_type == FileType::Directory {
            changed.push(moved.renamed.vnode.fid);
        }
    }
    if let Some((fid, left)) = &moved.renamed.replaced {
        changed.extend(less(visit, *fid, left.as_ref()));
    }
    tokio::join!(visit.break_others(&directories), visit.break_all(&changed));
    Ok(rxafs::rename::Reply {
        old_directory_status: moved.from,
        new_directory_status: moved.to,
        vol_sync: moved.vol_sync,
    })
}

fn move_entry(visit: &Visit, wanted: &Move) -> Result<Moved, AbortCode> {
    let mut place = visit.change(wanted.from.volume)?;
    place.directory(wanted.from)?;
    if !place
        .directory(wanted.to)?
        .grant
        .own
        .contains(Rights::DELETE)
    {
        // Nothing may be replaced, and nothing may come to be there before the entry is moved.
        drop(place);
        place = visit.change_alone(wanted.from.volume)?;
    }
    let (renamed, from, to) = move_in(&mut place.acting(), wanted)?;
    Ok(Moved {
        from: place.status(&renamed.from, from),
        to: place.status(&renamed.to, to),
        vol_sync: place.vol_sync(),
        renamed,
    })
}

/// Moves an entry; also returns the rights on the directories. Nothing else may be changed meanwhile if the caller may
/// not remove what has the new name.
pub(super) fn move_in(
    acting: &mut Acting<'_>,
    wanted: &Move,
) -> Result<(Renamed, Grant, Grant), AbortCode> {
    let (from, to) = (
        acting.directory(wanted.from)?.grant,
        acting.directory(wanted.to)?.grant,
    );
    may_change_entries(from, Rights::DELETE)?;
    may_change_entries(to, Rights::INSERT)?;
    acting.named(wanted.from, &wanted.name)?;
    acting.named(wanted.to, &wanted.new_name)?;
    let vnodes = &mut acting.vnodes;
    let file = vnodes.lookup(wanted.from, &wanted.name).map_err(failed)?;
    if let Ok(target) = vnodes.lookup(wanted.to, &wanted.new_name) {
        may_change_entries(to, Rights::DELETE)?;
        if target == file || target == wanted.from {
            return Err(AbortCode(errno::EINVAL));
        }
    }
    let Move {
        from: old,
        name,
        to: new,
        new_name,
    } = wanted;
    let renamed = vnodes.rename(*old, name, *new, new_name).map_err(failed)?;
    Ok((renamed, from, to))
}
