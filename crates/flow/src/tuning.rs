//! Every number that decides what a controller does.

use std::time::Duration;

/// The numbers of both controllers.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Calls at first.
    pub initial: usize,
    /// Calls always allowed, unless the server is busy.
    pub basic: usize,
    /// Never fewer calls.
    pub least: usize,
    /// Never more calls: 64 connections to one server.
    pub most: usize,
    /// Calls allowed besides `basic` for each that would suffice.
    pub gain: f64,
    /// Start-up ends when this many times as many calls are in flight as suffice for what comes.
    pub start_slack: f64,
    /// The same while the server is introduced to connections.
    pub introducing_slack: f64,
    /// Start-up also ends when PINGs take this many times as long as at its beginning.
    pub trip_slack: f64,
    /// The same for those who come first.
    pub first_trip_slack: f64,
    /// Seconds by which PINGs must take longer at least.
    pub trip_least: f64,
    /// How often PINGs are looked at.
    pub trip_every: Duration,
    /// With fewer times as many calls in flight as suffice, there is room for more.
    pub room_slack: f64,
    /// Calls that may be in flight besides.
    pub queue_basic: f64,
    /// For how many times a call there must be room before start-up begins again.
    pub room_time: f64,
    /// The window of the filters of round trip and bandwidth.
    pub lifetime: Duration,
    /// The window of the long filter of the round trip.
    pub floor_lifetime: Duration,
    /// When the round trip is this many times its long filter, others keep a queue too.
    pub floor_slack: f64,
    /// The window of the best bandwidth.
    pub best_lifetime: Duration,
    /// The best bandwidth is measured over this time.
    pub best_time: Duration,
    /// Calls for more bytes than this are for peers that need no other to fill the link.
    pub large: u64,
    /// Shorter round trips count as this long: below it, scheduling is all that is measured.
    pub round_trip_least: Duration,
    /// The window of the filter of load, in times of a call.
    pub load_time: f64,
    /// Shares of those who come first.
    pub first_shares: u8,
    /// Calls allowed to them for each that would suffice.
    pub first_gain: f64,
    /// For how long they come first.
    pub first_time: Duration,
    /// Calls that may be added in a round trip.
    pub growth: usize,
    /// Of the present limit, this part may start in a round trip of the first start-up besides `growth`.
    pub first_start: f64,
    /// A call of which nothing comes for so long is stuck.
    pub stuck: Duration,
    /// And for so many round trips.
    pub stuck_trips: f64,
    /// Calls start as fast as to bring this many times the bandwidth.
    pub pace: f64,
    /// The same during start-up.
    pub pace_start: f64,
    /// The same during a drain.
    pub pace_drain: f64,
    /// The same during a drain where others keep a queue.
    pub pace_deep_drain: f64,
    /// The same for those who come first.
    pub pace_first: f64,
    /// Round trips that a drain takes.
    pub drain_trips: f64,
    /// Pauses shorter than this are made up for later.
    pub pause_least: Duration,

    /// Calls at first.
    pub scavenge_initial: usize,
    /// A queue of so many seconds is one.
    pub scavenge_queue: f64,
    /// Besides, a part of the least round trip.
    pub scavenge_queue_part: f64,
    /// The window of the filter of the round trip.
    pub scavenge_lifetime: Duration,
    /// One part in this many more calls a round trip, during start-up.
    pub scavenge_start_growth: usize,
    /// The same later.
    pub scavenge_growth: usize,
    /// Calls without a queue after which start-up begins again.
    pub scavenge_start_again: f64,
    /// Round trips of the longest pause between calls.
    pub scavenge_pause_most: f64,
    /// Calls start at this part of the time that one takes, divided by their number.
    pub scavenge_distance: f64,
    /// The part of a measured time that goes into the average.
    pub scavenge_smoothing: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            initial: 24,
            basic: 6,
            least: 2,
            most: 256,
            gain: 1.1,
            start_slack: 1.2,
            introducing_slack: 1.6,
            trip_slack: 1.25,
            first_trip_slack: 1.5,
            trip_least: 0.005,
            trip_every: Duration::from_millis(500),
            room_slack: 1.1,
            queue_basic: 2.0,
            room_time: 1.5,
            lifetime: Duration::from_secs(10),
            floor_lifetime: Duration::from_secs(600),
            floor_slack: 1.25,
            best_lifetime: Duration::from_secs(1800),
            best_time: Duration::from_secs(1),
            large: 1 << 20,
            round_trip_least: Duration::from_millis(1),
            load_time: 2.0,
            first_shares: 3,
            first_gain: 1.3,
            first_time: Duration::from_secs(10),
            growth: 6,
            first_start: 1.0,
            stuck: Duration::from_secs(1),
            stuck_trips: 4.0,
            pace: 1.1,
            pace_start: 1.25,
            pace_drain: 0.7,
            pace_deep_drain: 0.2,
            pace_first: 1.5,
            drain_trips: 2.0,
            pause_least: Duration::from_millis(1),
            scavenge_initial: 4,
            scavenge_queue: 0.008,
            scavenge_queue_part: 1.0 / 32.0,
            scavenge_lifetime: Duration::from_secs(180),
            scavenge_start_growth: 4,
            scavenge_growth: 32,
            scavenge_start_again: 3.0,
            scavenge_pause_most: 8.0,
            scavenge_distance: 0.9,
            scavenge_smoothing: 0.125,
        }
    }
}
