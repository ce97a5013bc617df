//! The vnodes in memory: those in use, and those used lately.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use afar_cell::Volume;
use afar_types::{Fid, VolumeId};

use crate::storage::FileKey;
use crate::vnode::Vnode;

/// Vnodes that may be in use beside those kept before the table is cleared of dead ones.
const SLACK: usize = 1024;

/// All vnodes. A file has one as long as anybody uses it, and never two.
#[derive(Debug)]
pub(crate) struct Vnodes {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By fid; there is more than one if cells have fids in common.
    all: BTreeMap<Fid, Vec<Weak<Vnode>>>,
    /// Those kept though nobody uses them, in a clock's order.
    kept: VecDeque<Arc<Vnode>>,
    /// Size of `all` at which it is cleared next.
    clear_at: usize,
}

impl Vnodes {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(16),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The vnode of a fid in a volume, a new one if nothing was known.
    pub(crate) fn of(&self, volume: &Arc<Volume>, fid: Fid) -> Arc<Vnode> {
        let mut state = self.lock();
        let known = state.all.get(&fid).into_iter().flatten();
        let mut known = known.filter_map(Weak::upgrade);
        if let Some(known) = known.find(|known| known.key.cell == *volume.cell_name()) {
            known.used.store(true, Ordering::Relaxed);
            return known;
        }
        let key = FileKey {
            fid,
            cell: volume.cell_name().clone(),
        };
        let vnode = Arc::new(Vnode::new(key, Arc::clone(volume)));
        state
            .all
            .entry(fid)
            .or_default()
            .push(Arc::downgrade(&vnode));
        state.kept.push_back(Arc::clone(&vnode));
        let dropped = state.shrink(self.limit);
        // What a vnode holds may be the last of another, which must not be dropped under the lock.
        drop(state);
        drop(dropped);
        vnode
    }

    /// Those with this fid in any cell.
    pub(crate) fn of_fid(&self, fid: Fid) -> Vec<Arc<Vnode>> {
        let state = self.lock();
        let found = state.all.get(&fid).into_iter().flatten();
        found.filter_map(Weak::upgrade).collect()
    }

    /// Those of volumes with this number in any cell.
    pub(crate) fn of_volume(&self, volume: VolumeId) -> Vec<Arc<Vnode>> {
        let state = self.lock();
        let range = Fid::new(volume.0, 0, 0)..=Fid::new(volume.0, u32::MAX, u32::MAX);
        let found = state.all.range(range).flat_map(|(_, vnodes)| vnodes);
        found.filter_map(Weak::upgrade).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Vnode>> {
        let state = self.lock();
        let all = state.all.values().flatten();
        all.filter_map(Weak::upgrade).collect()
    }
}

impl State {
    /// Keeps no more than so many: those used since they were looked at last stay. Returns the others.
    fn shrink(&mut self, limit: usize) -> Vec<Arc<Vnode>> {
        let mut dropped = Vec::new();
        while self.kept.len() > limit {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            if oldest.used.swap(false, Ordering::Relaxed) && self.kept.len() > limit / 2 {
                self.kept.push_back(oldest);
                // One that was just given a second chance makes room for the next in line.
                if let Some(next) = self.kept.pop_front() {
                    dropped.push(next);
                }
            } else {
                dropped.push(oldest);
            }
        }
        if self.all.len() > self.clear_at.max(limit + SLACK) {
            self.all.retain(|_, vnodes| {
                vnodes.retain(|vnode| vnode.strong_count() > 0);
                !vnodes.is_empty()
            });
            self.clear_at = 2 * self.all.len();
        }
        dropped
    }
}
