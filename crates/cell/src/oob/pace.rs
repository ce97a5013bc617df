//! Whether a server's data comes more slowly by TCP than by calls.
//!
//! TCP takes each lost packet for a sign to slow down, so on a long path that loses some it may bring a small part of
//! what calls do. What calls bring is known from the first large pieces, which pass by Rx, and from those of the times
//! when TCP is not used. A mistake costs processor time and no more.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::window::Most;

/// Over so long TCP is measured: its start, and how it recovers from a loss, are not all of that.
// spec: oob#when-to-use-it
const TCP_TIME: Duration = Duration::from_secs(5);
/// Calls are measured over so long: data comes in bursts.
const CALL_TIME: Duration = Duration::from_secs(1);
/// What calls brought in less time than this tells nothing.
const CALL_LEAST: Duration = Duration::from_millis(250);
/// For how long the highest rate of calls counts, at least.
const LIFETIME: Duration = Duration::from_secs(3600);
/// TCP is slow if it brings less than this part of what calls did. Others may use the path now who did not then.
// spec: oob#when-to-use-it
const SLOW: f64 = 0.5;

/// What carries data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Calls,
    Tcp,
}

/// What comes from a server, or goes to it.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Rates>);

#[derive(Debug, Default)]
struct Rates {
    calls: Flow,
    tcp: Flow,
    /// The highest rate of calls, in bytes a second.
    best: Most,
}

/// What one of them carries.
#[derive(Debug, Default)]
struct Flow {
    under_way: u64,
    since: Option<Instant>,
    bytes: u64,
}

impl Pace {
    /// A transfer begins.
    pub(super) fn begin(&self, by: By) {
        let mut rates = self.0.lock();
        let flow = rates.flow(by);
        if flow.under_way == 0 {
            flow.restart();
        }
        flow.under_way += 1;
    }

    /// So many bytes are carried. Says whether TCP turns out to be slow.
    pub(super) fn moved(&self, by: By, bytes: u64) -> bool {
        let mut rates = self.0.lock();
        rates.flow(by).bytes += bytes;
        rates.measure(by, by.time())
    }

    /// A transfer ends.
    pub(super) fn end(&self, by: By) {
        let mut rates = self.0.lock();
        let flow = rates.flow(by);
        debug_assert!(flow.under_way > 0, "{by:?}: one ends that never began");
        flow.under_way -= 1;
        if by == By::Calls && flow.under_way == 0 {
            rates.measure(by, CALL_LEAST);
        }
    }
}

impl By {
    fn time(self) -> Duration {
        match self {
            Self::Calls => CALL_TIME,
            Self::Tcp => TCP_TIME,
        }
    }
}

impl Rates {
    fn flow(&mut self, by: By) -> &mut Flow {
        match by {
            By::Calls => &mut self.calls,
            By::Tcp => &mut self.tcp,
        }
    }

    /// Takes in what was carried, if the time is over. Says whether TCP is slow.
    fn measure(&mut self, by: By, time: Duration) -> bool {
        // While both use the path, neither shows what it can.
        if self.calls.under_way > 0 && self.tcp.under_way > 0 {
            self.calls.restart();
            self.tcp.restart();
            return false;
        }
        let Some(rate) = self.flow(by).rate(time) else {
            return false;
        };
        self.flow(by).restart();
        match by {
            By::Calls => {
                self.best.update(Instant::now(), rate, LIFETIME);
                false
            }
            By::Tcp => self.best.get().is_some_and(|best| rate < best * SLOW),
        }
    }
}

impl Flow {
    fn restart(&mut self) {
        self.since = Some(Instant::now());
        self.bytes = 0;
    }

    /// Bytes a second, once this time is over.
    fn rate(&self, time: Duration) -> Option<f64> {
        let elapsed = self.since?.elapsed();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = self.bytes as f64 / elapsed.as_secs_f64();
        (elapsed >= time).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Carries so much a second for so long; whether TCP was found to be slow.
    async fn carry(pace: &Pace, by: By, rate: u64, seconds: u64) -> bool {
        pace.begin(by);
        let mut slow = false;
        for _ in 0..4 * seconds {
            advance(Duration::from_millis(250)).await;
            slow |= pace.moved(by, rate / 4);
        }
        pace.end(by);
        slow
    }

    #[tokio::test(start_paused = true)]
    async fn tcp_is_slow_that_brings_less_than_half_of_what_calls_did() {
        for (rate, slow) in [(40, true), (60, false), (200, false)] {
            let pace = Pace::default();
            carry(&pace, By::Calls, 100 * MIB, 1).await;
            assert_eq!(carry(&pace, By::Tcp, rate * MIB, 6).await, slow, "{rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_knows_that_before_calls_brought_anything_or_after_a_moment() {
        let pace = Pace::default();
        assert!(!carry(&pace, By::Tcp, MIB, 60).await);
        carry(&pace, By::Calls, 100 * MIB, 1).await;
        assert!(!carry(&pace, By::Tcp, MIB, 4).await);
        assert!(carry(&pace, By::Tcp, MIB, 5).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_both_carry_at_a_time_counts_for_neither() {
        let pace = Pace::default();
        carry(&pace, By::Calls, 10 * MIB, 1).await;
        pace.begin(By::Tcp);
        carry(&pace, By::Calls, 100 * MIB, 5).await;
        assert!(!pace.moved(By::Tcp, 30 * MIB), "it begins here");
        advance(TCP_TIME).await;
        assert!(!pace.moved(By::Tcp, 30 * MIB), "6 MiB a second of 10");
        pace.end(By::Tcp);
    }
}
