//! Open files and directories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::model::ahead::Ahead;
use crate::model::error::Errno;
use crate::model::place::{Inode, Spot};
use crate::model::types::{Handle, OpenFlags};

/// Files and directories open at a time.
const OPEN_MOST: usize = 1 << 20;
/// Owners of locks that are remembered of an open file.
const LOCKERS_MOST: usize = 64;

/// What a handle stands for.
#[derive(Debug, Clone)]
pub(crate) enum Open {
    /// The list of cells, as it was then.
    Cells(Arc<Vec<Vec<u8>>>),
    /// A directory, as it was then.
    Directory(Arc<OpenDirectory>),
    /// A file.
    File(Arc<OpenFile>),
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) inode: Inode,
    pub(crate) spot: Spot,
    pub(crate) pages: Arc<Vec<u8>>,
    /// The user of this machine who opened it.
    pub(crate) opener: u32,
    /// A server told that others read it here: what they looked up in it has come, too.
    pub(crate) told: bool,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) spot: Spot,
    pub(crate) flags: OpenFlags,
    /// The user of this machine who opened it. It is read and written as that user, whichever process does it.
    pub(crate) opener: u32,
    pub(crate) ahead: Mutex<Ahead>,
    /// Owners of locks that were asked for through this.
    lockers: Mutex<BTreeSet<u64>>,
}

impl OpenFile {
    pub(crate) fn new(spot: Spot, flags: OpenFlags, opener: u32) -> Self {
        Self {
            spot,
            flags,
            opener,
            ahead: Mutex::default(),
            lockers: Mutex::default(),
        }
    }

    fn lock_lockers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.lockers.lock()
    }

    /// An owner of locks asks for one through this.
    pub(crate) fn note_locker(&self, owner: u64) {
        let mut lockers = self.lock_lockers();
        if lockers.len() >= LOCKERS_MOST {
            // Processes that inherited it, most of them gone: the kernel says when these close it.
            lockers.pop_first();
        }
        lockers.insert(owner);
    }

    /// Those that did, which have no lock any more when this is closed. A kernel does not say so of locks that
    /// belong to an open file (F_OFD_SETLK).
    pub(crate) fn take_lockers(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.lock_lockers())
    }
}

/// All handles.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Handle, Open>,
    last: u64,
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(crate) fn add(&self, open: Open) -> Result<Handle, Errno> {
        let mut state = self.lock();
        if state.open.len() >= OPEN_MOST {
            return Err(Errno::ENFILE);
        }
        // Never the same again: a request that comes late must not find another's file.
        state.last += 1;
        let handle = Handle(state.last);
        let before = state.open.insert(handle, open);
        debug_assert!(before.is_none(), "{handle:?} is in use");
        Ok(handle)
    }

    pub(crate) fn find(&self, handle: Handle) -> Result<Open, Errno> {
        let state = self.lock();
        state.open.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    pub(crate) fn file(&self, handle: Handle) -> Result<Arc<OpenFile>, Errno> {
        match self.find(handle)? {
            Open::File(file) => Ok(file),
            _ => Err(Errno::EBADF),
        }
    }

    pub(crate) fn remove(&self, handle: Handle) -> Option<Open> {
        self.lock().open.remove(&handle)
    }
}
