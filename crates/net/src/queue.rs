//! A queue of the system's that was full when something was to be sent.

use std::time::{Duration, Instant};

/// How long to wait while it is: nothing tells when it is not any more.
const PAUSE: Duration = Duration::from_micros(200);

/// What a socket knows of such a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// How long the same datagrams are tried. Some devices say of a datagram that is too large for them that their
    /// queue is full, and some receivers never read; those behind it are not to wait for it for ever.
    patience: Duration,
    is_full: bool,
    /// Since when it has been, for what is to be sent.
    since: Option<Instant>,
}

impl Queue {
    pub(crate) const fn new(patience: Duration) -> Self {
        Self {
            patience,
            is_full: false,
            since: None,
        }
    }

    /// It is full. Says whether it has been for so long that what is to be sent counts as lost.
    pub(crate) fn found_full(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.is_full = since.elapsed() <= self.patience;
        if !self.is_full {
            self.since = None;
        }
        !self.is_full
    }

    /// What was to be sent is gone.
    pub(crate) fn passed(&mut self) {
        self.since = None;
    }

    /// Whether it was full last; says so once.
    pub(crate) fn take_full(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    /// How long a socket whose queue is full sleeps.
    pub(crate) fn pause(timeout: Option<Duration>) -> Duration {
        timeout.map_or(PAUSE, |timeout| timeout.min(PAUSE))
    }
}
