//! Names made, moved and removed.

use std::sync::Arc;

use afar_cell::{DirEntry, Error, Made};
use afar_dir::{DirectoryBuilder, EntryId};
use afar_types::{FetchStatus, Fid, FileType, StoreStatus, VolumeType};
use bytes::Bytes;

use crate::model::directory::Edit;
use crate::model::error::Errno;
use crate::model::place::{Inode, Referent, Spot};
use crate::model::types::{Entry, Handle, Ino, OpenFlags, RenameFlags, Who};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::changing::{Calling, Changing};
use crate::ops::leased::make::New;

/// What names of files begin with that are removed when they are closed, as AFS clients have them.
const HIDDEN: &str = ".__afs";

impl Cache {
    /// Makes a directory.
    ///
    /// # Errors
    /// As servers say.
    pub async fn mkdir(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Result<Entry, Errno> {
        let user = self.user(who.uid).await;
        let (inode, directory) = self.changeable(&user, parent).await?;
        let new = New::Directory(mode);
        let here = self.make_here((&user, who.uid), &directory, name, new);
        if let Some((spot, status)) = here.await? {
            return Ok(self.entry(&inode, name, &spot, &status));
        }
        let (client, volume) = (&user.client, &directory.vnode.volume);
        let at = directory.vnode.fid;
        let mut empty = None;
        let made = async {
            let made = client.make_dir(volume, at, name, of_mode(mode)).await?;
            let status = made.promised.as_ref().map(|promised| promised.status);
            empty = status.map(|status| (status.data_version, status.length));
            Ok(made)
        };
        let (spot, status) = self.making(&user, &directory, name, made).await?;
        // What is in the version it was made with need not be asked for.
        // spec: volumes#entries-and-chains
        let pages = DirectoryBuilder::new(id(spot.vnode.fid), id(at)).finish();
        if empty == Some((status.data_version, pages.len() as u64)) {
            self.keep_pages(&spot.vnode, status.data_version, Arc::new(pages));
        }
        Ok(self.entry(&inode, name, &spot, &status))
    }

    /// Makes a file, unless it exists and need not be new, and opens it.
    ///
    /// # Errors
    /// As servers say.
    pub async fn create(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, Handle), Errno> {
        let user = self.user(who.uid).await;
        let (inode, directory) = self.changeable(&user, parent).await?;
        let (client, volume) = (&user.client, &directory.vnode.volume);
        let at = directory.vnode.fid;
        let new = New::File(mode);
        let here = self.make_here((&user, who.uid), &directory, name, new);
        let made = match here.await {
            Ok(Some(made)) => Ok(made),
            Ok(None) => {
                let made = client.create_file(volume, at, name, of_mode(mode));
                self.making(&user, &directory, name, made).await
            }
            Err(error) => Err(error),
        };
        match made {
            Ok((spot, status)) => {
                let entry = self.entry(&inode, name, &spot, &status);
                self.inode(entry.attr.ino)?.note_opened(status.data_version);
                match self.opened(who.uid, spot, flags) {
                    Ok(handle) => Ok((entry, handle)),
                    Err(error) => {
                        // The kernel hears of the failure only, and takes back nothing.
                        self.forget(entry.attr.ino, 1);
                        Err(error)
                    }
                }
            }
            Err(Errno::EEXIST) if !flags.exclusive => {
                // Somebody was faster, and the directory is to be read again to see it.
                let entry = self.lookup(who, parent, name).await?;
                match self.open_file(who, entry.attr.ino, flags).await {
                    Ok((handle, _)) => Ok((entry, handle)),
                    Err(error) => {
                        self.forget(entry.attr.ino, 1);
                        Err(error)
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// As servers say.
    pub async fn symlink(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let user = self.user(who.uid).await;
        let (inode, directory) = self.changeable(&user, parent).await?;
        let (client, volume) = (&user.client, &directory.vnode.volume);
        let at = directory.vnode.fid;
        let new = New::Symlink(target);
        let here = self.make_here((&user, who.uid), &directory, name, new);
        let (spot, status) = match here.await? {
            Some(made) => made,
            None => {
                let made = client.symlink(volume, at, name, target);
                self.making(&user, &directory, name, made).await?
            }
        };
        // What it says need not be asked for: it never changes.
        if status.length == target.len() as u64 && !status.is_mount_point() {
            let text = Bytes::copy_from_slice(target);
            spot.vnode.lock().rare.link = Some((status.data_version, text));
        }
        Ok(self.entry(&inode, name, &spot, &status))
    }

    /// Gives a file another name, in the directory it is in.
    ///
    /// # Errors
    /// [`EXDEV`](Errno::EXDEV) for another directory; others as servers say.
    pub async fn link(&self, who: Who, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let user = self.user(who.uid).await;
        let (inode, directory) = self.changeable(&user, parent).await?;
        let file = self.spot(&user, ino).await?;
        if file.mount.id != directory.mount.id {
            return Err(Errno::EXDEV);
        }
        let here = self.link_here((&user, who.uid), &directory.vnode, name, &file.vnode);
        if let Some(status) = here.await? {
            return Ok(self.entry(&inode, name, &file, &status));
        }
        self.in_order(&directory.vnode).await;
        self.in_order(&file.vnode).await;
        let (fid, at) = (file.vnode.fid, directory.vnode.fid);
        let _calling = Calling::begin(&file.vnode);
        let changing = Changing::begin(&self.0.breaks, &directory.vnode);
        let linked = user.client.link(&directory.vnode.volume, at, name, fid);
        let told = match linked.await {
            Ok(changed) => {
                changing.done(changed.directory, vec![Edit::Add(name.to_vec(), id(fid))]);
                self.changed_file(&file.vnode, changed.other);
                self.wish(&user, &[&directory.vnode, &file.vnode]);
                changed.other
            }
            Err(error) => return Err(self.refused(changing, &directory.vnode, &error)),
        };
        let status = self.after_change(&user, &file.vnode, told).await?;
        Ok(self.entry(&inode, name, &file, &status))
    }

    /// Removes a name of a file or symlink. Its data stays as long as it is open.
    ///
    /// # Errors
    /// As servers say.
    pub async fn unlink(&self, who: Who, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let user = self.user(who.uid).await;
        let (_, directory) = self.changeable(&user, parent).await?;
        let fid = self.find(&user, &directory, name).await?;
        let fid = fid.ok_or(Errno::ENOENT)?;
        if fid.vnode.is_directory() {
            return Err(Errno::EISDIR);
        }
        let file = self.beside(&directory, fid);
        let asker = (&user, who.uid);
        if self.hide(asker, &directory, name, &file.vnode).await? {
            return Ok(());
        }
        self.remove(asker, &directory.vnode, name, &file.vnode)
            .await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`ENOTEMPTY`](Errno::ENOTEMPTY) when it is not empty; others as servers say.
    pub async fn rmdir(&self, who: Who, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let user = self.user(who.uid).await;
        let (_, directory) = self.changeable(&user, parent).await?;
        let fid = self.find(&user, &directory, name).await?;
        let fid = fid.ok_or(Errno::ENOENT)?;
        if !fid.vnode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let (vnode, gone) = (&directory.vnode, self.beside(&directory, fid));
        self.wish_around(&user, vnode);
        let here = self.remove_here((&user, who.uid), vnode, name, &gone.vnode);
        if here.await? {
            return Ok(());
        }
        self.in_order(vnode).await;
        self.in_order(&gone.vnode).await;
        let entry = DirEntry {
            name: name.to_vec(),
            fid,
        };
        let changing = Changing::begin(&self.0.breaks, vnode);
        let client = &user.client;
        let removed = client.remove_dir(&vnode.volume, vnode.fid, &entry);
        match removed.await {
            Ok(changed) => {
                changing.done(changed.directory, vec![Edit::Remove(name.to_vec())]);
                self.is_gone(&gone.vnode);
                self.wish(&user, &[vnode]);
                Ok(())
            }
            Err(error) => Err(match self.refused(changing, vnode, &error) {
                // spec: afs-rpc#changing-directories
                // What AFS servers say of directories that are not empty.
                Errno::EEXIST => Errno::ENOTEMPTY,
                other => other,
            }),
        }
    }

    /// Moves a name within a volume.
    ///
    /// # Errors
    /// [`EXDEV`](Errno::EXDEV) to another volume, [`EINVAL`](Errno::EINVAL) for flags AFS cannot
    /// follow; others as servers say.
    pub async fn rename(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let user = self.user(who.uid).await;
        if flags.0 & !RenameFlags::NO_REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let (_, from) = self.changeable(&user, parent).await?;
        let (_, to) = self.changeable(&user, new_parent).await?;
        if from.mount.id != to.mount.id {
            return Err(Errno::EXDEV);
        }
        let fid = self.find(&user, &from, name).await?;
        let fid = fid.ok_or(Errno::ENOENT)?;
        let mut replaced = self.find(&user, &to, new_name).await?;
        if replaced == Some(fid) {
            // Two names of one file: nothing is to be done.
            return Ok(());
        }
        if replaced.is_some() && flags.0 & RenameFlags::NO_REPLACE != 0 {
            return Err(Errno::EEXIST);
        }
        if let Some(old) = replaced
            && !old.vnode.is_directory()
            && !fid.vnode.is_directory()
            && self
                .hide(
                    (&user, who.uid),
                    &to,
                    new_name,
                    &self.beside(&to, old).vnode,
                )
                .await?
        {
            replaced = None;
        }
        let replaced = replaced.map(|old| self.beside(&to, old).vnode);
        let moved = self.beside(&from, fid).vnode;
        let (from, to) = ((&from.vnode, name), (&to.vnode, new_name));
        let asker = (&user, who.uid);
        self.move_name(asker, from, to, &moved, replaced).await
    }

    /// Has a name moved by the server, and what is cached changed like that.
    async fn move_name(
        &self,
        (user, uid): (&Arc<User>, u32),
        (from, name): (&Arc<Vnode>, &[u8]),
        (to, new_name): (&Arc<Vnode>, &[u8]),
        moved: &Arc<Vnode>,
        replaced: Option<Arc<Vnode>>,
    ) -> Result<(), Errno> {
        let names = ((from, name), (to, new_name));
        let here = self.rename_here((user, uid), names.0, names.1, moved, replaced.as_ref());
        if here.await? {
            return Ok(());
        }
        for vnode in [from, to, moved].into_iter().chain(&replaced) {
            self.in_order(vnode).await;
        }
        let fid = moved.fid;
        let entry = DirEntry {
            name: name.to_vec(),
            fid,
        };
        let same = Arc::ptr_eq(from, to);
        let leaving = Changing::begin(&self.0.breaks, from);
        let coming = (!same).then(|| Changing::begin(&self.0.breaks, to));
        let (client, volume) = (&user.client, &from.volume);
        let renamed = client.rename(volume, from.fid, &entry, to.fid, new_name);
        let changed = match renamed.await {
            Ok(changed) => changed,
            Err(error) => {
                // In doubt both directories are: what is dropped without a word counts as such.
                if let Some(coming) = coming
                    && !matches!(error, Error::InDoubt(_))
                {
                    coming.refused();
                }
                return Err(match self.refused(leaving, from, &error) {
                    // spec: afs-rpc#changing-directories
                    Errno::EEXIST if replaced.is_some() => Errno::ENOTEMPTY,
                    other => other,
                });
            }
        };
        let add = match &replaced {
            Some(_) => Edit::Replace(new_name.to_vec(), id(fid)),
            None => Edit::Add(new_name.to_vec(), id(fid)),
        };
        let remove = Edit::Remove(name.to_vec());
        match coming {
            Some(coming) => {
                leaving.done(changed.directory, vec![remove]);
                coming.done(changed.other, vec![add]);
            }
            None => leaving.done(changed.directory, vec![add, remove]),
        }
        if fid.vnode.is_directory() && !same {
            // spec: afs-rpc#changing-directories
            // Its `..` is another one now.
            self.0.breaks.count(fid);
            moved.lock().promise = None;
        }
        if let Some(replaced) = replaced {
            self.lost_name(&replaced);
        }
        self.wish(user, &[from, to]);
        Ok(())
    }

    /// A directory in which something is to be changed.
    async fn changeable(&self, user: &User, ino: Ino) -> Result<(Inode, Spot), Errno> {
        let inode = self.visit(user, ino).await?;
        let spot = match &inode.place {
            Referent::Cells | Referent::Volumes | Referent::Cell(_) => return Err(Errno::EROFS),
            Referent::Vnode(spot) => spot.clone(),
        };
        if spot.mount.volume.kind() != VolumeType::ReadWrite {
            return Err(Errno::EROFS);
        }
        if !spot.vnode.fid.vnode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok((inode, spot))
    }

    /// Has something made, and what is cached of the directory changed like that.
    async fn making(
        &self,
        user: &Arc<User>,
        directory: &Spot,
        name: &[u8],
        made: impl Future<Output = Result<Made, Error>>,
    ) -> Result<(Spot, FetchStatus), Errno> {
        let vnode = &directory.vnode;
        self.in_order(vnode).await;
        let changing = Changing::begin(&self.0.breaks, vnode);
        // Nobody knows the new fid before the answer: a break of it since counts all the same.
        let before = self.0.breaks.mark();
        let made = match made.await {
            Ok(made) => made,
            Err(error) => return Err(self.refused(changing, vnode, &error)),
        };
        changing.done(made.directory, vec![Edit::Add(name.to_vec(), id(made.fid))]);
        if made.fid.volume != vnode.fid.volume {
            tracing::warn!(fid = %made.fid, directory = %vnode.fid, "made in another volume");
            return Err(Errno::EIO);
        }
        let spot = self.beside(directory, made.fid);
        let status = match made.promised {
            Some(promised) => {
                user.note_number(vnode.cell(), promised.status.owner);
                self.accept(user, &spot.vnode, &promised, before)?
            }
            None => self.fresh(user, &spot.vnode).await?,
        };
        self.wish(user, &[vnode, &spot.vnode]);
        Ok((spot, status))
    }

    /// What became of a change that failed.
    fn refused(&self, changing: Changing<'_>, directory: &Arc<Vnode>, error: &Error) -> Errno {
        // If it may be done, dropping `changing` puts the directory in doubt; and so it does if the
        // server knows other names than we do.
        let number = self.failed(directory, "changing a directory", error);
        let known = matches!(error, Error::InDoubt(_) | Error::Gone) || number == Errno::EEXIST;
        if !known {
            changing.refused();
        }
        number
    }

    /// Removes a name of a file.
    async fn remove(
        &self,
        (user, uid): (&Arc<User>, u32),
        directory: &Arc<Vnode>,
        name: &[u8],
        file: &Arc<Vnode>,
    ) -> Result<(), Errno> {
        self.wish_around(user, directory);
        if self.remove_here((user, uid), directory, name, file).await? {
            return Ok(());
        }
        self.in_order(directory).await;
        self.in_order(file).await;
        let entry = DirEntry {
            name: name.to_vec(),
            fid: file.fid,
        };
        let changing = Changing::begin(&self.0.breaks, directory);
        let at = directory.fid;
        let removed = user.client.remove_file(&directory.volume, at, &entry);
        match removed.await {
            Ok(changed) => {
                changing.done(changed.directory, vec![Edit::Remove(name.to_vec())]);
                self.lost_name(file);
                self.wish(user, &[directory]);
                Ok(())
            }
            Err(error) => Err(self.refused(changing, directory, &error)),
        }
    }

    /// If a file is open here and this is its only name, gives it another one that is removed when it
    /// is closed; returns whether that is so.
    async fn hide(
        &self,
        asker: (&Arc<User>, u32),
        directory: &Spot,
        name: &[u8],
        file: &Arc<Vnode>,
    ) -> Result<bool, Errno> {
        let only = {
            let state = file.lock();
            let names = state.status().map_or(1, |status| status.link_count);
            state.rare.opens > 0 && state.rare.hidden.is_none() && names <= 1
        };
        if !only {
            return Ok(false);
        }
        let fid = file.fid;
        let hidden = format!("{HIDDEN}{:X}{:X}", fid.vnode.0, fid.uniquifier.0).into_bytes();
        let vnode = &directory.vnode;
        self.move_name(asker, (vnode, name), (vnode, &hidden), file, None)
            .await?;
        file.lock().rare.hidden = Some((Arc::clone(vnode), hidden.clone()));
        // It may have been closed meanwhile.
        let closed = {
            let mut state = file.lock();
            let closed = state.rare.opens == 0;
            state.rare.hidden.take_if(|_| closed)
        };
        if closed.is_some() {
            self.remove_hidden(asker, vnode, &hidden, file).await;
        }
        Ok(true)
    }

    /// Removes a file that was removed while it was open.
    pub(crate) async fn remove_hidden(
        &self,
        asker: (&Arc<User>, u32),
        directory: &Arc<Vnode>,
        name: &[u8],
        file: &Arc<Vnode>,
    ) {
        if let Err(error) = self.remove(asker, directory, name, file).await {
            let (name, fid) = (String::from_utf8_lossy(name), file.fid);
            tracing::warn!(%fid, %name, %error, "a removed file is left behind under this name");
        }
    }

    /// A file has one name less.
    fn lost_name(&self, file: &Arc<Vnode>) {
        let last = file
            .lock()
            .status()
            .is_none_or(|status| status.link_count <= 1);
        if last {
            self.is_gone(file);
        } else {
            // spec: afs-rpc#changing-directories
            self.0.breaks.count(file.fid);
            file.lock().promise = None;
        }
    }

    /// A server has this no more.
    pub(crate) fn is_gone(&self, vnode: &Arc<Vnode>) {
        self.0.breaks.count(vnode.fid);
        let mut state = vnode.lock();
        state.rare.gone = state.rare.opens == 0 || vnode.fid.vnode.is_directory();
        state.promise = None;
        let dirty = state.rare.dirty.is_some();
        drop(state);
        if dirty {
            self.drop_removed(vnode);
        } else {
            self.0.storage.forget(&vnode.key());
        }
    }

    /// A file's status after a change of ours.
    fn changed_file(&self, vnode: &Arc<Vnode>, status: Option<FetchStatus>) {
        self.0.breaks.count(vnode.fid);
        let mut state = vnode.lock();
        match status.filter(|status| status.file_type == FileType::File) {
            Some(status) => state.take_status(status),
            None => state.promise = None,
        }
    }
}

fn id(fid: Fid) -> EntryId {
    EntryId::new(fid.vnode.0, fid.uniquifier.0)
}

fn of_mode(mode: u32) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MODE,
        unix_mode_bits: mode & 0o7777,
        ..StoreStatus::default()
    }
}
