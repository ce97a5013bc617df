//! Generations that are kept although no volume shows them, as long as somebody reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::key::At;

/// The generations being held. It is kept in memory only: what is held is to be reaped by rows
/// that say so already, and the end of the process lets go.
#[derive(Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<BTreeMap<At, u32>>>);

/// Keeps a generation of a tree as it is.
pub(crate) struct Hold {
    holds: Holds,
    at: At,
}

impl Holds {
    /// Holds a generation.
    pub(crate) fn hold(&self, at: At) -> Hold {
        *self.0.lock().entry(at).or_default() += 1;
        Hold {
            holds: self.clone(),
            at,
        }
    }

    /// Generations of a tree that are held, in order.
    pub(crate) fn generations(&self, tree: u64) -> Vec<u32> {
        let at = |generation| At { tree, generation };
        let holds = self.0.lock();
        holds
            .range(at(0)..=at(u32::MAX))
            .map(|(at, _)| at.generation)
            .collect()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = self.holds.0.lock();
        match holds.get_mut(&self.at) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(holds.remove(&self.at)),
        }
    }
}
