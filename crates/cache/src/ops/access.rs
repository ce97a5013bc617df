//! What users may do, by the rights a server gives.
//!
//! A server tells with a status what the one who asked may do, and what anybody may. Both are kept for
//! each user as long as the status is promised. Rights to a file come from the access list of its
//! directory, and no server breaks a promise about the file when that is changed, but about the
//! directory: so they are of use only while those to the directory are what they were.

use std::sync::Arc;
use std::time::Duration;

use afar_types::{FetchStatus, Fid, FileType, Rights, VolumeType};
use tokio::time::Instant;

use crate::model::error::Errno;
use crate::model::place::Referent;
use crate::model::rights::{Above, Short, WRITE, allowed, has_bits, rights};
use crate::model::types::{Ino, Who};
use crate::model::user::{User, UserId};
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

/// How often rights that are too little are asked for once more.
const ASK_AGAIN_EVERY: Duration = Duration::from_secs(1);

impl Cache {
    /// Whether something may be read (4), written (2) and executed or entered (1), by the rights the
    /// server gives. Of a file's permission bits those of the owner take away from these, but for root.
    ///
    /// # Errors
    /// [`EACCES`](Errno::EACCES) when it may not; others as servers say.
    pub async fn access(&self, who: Who, ino: Ino, mask: u32) -> Result<(), Errno> {
        let user = self.user(who.uid).await;
        let inode = self.visit(&user, ino).await?;
        let spot = match &inode.place {
            Referent::Vnode(spot) => spot,
            _ if mask & WRITE != 0 => return Err(Errno::EROFS),
            _ => return Ok(()),
        };
        let may = |status: &FetchStatus| allowed(status, mask);
        let status = self.rights_for(&user, &spot.vnode, may).await?;
        if mask & WRITE != 0 && spot.mount.volume.kind() != VolumeType::ReadWrite {
            return Err(Errno::EROFS);
        }
        if may(&status) && has_bits(who, &status, mask) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Whether a user may look names up in a directory.
    pub(crate) async fn may_look(&self, user: &User, directory: &Arc<Vnode>) -> Result<(), Errno> {
        let may = |status: &FetchStatus| rights(status).contains(Rights::LOOKUP);
        let status = self.rights_for(user, directory, may).await?;
        may(&status).then_some(()).ok_or(Errno::EACCES)
    }

    /// A status with the rights of this user in it. What anybody may do is not looked past if that
    /// is enough. What is known to be too little is asked for once more: nobody tells a client that its
    /// user was added to a group.
    pub(crate) async fn rights_for(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        enough: impl Fn(&FetchStatus) -> bool,
    ) -> Result<FetchStatus, Errno> {
        let known = vnode.lock().promised().is_some();
        let status = self.known_rights(user, vnode, &enough).await?;
        if enough(&status) || !known || !may_ask_again(vnode, user.id, Instant::now()) {
            return Ok(status);
        }
        match self.ask(user, vnode).await {
            // What was known holds on while no server answers.
            Err(Errno::ETIMEDOUT) => Ok(status),
            asked => asked,
        }
    }

    /// A status with the rights of this user in it, as they are known; asked for if they are not.
    async fn known_rights(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        enough: &impl Fn(&FetchStatus) -> bool,
    ) -> Result<FetchStatus, Errno> {
        let status = self.fresh(user, vnode).await?;
        for id in [UserId::ANYBODY, user.id] {
            let Some(one) = vnode.lock().rights_of(id) else {
                continue;
            };
            let mut own = one.rights.rights();
            if id == UserId::ANYBODY && status.file_type != FileType::Directory {
                // Only the one who asks can be the owner.
                own = Rights(own.0 & !Rights::ADMINISTER.0);
            }
            let status = FetchStatus {
                caller_access: own,
                ..status
            };
            if id == UserId::ANYBODY && !enough(&status) {
                continue;
            }
            if status.file_type == FileType::Directory {
                return Ok(status);
            }
            let Some(parent) = parent(vnode, &status) else {
                return Ok(status);
            };
            let above = self.rights_above(user, id, vnode, parent).await;
            if above.is_some() && Short::if_known(above) == one.above {
                return Ok(status);
            }
        }
        self.ask(user, vnode).await
    }

    /// The rights that a user, or anybody, has to the directory a file is in, as they are now.
    async fn rights_above(
        &self,
        user: &User,
        id: UserId,
        vnode: &Vnode,
        parent: Fid,
    ) -> Option<Rights> {
        let directory = self.0.vnodes.of(&vnode.volume, parent);
        let status = self.fresh(user, &directory).await.ok()?;
        if id == UserId::ANYBODY {
            return Some(status.anonymous_access);
        }
        if let Some(known) = directory.lock().rights_of(id) {
            return Some(known.rights.rights());
        }
        Some(self.ask(user, &directory).await.ok()?.caller_access)
    }

    /// What is known now of the rights to the directory of a file with this status.
    pub(crate) fn above(&self, user: UserId, vnode: &Vnode, status: &FetchStatus) -> Above {
        let Some(parent) = parent(vnode, status) else {
            return Above::default();
        };
        let known = self.0.vnodes.of_fid(parent).into_iter();
        let mut same_cell = known.filter(|known| known.cell() == vnode.cell());
        let Some(directory) = same_cell.next() else {
            return Above::default();
        };
        let state = directory.lock();
        let promised = state.promised();
        Above {
            own: promised.and_then(|_| Some(state.rights_of(user)?.rights.rights())),
            anybody: promised.map(|status| status.anonymous_access),
        }
    }
}

/// Whether a server may be asked once more for rights that are too little: once a second for a user, as
/// programs look many files over that they may not read.
fn may_ask_again(vnode: &Vnode, user: UserId, now: Instant) -> bool {
    // The program would wait for servers, to be refused after all.
    if vnode.volume.sites().iter().all(|site| site.is_down()) {
        return false;
    }
    let mut state = vnode.lock();
    let lately = |(who, at): (UserId, Instant)| {
        who == user && now.saturating_duration_since(at) < ASK_AGAIN_EVERY
    };
    if state.rare.asked_again.is_some_and(lately) {
        return false;
    }
    state.rare.asked_again = Some((user, now));
    true
}

/// The directory of a file.
// spec: afs-rpc#rights
pub(crate) fn parent(vnode: &Vnode, status: &FetchStatus) -> Option<Fid> {
    let inside = status.parent_vnode.is_directory() && !vnode.fid.vnode.is_directory();
    inside.then_some(Fid {
        volume: vnode.fid.volume,
        vnode: status.parent_vnode,
        uniquifier: status.parent_uniquifier,
    })
}
