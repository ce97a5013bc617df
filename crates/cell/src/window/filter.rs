//! The least and the most of late.

use std::time::Duration;

use tokio::time::Instant;

/// The least of one to two lifetimes.
#[derive(Debug, Default)]
pub(super) struct Least {
    now: Option<(Instant, f64)>,
    before: Option<f64>,
}

impl Least {
    /// Takes a value in; returns the least.
    pub(super) fn update(&mut self, at: Instant, value: f64, lifetime: Duration) -> f64 {
        match &mut self.now {
            Some((since, least)) if at.duration_since(*since) < lifetime => {
                *least = least.min(value);
            }
            other => {
                self.before = other.map(|(_, least)| least);
                *other = Some((at, value));
            }
        }
        let least = self.get().unwrap_or(value);
        debug_assert!(least <= value, "{least} is not the least: {value}");
        least
    }

    /// The least, if there was any.
    pub(super) fn get(&self) -> Option<f64> {
        let (_, now) = self.now?;
        Some(self.before.map_or(now, |before| before.min(now)))
    }
}

/// The most of one to two lifetimes.
#[derive(Debug, Default)]
pub(crate) struct Most(Least);

impl Most {
    /// Takes a value in; returns the most.
    pub(crate) fn update(&mut self, at: Instant, value: f64, lifetime: Duration) -> f64 {
        -self.0.update(at, -value, lifetime)
    }

    /// The most, if there was any.
    pub(crate) fn get(&self) -> Option<f64> {
        self.0.get().map(|least| -least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn values_count_for_one_to_two_lifetimes() {
        let lifetime = Duration::from_secs(10);
        let (mut least, mut most) = (Least::default(), Most::default());
        assert_eq!((least.get(), most.get()), (None, None));
        for (seconds, value, expected) in [
            (0, 5.0, (5.0, 5.0)),
            (9, 7.0, (5.0, 7.0)),
            (11, 6.0, (5.0, 7.0)),
            (22, 6.5, (6.0, 6.5)),
        ] {
            let at = Instant::now() + Duration::from_secs(seconds);
            let found = (
                least.update(at, value, lifetime),
                most.update(at, value, lifetime),
            );
            assert_eq!(found, expected, "after {seconds} s");
        }
    }
}
