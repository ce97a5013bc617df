//! Numbers of what the kernel knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afar_types::DataVersion;

use crate::mount::Mount;
use crate::storage::FileKey;
use crate::types::Ino;
use crate::vnode::Vnode;

/// Names of one directory that the kernel is told to forget one by one.
const NAMES_MOST: usize = 65_536;

/// What a number stands for.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The list of cells.
    Cells,
    /// Something in a volume.
    Vnode(Spot),
}

/// A vnode as it is reached through one mount point.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    pub(crate) mount: Arc<Mount>,
    pub(crate) vnode: Arc<Vnode>,
}

/// A number and what it stands for.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) place: Place,
    /// Names in it that the kernel may know, if it is a directory.
    names: Mutex<BTreeSet<Vec<u8>>>,
    /// The version of a file that was opened last: what the kernel keeps is of this one or older.
    opened: AtomicU64,
}

/// All numbers given out and not taken back.
#[derive(Debug, Default)]
pub(crate) struct Inodes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_number: BTreeMap<Ino, (Arc<Inode>, u64)>,
    /// By mount and vnode.
    by_place: BTreeMap<FileKey, Vec<(u64, Ino)>>,
    last: u64,
}

impl Inode {
    fn new(ino: Ino, place: Place) -> Arc<Self> {
        Arc::new(Self {
            ino,
            place,
            names: Mutex::default(),
            opened: AtomicU64::new(u64::MAX),
        })
    }

    /// This version of it is opened. Returns whether it was this one the last time.
    pub(crate) fn note_opened(&self, version: DataVersion) -> bool {
        self.opened.swap(version.0, Ordering::SeqCst) == version.0
    }

    /// What was written here made a new version of an old one: the kernel has it.
    pub(crate) fn note_stored(&self, old: DataVersion, new: DataVersion) {
        let (kept, order) = (&self.opened, Ordering::SeqCst);
        // It may have been another one.
        let _other = kept.compare_exchange(old.0, new.0, order, order);
    }

    /// The kernel knows this name in it now.
    pub(crate) fn note_name(&self, name: &[u8]) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < NAMES_MOST {
            names.insert(name.to_vec());
        }
    }

    /// Whether the kernel can be told to forget every name it knows.
    pub(crate) fn has_room(&self) -> bool {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.len() < NAMES_MOST
    }

    /// The names the kernel may know; it is told to forget them.
    pub(crate) fn take_names(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inodes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the top directory is, once. It is never forgotten.
    pub(crate) fn set_root(&self, place: Place) {
        let mut state = self.lock();
        state.last = Ino::ROOT.0;
        if let Place::Vnode(spot) = &place {
            let known = (spot.mount.id, Ino::ROOT);
            state.by_place.insert(spot.vnode.key.clone(), vec![known]);
        }
        let inode = Inode::new(Ino::ROOT, place);
        state.by_number.insert(Ino::ROOT, (inode, 1));
    }

    /// What a number stands for.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        let state = self.lock();
        state
            .by_number
            .get(&ino)
            .map(|(inode, _)| Arc::clone(inode))
    }

    /// The number of a place, given out once more.
    pub(crate) fn give(&self, spot: &Spot) -> Arc<Inode> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let known = state.by_place.entry(spot.vnode.key.clone()).or_default();
        let number = known.iter().find(|(mount, _)| *mount == spot.mount.id);
        if let Some((_, ino)) = number
            && let Some((inode, count)) = state.by_number.get_mut(ino)
        {
            *count += 1;
            return Arc::clone(inode);
        }
        state.last += 1;
        let ino = Ino(state.last);
        known.push((spot.mount.id, ino));
        let inode = Inode::new(ino, Place::Vnode(spot.clone()));
        state.by_number.insert(ino, (Arc::clone(&inode), 1));
        inode
    }

    /// The number of a place, if it has one.
    pub(crate) fn number_of(&self, mount: &Mount, key: &FileKey) -> Option<Ino> {
        let state = self.lock();
        let known = state.by_place.get(key)?;
        let found = known.iter().find(|(of, _)| *of == mount.id);
        found.map(|(_, ino)| *ino)
    }

    /// The numbers by which a vnode is known.
    pub(crate) fn of_vnode(&self, vnode: &Vnode) -> Vec<Arc<Inode>> {
        let state = self.lock();
        let known = state.by_place.get(&vnode.key).into_iter().flatten();
        let inodes = known.filter_map(|(_, ino)| state.by_number.get(ino));
        inodes.map(|(inode, _)| Arc::clone(inode)).collect()
    }

    /// Takes back that a number was given out so many times.
    pub(crate) fn forget(&self, ino: Ino, times: u64) {
        if ino == Ino::ROOT {
            return;
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some((inode, count)) = state.by_number.get_mut(&ino) else {
            return;
        };
        *count = count.saturating_sub(times);
        if *count > 0 {
            return;
        }
        if let Place::Vnode(spot) = &inode.place
            && let Some(known) = state.by_place.get_mut(&spot.vnode.key)
        {
            known.retain(|(_, other)| *other != ino);
            if known.is_empty() {
                state.by_place.remove(&spot.vnode.key);
            }
        }
        let forgotten = state.by_number.remove(&ino);
        // The last of a vnode or mount must not be dropped under the lock.
        drop(guard);
        drop(forgotten);
    }
}
