//! Distributions as they travel to a viewer, and what came between two of them.

use super::{BUCKETS, Distribution, bucket, range};

/// A distribution in plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The bucket that `counts` begins with.
    pub first: usize,
    /// Values in each bucket from there on. The last one is not 0.
    pub counts: &'a [u64],
    /// The sum of the values.
    pub sum: u64,
    /// The least of them.
    pub min: u64,
    /// The greatest of them.
    pub max: u64,
}

impl Distribution {
    /// Its numbers, without the empty buckets at both ends.
    #[must_use]
    pub fn parts(&self) -> Parts<'_> {
        let is_used = |count: &u64| *count != 0;
        let first = self.buckets.iter().position(is_used).unwrap_or(0);
        let end = self.buckets.iter().rposition(is_used);
        let end = end.map_or(first, |last| last + 1);
        Parts {
            first,
            counts: self.buckets.get(first..end).unwrap_or_default(),
            sum: self.sum,
            min: self.min(),
            max: self.max,
        }
    }

    /// The distribution with these numbers; `None` if there is none, as they have buckets that no
    /// distribution has.
    #[must_use]
    pub fn from_parts(parts: &Parts<'_>) -> Option<Self> {
        let end = parts.first.checked_add(parts.counts.len())?;
        if end > BUCKETS {
            return None;
        }
        let count = parts.counts.iter().try_fold(0_u64, |sum, count| {
            // A sum that overflows is that of nothing that was counted.
            sum.checked_add(*count)
        })?;
        if count == 0 {
            return Some(Self::default());
        }
        let mut buckets = vec![0; parts.first];
        buckets.extend_from_slice(parts.counts);
        Some(Self {
            buckets,
            count,
            sum: parts.sum,
            min: parts.min.min(parts.max),
            max: parts.max,
        })
    }

    /// What was added since an earlier state of the same distribution. If counting began again in between,
    /// all of it. The extremes are those of the buckets, so that they are right to 1/16.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let began_again = self.buckets.len() < earlier.buckets.len()
            || (self.buckets.iter())
                .zip(&earlier.buckets)
                .any(|(now, then)| now < then);
        if began_again {
            return self.clone();
        }
        let mut new = Self::default();
        for (number, now) in self.buckets.iter().enumerate() {
            let then = earlier.buckets.get(number).copied().unwrap_or(0);
            if *now == then {
                continue;
            }
            new.add(number, now - then);
            let (least, width) = range(number);
            new.min = new.min.min(least);
            new.max = least + (width - 1);
        }
        if new.count == 0 {
            return Self::default();
        }
        new.sum = self.sum.saturating_sub(earlier.sum);
        new.min = new.min.max(self.min());
        // What is beyond the last bucket's end is in it too.
        new.max = match self.max > earlier.max || bucket(new.max) == BUCKETS - 1 {
            true => self.max,
            false => new.max.min(self.max),
        };
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        values.iter().for_each(|value| distribution.record(*value));
        distribution
    }

    #[test]
    fn parts_make_the_same_distribution() {
        for values in [
            &[][..],
            &[0],
            &[7],
            &[3, 3, 1 << 20],
            &[u64::MAX, 5],
            &[1 << 39; 3],
        ] {
            let distribution = of(values);
            let again = Distribution::from_parts(&distribution.parts()).unwrap();
            assert_eq!(again.parts(), distribution.parts(), "{values:?}");
            assert_eq!(again.percentile(50.0), distribution.percentile(50.0));
        }
    }

    #[test]
    fn parts_that_cannot_be_are_refused() {
        let parts = |first, counts| Parts {
            first,
            counts,
            sum: 1,
            min: 9,
            max: 3,
        };
        let made = |first, counts| Distribution::from_parts(&parts(first, counts));
        assert!(made(BUCKETS, &[1]).is_none());
        assert!(made(usize::MAX, &[1]).is_none());
        assert!(made(0, &[u64::MAX, 1]).is_none());
        assert_eq!(made(3, &[0]), Some(Distribution::default()));
        let odd = made(3, &[1, 1]).unwrap();
        assert_eq!((odd.min(), odd.percentile(99.0)), (3, 3));
    }

    #[test]
    fn what_came_between_is_the_difference() {
        let (before, after) = (
            of(&[1000, 1_000_000]),
            of(&[1000, 1_000_000, 40_000, 50_000]),
        );
        let new = after.since(&before);
        assert_eq!((new.count(), new.sum()), (2, 90_000));
        assert!(new.percentile(50.0).abs_diff(40_000) < 1300, "{new:?}");
        assert!((50_000..53_200).contains(&new.max()), "{new:?}");
        assert!((37_500..=40_000).contains(&new.min()), "{new:?}");
        // A new extreme is exact.
        assert_eq!(of(&[1000, 2000]).since(&of(&[1000])).max(), 2000);
        assert_eq!(of(&[1, u64::MAX]).since(&of(&[1])).max(), u64::MAX);
        assert_eq!(after.since(&after), Distribution::default());
    }

    #[test]
    fn what_was_counted_from_the_beginning_is_all_new() {
        let again = of(&[7]);
        assert_eq!(again.since(&of(&[7, 7, 9])), again);
        assert_eq!(again.since(&of(&[1 << 30])), again);
    }
}
