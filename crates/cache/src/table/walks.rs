//! Programs that go through trees: a directory, then those in it, and what is in those.

use std::sync::{Arc, Weak};

use afar_types::Fid;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::order::Order;
use crate::model::place::Mount;
use crate::model::vnode::Vnode;
use crate::table::prefetched::WANTED;
use crate::table::rows::Rows;

/// Where a program is that goes through a tree.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) mount: Arc<Mount>,
    pub(crate) directory: Weak<Vnode>,
    /// The entry it is at; before the first one without.
    pub(crate) now: Option<Fid>,
    pub(crate) order: Order,
}

/// Programs that go through trees.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// Directories that were opened, by those they are in.
    pub(crate) opened: Rows,
    /// Directories in which files were read, by those they are in.
    pub(crate) read_in: Rows,
    /// Where the one is that opened one last, and when it did.
    at: Mutex<Option<(Position, Instant)>>,
    /// When small files were last read one after the other.
    read: Mutex<Option<Instant>>,
}

impl Walks {
    /// A program has come there.
    pub(crate) fn come(&self, to: Position) {
        *self.at.lock() = Some((to, Instant::now()));
    }

    /// Small files are read one after the other.
    pub(crate) fn reads(&self) {
        *self.read.lock() = Some(Instant::now());
    }

    /// Whether they were lately.
    pub(crate) fn reads_files(&self) -> bool {
        self.read.lock().is_some_and(|at| at.elapsed() <= WANTED)
    }

    /// Where a program is, unless it has ended or stopped there.
    pub(crate) fn position(&self) -> Option<Position> {
        let at = self.at.lock();
        let (position, since) = at.as_ref()?;
        (since.elapsed() <= WANTED).then(|| position.clone())
    }
}
