//! When the emulator sleeps and when it wakes.
//!
//! Under load it sleeps for a quantum whatever comes, like a network card that moderates its
//! interrupts: a sleep and the wake-up cost more than carrying a packet does. When little happens,
//! it waits for the next packet, and spins through the last moments before one is due, since
//! a timer alone would be late by tens of microseconds.

use std::time::Duration;

use super::Clock;

/// How long before a packet is due spinning begins, in nanoseconds.
const SPIN: u64 = 40_000;
/// One part in so many of all time may be spent spinning.
const SPIN_SHARE: u64 = 50;
/// Most spinning time saved up, in nanoseconds.
const SPIN_SAVED: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct Pace {
    clock: Clock,
    quantum: u64,
    /// The last wake-up and the one before.
    woke: u64,
    woke_before: u64,
    /// When both devices were last seen empty.
    empty_at: u64,
    /// A packet would not have ended the last sleep.
    blind: bool,
    /// How much too late the last wake-up was, if by more than a quantum.
    slack: u64,
    spin: SpinBudget,
    wakeups: u64,
}

#[derive(Debug)]
struct SpinBudget {
    saved: u64,
    counted_to: u64,
    spinning_since: Option<u64>,
}

impl Pace {
    pub(super) fn new(quantum: Duration, clock: Clock) -> Self {
        let now = clock.now();
        Self {
            clock,
            // At most 10 ms.
            quantum: u64::try_from(quantum.as_nanos()).unwrap_or(0),
            woke: now,
            woke_before: 0,
            empty_at: now,
            blind: false,
            slack: 0,
            spin: SpinBudget {
                saved: 0,
                counted_to: now,
                spinning_since: None,
            },
            wakeups: 0,
        }
    }

    pub(super) fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// How much longer than intended nobody looked at the devices, in nanoseconds.
    pub(super) fn slack(&self) -> u64 {
        self.slack
    }

    /// When the packets that wait now arrived, if that is not now: on average in the middle of
    /// a sleep that they could not end. After a sleep that was too long nobody knows.
    pub(super) fn arrival_time(&self) -> Option<u64> {
        self.blind.then(|| {
            let now = self.clock.now();
            now - ((now - self.empty_at) / 2).min(self.quantum / 2)
        })
    }

    /// There is more work than a turn takes.
    pub(super) fn still_busy(&mut self) {
        self.blind = false;
    }

    /// Under load, sleeps and says so.
    pub(super) fn moderate(&mut self, arrived: usize, delivered: usize, next: Option<u64>) -> bool {
        let now = self.clock.now();
        self.empty_at = now;
        self.blind = false;
        self.slack = 0;
        let soon = next.is_some_and(|due| due < self.woke + 2 * self.quantum);
        let load = match arrived + delivered {
            0 => false,
            1 => self.woke - self.woke_before < 2 * self.quantum && (arrived > 0 || soon),
            _ => true,
        };
        if !load || self.quantum == 0 {
            return false;
        }
        let turn = self.woke + self.quantum;
        let until = next.map_or(turn, |due| due.clamp(turn, turn + self.quantum));
        if until > now {
            self.clock.sleep_until(until);
            self.blind = true;
        }
        self.wake(until);
        self.spin.spinning_since = None;
        true
    }

    /// When little happens: how long to wait for a packet, in nanoseconds, without limit if
    /// the inner value is `None`. The outer is `None` if the next packet is due so soon that
    /// another look is better.
    pub(super) fn quiet(&mut self, next: Option<u64>) -> Option<Option<u64>> {
        let now = self.clock.now();
        self.spin.count(now);
        let Some(due) = next else { return Some(None) };
        let left = due.saturating_sub(now);
        if left == 0 {
            return None;
        }
        if self.spin.saved == 0 {
            return Some(Some(left));
        }
        if left <= SPIN {
            self.spin.spinning_since = Some(now);
            return None;
        }
        Some(Some(left - SPIN))
    }

    /// A wait is over that was to last at most `timeout`.
    pub(super) fn woken(&mut self, timeout: Option<u64>) {
        let until = timeout.map_or(u64::MAX, |timeout| self.empty_at + timeout);
        self.wake(until);
    }

    fn wake(&mut self, intended: u64) {
        self.woke_before = self.woke;
        self.woke = self.clock.now();
        let late = self.woke.saturating_sub(intended);
        self.slack = if late > self.quantum { late } else { 0 };
        self.wakeups += 1;
    }
}

impl SpinBudget {
    fn count(&mut self, now: u64) {
        if let Some(since) = self.spinning_since.take() {
            self.saved = self.saved.saturating_sub(now - since);
        }
        self.saved = (self.saved + (now - self.counted_to) / SPIN_SHARE).min(SPIN_SAVED);
        self.counted_to = now;
    }
}
