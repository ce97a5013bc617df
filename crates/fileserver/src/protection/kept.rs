//! Answers of protection servers.

use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::version::Version;
use super::{KEPT, Unanswered};

/// How long an answer holds of which no server tells whether it is still right.
const UNTOLD_LIFE: Duration = Duration::from_secs(10);

/// What somebody answered, when, and of which version of the database.
#[derive(Debug, Clone)]
struct Answer<V> {
    value: V,
    since: Instant,
    version: Option<Version>,
}

impl<V> Answer<V> {
    fn holds(&self, version: Option<Version>) -> bool {
        self.version == version && (version.is_some() || self.since.elapsed() < UNTOLD_LIFE)
    }
}

type Slot<V> = Arc<tokio::sync::Mutex<Option<Answer<V>>>>;

/// Answers that hold for a while. Of several callers that want the same one, one asks and the others wait.
pub(super) struct Kept<K, V> {
    slots: Cache<K, Slot<V>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Default for Kept<K, V> {
    fn default() -> Self {
        Self {
            slots: Cache::new(KEPT),
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Kept<K, V> {
    /// The kept answer if it is of the version there is now, else a new one, else an old one.
    pub(super) async fn get(
        &self,
        key: K,
        version: Option<Version>,
        ask: impl Future<Output = Result<V, Unanswered>>,
    ) -> Result<V, Unanswered> {
        let made = self
            .slots
            .get_or_insert_with(&key, || Ok::<_, Infallible>(Slot::default()));
        let Ok(slot) = made;
        let mut slot = slot.lock().await;
        match &*slot {
            Some(answer) if answer.holds(version) => return Ok(answer.value.clone()),
            _ => {}
        }
        match ask.await {
            Ok(value) => {
                *slot = Some(Answer {
                    value: value.clone(),
                    since: Instant::now(),
                    version,
                });
                Ok(value)
            }
            Err(unanswered) => slot
                .as_ref()
                .map(|answer| answer.value.clone())
                .ok_or(unanswered),
        }
    }

    pub(super) fn forget(&self, key: &K) {
        self.slots.remove(key);
    }
}
