//! What a link counts, and the form in which it tells.

use serde::{Deserialize, Serialize};

/// What the model counts for one direction, in wire packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Packets that arrived.
    pub in_packets: u64,
    /// Bytes that arrived, IP header included.
    pub in_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_queue: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets larger than the path MTU.
    pub dropped_path_mtu: u64,
    /// Packets held back to be overtaken.
    pub reordered: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets above the queue limit, let in since the emulator itself had been late to look.
    pub admitted_after_stall: u64,
    /// The longest queue, as its transmission time in picoseconds.
    pub queue_max_picos: u64,
}

/// What is counted on delivery for one direction, in wire packets.
#[derive(Debug, Clone, Default)]
pub struct DeliveryCounters {
    /// Packets handed to the receiving kernel.
    pub out_packets: u64,
    /// Bytes handed to the receiving kernel, IP header included.
    pub out_bytes: u64,
    /// Packets that got the congestion-experienced mark.
    pub marked: u64,
    /// Packets delivered after one that was sent later.
    pub out_of_order: u64,
    /// Packets refused for want of memory.
    pub dropped_memory: u64,
    /// Packets the receiving kernel refused.
    pub write_errors: u64,
    /// Reads that gave a packet, and how many of these were super-packets.
    pub reads: u64,
    /// Reads that gave a super-packet.
    pub super_reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Sixteen buckets for each power of two: values are known to within 6 %.
const SUB_BITS: u32 = 4;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// A histogram of times in nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Adds one value.
    pub fn record(&mut self, nanos: u64) {
        self.buckets[Self::bucket(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    /// The value below or at which this share of all values lies; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (share * self.count as f64).ceil().max(1.0);
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if count > 0 && seen as f64 >= wanted {
                return Self::upper(index).min(self.max);
            }
        }
        0
    }

    /// The largest value, exactly.
    pub fn max(&self) -> u64 {
        self.max
    }

    fn bucket(value: u64) -> usize {
        let exponent = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
        // At most 31 after the shift, and 59 blocks of 16.
        ((exponent as usize) << SUB_BITS) + usize::try_from(value >> exponent).unwrap_or(0)
    }

    /// The largest value that falls into a bucket.
    fn upper(index: usize) -> u64 {
        let block = (index >> SUB_BITS).saturating_sub(1);
        let low = (index - (block << SUB_BITS)) as u64;
        ((low + 1) << block).wrapping_sub(1)
    }
}

/// The counters of one direction as they are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// `srv>cli` or `cli>srv`.
    pub direction: String,
    /// Packets that arrived.
    pub in_packets: u64,
    /// Bytes that arrived.
    pub in_bytes: u64,
    /// Packets delivered.
    pub out_packets: u64,
    /// Bytes delivered.
    pub out_bytes: u64,
    /// Packets on their way now.
    pub in_flight: u64,
    /// Packets dropped at the queue's tail.
    pub dropped_queue: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets larger than the path MTU.
    pub dropped_path_mtu: u64,
    /// Packets dropped for want of memory.
    pub dropped_memory: u64,
    /// Packets the receiving kernel refused.
    pub write_errors: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets delivered after a later one.
    pub out_of_order: u64,
    /// Packets that went twice.
    pub duplicated: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// Packets let in above the limit after a stall of the emulator.
    pub admitted_after_stall: u64,
    /// The longest queue, in bytes.
    pub queue_max_bytes: u64,
    /// The longest queue, in milliseconds.
    pub queue_max_ms: f64,
    /// How late packets were delivered, median, in microseconds.
    pub late_us_p50: f64,
    /// The same, for 99 of 100 packets.
    pub late_us_p99: f64,
    /// The same, the worst.
    pub late_us_max: f64,
    /// Reads from the TUN device.
    pub reads: u64,
    /// Those of them that gave a super-packet.
    pub super_reads: u64,
    /// Writes to the other TUN device.
    pub writes: u64,
}

/// The counters of a link, since it came up or since the last reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the link.
    pub name: String,
    /// Process id of the emulator.
    pub pid: u32,
    /// Seconds the counters cover.
    pub wall_seconds: f64,
    /// Processor seconds the emulator used in that time.
    pub cpu_seconds: f64,
    /// The same as a share of one processor.
    pub cpu_percent: f64,
    /// How often the emulator woke up.
    pub wakeups: u64,
    /// Milliseconds a hypervisor took from this machine's processors in that time.
    pub machine_steal_ms: u64,
    /// `srv>cli`, then `cli>srv`.
    pub directions: Vec<DirectionReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_exact() {
        let mut histogram = Histogram::default();
        for value in 0..=20 {
            histogram.record(value);
        }
        assert_eq!(histogram.quantile(0.5), 10);
        assert_eq!(histogram.quantile(1.0), 20);
        assert_eq!(histogram.quantile(0.0), 0);
    }

    #[test]
    fn quantiles_are_near_and_never_below() {
        let mut histogram = Histogram::default();
        for value in 1..=100_000_u64 {
            histogram.record(value * 10);
        }
        for (share, exact) in [(0.5, 500_000_u64), (0.99, 990_000), (0.999, 999_000)] {
            let found = histogram.quantile(share);
            assert!(
                found >= exact && found <= exact + exact / 15,
                "{found} {exact}"
            );
        }
        assert_eq!(histogram.max(), 1_000_000);
    }

    #[test]
    fn every_value_has_a_bucket_that_contains_it() {
        for value in (0..64)
            .flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1])
            .chain([u64::MAX])
        {
            let index = Histogram::bucket(value);
            assert!(index < BUCKETS, "{value}");
            assert!(value <= Histogram::upper(index), "{value}");
            assert!(index == 0 || value > Histogram::upper(index - 1), "{value}");
        }
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
