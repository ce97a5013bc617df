//! Spreads packets over time, in bursts that suit segmentation offload.
//!
//! A token bucket. It fills at the controller's pacing rate and is as deep as one send quantum
//! plus what the rate delivers in [`CATCH_UP`], so a timer that fires late costs no throughput,
//! and a sender that was idle cannot dump more than that at once. Bytes are released a quantum at
//! a time, so every release can leave as one GSO send.
//!
//! A release that was asked for and comes later than that, because the machine had other things
//! to do, leaves a debt, which is paid back at a quarter of the rate above the rate: the mean is
//! kept and no burst is made of it.

use std::time::{Duration, Instant};

/// How late a release may come without losing throughput. Also bounds the burst after idleness.
const CATCH_UP: Duration = Duration::from_millis(2);

/// How much of a late release is remembered beyond that.
const OWED_MAX: Duration = Duration::from_millis(20);
/// The debt is paid back at the rate divided by this.
const REPAY_DIVISOR: i64 = 4;

/// Packets' worth of bytes that may leave at once on a fresh path (RFC 9002 §7.7 names ten).
const INITIAL_BURST_PACKETS: u64 = 10;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The pacer of one path, shared by all its calls.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Bytes that may leave now; negative when a packet larger than the rest was let through.
    tokens: i64,
    /// Remainder of the last refill, in byte-nanoseconds per second, so that no rate loses to rounding.
    remainder: u128,
    refilled: Instant,
    rate: Option<u64>,
    quantum: usize,
    /// Somebody waits for the next release.
    awaited: bool,
    /// Bytes that late releases did not bring.
    owed: i64,
}

impl Pacer {
    /// A pacer that lets an initial burst through at once.
    pub(crate) fn new(now: Instant, datagram_size: usize) -> Self {
        let burst = INITIAL_BURST_PACKETS.saturating_mul(datagram_size as u64);
        Self {
            tokens: i64::try_from(burst).unwrap_or(i64::MAX),
            remainder: 0,
            refilled: now,
            rate: None,
            quantum: datagram_size,
            awaited: false,
            owed: 0,
        }
    }

    /// Bytes that may be sent at `now` at `rate` bytes per second; `None` means unpaced.
    ///
    /// The answer is 0 or at least one `quantum` while the pacer binds: waiting for a whole
    /// quantum keeps bursts worth one offloaded send. The caller may overshoot by less than one
    /// packet; the debt is repaid first.
    pub(crate) fn budget(&mut self, now: Instant, rate: Option<u64>, quantum: usize) -> u64 {
        self.refill(now);
        self.awaited = false;
        self.rate = rate;
        self.quantum = quantum.max(1);
        if rate.is_none() {
            self.tokens = self.tokens.max(0);
            self.owed = 0;
            return u64::MAX;
        }
        self.owed = self.owed.min(self.volume(OWED_MAX));
        self.tokens = self.tokens.min(self.depth());
        if self.tokens >= self.release_size() {
            u64::try_from(self.tokens).unwrap_or(0)
        } else {
            0
        }
    }

    /// What late releases did not bring is not to be made up for: a queue at the bottleneck kept it
    /// busy meanwhile, and belongs to others too.
    pub(crate) const fn forgive(&mut self) {
        self.owed = 0;
    }

    /// Notes that `bytes` left at `now`.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.refill(now);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_sub(bytes);
        // What leaves unpaced is no debt for when there is a rate.
        if self.rate.is_none() {
            self.tokens = self.tokens.max(0);
        }
    }

    /// When the next quantum may leave; `None` if it may at once or the path is unpaced.
    ///
    /// Uses the rate and quantum of the last [`Self::budget`]. The caller has something to send,
    /// so a [`Self::budget`] asked for later than the answer is a late one.
    pub(crate) fn next_release(&mut self, now: Instant) -> Option<Instant> {
        self.awaited = true;
        let rate = u128::from(self.rate?.max(1));
        let missing = u128::try_from(self.release_size().saturating_sub(self.tokens)).unwrap_or(0);
        if missing == 0 {
            return None;
        }
        let needed = (missing * NANOS_PER_SECOND)
            .saturating_sub(self.remainder)
            .div_ceil(rate);
        let wait = Duration::from_nanos(u64::try_from(needed).unwrap_or(u64::MAX / 4));
        self.refilled
            .checked_add(wait)
            .filter(|release| *release > now)
    }

    fn release_size(&self) -> i64 {
        i64::try_from(self.quantum).unwrap_or(i64::MAX / 4)
    }

    /// The most that may gather: one quantum and what the rate brings in the catch-up time.
    fn depth(&self) -> i64 {
        self.release_size().saturating_add(self.volume(CATCH_UP))
    }

    /// Bytes the rate brings in `time`.
    fn volume(&self, time: Duration) -> i64 {
        let rate = u128::from(self.rate.unwrap_or(0));
        i64::try_from(rate * time.as_nanos() / NANOS_PER_SECOND).unwrap_or(i64::MAX / 4)
    }

    fn refill(&mut self, now: Instant) {
        let Some(elapsed) = now
            .checked_duration_since(self.refilled)
            .filter(|e| !e.is_zero())
        else {
            return;
        };
        self.refilled = now;
        let Some(rate) = self.rate else { return };
        let gained = u128::from(rate) * elapsed.as_nanos() + self.remainder;
        self.remainder = gained % NANOS_PER_SECOND;
        let gained = i64::try_from(gained / NANOS_PER_SECOND).unwrap_or(i64::MAX);
        let repaid = self.owed.min(gained / REPAY_DIVISOR);
        self.owed -= repaid;
        let full = self.tokens.saturating_add(gained).saturating_add(repaid);
        self.tokens = full.min(self.depth().max(self.tokens));
        if self.awaited {
            let missed = full.saturating_sub(self.tokens);
            self.owed = self.owed.saturating_add(missed).min(self.volume(OWED_MAX));
        } else {
            // Idle time earns no credit.
            self.owed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A point in time to start from.
    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant cannot be made in another way"
    )]
    fn start_of_time() -> Instant {
        Instant::now()
    }
    const MBIT_100: Option<u64> = Some(12_500_000);

    /// Sends as much as allowed at every wakeup, each late by `late`; returns bytes per second.
    fn drive(rate: u64, quantum: usize, packet: usize, late: Duration) -> f64 {
        let start = start_of_time();
        let mut pacer = Pacer::new(start, packet);
        let (mut now, mut sent) = (start, 0u64);
        while now < start + Duration::from_secs(2) {
            let mut budget = pacer.budget(now, Some(rate), quantum);
            while budget > 0 {
                pacer.on_sent(now, packet);
                sent += packet as u64;
                budget = budget.saturating_sub(packet as u64);
            }
            pacer.budget(now, Some(rate), quantum);
            now = pacer.next_release(now).map_or(now, |at| at) + late;
        }
        sent as f64 / now.duration_since(start).as_secs_f64()
    }

    #[test]
    fn keeps_the_rate_whatever_the_quantum() {
        for (rate, quantum, packet) in [
            (12_500_000, 14_440, 1444),
            (125_000_000, 64_000, 1444),
            (3_750_000, 2888, 1444),
            (1_250_000_000, 65_000, 65_000),
            (1000, 1444, 1444),
        ] {
            let got = drive(rate, quantum, packet, Duration::ZERO);
            let want = rate as f64;
            let slack = (INITIAL_BURST_PACKETS as f64 + 2.0) * packet as f64;
            assert!(
                (got - want).abs() < want * 0.002 + slack,
                "{rate} {quantum} {packet}: {got}"
            );
        }
    }

    #[test]
    fn a_late_timer_costs_no_throughput() {
        let got = drive(125_000_000, 64_000, 1444, MS);
        assert!(got > 0.995 * 125e6, "{got}");
    }

    #[test]
    fn a_very_late_timer_costs_nothing_in_the_end() {
        let start = start_of_time();
        let rate = 125_000_000;
        let mut pacer = Pacer::new(start, 1444);
        let (mut now, mut sent, mut most) = (start, 0, 0);
        for turn in 0..1000 {
            let budget = pacer.budget(now, Some(rate), 64_000);
            most = most.max(budget);
            pacer.on_sent(now, usize::try_from(budget).unwrap());
            sent += budget;
            let late = if turn % 50 == 0 { 5 * MS } else { MS / 4 };
            pacer.budget(now, Some(rate), 64_000);
            now = pacer.next_release(now).map_or(now, |at| at) + late;
        }
        let got = sent as f64 / now.duration_since(start).as_secs_f64();
        assert!((got / rate as f64 - 1.0).abs() < 0.01, "{got}");
        assert!(most <= 64_000 + 250_000, "{most}");
    }

    #[test]
    fn idleness_earns_a_bounded_burst() {
        let start = start_of_time();
        let mut pacer = Pacer::new(start, 1444);
        assert_eq!(pacer.budget(start, MBIT_100, 2888), 14_440);
        pacer.on_sent(start, 14_440);
        assert_eq!(pacer.budget(start, MBIT_100, 2888), 0);
        let later = start + Duration::from_secs(60);
        assert_eq!(pacer.budget(later, MBIT_100, 2888), 2888 + 25_000);
    }

    #[test]
    fn release_comes_when_a_quantum_has_gathered() {
        let start = start_of_time();
        let mut pacer = Pacer::new(start, 1250);
        pacer.budget(start, MBIT_100, 12_500);
        pacer.on_sent(start, 12_500);
        assert_eq!(pacer.budget(start, MBIT_100, 12_500), 0);
        let release = pacer.next_release(start).expect("bound by the pacer");
        assert_eq!(release, start + MS);
        assert_eq!(
            pacer.budget(release - Duration::from_nanos(1), MBIT_100, 12_500),
            0
        );
        assert_eq!(pacer.budget(release, MBIT_100, 12_500), 12_500);
        assert_eq!(pacer.next_release(release), None);
    }

    #[test]
    fn unpaced_is_unbounded() {
        let start = start_of_time();
        let mut pacer = Pacer::new(start, 1444);
        assert_eq!(pacer.budget(start, None, 1444), u64::MAX);
        pacer.on_sent(start, 10_000_000);
        assert_eq!(pacer.next_release(start), None);
        assert_eq!(pacer.budget(start, None, 1444), u64::MAX);
    }
}
