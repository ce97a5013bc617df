//! Opening and closing files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_types::{FetchStatus, FileType, VolumeType};

use crate::model::error::Errno;
use crate::model::place::Spot;
use crate::model::rights;
use crate::model::rights::{has_bits, may_read, may_write};
use crate::model::types::{Handle, Ino, KeepCache, OpenFlags, Who};
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::table::handles::{Open, OpenFile};

/// Storing behind begins this much later. A program that makes many files asks for the next one
/// meanwhile, and would wait if its server had locked the directory to store the last.
const LATER: Duration = Duration::from_millis(3);

impl Cache {
    /// Opens a file. Data the kernel kept from an earlier time is good whenever this says so, as the
    /// kernel is told when it no longer is.
    ///
    /// # Errors
    /// As servers say.
    pub async fn open_file(
        &self,
        who: Who,
        ino: Ino,
        flags: OpenFlags,
    ) -> Result<(Handle, KeepCache), Errno> {
        let user = self.user(who.uid).await;
        let spot = self.spot(&user, ino).await?;
        let enough = |status: &FetchStatus| may_open(status, flags);
        let status = match self.rights_for(&user, &spot.vnode, enough).await {
            // Another may have its name by now; Linux looks the name up again upon this.
            Err(Errno::ENOENT) => return Err(Errno::ESTALE),
            status => status?,
        };
        self.drop_overtaken(&spot.vnode, &status);
        match status.file_type {
            FileType::Directory => return Err(Errno::EISDIR),
            FileType::Symlink => return Err(Errno::ELOOP),
            _ => {}
        }
        let writes = flags.write || flags.truncate;
        if writes && spot.mount.volume.kind() != VolumeType::ReadWrite {
            return Err(Errno::EROFS);
        }
        if !may_open(&status, flags) || !bits_let_open(who, &status, flags) {
            return Err(Errno::EACCES);
        }
        if flags.truncate {
            self.resize(who.uid, &spot.vnode, &status, 0)?;
        }
        let promised = spot.vnode.lock().promised().is_some();
        // One that the kernel has pages of another version of must not keep them, even if it is still
        // being told.
        let same = self.inode(ino)?.note_opened(status.data_version);
        let handle = self.opened(who.uid, spot, flags)?;
        Ok((handle, promised && same))
    }

    /// A handle for a file that may be opened.
    pub(crate) fn opened(
        &self,
        opener: u32,
        spot: Spot,
        flags: OpenFlags,
    ) -> Result<Handle, Errno> {
        let vnode = Arc::clone(&spot.vnode);
        let file = Arc::new(OpenFile::new(spot, flags, opener));
        let handle = self.0.handles.add(Open::File(file))?;
        let mut state = vnode.lock();
        let rare = &mut *state.rare;
        rare.opens += 1;
        rare.writers += u32::from(flags.write);
        rare.emptied |= flags.write && flags.truncate && rare.dirty.is_none();
        debug_assert!(rare.writers <= rare.opens && (!rare.emptied || rare.writers > 0));
        Ok(handle)
    }

    /// Stores what was written, as a descriptor is closed by this owner of locks, whose POSIX locks
    /// end with it.
    ///
    /// # Errors
    /// As servers say; what could not be stored is kept and tried again.
    pub async fn flush(&self, handle: Handle, owner: u64) -> Result<(), Errno> {
        let open = self.0.handles.file(handle)?;
        let stored = if !open.flags.write {
            Ok(())
        } else if self.may_store_behind(&open.spot.vnode) {
            open.spot.vnode.lock().take_failure()
        } else {
            self.store_and_tell(&open).await
        };
        let unlocked = self.unlock_all(&open.spot, owner).await;
        stored.and(unlocked)
    }

    /// Stores what was written, on the server's disk.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn fsync(&self, handle: Handle) -> Result<(), Errno> {
        let open = self.0.handles.file(handle)?;
        self.store_and_tell(&open).await?;
        self.all_sent(&open.spot.vnode).await?;
        // What the server did not take of it was said to be stored.
        open.spot.vnode.lock().take_failure()
    }

    /// Stores, and tells of what failed before, once.
    async fn store_and_tell(&self, open: &OpenFile) -> Result<(), Errno> {
        let vnode = &open.spot.vnode;
        let user = self.user(open.opener).await;
        let stored = self.store(&user, vnode).await;
        if stored.is_ok() {
            self.wish(&user, &[vnode]);
        }
        let before = vnode.lock().take_failure();
        stored.and(before)
    }

    /// Whether files may be closed before they are stored.
    fn stores_behind(&self) -> bool {
        self.0.store_behind.load(Ordering::Relaxed) > 0
    }

    /// Whether this file may be closed before it is stored: there is little to be stored, and not much is
    /// behind already.
    fn may_store_behind(&self, vnode: &Vnode) -> bool {
        let most = self.0.store_behind.load(Ordering::Relaxed);
        if most == 0 || self.0.behind.available_permits() == 0 {
            return false;
        }
        let mut state = vnode.lock();
        let dirty = state.dirty_mut();
        dirty.is_none_or(|dirty| dirty.ranges.bytes() <= most)
    }

    /// Closes a file. `owner` is that of flock locks to give up, if there may be any.
    pub async fn release(&self, handle: Handle, owner: Option<u64>) {
        let Some(Open::File(open)) = self.0.handles.remove(handle) else {
            return;
        };
        let vnode = &open.spot.vnode;
        for owner in open.take_lockers().into_iter().chain(owner) {
            if let Err(error) = self.unlock_all(&open.spot, owner).await {
                tracing::debug!(fid = %vnode.fid, %error, "unlocked; will store it again later");
            }
        }
        let (last, hidden) = {
            let mut state = vnode.lock();
            let rare = &mut *state.rare;
            debug_assert!(rare.opens > 0, "closed more often than opened");
            rare.opens = rare.opens.saturating_sub(1);
            rare.writers = rare.writers.saturating_sub(u32::from(open.flags.write));
            debug_assert!(rare.writers <= rare.opens, "{} writers", rare.writers);
            rare.emptied &= rare.writers > 0;
            let last = rare.opens == 0;
            (last, rare.hidden.take_if(|_| last))
        };
        if let Some((directory, name)) = hidden {
            // Nobody can open it any more: to store what was written, and remove it then, would be for nothing.
            vnode.lock().rare.dirty = None;
            self.drop_dirty(vnode);
            let user = self.user(open.opener).await;
            self.remove_hidden((&user, open.opener), &directory, &name, vnode)
                .await;
        } else if open.flags.write && !self.drop_refused(vnode) && (last || self.stores_behind()) {
            // What a mapping wrote after the last close comes only now, and what is stored behind.
            let _one = self.0.behind.acquire().await;
            if self.stores_behind() {
                tokio::time::sleep(LATER).await;
            }
            self.try_store(vnode).await;
            self.drop_refused(vnode);
        }
        vnode.lock().rare.tidy();
    }
}

/// Whether the rights in a status let a file be opened so. A program that is let write what the server will refuse is
/// told by `close`, which many do not look at.
fn may_open(status: &FetchStatus, flags: OpenFlags) -> bool {
    (!flags.read || may_read(status)) && (!(flags.write || flags.truncate) || may_write(status))
}

/// Whether a file's permission bits let it be opened so. One that may be executed is opened for that as if to be read.
fn bits_let_open(who: Who, status: &FetchStatus, flags: OpenFlags) -> bool {
    let has = |mask| has_bits(who, status, mask);
    let reads = !flags.read || has(rights::READ) || has(rights::EXECUTE);
    reads && (!(flags.write || flags.truncate) || has(rights::WRITE))
}
