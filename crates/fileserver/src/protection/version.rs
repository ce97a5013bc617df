//! Whether anything has changed in the database of users and groups.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use afar_types::{UbikState, UbikVersion, UnixTime};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::servers::{PATIENCE, REST, Servers};

/// How often a server elsewhere is asked: so that a change counts within a second.
const EVERY: Duration = Duration::from_millis(500);
/// How long a caller waits for that; the last version known stands in.
const WAIT: Duration = Duration::from_millis(250);

/// The number of the last change of the database in this process; `None` if it cannot be read.
pub type LastChange = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// A version of the database: answers of one version stay what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Of the database in this process.
    Here(u64),
    /// Of that of a server elsewhere.
    Told {
        server: usize,
        started: UnixTime,
        version: UbikVersion,
    },
}

impl Version {
    /// What the server with this number says.
    pub(super) fn told(server: usize, state: &UbikState) -> Self {
        Self::Told {
            server,
            started: state.started,
            version: state.local_version,
        }
    }
}

/// Knows the version there is now.
#[derive(Default)]
pub(super) struct Watch {
    here: Option<LastChange>,
    seen: Arc<Mutex<Seen>>,
}

/// What a server said.
#[derive(Debug, Default)]
struct Seen {
    version: Option<Version>,
    /// When to ask next.
    next: Option<Instant>,
}

impl Watch {
    pub(super) fn here(last_change: LastChange) -> Self {
        Self {
            here: Some(last_change),
            ..Self::default()
        }
    }

    /// The version, if it is known.
    pub(super) async fn version(&self, servers: &Arc<Servers>) -> Option<Version> {
        if let Some(last_change) = &self.here {
            return last_change().map(Version::Here);
        }
        if servers.is_empty() {
            return None;
        }
        {
            let (mut seen, now) = (self.seen.lock(), Instant::now());
            if seen.next.is_some_and(|next| now < next) {
                return seen.version;
            }
            // Nobody else asks meanwhile.
            seen.next = Some(now + PATIENCE + EVERY);
        }
        let (servers, seen) = (Arc::clone(servers), Arc::clone(&self.seen));
        // Goes on without a caller that does not wait for it.
        let asked = tokio::spawn(async move {
            let version = servers.version().await;
            let pause = if version.is_some() { EVERY } else { REST };
            *seen.lock() = Seen {
                version,
                next: Some(Instant::now() + pause),
            };
            version
        });
        match timeout(WAIT, asked).await {
            Ok(Ok(version)) => version,
            _ => self.seen.lock().version,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
