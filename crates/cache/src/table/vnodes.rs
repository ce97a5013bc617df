//! The vnodes in memory: those in use, and those used lately.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeBounds;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use afar_cell::Volume;
use afar_types::{Fid, VolumeId};
use parking_lot::{Mutex, MutexGuard};

use crate::model::vnode::Vnode;

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
    /// By fid.
    all: BTreeMap<Fid, Weak<Vnode>>,
    /// Those whose fid another has as well, as cells may have fids in common.
    others: BTreeMap<Fid, Vec<Weak<Vnode>>>,
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
        self.state.lock()
    }

    /// The vnode of a fid in a volume, a new one if nothing was known.
    pub(crate) fn of(&self, volume: &Arc<Volume>, fid: Fid) -> Arc<Vnode> {
        let mut state = self.lock();
        let mut known = state.of(fid..=fid);
        if let Some(known) = known.find(|known| known.cell() == volume.cell_name()) {
            known.used.store(true, Ordering::Relaxed);
            return known;
        }
        drop(known);
        let vnode = Arc::new(Vnode::new(Arc::clone(volume), fid));
        let first = state.all.entry(fid).or_default();
        if first.strong_count() == 0 {
            *first = Arc::downgrade(&vnode);
        } else {
            let others = state.others.entry(fid).or_default();
            others.push(Arc::downgrade(&vnode));
        }
        state.kept.push_back(Arc::clone(&vnode));
        let dropped = state.shrink(self.limit);
        // What a vnode holds may be the last of another, which must not be dropped under the lock.
        drop(state);
        drop(dropped);
        vnode
    }

    /// Those with this fid in any cell.
    pub(crate) fn of_fid(&self, fid: Fid) -> Vec<Arc<Vnode>> {
        self.lock().of(fid..=fid).collect()
    }

    /// Those of volumes with this number in any cell.
    pub(crate) fn of_volume(&self, volume: VolumeId) -> Vec<Arc<Vnode>> {
        let range = Fid::new(volume.0, 0, 0)..=Fid::new(volume.0, u32::MAX, u32::MAX);
        self.lock().of(range).collect()
    }

    /// How many are kept.
    pub(crate) fn count(&self) -> usize {
        self.lock().kept.len()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Vnode>> {
        self.lock().of(..).collect()
    }
}

impl State {
    fn of(&self, fids: impl RangeBounds<Fid> + Clone) -> impl Iterator<Item = Arc<Vnode>> + '_ {
        let others = self.others.range(fids.clone());
        let others = others.flat_map(|(_, vnodes)| vnodes);
        let all = self.all.range(fids).map(|(_, vnode)| vnode);
        all.chain(others).filter_map(Weak::upgrade)
    }

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
            self.all.retain(|_, vnode| vnode.strong_count() > 0);
            self.others.retain(|_, vnodes| {
                vnodes.retain(|vnode| vnode.strong_count() > 0);
                !vnodes.is_empty()
            });
            // So that clearing, which goes through all of them, costs each new one a constant.
            self.clear_at = 2 * self.all.len();
        }
        debug_assert!(self.kept.len() <= limit, "{} are kept", self.kept.len());
        dropped
    }
}
