//! One event is one line in the log, though every file of a volume or server meets it.

use std::collections::BTreeMap;
use std::time::Duration;

use afar_cell::Error;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an event is not told again.
const AGAIN: Duration = Duration::from_secs(60);
/// Events remembered.
const EVENTS_MOST: usize = 256;

/// What was told a short while ago.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<BTreeMap<String, Instant>>);

impl Said {
    /// Whether this is to be told: it is of one file, or an event that was not told yet.
    pub(crate) fn is_news(&self, error: &Error) -> bool {
        let Some(event) = error.event() else {
            return true;
        };
        let mut said = self.0.lock();
        said.retain(|_, since| since.elapsed() < AGAIN);
        if said.len() >= EVENTS_MOST {
            said.clear();
        }
        said.insert(event, Instant::now()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_all_files_meet_is_told_once() {
        let said = Said::default();
        let unknown = |cell: &str| Error::NoToken {
            cell: cell.parse().unwrap(),
            problem: "none".to_owned(),
        };
        let news: Vec<_> = (0..77)
            .filter(|_| said.is_news(&unknown("a.org")))
            .collect();
        assert_eq!(news.len(), 1);
        assert!(said.is_news(&unknown("b.org")));
        assert!(
            said.is_news(&Error::Gone) && said.is_news(&Error::Gone),
            "of one file each"
        );
        tokio::time::advance(AGAIN).await;
        assert!(said.is_news(&unknown("a.org")));
        for number in 0..1000 {
            said.is_news(&unknown(&format!("c{number}.org")));
        }
        assert!(said.0.lock().len() <= EVENTS_MOST);
    }
}
