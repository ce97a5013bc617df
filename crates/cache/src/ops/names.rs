//! What names stand for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use afar_cell::Class;
use afar_dir::{DirError, Directory};
use afar_types::{DataVersion, FetchStatus, Fid, FileType};

use crate::model::directory::DirectoryCopy;
use crate::model::error::Errno;
use crate::model::place::{Inode, Referent, Spot};
use crate::model::place_name::VOLUMES;
use crate::model::types::{Entry, Ino, Who};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

/// Bytes of the longest name.
const NAME_MOST: usize = 255;
/// Times a name is looked up that is given to something else all the time.
const TRIES: u32 = 8;
/// Times a directory is read that is changed here while its pages are on their way.
const READS: u32 = 8;

impl Cache {
    /// What a name in a directory stands for; a mount point is what it leads to. It counts until it
    /// is [forgotten](Self::forget).
    ///
    /// # Errors
    /// [`ENOENT`](Errno::ENOENT) when there is no such name; others as servers say.
    pub async fn lookup(&self, who: Who, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let user = self.user(who.uid).await;
        let directory = self.visit(&user, parent).await?;
        let (spot, status) = match &directory.place {
            Referent::Cells if name == VOLUMES.as_bytes() => return Ok(self.volumes_entry()),
            Referent::Cells if self.unreached_cell(name) => return Ok(self.unvisited_cell(name)),
            Referent::Cells => {
                let spot = self.cell_root(name).await?;
                // The kernel knows it by this number since before anybody went into it.
                if let Some(ino) = self.0.inodes.number_of_cell(name) {
                    self.0.inodes.visited(ino, &spot);
                }
                let status = self.fresh(&user, &spot.vnode).await?;
                (spot, status)
            }
            Referent::Volumes => self.place_named(&user, name).await?,
            Referent::Vnode(place) => self.enter_name(&user, place, name).await?,
            Referent::Cell(_) => return Err(Errno::ESTALE),
        };
        if status.is_mount_point() {
            return Ok(self.unvisited_point(&directory, name, &spot, &status));
        }
        Ok(self.entry(&directory, name, &spot, &status))
    }

    /// Takes so many answers with this number back.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.0.inodes.forget(ino, count);
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// [`EINVAL`](Errno::EINVAL) when it is none; others as servers say.
    pub async fn readlink(&self, who: Who, ino: Ino) -> Result<bytes::Bytes, Errno> {
        let user = self.user(who.uid).await;
        let spot = self.spot(&user, ino).await?;
        let status = self.fresh(&user, &spot.vnode).await?;
        if status.file_type != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        self.file_read(&user, &spot, &status, Class::BestEffort);
        self.link_text(&user, &spot.vnode).await
    }

    /// What a number stands for.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode, Errno> {
        self.0.inodes.find(ino).ok_or(Errno::ENOENT)
    }

    /// What a number stands for, if it is in a volume.
    pub(crate) async fn spot(&self, user: &User, ino: Ino) -> Result<Spot, Errno> {
        match &self.visit(user, ino).await?.place {
            Referent::Cells | Referent::Volumes | Referent::Cell(_) => Err(Errno::EPERM),
            Referent::Vnode(spot) => Ok(spot.clone()),
        }
    }

    /// Goes to what a name in a directory stands for. What is not there any more was removed, or another
    /// took its name, before the server told of it: the directory is read again to see which.
    async fn enter_name(
        &self,
        user: &User,
        directory: &Spot,
        name: &[u8],
    ) -> Result<(Spot, FetchStatus), Errno> {
        let is_unknown = {
            let state = directory.vnode.lock();
            state.promised().is_none() && state.rare.pages.is_none()
        };
        if is_unknown {
            // Whether the user may look comes with them.
            self.pages(user, &directory.vnode).await?;
        }
        self.may_look(user, &directory.vnode).await?;
        let mut gone = None;
        for _ in 0..TRIES {
            let fid = self.find(user, directory, name).await?;
            let fid = fid.ok_or(Errno::ENOENT)?;
            self.ask_around(user, directory, fid).await;
            match self.enter(user, directory, fid).await {
                Err(Errno::ENOENT) if gone != Some(fid) => {
                    gone = Some(fid);
                    self.0.breaks.count(directory.vnode.fid);
                    directory.vnode.lock().promise = None;
                }
                entered => return entered,
            }
        }
        Err(Errno::ENOENT)
    }

    /// Goes to an entry of a directory, and through it if it is a mount point.
    pub(crate) async fn enter(
        &self,
        user: &User,
        directory: &Spot,
        fid: Fid,
    ) -> Result<(Spot, FetchStatus), Errno> {
        let spot = self.beside(directory, fid);
        let status = self.fresh(user, &spot.vnode).await?;
        self.through(user, spot, status).await
    }

    /// Goes through something with this status if it is a mount point, and not one that leads to a cell which was
    /// never reached.
    pub(crate) async fn through(
        &self,
        user: &User,
        spot: Spot,
        status: FetchStatus,
    ) -> Result<(Spot, FetchStatus), Errno> {
        if !status.is_mount_point() || self.leads_to_unreached(user, &spot).await? {
            return Ok((spot, status));
        }
        let root = self.cross(user, &spot).await?;
        let status = self.fresh(user, &root.vnode).await?;
        Ok((root, status))
    }

    /// Something else in the same volume.
    pub(crate) fn beside(&self, other: &Spot, fid: Fid) -> Spot {
        Spot {
            mount: Arc::clone(&other.mount),
            vnode: self.0.vnodes.of(&other.mount.volume, fid),
        }
    }

    /// The fid of a name in a directory. `@sys` stands for the first sysname there is.
    pub(crate) async fn find(
        &self,
        user: &User,
        directory: &Spot,
        name: &[u8],
    ) -> Result<Option<Fid>, Errno> {
        if name.len() > NAME_MOST {
            return Err(Errno::ENAMETOOLONG);
        }
        let pages = self.pages(user, &directory.vnode).await?;
        self.looked_into(user, &directory.vnode);
        let look = |name: &[u8]| {
            let found = Directory::new(&pages).and_then(|pages| pages.lookup(name));
            let found = found.map_err(|error| damaged(&directory.vnode, &error))?;
            Ok(found.map(|entry| entry.id.fid(directory.vnode.fid.volume)))
        };
        // No entry has such a name.
        // spec: afs-rpc#changing-directories
        let Some(front) = name.strip_suffix(b"@sys") else {
            return look(name);
        };
        for sysname in &self.0.client.config().sysnames {
            if let Some(fid) = look(&[front, sysname.as_bytes()].concat())? {
                return Ok(Some(fid));
            }
        }
        Ok(None)
    }

    /// A directory's pages, of the version it has now.
    pub(crate) async fn pages(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
    ) -> Result<Arc<Vec<u8>>, Errno> {
        let fid = vnode.fid;
        if !fid.vnode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        vnode.used.store(true, Ordering::Relaxed);
        // Pages come with their status, so only those that may still be right are worth asking.
        if vnode.lock().rare.pages.is_some() {
            let status = self.fresh(user, vnode).await?;
            if let Some(pages) = pages_of(vnode, status.data_version) {
                return Ok(pages);
            }
        }
        let work = vnode.work();
        let _one = work.asking.lock().await;
        // Another may have read them while this one waited for its turn.
        if let Some(pages) = known_pages(vnode) {
            return Ok(pages);
        }
        self.come_to(user, vnode, true);
        self.in_order(vnode).await;
        if self.read_to_look(user, vnode).await?
            && let Some(pages) = known_pages(vnode)
        {
            return Ok(pages);
        }
        for _ in 0..READS {
            self.in_order(vnode).await;
            let mark = self.0.breaks.mark();
            let contents = user.client.directory_contents(&vnode.volume, fid).await;
            let contents =
                contents.map_err(|error| self.failed(vnode, "reading a directory", &error))?;
            let known = self.accept(user, vnode, &contents.promised, mark)?;
            let told = contents.promised.status;
            // It was changed here while this was on its way: these pages are older than what is known of it, and must not
            // stand for that.
            if told.data_version != known.data_version {
                match pages_of(vnode, known.data_version) {
                    Some(pages) => return Ok(pages),
                    None => continue,
                }
            }
            // spec: afs-rpc#status
            if contents.data.len() as u64 != told.length {
                tracing::warn!(%fid, server = %contents.promised.server,
                    "a directory of another length than its status says");
                return Err(Errno::EIO);
            }
            let pages = Arc::new(contents.data.to_vec());
            self.keep_pages(vnode, told.data_version, Arc::clone(&pages));
            return Ok(pages);
        }
        Err(Errno::EAGAIN)
    }

    /// Keeps a directory's pages of this version, if it is the one it has now.
    pub(crate) fn keep_pages(&self, vnode: &Arc<Vnode>, version: DataVersion, pages: Arc<Vec<u8>>) {
        let mut state = vnode.lock();
        let current = state.status().map(|status| status.data_version);
        if current == Some(version) {
            let bytes = pages.len();
            state.rare.pages = Some(DirectoryCopy::new(version, pages));
            drop(state);
            // `note` locks the vnodes of others: two that kept their own locked would wait for each other.
            self.0.pages.note(vnode, bytes);
        }
    }
}

/// The pages of a directory, if they are in memory and promised.
pub(crate) fn known_pages(vnode: &Vnode) -> Option<Arc<Vec<u8>>> {
    let status = vnode.lock().promised()?;
    pages_of(vnode, status.data_version)
}

fn pages_of(vnode: &Vnode, version: DataVersion) -> Option<Arc<Vec<u8>>> {
    let state = vnode.lock();
    let copy = state.rare.pages.as_ref()?;
    (copy.version == version).then(|| Arc::clone(&copy.pages))
}

/// Says in the log what is wrong with a directory.
pub(crate) fn damaged(vnode: &Vnode, error: &DirError) -> Errno {
    let (cell, fid) = (vnode.cell(), vnode.fid);
    tracing::warn!(%cell, %fid, %error, "a damaged directory; its volume needs salvage");
    Errno::EIO
}
