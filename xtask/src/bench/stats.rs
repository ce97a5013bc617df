//! What several measurements of one thing say: their median, an interval, and whether a goal is met.

/// How sure the interval of a median is. Five measurements give 0.94, from the least to the most; eight give 0.93 without those two.
const CONFIDENCE: f64 = 0.92;

/// Median of measurements, and the interval in which that of all possible ones lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stats {
    pub(super) median: f64,
    /// Where the interval begins.
    pub(super) least: f64,
    /// Where it ends.
    pub(super) most: f64,
}

/// Whether a goal is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Miss,
    /// The goal lies within the interval: it takes more runs, or a quieter machine, to tell.
    Undecided,
}

impl Stats {
    /// Those of measurements; none if there are none.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        if count == 0 {
            return None;
        }
        let middle = count / 2;
        let median = if count % 2 == 1 {
            values[middle]
        } else {
            values[middle - 1].midpoint(values[middle])
        };
        let outside = outside(count);
        Some(Self {
            median,
            least: values[outside],
            most: values[count - 1 - outside],
        })
    }

    /// Whether the median is no less than `least` and no more than `most`.
    pub(super) fn judge(&self, least: f64, most: f64) -> Verdict {
        if self.least >= least && self.most <= most {
            Verdict::Pass
        } else if self.most < least || self.least > most {
            Verdict::Miss
        } else {
            Verdict::Undecided
        }
    }
}

impl Verdict {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Miss => "miss",
            Self::Undecided => "undecided",
        }
    }
}

/// How many of so many sorted measurements lie outside the interval at each end. Each lies with the same chance on
/// either side of the true median, whatever it is that they come from, so their number there is binomial.
fn outside(count: usize) -> usize {
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = 0.0;
    let mut outside = 0;
    for step in 0..count / 2 {
        below += chance;
        if 1.0 - 2.0 * below < CONFIDENCE {
            break;
        }
        outside = step;
        chance *= (count - step) as f64 / (step + 1) as f64;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(values: &[f64]) -> Option<Stats> {
        Stats::of(values.iter().copied())
    }

    #[test]
    fn medians_are_medians() {
        assert_eq!(stats(&[]), None);
        assert_eq!(stats(&[3.0, 1.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(stats(&[1.0, 2.0]).unwrap().median, 1.5);
    }

    #[test]
    fn an_interval_gets_narrower_with_more_runs() {
        // From tables of the binomial distribution: 1 - 2 * P(X < k) with n trials of 0.5.
        for (count, expected) in [(1, 0), (5, 0), (7, 0), (8, 1), (10, 1), (11, 2), (20, 5)] {
            assert_eq!(outside(count), expected, "{count}");
        }
        let found = stats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 800.0]).unwrap();
        assert_eq!((found.least, found.median, found.most), (2.0, 4.5, 7.0));
    }

    #[test]
    fn a_goal_within_the_interval_is_undecided() {
        let found = stats(&[96.0, 98.0, 97.0, 99.0, 98.0]).unwrap();
        assert_eq!(found.judge(95.0, f64::INFINITY), Verdict::Pass);
        assert_eq!(found.judge(97.5, f64::INFINITY), Verdict::Undecided);
        assert_eq!(found.judge(99.5, f64::INFINITY), Verdict::Miss);
        assert_eq!(found.judge(f64::NEG_INFINITY, 95.0), Verdict::Miss);
        assert_eq!(found.judge(95.0, 98.5), Verdict::Undecided);
    }
}
