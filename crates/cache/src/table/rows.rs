//! Entries of directories that are used one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use afar_types::Fid;
use parking_lot::Mutex;

use crate::model::vnode::Vnode;

/// Directories in which programs may be at the same time: one has a directory at each level of a tree.
const ROWS: usize = 32;

/// Which entry of a directory was used last.
#[derive(Debug, Default)]
pub(crate) struct Rows(Mutex<VecDeque<(Weak<Vnode>, Fid)>>);

impl Rows {
    /// An entry of a directory is used. Returns the one before it, if there is one of late.
    pub(crate) fn note(&self, directory: &Arc<Vnode>, fid: Fid) -> Option<Fid> {
        let mut rows = self.0.lock();
        let is_it = |(of, _): &(Weak<Vnode>, Fid)| of.as_ptr() == Arc::as_ptr(directory);
        let place = rows.iter().position(is_it);
        let before = place.and_then(|place| rows.remove(place));
        rows.push_front((Arc::downgrade(directory), fid));
        rows.truncate(ROWS);
        before.map(|(_, last)| last).filter(|last| *last != fid)
    }

    /// Whether this was the last one used in the directory it is in.
    pub(crate) fn is_last(&self, vnode: &Vnode) -> bool {
        let rows = self.0.lock();
        rows.iter().any(|(_, last)| *last == vnode.fid)
    }
}
