//! Every number that decides what a controller does.

use std::time::Duration;

/// The numbers of both controllers.
///
/// The comment of each says what it does, and which row of the table (`docs/benchmarks/flow.md`) sets it. Where a
/// simulation of a minute cannot show it, the comment says so.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Calls at first. Row "230 ms, 30 Mbit/s, alone": 6 give 0.01 less of the link.
    // spec: rx#how-openafs-sends
    pub initial: usize,
    /// Calls allowed beside those that the load requires, for each share. More take more beside TCP and with loss,
    /// and queue longer: row "230 ms, 30 Mbit/s, 1 % loss, beside TCP" sets the least, "alone" the most.
    pub basic: usize,
    /// The most calls: 64 connections to one server. This is the bound in the rows "100 ms, 1 Gbit/s".
    pub most: usize,
    /// Calls allowed for each that would have sufficed. Row "230 ms, 30 Mbit/s, 1 % loss, alone": 1.0 gives 0.19 less;
    /// 1.2 gives 0.07 more there, and makes every queue 1.5 times as long.
    pub gain: f64,
    /// Start-up ends when this many times as many calls are in flight as suffice for what comes. Row "12.5 ms,
    /// 1 Gbit/s, alone": 1.5 gives 0.04 less.
    pub start_slack: f64,
    /// With less than this many times as many in flight as suffice there is no queue. Row "230 ms, 30 Mbit/s, alone":
    /// with 1.2 the queue is 1.5 times as long.
    pub room_slack: f64,
    /// Start-up begins again when there was no queue for this many times the time of a call. Rows "when the link got
    /// wider": if it never does, they lose 0.1 to 0.23.
    pub room_time: f64,
    /// Calls that may be added in a round trip. Rows "12.5 ms, 1 Gbit/s" lose by 12, rows "100 ms, 1 Gbit/s" by 3.
    pub growth: usize,
    /// The window of the filters of round trip and bandwidth, and the time between two drains. The value is BBR's; no
    /// row lasts long enough to tell two such times apart.
    pub lifetime: Duration,
    /// Calls start as fast as to bring this many times the bandwidth. Without pacing every row "alone" loses 0.08 to
    /// 0.19.
    pub pace: f64,
    /// The same during a drain. Without drains queues in the rows "alone" are 1.3 to 1.8 times as long after five
    /// minutes.
    pub pace_drain: f64,
    /// Round trips that a drain takes; 1 moves no row.
    pub drain_trips: f64,
    /// The pacer makes up for shorter pauses later, because timers are no finer. A simulation has exact timers.
    pub pause_least: Duration,
    /// Shorter round trips count as this long: below it, scheduling is all that a real client measures.
    pub round_trip_least: Duration,
    /// Shares of a client that has a reader with priority. Row "230 ms, 100 Mbit/s, film played first": 1 stops the
    /// film for 20 s.
    pub priority_shares: u8,
    /// How long the priority lasts after the reader wanted something.
    pub priority_time: Duration,
    /// How long the best rate counts. It ranks servers; no row does.
    pub best_lifetime: Duration,
    /// The time over which the best rate is measured: after a loss, much data comes at once.
    pub best_time: Duration,
    /// Calls for more bytes than this are for afar peers, which need no others to fill the link.
    pub large: u64,

    /// A scavenger's calls at first. Row "230 ms, 30 Mbit/s, beside a background copy": 1 gives the other 0.17 less.
    pub scavenge_initial: usize,
    /// Seconds of queue at which a scavenger gives way. Row "12.5 ms, 1 Gbit/s, beside a background copy": 0.008 gives
    /// the other 0.13 less, 0.003 gives it 0.2 more; row "50 ms, 100 Mbit/s, a background copy alone" loses by less.
    pub scavenge_queue: f64,
    /// The window of its filter of the round trip. It must be longer than others may keep a queue, so no row shows
    /// it.
    pub scavenge_lifetime: Duration,
    /// One call in this many more in a round trip. Row "12.5 ms, 1 Gbit/s, a background copy alone": 4 gives 0.1
    /// less; row "230 ms, 100 Mbit/s, a background copy alone": 32 gives 0.1 less.
    pub scavenge_growth: usize,
    /// Its calls start at this part of the time that one takes, divided by their number: less than all, so that all
    /// are in use. Row "50 ms, 100 Mbit/s, a background copy alone": 0 gives 0.28 less.
    pub scavenge_distance: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            initial: 24,
            basic: 6,
            most: 256,
            gain: 1.1,
            start_slack: 1.2,
            room_slack: 1.1,
            room_time: 1.5,
            growth: 6,
            lifetime: Duration::from_secs(10),
            pace: 1.1,
            pace_drain: 0.7,
            drain_trips: 2.0,
            pause_least: Duration::from_millis(1),
            round_trip_least: Duration::from_millis(1),
            priority_shares: 3,
            priority_time: Duration::from_secs(10),
            best_lifetime: Duration::from_secs(1800),
            best_time: Duration::from_secs(1),
            large: 1 << 20,
            scavenge_initial: 4,
            scavenge_queue: 0.005,
            scavenge_lifetime: Duration::from_secs(180),
            scavenge_growth: 8,
            scavenge_distance: 0.9,
        }
    }
}
