//! Distributions in fixed memory.
//!
//! Buckets are log-linear, as those of HdrHistogram: between two powers of two there are
//! sixteen of the same width, so that a bucket is at most 1/16 of its value wide. What is read from a
//! bucket is its middle, which is off by 1/32, or 3.2 %, at most.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::shard::{Apart, SHARDS, add, shard};

mod parts;

pub use parts::Parts;

/// Buckets between two powers of two: two to this power.
const FINE: u32 = 4;
/// Values from two to this power on are in the last bucket. In nanoseconds that is 18 minutes.
const BITS: u32 = 40;
/// Buckets: values below 16 have one each, then sixteen for each power of two.
const BUCKETS: usize = ((BITS - FINE + 1) as usize) << FINE;

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    // From here on everything is in the last one.
    let value = value.min((1 << BITS) - 1);
    let power = (value | 1).ilog2().max(FINE);
    let rest = value >> (power - FINE);
    // Below two to the power of FINE, `rest` is the value itself; above, it has one bit more, which the
    // block before its own takes in.
    let block = u64::from(power - FINE) << FINE;
    usize::try_from(block + rest).unwrap_or(BUCKETS - 1)
}

/// The least value of a bucket, and its width.
fn range(bucket: usize) -> (u64, u64) {
    let fine = 1 << FINE;
    if bucket < 2 * fine {
        return (bucket as u64, 1);
    }
    let power = bucket / fine - 1;
    let rest = (bucket % fine + fine) as u64;
    (rest << power, 1 << power)
}

/// A distribution that any number of threads add to. Its clones are the same histogram.
#[derive(Clone, Default)]
pub struct Histogram(Arc<[OnceLock<Box<Cells>>; SHARDS]>);

/// What some threads have added.
struct Cells {
    buckets: [AtomicU64; BUCKETS],
    sum: Apart<AtomicU64>,
    min: AtomicU64,
    max: AtomicU64,
}

impl Cells {
    fn new() -> Box<Self> {
        Box::new(Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: Apart::default(),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        })
    }
}

impl Histogram {
    /// Adds a value: of a histogram of seconds, nanoseconds.
    pub fn record(&self, value: u64) {
        if cfg!(feature = "off") {
            return;
        }
        let shard = shard();
        let Some(cells) = self.0.get(shard) else {
            return;
        };
        let cells = cells.get_or_init(Cells::new);
        if let Some(bucket) = cells.buckets.get(bucket(value)) {
            add(shard, bucket, 1);
        }
        add(shard, &cells.sum, value);
        // Most values are no extremes, and to see that costs less than another write.
        if value < cells.min.load(Relaxed) {
            cells.min.fetch_min(value, Relaxed);
        }
        if value > cells.max.load(Relaxed) {
            cells.max.fetch_max(value, Relaxed);
        }
    }

    /// Adds a duration, in nanoseconds.
    pub fn record_duration(&self, took: std::time::Duration) {
        self.record(nanoseconds(took));
    }

    /// How many values were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        let all = self.0.iter().filter_map(OnceLock::get);
        all.flat_map(|cells| &cells.buckets)
            .map(|bucket| bucket.load(Relaxed))
            .sum()
    }

    /// The distribution as it is now.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let mut whole = Distribution::default();
        for cells in self.0.iter().filter_map(OnceLock::get) {
            for (number, bucket) in cells.buckets.iter().enumerate() {
                let count = bucket.load(Relaxed);
                if count != 0 {
                    whole.add(number, count);
                }
            }
            whole.sum = whole.sum.wrapping_add(cells.sum.load(Relaxed));
            whole.min = whole.min.min(cells.min.load(Relaxed));
            whole.max = whole.max.max(cells.max.load(Relaxed));
        }
        whole
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

/// A duration as histograms take it.
pub(crate) fn nanoseconds(took: std::time::Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// A distribution as plain data. It grows with its greatest value, to 4.7 KB at most.
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution {
    /// As many as the greatest value needs.
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distribution")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("p50", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

impl Distribution {
    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        self.add(bucket(value), 1);
        self.sum = self.sum.wrapping_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds a duration, in nanoseconds.
    pub fn record_duration(&mut self, took: std::time::Duration) {
        self.record(nanoseconds(took));
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].wrapping_add(count);
        self.count = self.count.wrapping_add(count);
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Self) {
        for (number, count) in other.buckets.iter().enumerate() {
            if *count != 0 {
                self.add(number, *count);
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The least one; 0 if there is none.
    #[must_use]
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest one.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their mean; 0 if there is none.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The value that so many percent of all are not above, to 3.2 %; 0 if there is none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let all = self.count;
        if all == 0 {
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank between 0 and all"
        )]
        let rank = ((percent.clamp(0.0, 100.0) / 100.0 * all as f64).ceil() as u64).max(1);
        if rank == 1 {
            return self.min();
        }
        if rank >= all {
            return self.max;
        }
        let mut passed = 0;
        for (number, count) in self.buckets.iter().enumerate() {
            passed += count;
            if passed >= rank {
                return self.middle(number);
            }
        }
        self.max
    }

    /// The middle of a bucket, as far as there are values.
    fn middle(&self, bucket: usize) -> u64 {
        if bucket == BUCKETS - 1 {
            // It has no end.
            return self.max;
        }
        let (least, width) = range(bucket);
        (least + width / 2).clamp(self.min(), self.max.max(self.min()))
    }

    /// How many values are below a power of two, from 2^4 up.
    #[must_use]
    pub fn below(&self, power: u32) -> u64 {
        if power >= BITS {
            return self.count;
        }
        let end = bucket(1 << power).min(self.buckets.len());
        self.buckets[..end].iter().sum()
    }

    /// The sum of the squares of the values in a unit of so many, to 7 %.
    #[must_use]
    pub fn squares(&self, unit: u64) -> u64 {
        let unit = u128::from(unit.max(1)).pow(2);
        let counts = self
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| **count != 0);
        let squares = counts.map(|(number, count)| {
            let value = u128::from(self.middle(number));
            (value * value).saturating_mul(u128::from(*count))
        });
        let sum = squares.fold(0_u128, u128::saturating_add);
        u64::try_from(sum / unit).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_value_is_in_the_range_of_its_bucket() {
        let mut values: Vec<u64> = (0..2000).collect();
        for power in 4..BITS {
            for near in [-1_i64, 0, 1, 7] {
                values.push((1_u64 << power).saturating_add_signed(near));
            }
        }
        for value in values.into_iter().filter(|value| *value < 1 << BITS) {
            let number = bucket(value);
            let (least, width) = range(number);
            assert!(
                (least..least + width).contains(&value),
                "{value} in {number}"
            );
            assert!(width == 1 || width * 16 <= least, "{value}: {width}");
            assert!(number < BUCKETS);
        }
        assert_eq!(bucket((1 << BITS) - 1), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for number in 1..BUCKETS {
            let (least, width) = range(number - 1);
            assert_eq!(range(number).0, least + width, "{number}");
        }
    }

    #[test]
    fn percentiles_are_right_to_three_percent() {
        let histogram = Histogram::default();
        (1..=100_000_u64).for_each(|value| histogram.record(value * 1000));
        let read = histogram.read();
        assert_eq!(
            (read.count(), read.min(), read.max()),
            (100_000, 1000, 100_000_000)
        );
        assert_eq!(read.mean(), 50_000_500);
        for (percent, value) in [
            (50.0, 50_000_000_u64),
            (90.0, 90_000_000),
            (99.0, 99_000_000),
        ] {
            let found = read.percentile(percent);
            let off = found.abs_diff(value);
            assert!(off * 1000 <= value * 32, "{percent}: {found}");
        }
        assert_eq!(read.percentile(100.0), 100_000_000);
        assert_eq!(read.percentile(0.0), 1000);
    }

    #[test]
    fn an_empty_one_tells_nothing() {
        let empty = Histogram::default().read();
        assert_eq!(
            (empty.count(), empty.min(), empty.max(), empty.mean()),
            (0, 0, 0, 0)
        );
        assert_eq!(
            (empty.percentile(50.0), empty.squares(1), empty.below(20)),
            (0, 0, 0)
        );
    }

    #[test]
    fn values_beyond_the_end_are_counted() {
        let mut distribution = Distribution::default();
        for took in [Duration::from_secs(7200), Duration::MAX, Duration::MAX] {
            distribution.record_duration(took);
        }
        assert_eq!(distribution.count(), 3);
        assert_eq!(distribution.percentile(50.0), u64::MAX);
        assert_eq!((distribution.below(39), distribution.below(60)), (0, 3));
    }

    #[test]
    fn parts_make_the_whole() {
        let (mut one, mut two, mut both) = Default::default();
        let record = |to: &mut Distribution, value| to.record(value);
        for value in 0..500 {
            record(
                if value % 3 == 0 { &mut one } else { &mut two },
                value * value,
            );
            record(&mut both, value * value);
        }
        one.merge(&two);
        assert_eq!(one, both);
    }

    #[test]
    fn counts_below_a_power_of_two_are_exact() {
        let mut distribution = Distribution::default();
        for value in [15, 16, 1023, 1024, 1025, 1 << 20] {
            distribution.record(value);
        }
        let below: Vec<u64> = [4, 10, 11, 20, 21]
            .map(|power| distribution.below(power))
            .into();
        assert_eq!(below, [1, 3, 5, 5, 6]);
    }

    #[test]
    fn squares_are_near() {
        let mut distribution = Distribution::default();
        distribution.record_duration(Duration::from_millis(2500));
        distribution.record_duration(Duration::from_millis(500));
        // 6.5 s² in ms².
        let squares = distribution.squares(1_000_000);
        assert!(squares.abs_diff(6_500_000) < 455_000, "{squares}");
    }

    #[test]
    fn threads_add_to_one_distribution() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let histogram = histogram.clone();
                scope.spawn(move || (0..1000).for_each(|n| histogram.record(thread * 1000 + n)));
            }
        });
        let read = histogram.read();
        assert_eq!((read.count(), histogram.count()), (8000, 8000));
        assert_eq!((read.sum(), read.max()), (7999 * 8000 / 2, 7999));
    }
}
