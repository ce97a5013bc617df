//! Since when something is so.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// When something was last so.
#[derive(Debug, Default)]
pub(crate) struct Lately(Mutex<Option<Instant>>);

impl Lately {
    /// It is so now. Says whether it ever was, unless that is forgotten.
    pub(crate) fn note(&self) -> bool {
        self.lock().replace(Instant::now()).is_some()
    }

    /// It is so now, if it was not. Says whether it was not.
    pub(crate) fn note_first(&self) -> bool {
        let mut since = self.lock();
        let first = since.is_none();
        since.get_or_insert_with(Instant::now);
        first
    }

    /// It is no longer so. Says for how long it was.
    pub(crate) fn take(&self) -> Option<Duration> {
        self.lock().take().map(|since| since.elapsed())
    }

    /// It is no longer so. Says whether it was.
    pub(crate) fn forget(&self) -> bool {
        self.lock().take().is_some()
    }

    /// For how long it has been so.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.lock().map(|since| since.elapsed())
    }

    /// Whether it was so within this time.
    pub(crate) fn within(&self, time: Duration) -> bool {
        self.lock().is_some_and(|since| since.elapsed() < time)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock()
    }
}
