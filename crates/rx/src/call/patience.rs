//! How long a server call waits for its client.
//!
//! Not for how long a call takes, but whether it gets on: a client that brings, or takes, some bytes gains
//! time for them, and one that is silent, or does just enough to look alive, loses its call. While it is
//! the server that has something to do, no time passes.

use std::time::{Duration, Instant};

/// Bytes for which a client gets back all its time: at the usual limit of a minute, it must keep up
/// 546 bytes a second.
const FAIR: f64 = 32_768.0;

/// The time a client has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    limit: Option<Duration>,
    left: Duration,
    /// Since when the call has waited for the client in vain, and when the time is up.
    waits: Option<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    ends: Instant,
}

impl Patience {
    /// No wait yet. Without a limit, time is never up.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            left: limit.unwrap_or_default(),
            waits: None,
        }
    }

    /// It is the client's turn, or not.
    pub(crate) fn turn(&mut self, now: Instant, is_clients: bool) {
        match (self.waits, is_clients) {
            (None, true) => {
                self.waits = Some(Wait {
                    since: now,
                    ends: now + self.left,
                });
            }
            (Some(wait), false) => {
                self.left = wait.ends.saturating_duration_since(now);
                self.waits = None;
            }
            _ => {}
        }
    }

    /// The client has done something, worth so many bytes.
    pub(crate) fn gain(&mut self, now: Instant, bytes: u64) {
        let Some(limit) = self.limit else { return };
        #[expect(clippy::cast_precision_loss, reason = "the time for some bytes")]
        let part = (bytes as f64 / FAIR).min(1.0);
        let gained = limit.mul_f64(part);
        match &mut self.waits {
            Some(wait) => {
                wait.since = now;
                // A client that brings much saves up no more than the whole time, to be silent for later.
                wait.ends = (wait.ends + gained).min(now + limit);
            }
            None => self.left = (self.left + gained).min(limit),
        }
    }

    /// The request is answered: the client has all its time to take the answer.
    pub(crate) fn begin_again(&mut self) {
        self.left = self.limit.unwrap_or_default();
        self.waits = None;
    }

    /// When the time is up, if nothing more is done.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.limit?;
        Some(self.waits?.ends)
    }

    /// How long the call has waited for its client without anything coming.
    pub(crate) fn stalled(&self, now: Instant) -> Option<Duration> {
        let wait = self.waits?;
        Some(now.saturating_duration_since(wait.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(60);

    #[expect(clippy::disallowed_methods, reason = "a test's time begins now")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_client_that_drips_loses_its_call_and_a_slow_one_does_not() {
        let start = start();
        // Bytes a second, and whether it goes on for an hour.
        for (rate, goes_on) in [(1, false), (400, false), (700, true), (100_000, true)] {
            let mut patience = Patience::new(Some(LIMIT));
            patience.turn(start, true);
            let ended = (1..3600).find(|second| {
                let now = start + *second * SECOND;
                let is_up = patience.due().is_some_and(|due| due <= now);
                patience.gain(now, rate);
                is_up
            });
            assert_eq!(ended.is_none(), goes_on, "{rate}: {ended:?}");
        }
    }

    #[test]
    fn no_time_passes_in_the_servers_turn() {
        let start = start();
        let mut patience = Patience::new(Some(LIMIT));
        patience.turn(start, true);
        patience.turn(start + 50 * SECOND, false);
        assert_eq!(patience.due(), None);
        let later = start + 1000 * SECOND;
        patience.turn(later, true);
        assert_eq!(patience.due(), Some(later + 10 * SECOND));
        assert_eq!(patience.stalled(later + SECOND), Some(SECOND));
        patience.begin_again();
        patience.turn(later, true);
        assert_eq!(patience.due(), Some(later + LIMIT));
    }
}
