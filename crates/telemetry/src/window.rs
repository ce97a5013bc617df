//! Rates over the last seconds, from samples that the viewer takes. What is counted pays nothing for it.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Samples of a window, at most.
const SAMPLES: usize = 64;

/// A counter over the last seconds.
#[derive(Debug, Clone)]
pub struct Window {
    span: Duration,
    /// Oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Window {
    /// Over so long. Samples are best taken some times in that, at most 64 times.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        Self {
            span,
            samples: VecDeque::new(),
        }
    }

    /// Takes a sample of the counter. One below the last means that counting began again.
    pub fn sample(&mut self, now: Instant, count: u64) {
        if self.samples.back().is_some_and(|(_, last)| *last > count) {
            self.samples.clear();
        }
        self.samples.push_back((now, count));
        // The newest of those that are too old is where the window begins.
        while self.samples.len() > SAMPLES
            || self
                .samples
                .get(1)
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= self.span)
        {
            self.samples.pop_front();
        }
    }

    /// How much was counted in a second, on average over the window; 0 before the second sample.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let (Some((began, first)), Some((ended, last))) =
            (self.samples.front(), self.samples.back())
        else {
            return 0.0;
        };
        let seconds = ended.saturating_duration_since(*began).as_secs_f64();
        if seconds == 0.0 {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate to be shown")]
        let counted = last.saturating_sub(*first) as f64;
        counted / seconds
    }
}

/// Windows of several counters by key, such as those of a table's rows.
#[derive(Debug, Clone)]
pub struct Rates<K> {
    span: Duration,
    windows: BTreeMap<K, Window>,
}

impl<K: Ord + Clone> Rates<K> {
    /// Over so long.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        Self {
            span,
            windows: BTreeMap::new(),
        }
    }

    /// Takes a sample of all counters there are. Keys that have none are forgotten, so that no more is
    /// remembered than there is.
    pub fn sample(&mut self, now: Instant, counts: impl IntoIterator<Item = (K, u64)>) {
        let mut known = std::mem::take(&mut self.windows);
        for (key, count) in counts {
            let window = known.remove(&key);
            let mut window = window.unwrap_or_else(|| Window::new(self.span));
            window.sample(now, count);
            self.windows.insert(key, window);
        }
    }

    /// A key's counts in a second.
    #[must_use]
    pub fn per_second(&self, key: &K) -> f64 {
        self.windows.get(key).map_or(0.0, Window::per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_rate_is_that_of_the_window() {
        let start = Instant::now();
        let mut window = Window::new(5 * SECOND);
        assert_eq!(window.per_second(), 0.0);
        for second in 0..20_u32 {
            // 10 in a second, and after ten seconds 100.
            let count = 10 * second + 90 * second.saturating_sub(10);
            window.sample(start + second * SECOND, count.into());
            let wanted = match second {
                0 => 0.0,
                1..=10 => 10.0,
                _ => 10.0 + 90.0 * f64::from((second - 10).min(5)) / 5.0,
            };
            assert!((window.per_second() - wanted).abs() < 0.001, "{second}");
        }
    }

    #[test]
    fn a_counter_that_begins_again_has_no_negative_rate() {
        let start = Instant::now();
        let mut window = Window::new(5 * SECOND);
        window.sample(start, 1000);
        window.sample(start + SECOND, 10);
        assert_eq!(window.per_second(), 0.0);
        window.sample(start + 2 * SECOND, 30);
        assert_eq!(window.per_second(), 20.0);
    }

    #[test]
    fn samples_are_bounded() {
        let start = Instant::now();
        let mut window = Window::new(5 * SECOND);
        (0..10_000_u32).for_each(|n| window.sample(start + n * SECOND / 1000, n.into()));
        assert!(window.samples.len() <= SAMPLES);
        assert!((window.per_second() - 1000.0).abs() < 1.0);
    }

    #[test]
    fn keys_that_are_gone_are_forgotten() {
        let start = Instant::now();
        let mut rates = Rates::new(5 * SECOND);
        rates.sample(start, [("a", 0), ("b", 0)]);
        rates.sample(start + SECOND, [("a", 7)]);
        assert_eq!((rates.per_second(&"a"), rates.per_second(&"b")), (7.0, 0.0));
        assert_eq!(rates.windows.len(), 1);
    }
}
