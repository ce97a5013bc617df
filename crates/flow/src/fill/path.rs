//! The round trip of the path alone, during start-up.

use std::time::Instant;

use crate::Tuning;

/// Round trips that PINGs measured since start-up began, in seconds.
#[derive(Debug, Default)]
pub(super) struct Path {
    least: Option<f64>,
    /// When the next one is due.
    due: Option<Instant>,
    /// Whether the last one was long.
    was_long: bool,
}

impl Path {
    /// Whether the next one is due.
    pub(super) fn is_due(&mut self, now: Instant, tuning: &Tuning) -> bool {
        let is_due = self.due.is_none_or(|due| now >= due);
        if is_due {
            self.due = Some(now + tuning.path_every);
        }
        is_due
    }

    /// Whether a queue shows: two measurements in a row are long. A burst makes one long.
    pub(super) fn queues(&mut self, round_trip: f64, tuning: &Tuning) -> bool {
        let least = self.least.map_or(round_trip, |least| least.min(round_trip));
        self.least = Some(least);
        let queue = (least * tuning.path_slack).max(tuning.path_slack_least.as_secs_f64());
        let is_long = round_trip > least + queue;
        std::mem::replace(&mut self.was_long, is_long) && is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_due_one_by_one() {
        let (now, tuning) = (crate::tests::start(), Tuning::default());
        let mut path = Path::default();
        assert!(path.is_due(now, &tuning) && !path.is_due(now, &tuning));
        assert!(path.is_due(now + tuning.path_every, &tuning));
    }

    #[test]
    fn two_long_round_trips_in_a_row_show_a_queue() {
        let tuning = Tuning::default();
        let mut path = Path::default();
        // Bursts.
        for round_trip in [0.1, 0.14, 0.11, 0.14, 0.12] {
            assert!(!path.queues(round_trip, &tuning), "{round_trip}");
        }
        assert!(!path.queues(0.14, &tuning));
        assert!(path.queues(0.15, &tuning));
        // Long only for a short path.
        let mut short = Path::default();
        for round_trip in [0.002, 0.004, 0.0045, 0.006] {
            assert!(!short.queues(round_trip, &tuning), "{round_trip}");
        }
    }
}
