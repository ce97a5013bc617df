//! Things that are dear to make and are used for a moment.

use parking_lot::Mutex;

/// Keeps what was used for the next who needs one. A thread-local would keep
/// one for every thread that ever read, and a server may have hundreds.
pub(super) struct Pool<T> {
    idle: Mutex<Vec<T>>,
}

/// More than this many are not kept.
const KEPT: usize = 32;

impl<T> Pool<T> {
    pub(super) const fn new() -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
        }
    }

    /// One that was used before, if any is idle.
    pub(super) fn take(&self) -> Option<T> {
        self.idle.lock().pop()
    }

    /// Gives one back.
    pub(super) fn put(&self, item: T) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(item);
        }
    }
}
