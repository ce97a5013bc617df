//! The cache as a whole: what it is made of.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use afar_cell::Client;
use afar_types::{CellName, Fid, UnixTime, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, broadcast};

use crate::model::config::CacheConfig;
use crate::model::key::FileKey;
use crate::model::types::Invalidation;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::leased::left::{LeftLines, lines};
use crate::storage::Storage;
use crate::storage::conflicts::Conflicts;
use crate::storage::journal::{Journal, LeftChanges};
use crate::table::breaks::Breaks;
use crate::table::following::Following;
use crate::table::handles::Handles;
use crate::table::inodes::Inodes;
use crate::table::leases::{Leases, Told};
use crate::table::mounts::Mounts;
use crate::table::owners::OwnerTable;
use crate::table::pages::Pages;
use crate::table::prefetched::Prefetched;
use crate::table::rows::Rows;
use crate::table::said::Said;
use crate::table::unsent::Unsent;
use crate::table::users::UserTable;
use crate::table::vnodes::Vnodes;
use crate::table::walks::Walks;

/// Invalidations that wait for a slow listener before it is told that it missed some.
const INVALIDATIONS: usize = 65_536;
/// Files that are stored after they were closed, at a time; whoever closes more of them waits.
pub(crate) const BEHIND: usize = 64;
/// Files that are prefetched at a time: two thirds of the calls that a file server gets at first, so that what
/// programs wait for need not wait for these.
const PREFETCHED_AT_ONCE: usize = 16;

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
    pub(crate) users: Arc<UserTable>,
    pub(crate) owners: OwnerTable,
    pub(crate) config: CacheConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) conflicts: Arc<Conflicts>,
    pub(crate) vnodes: Arc<Vnodes>,
    pub(crate) pages: Pages,
    pub(crate) walks: Walks,
    pub(crate) following: Following,
    pub(crate) prefetched: Prefetched,
    /// Names that were looked up whose statuses were not known.
    pub(crate) asked_names: Rows,
    /// Files that were read.
    pub(crate) read_files: Rows,
    /// Files that may be prefetched at a time.
    pub(crate) prefetching: Arc<Semaphore>,
    pub(crate) inodes: Inodes,
    pub(crate) breaks: Arc<Breaks>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) unsent: Unsent,
    pub(crate) journal: Journal,
    /// The directory in which a name was removed last.
    pub(crate) removed_in: Mutex<Option<Fid>>,
    /// Changes that an earlier process has made, and of which the volume was not found yet.
    pub(crate) left: Mutex<LeftLines>,
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
    /// Whether the cache waits for a server that does not answer.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.client.waiting().is_some()
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

    /// A user of this machine as cells are to see him now.
    pub(crate) async fn user(&self, uid: u32) -> Arc<User> {
        self.0.users.user(uid).await
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
    /// One that knows nothing yet. It hears of broken promises from now on.
    pub(crate) fn new(
        client: Client,
        config: CacheConfig,
        storage: Arc<dyn Storage>,
        (journal, left): (Journal, LeftChanges),
    ) -> Self {
        let vnodes = Arc::new(Vnodes::new(config.files));
        let (invalidations, _) = broadcast::channel(INVALIDATIONS);
        let breaks = Breaks::new(Arc::clone(&vnodes), invalidations);
        let breaks = Arc::new(breaks);
        let leases = Arc::new(Leases::default());
        let told = Arc::new(Told {
            leases: Arc::clone(&leases),
            breaks: Arc::clone(&breaks),
        });
        // Before any server is asked: from its first answer on it may break what it promised.
        client.callbacks().set_handler(Arc::clone(&told) as _);
        client.callbacks().set_recall_handler(told);
        let users = Arc::new(UserTable::new(&client, config.users.clone()));
        let owners = OwnerTable::new(config.owners.clone());
        let store_behind = AtomicU64::new(config.store_behind);
        let conflicts = Arc::new(Conflicts::new(&config.dir));
        Self {
            client,
            users,
            owners,
            pages: Pages::new(config.directories),
            walks: Walks::default(),
            following: Following::default(),
            prefetched: Prefetched::default(),
            asked_names: Rows::default(),
            read_files: Rows::default(),
            prefetching: Arc::new(Semaphore::new(PREFETCHED_AT_ONCE)),
            config,
            storage,
            conflicts,
            vnodes,
            inodes: Inodes::default(),
            breaks,
            leases,
            unsent: Unsent::default(),
            journal,
            removed_in: Mutex::default(),
            left: Mutex::new(lines(left)),
            mounts: Mounts::default(),
            handles: Handles::default(),
            begun: SystemTime::now(),
            volumes: Mutex::default(),
            behind: Semaphore::new(BEHIND),
            store_behind,
            said: Said::default(),
            dirty: Mutex::default(),
        }
    }

    /// Keeps a file in memory until what was written to it is stored.
    pub(crate) fn keep_dirty(&self, vnode: &Arc<Vnode>) {
        let mut dirty = self.lock_dirty();
        let entry = dirty.entry(vnode.key());
        entry.or_insert_with(|| Arc::clone(vnode));
    }

    pub(crate) fn lock_volumes(&self) -> MutexGuard<'_, BTreeMap<(VolumeId, CellName), UnixTime>> {
        self.volumes.lock()
    }

    fn lock_dirty(&self) -> MutexGuard<'_, BTreeMap<FileKey, Arc<Vnode>>> {
        self.dirty.lock()
    }

    /// Files with something written that is not stored.
    pub(crate) fn all_dirty(&self) -> Vec<Arc<Vnode>> {
        self.lock_dirty().values().cloned().collect()
    }
}
