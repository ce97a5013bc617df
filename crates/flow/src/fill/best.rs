//! The best rate: how fast data came while calls took all that the link gave.
//!
//! It ranks servers, and shows how much of an afar server's data the link holds.

use std::time::Instant;

use crate::filter::Filter;
use crate::{Call, Tuning, real, seconds};

/// Measures the rate while calls fill the link.
#[derive(Debug)]
pub(super) struct Best {
    /// Bytes that came.
    came: u64,
    /// When calls began to take all of the link, or when the rate was last measured; and the bytes that had come by
    /// then.
    filled: Option<(Instant, u64)>,
    /// The highest rate while they did, and when it was last measured.
    rate: Filter,
    at: Option<Instant>,
    /// Calls that fill the link alone, and since when there are such.
    large: usize,
    large_since: Option<Instant>,
}

impl Best {
    pub(super) fn new() -> Self {
        Self {
            came: 0,
            filled: None,
            rate: Filter::max(),
            at: None,
            large: 0,
            large_since: None,
        }
    }

    /// The highest recent rate, in bytes a second.
    pub(super) fn rate(&self, now: Instant, tuning: &Tuning) -> Option<f64> {
        let at = self.at?;
        self.rate
            .get()
            .filter(|_| now.saturating_duration_since(at) < tuning.best_lifetime)
    }

    pub(super) fn on_start(&mut self, now: Instant, call: &Call, tuning: &Tuning) {
        if call.bytes > tuning.large {
            self.large += 1;
            self.large_since.get_or_insert(now);
        }
    }

    pub(super) fn on_progress(&mut self, bytes: u64) {
        self.came += bytes;
    }

    pub(super) fn on_end(&mut self, call: &Call, tuning: &Tuning) {
        self.large -= usize::from(call.bytes > tuning.large);
        if self.large == 0 {
            self.large_since = None;
        }
    }

    /// The round trip that began at `since` is over. `all_in_use` says whether all calls allowed ran in it; one takes
    /// `call` seconds.
    pub(super) fn on_round(
        &mut self,
        now: Instant,
        since: Instant,
        all_in_use: bool,
        call: f64,
        tuning: &Tuning,
    ) {
        let large = self
            .large_since
            .is_some_and(|large| seconds(large, since) > call);
        if !all_in_use && !large {
            self.filled = None;
            return;
        }
        let (from, before) = *self.filled.get_or_insert((now, self.came));
        let elapsed = now.saturating_duration_since(from);
        if elapsed < tuning.best_time {
            return;
        }
        self.filled = Some((now, self.came));
        // After a long pause without calls the mean would say nothing.
        if elapsed < 4 * tuning.best_time {
            let rate = real(self.came - before) / elapsed.as_secs_f64();
            self.rate.update(now, rate, tuning.best_lifetime);
            self.at = Some(now);
        }
    }
}
