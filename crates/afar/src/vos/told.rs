//! What verbs tell while they work, on the terminal.

use afar_admin::vos::{Event, Watch};
use parking_lot::Mutex;

use crate::store::progress::Progress;

use super::{err, out};

/// Prints what verbs tell; a dump's progress is a bar, if standard error is a terminal.
pub(super) struct Told {
    verbose: bool,
    progress: Mutex<Option<(Progress, u64)>>,
}

impl Told {
    pub(super) fn new(verbose: bool) -> Self {
        Self {
            verbose,
            progress: Mutex::default(),
        }
    }

    /// A dump begins, of so many bytes if that is known.
    pub(super) fn begin(&self, bytes: Option<u64>) {
        let bar = match bytes {
            Some(bytes) => Progress::of_octets(bytes),
            None => Progress::of_unknown(),
        };
        *self.lock() = Some((bar, 0));
    }

    /// It is over.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<(Progress, u64)>> {
        self.progress.lock()
    }
}

impl Watch for Told {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Step(text) if self.verbose => out!("{text}"),
            Event::StepAside(text) if self.verbose => err!("{text}"),
            Event::Said(text) => out!("{text}"),
            Event::Complaint(text) => err!("{text}"),
            Event::Moved(bytes) => {
                if let Some((bar, moved)) = &mut *self.lock() {
                    *moved += bytes;
                    bar.set(*moved);
                }
            }
            _ => {}
        }
    }
}
