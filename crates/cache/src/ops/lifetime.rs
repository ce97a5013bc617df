//! The beginning and the end of a cache, and what goes on as long as there is one.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_cell::Client;
use tokio::task::JoinHandle;

use crate::model::config::{CacheConfig, Root};
use crate::model::error::CacheError;
use crate::model::key::FileKey;
use crate::model::place::Referent;
use crate::ops::cache::{BEHIND, Cache, Inner};
use crate::ops::watch::{follow, watch};
use crate::storage::Storage;
use crate::storage::disk::{Disk, Limits};
use crate::storage::journal::{Journal, LeftChanges};

/// How often what could not be stored is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(30);
/// How long the cache waits until what an earlier process could not store is stored.
const RECOVER: Duration = Duration::from_secs(5);

impl Cache {
    /// Opens the cache in its directory for files this client reaches.
    ///
    /// # Errors
    /// When the directory cannot be used or is another's, or the volume at the root cannot be found.
    pub async fn open(client: Client, config: CacheConfig) -> Result<Self, CacheError> {
        let (storage, journal) = open_storage(&config).await?;
        let cache = Self(Arc::new(Inner::new(client, config, storage, journal)));
        let root = match &cache.0.config.root {
            Root::Dynamic => Referent::Cells,
            Root::Volume(cell, volume) => {
                let found = cache.top(cell, volume).await;
                Referent::Vnode(found.map_err(|source| CacheError::Root {
                    cell: cell.clone(),
                    volume: volume.clone(),
                    source: Box::new(source),
                })?)
            }
        };
        cache.0.inodes.set_root(root);
        if tokio::time::timeout(RECOVER, cache.recover())
            .await
            .is_err()
        {
            tracing::warn!("what was written before a restart is stored later");
        }
        tokio::spawn(store_again(Arc::downgrade(&cache.0)));
        tokio::spawn(watch(Arc::downgrade(&cache.0)));
        tokio::spawn(follow(Arc::downgrade(&cache.0)));
        Ok(cache)
    }

    /// Stores what is not stored yet and gives all promises back. Servers that do not answer are not waited for. What cannot be stored, or is not
    /// when this is given up, is stored by the next who opens the cache in this directory.
    pub async fn close(&self) {
        self.send_rest().await;
        // Requests that wait for a server would hold up the end.
        self.0.client.hurry();
        let dirty = self.0.all_dirty();
        // On this disk first: whatever ends this before a server has it, the next process finds it.
        for vnode in &dirty {
            self.keep(vnode).await;
        }
        for vnode in &dirty {
            if let Err(error) = self.store_unasked(vnode).await {
                let (cell, fid) = (vnode.cell(), vnode.fid);
                tracing::error!(
                    %cell, %fid, %error,
                    "what was written is not stored; the next mount with this cache goes on"
                );
            }
        }
        self.leave_leases().await;
        self.0.client.close().await;
        // A program that goes on using the cache would not hear of a change any more.
        self.0.breaks.break_all();
        let (storage, conflicts) = (Arc::clone(&self.0.storage), Arc::clone(&self.0.conflicts));
        let ended = tokio::task::spawn_blocking(move || {
            storage.close();
            conflicts.write();
        });
        if let Err(error) = ended.await {
            tracing::error!(%error, "the cache did not end in order");
        }
    }

    /// Has all servers get what was changed here, as far as they take it.
    async fn send_rest(&self) {
        for vnode in self.0.all_dirty() {
            // Small files are changes, too.
            self.try_store(&vnode).await;
        }
        for line in self.0.unsent.waiting() {
            let last = line.last();
            if let Err(error) = line.sent(last).await {
                let (cell, volume) = (line.volume.cell_name(), line.volume.id());
                tracing::error!(%cell, %volume, %error,
                    "not all changes are sent; the next mount with this cache goes on");
            }
        }
    }
}

async fn open_storage(
    config: &CacheConfig,
) -> Result<(Arc<dyn Storage>, (Journal, LeftChanges)), CacheError> {
    let dir = config.dir.clone();
    let limits = Limits {
        bytes: config.bytes,
        files: config.files,
    };
    let failed = |source| CacheError::Storage {
        dir: config.dir.display().to_string(),
        source,
    };
    let opened = tokio::task::spawn_blocking(move || {
        // The directory is ours from then on.
        let disk = Disk::open(&dir, limits)?;
        Ok((disk, Journal::open(&dir)))
    });
    let opened = opened.await;
    let opened = opened.unwrap_or_else(|error| Err(failed(std::io::Error::other(error))));
    let (disk, journal) = opened?;
    Ok((Arc::new(disk), journal.map_err(failed)?))
}

/// Tries again to store what failed, as long as there is a cache. A server may be waited for as long as it takes, so
/// what is for others does not wait for that.
async fn store_again(cache: Weak<Inner>) {
    let mut recovering = tokio::spawn(async {});
    let mut storing: BTreeMap<FileKey, JoinHandle<()>> = BTreeMap::new();
    loop {
        tokio::time::sleep(STORE_AGAIN).await;
        let Some(inner) = cache.upgrade() else {
            return;
        };
        let cache = Cache(inner);
        if recovering.is_finished() {
            let cache = cache.clone();
            recovering = tokio::spawn(async move { cache.recover().await });
        }
        storing.retain(|_, task| !task.is_finished());
        for vnode in cache.0.all_dirty() {
            let closed = vnode.lock().rare.writers == 0;
            let key = vnode.key();
            if closed && storing.len() < BEHIND && !storing.contains_key(&key) {
                let cache = cache.clone();
                let task = tokio::spawn(async move { cache.try_store(&vnode).await });
                storing.insert(key, task);
            }
        }
    }
}
