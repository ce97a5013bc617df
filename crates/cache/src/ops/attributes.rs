//! Attributes, and space.

use std::sync::Arc;
use std::time::Duration;

use afar_types::{DataVersion, FetchStatus, FileType, PtsId, StoreStatus, UnixTime, VolumeType};

use crate::model::error::Errno;
use crate::model::place::Referent;
use crate::model::rights;
use crate::model::rights::{has_bits, may_write};
use crate::model::types::{Attr, Handle, Ino, Kind, SetAttr, StatFs, Who};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::changing::Calling;

/// How long the attributes of directories that are made up may be used without asking.
const ATTRIBUTES_VALID: Duration = Duration::from_secs(3600);

/// The administrator of this machine.
const ROOT: u32 = 0;

impl Cache {
    /// The attributes of something.
    ///
    /// # Errors
    /// As servers say.
    pub async fn getattr(&self, who: Who, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.inode(ino)?;
        let spot = match &inode.place {
            Referent::Cells | Referent::Volumes => return Ok(self.made_up(ino)),
            Referent::Cell(_) => return Ok(self.unvisited(ino)),
            Referent::Vnode(spot) => spot,
        };
        let user = self.user(who.uid).await;
        let status = self.fresh(&user, &spot.vnode).await?;
        if status.is_mount_point() {
            return Ok(self.unvisited(ino));
        }
        Ok(self.attr(ino, &spot.vnode, &status))
    }

    /// Sets attributes. A length set is stored at once, unless the file is open for writing.
    ///
    /// # Errors
    /// As servers say.
    pub async fn setattr(
        &self,
        who: Who,
        ino: Ino,
        set: SetAttr,
        handle: Option<Handle>,
    ) -> Result<Attr, Errno> {
        // A program that may write to an open file may truncate it, whatever its user's identity is by now.
        let uid = match handle.map(|handle| self.0.handles.file(handle)) {
            Some(Ok(open)) => open.opener,
            _ => who.uid,
        };
        let user = self.user(uid).await;
        let spot = self.spot(&user, ino).await?;
        let vnode = &spot.vnode;
        if spot.mount.volume.kind() != VolumeType::ReadWrite {
            return Err(Errno::EROFS);
        }
        let writer = vnode.lock().rare.dirty.as_ref().map(|dirty| dirty.writer);
        // What waits to be stored takes times and modes with it, and then nobody asks whose they are.
        let goes_along = writer.is_some_and(|writer| writer != uid)
            && (set.mtime.is_some() || set.mode.is_some());
        if (set.size.is_some() || goes_along) && handle.is_none() {
            let status = self.rights_for(&user, vnode, may_write).await?;
            let cuts = set.size.is_some();
            if !may_write(&status) || cuts && !has_bits(who, &status, rights::WRITE) {
                return Err(Errno::EACCES);
            }
        }
        if let Some(size) = set.size {
            let status = self.fresh(&user, vnode).await?;
            match status.file_type {
                FileType::Directory => return Err(Errno::EISDIR),
                FileType::Symlink => return Err(Errno::EINVAL),
                _ => self.resize(uid, vnode, &status, size)?,
            }
            // Otherwise it is stored with what is written, when the file is closed.
            let closed = vnode.lock().rare.writers == 0;
            if closed && let Err(error) = self.store(&user, vnode).await {
                self.drop_refused(vnode);
                return Err(error);
            }
        }
        let mut attributes = StoreStatus::default();
        if let Some(mode) = set.mode
            && !set_with_data(vnode, mode)
        {
            attributes.mask |= StoreStatus::SET_MODE;
            attributes.unix_mode_bits = mode & 0o7777;
            // Without the right to write in its new mode what was written could not be stored.
            self.store(&user, vnode).await?;
        }
        if let Some(time) = set.mtime {
            let time = UnixTime::from(time);
            let mut state = vnode.lock();
            if let Some(dirty) = state.dirty_mut() {
                // The store to come would put its own time in place of this one.
                dirty.mtime = time;
            } else {
                attributes.mask |= StoreStatus::SET_MOD_TIME;
                attributes.client_mod_time = time;
            }
        }
        if set.uid.is_some() || set.gid.is_some() {
            let status = self.fresh(&user, vnode).await?;
            let shown = self.attr(ino, vnode, &status);
            self.give(who, vnode, &shown, set, &mut attributes)?;
        }
        if attributes.mask == 0 {
            return self.getattr(who, ino).await;
        }
        if let Some(status) = self.set_here((&user, uid), vnode, attributes).await {
            return Ok(self.attr(ino, vnode, &status));
        }
        self.in_order(vnode).await;
        let told = {
            let _calling = Calling::begin(vnode);
            self.set_status(who, &user, vnode, attributes).await?
        };
        self.wish(&user, &[vnode]);
        let status = self.after_change(&user, vnode, told).await?;
        if status.is_mount_point() {
            return self.getattr(who, ino).await;
        }
        Ok(self.attr(ino, vnode, &status))
    }

    /// Adds to attributes that the owner and the group are to be others than those shown: programs that
    /// copy set what is so already.
    fn give(
        &self,
        who: Who,
        vnode: &Vnode,
        shown: &Attr,
        set: SetAttr,
        attributes: &mut StoreStatus,
    ) -> Result<(), Errno> {
        if let Some(uid) = set.uid.filter(|uid| *uid != shown.uid) {
            match self.0.owners.id_of(vnode.cell(), uid) {
                Some(id) => {
                    attributes.mask |= StoreStatus::SET_OWNER;
                    attributes.owner = id;
                }
                None => may_not_give(who)?,
            }
        }
        if let Some(gid) = set.gid.filter(|gid| *gid != shown.gid) {
            attributes.mask |= StoreStatus::SET_GROUP;
            attributes.group = PtsId(i32::try_from(gid).map_err(|_| Errno::EINVAL)?);
        }
        Ok(())
    }

    /// Sets attributes at the server. Returns the status then, if anything was set.
    ///
    /// Only a cell's administrators may give files away. Where the server refuses that:
    ///
    /// - A group means nothing in AFS, so that it stays as it is harms nobody, and nobody is told.
    /// - Root of this machine is told that it was done. Its token says who it is to the cell, and programs
    ///   that restore owners because they run as root (`tar x`, `rsync -a`) take a refusal for a failure, though all
    ///   that could be stored is stored. Linux does the same for root on cifs and on vfat with `quiet`; NFS with
    ///   root_squash refuses it, and that is what makes `tar` fail there. Access goes by access
    ///   lists, so that nobody gets or keeps any right by it.
    /// - Anybody else is told that it is not permitted (EPERM), which programs expect.
    async fn set_status(
        &self,
        who: Who,
        user: &User,
        vnode: &Arc<Vnode>,
        attributes: StoreStatus,
    ) -> Result<Option<FetchStatus>, Errno> {
        let gives = StoreStatus::SET_OWNER | StoreStatus::SET_GROUP;
        // spec: afs-rpc#owners-and-modes
        match self.set_at_server(user, vnode, attributes).await {
            Err(Errno::EPERM | Errno::EACCES) if attributes.mask & gives != 0 => {}
            set => return set.map(Some),
        }
        if attributes.mask & StoreStatus::SET_OWNER != 0 {
            may_not_give(who)?;
        }
        let rest = StoreStatus {
            mask: attributes.mask & !gives,
            ..attributes
        };
        match rest.mask {
            0 => Ok(None),
            _ => self.set_at_server(user, vnode, rest).await.map(Some),
        }
    }

    async fn set_at_server(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        attributes: StoreStatus,
    ) -> Result<FetchStatus, Errno> {
        let fid = vnode.fid;
        let (client, volume) = (&user.client, &vnode.volume);
        let stored = client.set_attributes(volume, fid, attributes).await;
        let stored = stored.map_err(|error| self.failed(vnode, "setting attributes", &error))?;
        self.0.breaks.count(fid);
        let mut state = vnode.lock();
        let version = state.status().map(|status| status.data_version);
        // A later change may have been answered earlier.
        if version <= Some(stored.data_version) {
            state.take_status(stored);
        }
        Ok(stored)
    }

    /// The attributes of a directory that is in no volume.
    pub(crate) fn made_up(&self, ino: Ino) -> Attr {
        let time = self.0.begun;
        Attr {
            ino,
            file: ino,
            kind: Kind::Dir,
            size: 2048,
            blocks: 4,
            mtime: time,
            ctime: time,
            mode: 0o555,
            nlink: 2,
            uid: 0,
            gid: 0,
            data_version: DataVersion(1),
            valid: ATTRIBUTES_VALID,
        }
    }

    /// Space of the volume something is in. What is made up has none.
    ///
    /// # Errors
    /// As servers say.
    pub async fn statfs(&self, who: Who, ino: Ino) -> Result<StatFs, Errno> {
        let user = self.user(who.uid).await;
        let inode = self.visit(&user, ino).await?;
        let Referent::Vnode(spot) = &inode.place else {
            return Ok(StatFs::new(0, 0, 0, 0));
        };
        let status = user.client.volume_status(&spot.mount.volume).await;
        let status = status
            .map_err(|error| self.failed(&spot.vnode, "asking for space", &error))?
            .status;
        Ok(StatFs::new(
            status.max_quota.into(),
            status.blocks_in_use.into(),
            status.partition_max_blocks.into(),
            status.partition_blocks_available.into(),
        ))
    }
}

/// The error for a user who may not give a file away.
fn may_not_give(who: Who) -> Result<(), Errno> {
    match who.uid {
        ROOT => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

/// Has a mode be set by the call that stores what was written, if there is to be one and the mode is of
/// the kind that everybody may set who may write.
fn set_with_data(vnode: &Vnode, mode: u32) -> bool {
    let mut state = vnode.lock();
    let open = state.rare.writers > 0;
    match state.dirty_mut() {
        Some(dirty) if open && mode & 0o7000 == 0 => {
            dirty.mode = Some(mode & 0o777);
            true
        }
        _ => false,
    }
}
