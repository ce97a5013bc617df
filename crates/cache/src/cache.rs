//! The cache as a whole: what it is made of, its beginning and its end.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use afar_cell::Client;
use afar_types::{CellName, UnixTime, VolumeId};
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;

use crate::breaks::Breaks;
use crate::config::{CacheConfig, Root};
use crate::disk::{Disk, Limits};
use crate::error::CacheError;
use crate::handles::Handles;
use crate::inodes::{Inodes, Place};
use crate::mount::Mounts;
use crate::owners::OwnerTable;
use crate::pages::Pages;
use crate::said::Said;
use crate::storage::{FileKey, Storage};
use crate::types::Invalidation;
use crate::users::UserTable;
use crate::vnode::Vnode;
use crate::vnodes::Vnodes;
use crate::walk::Walks;
use crate::watch::{follow, watch};

/// Invalidations that wait for a slow listener before it is told that it missed some.
const INVALIDATIONS: usize = 65_536;
/// Files that are stored after they were closed, at a time; whoever closes more of them waits.
const BEHIND: usize = 64;
/// How often what could not be stored is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(30);
/// How long to wait until data that an earlier process could not store is stored.
const RECOVER: Duration = Duration::from_secs(5);

/// A cache manager. Cheap to clone; used from within a tokio runtime. End it with
/// [`close`](Self::close).
///
/// Requests name their user; the cache asks servers with that user's tokens, and the user may do what they
/// allow. Failures are told
/// as an [`Errno`](crate::Errno), and logged with the fid and what the server said when they are of an
/// unusual kind.
#[derive(Debug, Clone)]
pub struct Cache(pub(crate) Arc<Inner>);

/// Says how far invalidations are carried out. It does not keep the cache alive.
#[derive(Debug, Clone)]
pub struct Acknowledger(Weak<Breaks>);

impl Acknowledger {
    /// All invalidations before this [mark](Invalidation::Mark) are carried out. [`u64::MAX`] means that
    /// from now on nobody will say so, and nobody need wait.
    pub fn acknowledge(&self, mark: u64) {
        if let Some(breaks) = self.0.upgrade() {
            breaks.acknowledge(mark);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) users: UserTable,
    pub(crate) owners: OwnerTable,
    pub(crate) config: CacheConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) vnodes: Arc<Vnodes>,
    pub(crate) pages: Pages,
    pub(crate) walks: Walks,
    pub(crate) inodes: Inodes,
    pub(crate) breaks: Arc<Breaks>,
    pub(crate) mounts: Mounts,
    pub(crate) handles: Handles,
    pub(crate) begun: SystemTime,
    /// When the instances of volumes seen last were made.
    volumes: Mutex<BTreeMap<(VolumeId, CellName), UnixTime>>,
    /// One for each file that is being stored after it was closed.
    pub(crate) behind: Semaphore,
    /// Bytes of a file that may have to be stored when it is closed.
    pub(crate) store_behind: AtomicU64,
    /// Errors that the log has already.
    pub(crate) said: Said,
    /// Files with something written that is not stored.
    dirty: Mutex<BTreeMap<FileKey, Arc<Vnode>>>,
}

impl Cache {
    /// Opens the cache in its directory for files this client reaches.
    ///
    /// # Errors
    /// When the directory cannot be used or is another's, or the volume at the root cannot be found.
    pub async fn open(client: Client, config: CacheConfig) -> Result<Self, CacheError> {
        let storage = open_storage(&config).await?;
        let vnodes = Arc::new(Vnodes::new(config.files));
        let (invalidations, _) = broadcast::channel(INVALIDATIONS);
        let breaks = Breaks::new(Arc::clone(&vnodes), invalidations);
        let breaks = Arc::new(breaks);
        client.callbacks().set_handler(Arc::clone(&breaks) as _);
        let users = UserTable::new(&client, config.users.clone());
        let owners = OwnerTable::new(config.owners.clone());
        let store_behind = AtomicU64::new(config.store_behind);
        let cache = Self(Arc::new(Inner {
            client,
            users,
            owners,
            pages: Pages::new(config.directories),
            walks: Walks::default(),
            config,
            storage,
            vnodes,
            inodes: Inodes::default(),
            breaks,
            mounts: Mounts::default(),
            handles: Handles::default(),
            begun: SystemTime::now(),
            volumes: Mutex::default(),
            behind: Semaphore::new(BEHIND),
            store_behind,
            said: Said::default(),
            dirty: Mutex::default(),
        }));
        let root = match &cache.0.config.root {
            Root::Dynamic => Place::Cells,
            Root::Volume(cell, volume) => {
                let found = cache.top(cell, volume).await;
                Place::Vnode(found.map_err(|source| CacheError::Root {
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
            tracing::warn!("data written before a restart will be stored later");
        }
        tokio::spawn(store_again(Arc::downgrade(&cache.0)));
        tokio::spawn(watch(Arc::downgrade(&cache.0)));
        tokio::spawn(follow(Arc::downgrade(&cache.0)));
        Ok(cache)
    }

    /// Whether to wait for a server that does not answer.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.client.waiting().is_some()
    }

    /// Stores what is not stored yet and gives all promises back. Servers that do not answer are not waited for. What cannot be stored, or is not
    /// when this is given up, is stored by the next who opens the cache in this directory.
    pub async fn close(&self) {
        self.0.client.hurry();
        let dirty = self.0.all_dirty();
        for vnode in &dirty {
            self.keep(vnode).await;
        }
        for vnode in &dirty {
            if let Err(error) = self.store_unasked(vnode).await {
                let (cell, fid) = (vnode.cell(), vnode.fid);
                tracing::error!(
                    %cell, %fid, %error,
                    "written data is not stored yet; the next mount with this cache will store it"
                );
            }
        }
        self.0.client.close().await;
        // A user who goes on using the cache would no longer be told of changes.
        self.0.breaks.break_all();
        let storage = Arc::clone(&self.0.storage);
        if let Err(error) = tokio::task::spawn_blocking(move || storage.close()).await {
            tracing::error!(%error, "the cache was not closed cleanly");
        }
    }

    /// What was handed out with a time it holds, and no longer does. A receiver that lags must take
    /// everything for invalid.
    #[must_use]
    pub fn invalidations(&self) -> broadcast::Receiver<Invalidation> {
        self.0.breaks.listen(false)
    }

    /// The same, by a listener that says how far it is. A server that breaks a promise then gets its answer when
    /// that is carried out, or a moment later: who opens a file after another has closed it does not
    /// find what a kernel keeps of the time before.
    #[must_use]
    pub fn acknowledged_invalidations(&self) -> (broadcast::Receiver<Invalidation>, Acknowledger) {
        let receiver = self.0.breaks.listen(true);
        (receiver, Acknowledger(Arc::downgrade(&self.0.breaks)))
    }

    /// Counts invalidations. An answer with a time it holds may be out of date if this has changed since
    /// it was asked for, and be on its way to a kernel behind the invalidation.
    #[must_use]
    pub fn invalidated(&self) -> u64 {
        self.0.breaks.sent()
    }

    /// Forgets that something was written to a file: it is stored, or dropped.
    pub(crate) fn drop_dirty(&self, vnode: &Vnode) {
        let removed = self.0.lock_dirty().remove(&vnode.key());
        // Something may have been written since.
        if let Some(vnode) = removed
            && vnode.lock().rare.dirty.is_some()
        {
            self.0.keep_dirty(&vnode);
        }
    }
}

impl Inner {
    /// Keeps a file in memory until what was written to it is stored.
    pub(crate) fn keep_dirty(&self, vnode: &Arc<Vnode>) {
        let mut dirty = self.lock_dirty();
        let entry = dirty.entry(vnode.key());
        entry.or_insert_with(|| Arc::clone(vnode));
    }

    pub(crate) fn lock_volumes(&self) -> MutexGuard<'_, BTreeMap<(VolumeId, CellName), UnixTime>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_dirty(&self) -> MutexGuard<'_, BTreeMap<FileKey, Arc<Vnode>>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_dirty(&self) -> Vec<Arc<Vnode>> {
        self.lock_dirty().values().cloned().collect()
    }
}

async fn open_storage(config: &CacheConfig) -> Result<Arc<dyn Storage>, CacheError> {
    let dir = config.dir.clone();
    let limits = Limits {
        octets: config.bytes,
        files: config.files,
    };
    let opened = tokio::task::spawn_blocking(move || Disk::open(&dir, limits)).await;
    let opened = opened.unwrap_or_else(|error| {
        Err(CacheError::Storage {
            dir: config.dir.display().to_string(),
            source: std::io::Error::other(error),
        })
    });
    Ok(Arc::new(opened?))
}

/// Tries again to store what failed, as long as there is a cache. This may wait for a server as long as it takes, so
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
