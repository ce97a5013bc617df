//! A windowed filter: the least or the greatest of the recent values.

use std::time::{Duration, Instant};

/// Which of two values a filter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Min,
    Max,
}

/// The best value of one to two windows.
#[derive(Debug, Clone)]
pub struct Filter {
    keep: Keep,
    /// The best of the current window, and when the window began.
    now: Option<(Instant, f64)>,
    /// The best of the window before.
    before: Option<f64>,
}

impl Filter {
    /// A filter that keeps the least.
    #[must_use]
    pub fn min() -> Self {
        Self::new(Keep::Min)
    }

    /// A filter that keeps the greatest.
    #[must_use]
    pub fn max() -> Self {
        Self::new(Keep::Max)
    }

    fn new(keep: Keep) -> Self {
        Self {
            keep,
            now: None,
            before: None,
        }
    }

    /// Takes a value in; returns the best.
    pub fn update(&mut self, at: Instant, value: f64, window: Duration) -> f64 {
        match self.now {
            Some((since, best)) if at.saturating_duration_since(since) < window => {
                self.now = Some((since, self.better(best, value)));
            }
            over => {
                self.before = over.map(|(_, best)| best);
                self.now = Some((at, value));
            }
        }
        self.get().unwrap_or(value)
    }

    /// The best value, if there was any.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        let (_, now) = self.now?;
        Some(self.before.map_or(now, |before| self.better(before, now)))
    }

    fn better(&self, one: f64, other: f64) -> f64 {
        match self.keep {
            Keep::Min => one.min(other),
            Keep::Max => one.max(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::start;

    #[test]
    fn values_count_for_one_to_two_windows() {
        let window = Duration::from_secs(10);
        let (mut min, mut max) = (Filter::min(), Filter::max());
        assert_eq!((min.get(), max.get()), (None, None));
        for (seconds, value, expected) in [
            (0, 5.0, (5.0, 5.0)),
            (9, 7.0, (5.0, 7.0)),
            (11, 6.0, (5.0, 7.0)),
            (22, 6.5, (6.0, 6.5)),
        ] {
            let at = start() + Duration::from_secs(seconds);
            let found = (min.update(at, value, window), max.update(at, value, window));
            assert_eq!(found, expected, "after {seconds} s");
        }
    }
}
