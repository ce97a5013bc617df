//! What was written here and could not be stored: kept over the end of this process, and stored by a
//! later one.

use std::sync::Arc;

use afar_cell::{Error, Wanted};
use afar_types::FetchStatus;

use crate::model::dirty::Dirty;
use crate::model::error::Errno;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::conflicts::STORE;
use crate::storage::{Kept, Left};

/// What becomes of something that was left.
enum Fate {
    /// It is stored, or will be.
    Ours,
    /// It cannot be told now.
    Later,
    /// It must not be stored.
    Aside(&'static str),
}

impl Cache {
    /// Has what was written to a file survive this process and the machine, until it is stored.
    pub(crate) async fn keep(&self, vnode: &Arc<Vnode>) {
        let kept = {
            let mut state = vnode.lock();
            let base = state.status().map(|status| status.data_version);
            let Some(dirty) = state.dirty_mut().filter(|dirty| !dirty.kept) else {
                return;
            };
            // What is written from now on is not on the disk with this.
            dirty.kept = true;
            Kept {
                base: base.unwrap_or_default(),
                ranges: dirty.ranges.clone(),
                length: dirty.length,
                limit: dirty.limit,
                resized: dirty.resized || dirty.unstored,
                mtime: dirty.mtime,
                tried: dirty.tried,
                writer: dirty.writer,
            }
        };
        let (storage, key) = (Arc::clone(&self.0.storage), vnode.key());
        let done = tokio::task::spawn_blocking(move || storage.keep(&key, &kept)).await;
        let done = done.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        if let Err(error) = done {
            if let Some(dirty) = vnode.lock().dirty_mut() {
                dirty.kept = false;
            }
            let (cell, fid) = (vnode.cell(), vnode.fid);
            let dir = self.0.config.dir.display();
            tracing::error!(
                %cell, %fid, %dir, %error,
                "written data is not stored, and will not survive a crash of this machine"
            );
        }
    }

    /// Stores what earlier processes have left, as far as the files are as they were then.
    pub(crate) async fn recover(&self) {
        self.send_left().await;
        for left in self.0.storage.left() {
            let (cell, fid) = (&left.key.cell, left.key.fid);
            match self.fate(&left).await {
                Ok(Fate::Ours) => tracing::info!(%cell, %fid, "written before a restart"),
                Ok(Fate::Later) => {}
                Ok(Fate::Aside(why)) => self.put_aside(&left, why),
                Err(error) => {
                    tracing::warn!(
                        %cell, %fid, %error,
                        "cannot store data written before a restart yet; keeping it"
                    );
                }
            }
        }
    }

    async fn fate(&self, left: &Left) -> Result<Fate, Error> {
        let user = self.user(left.kept.writer).await;
        let (client, fid) = (&user.client, left.key.fid);
        let cell = client.cell(&left.key.cell).await?;
        let number = fid.volume.to_string();
        let volume = client
            .volume(&cell, &number, Wanted::PreferReadWrite)
            .await?;
        if volume.id() != fid.volume {
            return Ok(Fate::Aside("its volume cannot be written to"));
        }
        let vnode = self.0.vnodes.of(&volume, fid);
        let status = match self.fresh(&user, &vnode).await {
            Ok(status) => status,
            Err(Errno::ENOENT) => return Ok(Fate::Aside("the file was removed")),
            Err(error) => {
                let cell = &left.key.cell;
                tracing::warn!(%cell, %fid, %error, "data written before a restart is not stored \
                                                     yet");
                return Ok(Fate::Later);
            }
        };
        if !is_as_it_was(&left.kept, &status) {
            return Ok(Fate::Aside("others changed the file in the meantime"));
        }
        if !self.take_up(&vnode, left) {
            return Ok(Fate::Later);
        }
        self.data_changed(&vnode);
        self.try_store(&vnode).await;
        Ok(Fate::Ours)
    }

    /// What was left is what was written to its file. Returns false if something else was.
    fn take_up(&self, vnode: &Arc<Vnode>, left: &Left) -> bool {
        let mut state = vnode.lock();
        if state.rare.dirty.is_some() {
            return false;
        }
        match self.0.storage.adopt(left) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::error!(fid = %vnode.fid, %error, "the cache's storage failed");
                return false;
            }
        }
        let kept = &left.kept;
        state.rare.dirty = Some(Dirty {
            ranges: kept.ranges.clone(),
            length: kept.length,
            limit: kept.limit,
            resized: kept.resized,
            unstored: kept.resized,
            mtime: kept.mtime,
            mode: None,
            tried: kept.tried,
            writer: kept.writer,
            kept: true,
            since: None,
            failed: None,
        });
        drop(state);
        self.0.keep_dirty(vnode);
        true
    }

    fn put_aside(&self, left: &Left, why: &str) {
        let (cell, fid) = (&left.key.cell, left.key.fid);
        match self.0.storage.put_aside(left) {
            Ok(path) => {
                tracing::error!(
                    %cell, %fid, path = %path.display(),
                    "data written before a restart could not be stored: {why}; kept here, with \
                     zeroes in the gaps"
                );
                self.note_conflict((cell, fid), STORE, why, Some(path));
            }
            Err(error) => tracing::error!(
                %cell, %fid, %error,
                "data written before a restart could not be stored: {why}; it stays in the cache"
            ),
        }
    }
}

/// Whether a file is what something was written to: nobody has changed it since, or we ourselves
/// have, by storing a part of it.
fn is_as_it_was(kept: &Kept, status: &FetchStatus) -> bool {
    status.data_version == kept.base
        || status.data_version > kept.base && status.client_mod_time == kept.tried
}
