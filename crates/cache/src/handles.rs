//! Open files and directories.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::data::Ahead;
use crate::error::Errno;
use crate::inodes::{Inode, Spot};
use crate::types::{Handle, OpenFlags};

/// Files and directories open at a time.
const OPEN_MOST: usize = 1 << 20;

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
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) spot: Spot,
    pub(crate) flags: OpenFlags,
    /// The user of this machine who opened it. It is read and written as him, whoever does it.
    pub(crate) opener: u32,
    pub(crate) ahead: Mutex<Ahead>,
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, open: Open) -> Result<Handle, Errno> {
        let mut state = self.lock();
        if state.open.len() >= OPEN_MOST {
            return Err(Errno::ENFILE);
        }
        state.last += 1;
        let handle = Handle(state.last);
        state.open.insert(handle, open);
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
