//! What comes in, and how many calls that needs.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::{bytes_of, count};

/// Round trips over which is averaged: those of a call, as calls may come in waves.
const ROUNDS: usize = 6;
/// Bytes of payload in a packet of an OpenAFS server.
const PACKET: f64 = 1416.0;
/// Packets an OpenAFS server sends in a round trip at most.
// spec: rx#windows
const WINDOW: f64 = 32.0;
/// Intervals are no shorter than this, in seconds.
const INTERVAL_LEAST: f64 = 0.01;

/// Measures what comes in, a round trip at a time.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Calls whose reply has begun.
    replying: usize,
    interval: Option<Interval>,
    /// The last ones that are over.
    rounds: VecDeque<Measured>,
}

/// A round trip that is not yet over.
#[derive(Debug, Clone, Copy)]
struct Interval {
    since: Instant,
    until: Instant,
    octets: u64,
    /// As round trips of calls.
    round_trips: f64,
    /// The same without those at whose end a reply begins, where a server may be slow for other reasons.
    reply_trips: f64,
    /// Seconds that all calls together spent since their replies began.
    replying: f64,
}

/// What came in over a call's time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Measured {
    /// Bytes a second.
    pub(super) rate: f64,
    /// Calls that would have sufficed to bring it.
    pub(super) load: f64,
    /// Those of them whose replies have begun.
    pub(super) needed: f64,
    /// The number of calls there were whose replies had begun.
    pub(super) replying: f64,
}

impl Meter {
    /// A reply begins.
    pub(super) fn reply_begins(&mut self, now: Instant) {
        self.interval(now);
        self.replying += 1;
    }

    /// A call ends whose reply had begun.
    pub(super) fn reply_ends(&mut self, now: Instant) {
        self.interval(now);
        debug_assert!(self.replying > 0, "a reply ends that never began");
        self.replying -= 1;
    }

    /// A call that had so many bytes has so many now. When a round trip of `delay` seconds is
    /// over, returns when it began, and once there were enough, the mean of the last.
    pub(super) fn received(
        &mut self,
        now: Instant,
        before: u64,
        after: u64,
        delay: f64,
    ) -> Option<(Instant, Measured)> {
        let interval = self.interval(now);
        interval.octets += after - before;
        let (before, after) = (round_trips(before), round_trips(after));
        interval.round_trips += after - before;
        interval.reply_trips += after.max(1.0) - before.max(1.0);
        let (all, replies) = (interval.round_trips, interval.reply_trips);
        debug_assert!(
            before <= after && replies <= all + 0.001,
            "{replies} of {all}"
        );
        let Interval {
            since,
            octets,
            round_trips,
            reply_trips,
            replying,
            ..
        } = *interval;
        let elapsed = now.duration_since(since).as_secs_f64();
        if elapsed < delay.max(INTERVAL_LEAST) {
            return None;
        }
        self.interval = Some(Interval::new(now));
        self.rounds.push_front(Measured {
            rate: bytes_of(octets) / elapsed,
            load: round_trips * delay / elapsed,
            needed: reply_trips * delay / elapsed,
            replying: replying / elapsed,
        });
        self.rounds.truncate(ROUNDS + 1);
        (self.rounds.len() > ROUNDS).then(|| (since, self.mean()))
    }

    fn mean(&self) -> Measured {
        let mean = |skip, of: fn(&Measured) -> f64| {
            let rounds = self.rounds.iter().skip(skip).take(ROUNDS);
            rounds.map(of).sum::<f64>() / count(ROUNDS)
        };
        Measured {
            rate: mean(0, |round| round.rate),
            load: mean(0, |round| round.load),
            needed: mean(0, |round| round.needed),
            // What calls ask for comes a round trip later.
            replying: mean(1, |round| round.replying),
        }
    }

    /// The present interval, with the time that replies took until now.
    fn interval(&mut self, now: Instant) -> &mut Interval {
        let interval = self.interval.get_or_insert_with(|| Interval::new(now));
        let elapsed = now.saturating_duration_since(interval.until);
        interval.replying += count(self.replying) * elapsed.as_secs_f64();
        interval.until = now;
        interval
    }
}

impl Interval {
    fn new(since: Instant) -> Self {
        Self {
            since,
            until: since,
            octets: 0,
            round_trips: 0.0,
            reply_trips: 0.0,
            replying: 0.0,
        }
    }
}

/// Round trips in which an OpenAFS server sends so many bytes when nothing queues, as a number that
/// grows evenly: 1, 2, 4, 8, 16 and then 32 packets each.
fn round_trips(bytes: u64) -> f64 {
    let packets = bytes_of(bytes) / PACKET;
    let ramp = 2.0 * WINDOW - 1.0;
    (packets.min(ramp) + 1.0).log2() + (packets - ramp).max(0.0) / WINDOW
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn round_trips_follow_the_server_s_windows() {
        for (packets, trips) in [
            (0, 0.0),
            (1, 1.0),
            (3, 2.0),
            (31, 5.0),
            (63, 6.0),
            (95, 7.0),
        ] {
            let found = round_trips(packets * 1416);
            assert!((found - trips).abs() < 1e-9, "{packets}: {found}");
        }
        assert!(round_trips(64 * 1416) < round_trips(65 * 1416));
    }

    /// Lets calls of 63 packets come, `slowness` times as slowly as without a queue.
    fn measure(calls: usize, slowness: f64) -> Measured {
        let mut meter = Meter::default();
        let mut now = Instant::now();
        let mut last = None;
        for _ in 0..4 {
            for trip in 0..6 {
                now += Duration::from_secs_f64(0.1 * slowness);
                for call in 0..calls {
                    if trip == 0 {
                        meter.reply_begins(now);
                    }
                    let before = ((1 << trip) - 1) * 1416;
                    let after = ((2 << trip) - 1) * 1416;
                    let measured = meter.received(now, before, after, 0.1);
                    assert!(measured.is_none() || call == 0, "one round trip at a time");
                    last = measured.map(|(_, mean)| mean).or(last);
                    if trip == 5 {
                        meter.reply_ends(now);
                    }
                }
            }
        }
        last.expect("four calls' time is enough")
    }

    #[test]
    fn replies_that_queue_are_more_than_needed() {
        for slowness in [1.0, 1.5] {
            let found = measure(30, slowness);
            let queue = found.replying / found.needed;
            assert!(
                (queue / slowness - 1.0).abs() < 0.05,
                "{slowness}: {found:?}"
            );
            assert!(
                (found.load * slowness / 30.0 - 1.0).abs() < 0.05,
                "{found:?}"
            );
        }
    }
}
