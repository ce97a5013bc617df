//! How far a transfer has come, as plain events.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_cell::Client;
use tokio::time::MissedTickBehavior;

/// How often it is told for how long the client has waited.
const EVERY: Duration = Duration::from_millis(200);

/// Is told how far a transfer has come, from any of its tasks: it must be quick.
pub trait Progress: fmt::Debug + Send + Sync + 'static {
    /// Something has happened.
    fn tell(&self, event: Event<'_>);

    /// A name in DEST was changed, or would be in a dry run; the path is that below SOURCE and DEST, or the name of a
    /// single file.
    ///
    /// # Errors
    /// The change cannot be told to anybody any more; then the name counts as failed.
    fn changed(&self, change: Change, path: &[u8]) -> io::Result<()> {
        let (_change, _path) = (change, path);
        Ok(())
    }
}

/// Tells nobody.
impl Progress for () {
    fn tell(&self, _event: Event<'_>) {}
}

/// Something that happens in a transfer.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A file is being copied.
    Begun {
        /// Counted from 1.
        number: u64,
        /// Its path, as it is told to users.
        path: &'a [u8],
    },
    /// This file is no longer being copied, whether it is complete or not.
    Ended {
        /// As it began.
        number: u64,
    },
    /// So many names wait to be begun.
    Queued(u64),
    /// So many bytes more will be copied.
    Expected(u64),
    /// So many bytes more are there.
    Copied(u64),
    /// So many bytes of those are void, and come again.
    Void(u64),
    /// For so long the client has waited for a server that does not answer; `None` if all answer.
    Waiting(Option<Duration>),
    /// Something that no later run goes on with could not be removed.
    LeftBehind {
        /// Where it is.
        path: &'a Path,
        /// Whether it has the name of the copy itself, and is not complete.
        incomplete: bool,
        /// Why it could not be removed.
        error: &'a (dyn std::error::Error + 'static),
    },
}

/// A change of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A file is copied.
    Copy,
    /// A symlink is made.
    Link,
    /// A directory is made.
    Make,
    /// Mode or time of a file whose contents are the same is set.
    Set,
    /// Something is removed, with all below it.
    Delete,
}

impl Change {
    /// One word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Link => "link",
            Self::Make => "make",
            Self::Set => "set",
            Self::Delete => "delete",
        }
    }
}

/// Tells of one transfer, and counts its files.
#[derive(Debug)]
pub(crate) struct Meter {
    progress: Arc<dyn Progress>,
    begun: AtomicU64,
}

/// A file that is being copied, until this is dropped.
#[derive(Debug)]
pub(crate) struct Current<'a> {
    meter: &'a Meter,
    number: u64,
}

impl Meter {
    pub(crate) fn new(progress: Arc<dyn Progress>) -> Self {
        Self {
            progress,
            begun: AtomicU64::new(0),
        }
    }

    pub(crate) fn tell(&self, event: Event<'_>) {
        self.progress.tell(event);
    }

    /// This file is being copied now.
    pub(crate) fn file(&self, path: &[u8]) -> Current<'_> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.tell(Event::Begun { number, path });
        Current {
            meter: self,
            number,
        }
    }

    /// Another file of this length will be copied.
    pub(crate) fn expect(&self, bytes: u64) {
        self.tell(Event::Expected(bytes));
    }

    /// So much was written.
    pub(crate) fn advance(&self, bytes: u64) {
        self.tell(Event::Copied(bytes));
    }

    /// What was written is void, and comes again.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.tell(Event::Void(bytes));
    }

    /// A name was changed.
    pub(crate) fn changed(&self, change: Change, path: &[u8]) -> io::Result<()> {
        self.progress.changed(change, path)
    }

    /// Does some work, and tells meanwhile for how long the client waits for servers.
    pub(crate) async fn watch<T>(&self, client: &Client, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = ticks.tick() => self.tell(Event::Waiting(client.waiting())),
            }
        }
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.meter.tell(Event::Ended { number });
    }
}
