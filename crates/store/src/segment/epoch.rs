//! When nobody can hold an extent any more that was taken out of the metadata.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// A clock that readers hold back. A reader that looks up an extent and reads it
/// holds a guard from before the look-up; a thread that frees an extent commits its
/// removal, [advances](Self::advance), and touches the space once that epoch
/// has [passed](Self::passed). Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Epochs {
    state: Arc<Mutex<State>>,
}

/// A point in the life of a partition, greater than all before it. Good only
/// for the [`Epochs`] that gave it, and not for the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// While it lives, nothing is reclaimed that could be found when it was made.
/// A send from a segment's file keeps one until the last byte has gone.
#[derive(Debug)]
#[must_use = "an epoch is held only as long as its guard"]
pub struct EpochGuard {
    state: Arc<Mutex<State>>,
    epoch: u64,
}

#[derive(Debug, Default)]
struct State {
    current: u64,
    /// Epochs with their number of guards, in rising order. The front one has
    /// guards, or it is the only one.
    held: VecDeque<(u64, usize)>,
}

impl Epochs {
    /// A clock without guards.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds the present epoch. Takes some tens of nanoseconds.
    pub fn enter(&self) -> EpochGuard {
        let mut state = self.state.lock();
        let epoch = state.current;
        match state.held.back_mut() {
            Some((last, guards)) if *last == epoch => *guards += 1,
            _ => state.held.push_back((epoch, 1)),
        }
        EpochGuard {
            state: Arc::clone(&self.state),
            epoch,
        }
    }

    /// Begins the next epoch and returns it: guards made before hold earlier
    /// ones.
    pub fn advance(&self) -> Epoch {
        let mut state = self.state.lock();
        state.current += 1;
        Epoch(state.current)
    }

    /// Whether every guard made before that [`advance`](Self::advance) is gone.
    pub fn passed(&self, epoch: Epoch) -> bool {
        let state = self.state.lock();
        let oldest = state.held.iter().find(|(_, guards)| *guards > 0);
        oldest.is_none_or(|&(oldest, _)| oldest >= epoch.0)
    }
}

impl Drop for EpochGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Ok(at) = state
            .held
            .binary_search_by_key(&self.epoch, |&(epoch, _)| epoch)
        {
            state.held[at].1 -= 1;
        }
        while state.held.len() > 1 && state.held.front().is_some_and(|&(_, guards)| guards == 0) {
            state.held.pop_front();
        }
    }
}
