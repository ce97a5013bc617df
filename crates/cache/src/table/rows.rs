//! Entries of directories that are used one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use afar_types::Fid;
use parking_lot::Mutex;

use crate::model::vnode::Vnode;

/// Directories in which programs may be at the same time: one has a directory at each level of a tree.
const ROWS: usize = 32;

/// Which entries of directories were used last.
#[derive(Debug, Default)]
pub(crate) struct Rows(Mutex<VecDeque<Row>>);

#[derive(Debug)]
struct Row {
    directory: Weak<Vnode>,
    last: Fid,
    before: Option<Fid>,
}

/// What was used in a directory ahead of an entry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    /// The entry before it.
    pub(crate) last: Option<Fid>,
    /// And the one before that.
    pub(crate) before: Option<Fid>,
}

impl Ahead {
    /// All of them, and this one, in order.
    pub(crate) fn up_to(self, now: Fid) -> Vec<Fid> {
        let used = [self.before, self.last, Some(now)];
        used.into_iter().flatten().collect()
    }
}

impl Rows {
    /// An entry of a directory is used. Returns those before it, if there are some of late.
    pub(crate) fn note(&self, directory: &Arc<Vnode>, fid: Fid) -> Ahead {
        let mut rows = self.0.lock();
        let is_it = |row: &Row| row.directory.as_ptr() == Arc::as_ptr(directory);
        let place = rows.iter().position(is_it);
        let known = place.and_then(|place| rows.remove(place));
        let ahead = match &known {
            // It is used once more.
            Some(row) if row.last == fid => Ahead::default(),
            Some(row) => Ahead {
                last: Some(row.last),
                before: row.before,
            },
            None => Ahead::default(),
        };
        rows.push_front(known.filter(|row| row.last == fid).unwrap_or(Row {
            directory: Arc::downgrade(directory),
            last: fid,
            before: ahead.last,
        }));
        rows.truncate(ROWS);
        ahead
    }

    /// Whether this was the last one used in the directory it is in.
    pub(crate) fn is_last(&self, vnode: &Vnode) -> bool {
        let rows = self.0.lock();
        rows.iter().any(|row| row.last == vnode.fid)
    }
}
