//! Rights of users, according to the server.
//!
//! A server tells with a status what the one who asked may do, and what anybody may. Both are kept for
//! each user as long as the status is promised. Rights to a file come from the access list of its
//! directory, and no server breaks a promise about the file when that is changed, but about the
//! directory: so they are of use only while those to the directory are what they were.

use std::sync::Arc;
use std::time::Duration;

use afar_types::{FetchStatus, Fid, FileType, Rights, VolumeType};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::error::Errno;
use crate::inodes::Place;
use crate::types::{Ino, Who};
use crate::users::{User, UserId};
use crate::vnode::{State, Vnode};

pub(crate) const EXECUTE: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const READ: u32 = 4;

const OWNER_READ: u32 = 0o400;
const OWNER_WRITE: u32 = 0o200;
const OWNER_EXECUTE: u32 = 0o100;

/// How often rights that are too little are asked for once more.
const ASK_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// Users whose rights to one file are remembered, besides the last one.
const OTHERS_MOST: usize = 62;

/// What is known of users' rights to one file, as long as its status is promised: those of anybody, and
/// of the user who asked last. [`Rare`](crate::vnode::Rare) has those of others.
#[derive(Debug)]
pub(crate) struct Known {
    anybody: Short,
    anybody_above: Short,
    user: UserId,
    own: Short,
    own_above: Short,
}

/// One user's rights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct One {
    user: UserId,
    rights: Short,
    /// The user's rights to the directory at that time, if they were known.
    above: Short,
}

/// Rights, if they are known, in little memory: those that have a letter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Short(u16);

impl Short {
    const UNKNOWN: Self = Self(0);
    const KNOWN: u16 = 0x80;

    pub(crate) fn of(rights: Rights) -> Self {
        let [own, _, _, afs] = rights.0.to_be_bytes();
        Self(u16::from(own) << 8 | Self::KNOWN | u16::from(afs & 0x7f))
    }

    fn if_known(rights: Option<Rights>) -> Self {
        rights.map_or(Self::UNKNOWN, Self::of)
    }

    pub(crate) fn rights(self) -> Rights {
        let [own, afs] = self.0.to_be_bytes();
        Rights(u32::from_be_bytes([own, 0, 0, afs & 0x7f]))
    }
}

impl Default for Known {
    fn default() -> Self {
        Self {
            anybody: Short::UNKNOWN,
            anybody_above: Short::UNKNOWN,
            user: UserId::ANYBODY,
            own: Short::UNKNOWN,
            own_above: Short::UNKNOWN,
        }
    }
}

impl State {
    /// Forgets all users' rights.
    pub(crate) fn clear_rights(&mut self) {
        self.rights = Known::default();
        if let Some(rare) = self.rare.if_any() {
            rare.rights = Vec::new();
            rare.asked_again = None;
        }
    }

    /// Keeps what a server told a user with a status that is promised.
    pub(crate) fn note_rights(&mut self, user: UserId, status: &FetchStatus, above: Above) {
        let known = &self.rights;
        if known.user != UserId::ANYBODY && known.user != user {
            let before = One {
                user: known.user,
                rights: known.own,
                above: known.own_above,
            };
            let others = &mut self.rare.rights;
            others.retain(|other| other.user != user);
            if others.len() >= OTHERS_MOST {
                others.remove(0);
            }
            others.push(before);
        }
        self.rights = Known {
            anybody: Short::of(status.anonymous_access),
            anybody_above: Short::if_known(above.anybody),
            user,
            own: Short::of(status.caller_access),
            own_above: Short::if_known(above.own),
        };
    }

    fn rights_of(&self, user: UserId) -> Option<One> {
        let known = &self.rights;
        let (rights, above) = match user {
            UserId::ANYBODY => (known.anybody, known.anybody_above),
            _ if user == known.user => (known.own, known.own_above),
            _ => {
                let others = &self.rare.rights;
                return others.iter().find(|one| one.user == user).copied();
            }
        };
        let one = One {
            user,
            rights,
            above,
        };
        (rights != Short::UNKNOWN).then_some(one)
    }
}

/// Rights to a directory that were known when one of its files was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Above {
    own: Option<Rights>,
    anybody: Option<Rights>,
}

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
            Place::Vnode(spot) => spot,
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
fn parent(vnode: &Vnode, status: &FetchStatus) -> Option<Fid> {
    let inside = status.parent_vnode.is_directory() && !vnode.fid.vnode.is_directory();
    inside.then_some(Fid {
        volume: vnode.fid.volume,
        vnode: status.parent_vnode,
        uniquifier: status.parent_uniquifier,
    })
}

/// What the user may do.
pub(crate) fn rights(status: &FetchStatus) -> Rights {
    status.caller_access | status.anonymous_access
}

/// Whether the caller owns a file and may add files to its directory. The owner may read and fill it with no more than
/// that: so a file is made that others are not to see. A server marks the owner by a right to administer
/// the file, which to files no access list gives.
fn fills(status: &FetchStatus) -> bool {
    let owner = status.caller_access.contains(Rights::ADMINISTER);
    owner && rights(status).contains(Rights::INSERT)
}

/// Whether the caller's rights allow reading a file.
pub(crate) fn may_read(status: &FetchStatus) -> bool {
    rights(status).contains(Rights::READ) || fills(status)
}

/// Whether a server takes what the caller writes to a file. Of the permission bits the owner's counts, except for an
/// owner who fills a file of their own.
pub(crate) fn may_write(status: &FetchStatus) -> bool {
    fills(status)
        || rights(status).contains(Rights::WRITE) && status.unix_mode_bits & OWNER_WRITE != 0
}

fn allowed(status: &FetchStatus, mask: u32) -> bool {
    let has = rights(status);
    let wants = |bit| mask & bit != 0;
    if status.file_type == FileType::Directory {
        let changes = has.contains(Rights::INSERT) || has.contains(Rights::DELETE);
        return (!wants(READ | EXECUTE) || has.contains(Rights::LOOKUP))
            && (!wants(WRITE) || changes);
    }
    if status.file_type == FileType::Symlink {
        return has.contains(Rights::LOOKUP) || has.contains(Rights::READ);
    }
    let reads = may_read(status);
    (!wants(READ | EXECUTE) || reads) && (!wants(WRITE) || may_write(status))
}

/// Whether a file's permission bits leave this to the one who asks. The file server lets an owner write to what is
/// protected from writing; programs that protect a file from themselves count on clients to refuse it, as OpenAFS's
/// does. Root reads and writes what no bit allows, as on a local disk.
pub(crate) fn has_bits(who: Who, status: &FetchStatus, mask: u32) -> bool {
    if status.file_type != FileType::File {
        return true;
    }
    let has = |asked, bits| mask & asked == 0 || status.unix_mode_bits & bits != 0;
    let may_use = who.uid == 0 || has(READ, OWNER_READ) && has(WRITE, OWNER_WRITE);
    may_use && has(EXECUTE, OWNER_EXECUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an ordinary user may, and root.
    fn may(file_type: FileType, rights: &str, mode: u32, mask: u32) -> [bool; 2] {
        let status = FetchStatus {
            file_type,
            caller_access: rights.parse().unwrap(),
            unix_mode_bits: mode,
            ..FetchStatus::default()
        };
        let is = |uid| {
            let who = Who {
                uid,
                ..Who::default()
            };
            allowed(&status, mask) && has_bits(who, &status, mask)
        };
        [is(1000), is(0)]
    }

    #[test]
    fn rights_decide_and_the_owners_bits_take_away() {
        use FileType::{Directory, File};
        const YES: [bool; 2] = [true; 2];
        const NO: [bool; 2] = [false; 2];
        const ROOT: [bool; 2] = [false, true];
        for (file_type, rights, mode, mask, expected) in [
            (File, "rl", 0o444, READ, YES),
            (File, "rl", 0o044, READ, ROOT),
            (File, "l", 0o777, READ, NO),
            (File, "rlw", 0o444, WRITE, NO),
            (File, "rlwia", 0o444, WRITE, ROOT),
            (File, "rlw", 0o644, READ | WRITE, YES),
            (File, "rl", 0o644, EXECUTE, NO),
            (File, "rl", 0o755, READ | EXECUTE, YES),
            // An owner in a drop box.
            (File, "ia", 0o644, WRITE, YES),
            (Directory, "l", 0o000, READ | EXECUTE, YES),
            (Directory, "rl", 0o777, WRITE, NO),
            (Directory, "li", 0o000, WRITE, YES),
        ] {
            let found = may(file_type, rights, mode, mask);
            assert_eq!(found, expected, "{file_type:?} {rights} {mode:o} {mask}");
        }
    }
}
