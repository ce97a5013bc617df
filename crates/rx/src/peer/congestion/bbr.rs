//! BBRv3 (draft-ietf-ccwg-bbr): a model of the path's rate and RTT decides what may be in flight.
//!
//! The states, gains and bounds are the draft's. It differs where links that lose at random, or
//! queues shared with CUBIC, came out badly in simulation (see the table in the parent module):
//!
//! - A queue is told from chance by the RTT. While the RTT is near its minimum, losses count as
//!   random up to 2 % and two standard deviations, so that a flow of 30 packets does not take a
//!   single loss for congestion. Above 1.25 × the minimum, the plain 2 % counts.
//! - While cruising in a standing queue, any loss lowers the window to 0.7 of itself once a round,
//!   but not below what the measured rate needs. The draft lowers it to what was delivered, which
//!   in a full queue is hardly less than before. The short bound on the rate is lowered only by a
//!   round that lost too much, and grows back by 2 % in every other round.
//! - Headroom, too, leaves what the measured rate needs while acknowledgements bunch up.
//! - In Startup, packets are paced at twice the window a round trip where that is more than the
//!   draft's gain allows: the rate is known a round trip late, and would hold the window back.
//! - The first probe comes ten rounds after Startup, whose losses say little about the path.
//! - Cruising paces at the full estimate while the RTT shows no queue, and at 0.95 of it else.
//! - A probe that lost packets to a queue leaves the long bound at 0.85 of the flight, and the
//!   next probe waits until CUBIC or Reno had time to regain its window (twice CUBIC's period, or
//!   four times as many rounds as the flight has packets). Probes that come more often are what
//!   starves CUBIC; waiting in proportion to the own window is what makes BBR flows equal.
//! - Probing the RTT, which happens every 5 s in a queue that others fill too, does not put off the next probe
//!   for bandwidth, or there would be none.
//! - The RTT is not probed while samples within 1/32 of the minimum come by themselves, which saves the
//!   2 % of throughput that probing costs on an idle path.
//! - There is no packet conservation in recovery: pacing at the measured rate does as much.

use std::time::{Duration, Instant};

use super::{
    CongestionControl, Loss, MIN_WINDOW_PACKETS, PathView,
    flight::{AckSample, Flight, rate_over, scale, volume},
};
use crate::peer::rtt::RttEstimator;

/// Gain that doubles the sending rate each round while the path is searched for its capacity.
const STARTUP_PACING_GAIN: f64 = 2.77;
const STARTUP_WINDOW_GAIN: f64 = 2.0;
const DRAIN_PACING_GAIN: f64 = 0.5;
const WINDOW_GAIN: f64 = 2.0;
const UP_PACING_GAIN: f64 = 1.25;
const UP_WINDOW_GAIN: f64 = 2.25;
const DOWN_PACING_GAIN: f64 = 0.9;
const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;

/// Paced this much below the estimate, so that a queue of our own making drains.
const PACING_MARGIN: f64 = 0.95;
/// Samples at most 1/64 above the minimum show that there is no queue to drain...
const EMPTY_DIVISOR: u32 = 64;
/// ...and so do those within what drivers add by chance, which is this, but at most 1/16.
const EMPTY_NOISE: Duration = Duration::from_millis(1);
const EMPTY_NOISE_DIVISOR: u32 = 16;
/// Share of a flight that may be lost before the flight counts as too large.
const LOSS_THRESHOLD: f64 = 0.02;
/// What is left of a bound after a round that lost too much.
const BETA: f64 = 0.7;
/// What a round without such losses makes of the short bound on the rate.
const SHORT_RECOVERY: f64 = 1.02;
/// Share of the known-safe flight that is left to others while cruising.
const HEADROOM: f64 = 0.15;
/// An RTT above the minimum by a quarter of it shows a queue (divisor 4).
const QUEUED_DIVISOR: u32 = 4;
/// How many standard deviations above the threshold losses count as chance while no queue shows.
const CHANCE_DEVIATIONS: f64 = 2.0;
/// What is left of the long bound after a probe that lost packets to a queue.
const SHARED_LONG_BETA: f64 = 0.85;
/// Probes wait this many times the period in which CUBIC regains a window...
const SHARED_PERIOD: f64 = 2.0;
/// ...which is the cube root of the window in packets times (1 - 0.7) / 0.4 (RFC 9438 §4.2)...
const CUBIC_DEPTH: f64 = 0.75;
/// ...but at most this many seconds.
const SHARED_WAIT_MAX: f64 = 10.0;
/// Rounds between probes if nobody else seems to use the path.
const RENO_ROUNDS_MAX: u64 = 63;
/// Rounds from Startup to the first probe, as the losses of Startup say little about the path.
const EARLY_ROUNDS: u64 = 10;
/// Loss bursts in one round that end Startup.
const STARTUP_LOSS_BURSTS: u32 = 6;
/// Initial windows delivered until the measured rate may bound the window: a peer whose receive
/// window is not known yet gets less than the initial window at first, and the rate shows that.
const SLOW_RATE_WINDOWS: u64 = 4;
/// Startup ends when the rate grew less than this in each of three rounds.
const FULL_RATE_GROWTH: f64 = 1.25;
const FULL_RATE_ROUNDS: u32 = 3;

const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// Stands for "no sample yet"; far above any RTT, and safe to calculate with.
const NO_RTT: Duration = Duration::from_secs(86_400);
/// A sample at most 1/32 above the minimum shows that the queue is empty.
const NEAR_MIN_DIVISOR: u32 = 32;

/// "No bound".
const UNBOUNDED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// Where the acknowledgements stand in relation to the last bandwidth probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    None,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// What a loss may lower, kept so that a spurious one can give it back.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    rate_short: u64,
    flight_short: u64,
    flight_long: u64,
}

/// State of BBR on one path. "Long" bounds come from probing and last until the next probe,
/// "short" ones react to the round at hand and end when the next probe begins.
#[derive(Debug)]
pub(crate) struct Bbr {
    phase: Phase,
    ack_phase: AckPhase,
    random: fastrand::Rng,
    datagram: u64,
    initial_window: u64,

    window: u64,
    saved_window: u64,
    pacing_rate: u64,
    /// The pacing rate rests on a measured RTT.
    pacing_measured: bool,
    pacing_gain: f64,
    window_gain: f64,

    // The model.
    rate_max: RateMax,
    rate_short: u64,
    flight_long: u64,
    flight_short: u64,
    min_rtt: Duration,
    min_rtt_at: Instant,
    probe_rtt_min: Duration,
    probe_rtt_min_at: Instant,
    aggregation: Aggregation,

    // Rounds and what this round saw.
    rounds: Rounds,
    loss_rounds: Rounds,
    rate_latest: u64,
    flight_latest: u64,
    rtt_in_round: Duration,
    lost_at_round: u64,
    delivered_at_round: u64,
    bursts_in_round: u32,
    marked_in_round: u64,
    loss_in_round: bool,
    before_loss: Option<BeforeLoss>,

    // The search for the full rate.
    full_rate_reached: bool,
    full_rate_now: bool,
    full_rate: u64,
    full_rate_rounds: u32,

    // Probing for bandwidth.
    probe_samples: bool,
    cycle_at: Instant,
    probe_wait: Duration,
    /// The last probe met a full queue: somebody else may be using the path.
    shared: bool,
    /// No probe has corrected yet what Startup found.
    early: bool,
    rounds_since_probe: u32,
    up_rounds: u32,
    up_acked: u64,
    up_per_packet: u64,
    /// The window was full at some time in the last round.
    window_limited: bool,
    window_limited_until: u64,

    probe_rtt_done_at: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
}

#[derive(Clone, Copy, Debug)]
struct BeforeLoss {
    bounds: Bounds,
    began: Instant,
    unexplained: u64,
}

/// Packet-timed rounds: one ends when a packet sent after it began is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    end: u64,
    started: bool,
}

impl Rounds {
    fn update(&mut self, ack: &AckSample, delivered: u64) -> bool {
        self.started = ack.newest.delivered() >= self.end;
        if self.started {
            self.end = delivered;
        }
        self.started
    }

    fn restart(&mut self, delivered: u64) {
        self.end = delivered;
    }
}

/// The highest rate of this probing cycle and the one before.
#[derive(Clone, Copy, Debug, Default)]
struct RateMax {
    this_cycle: u64,
    last_cycle: u64,
}

impl RateMax {
    fn get(&self) -> u64 {
        self.this_cycle.max(self.last_cycle)
    }

    fn update(&mut self, rate: u64) {
        self.this_cycle = self.this_cycle.max(rate);
    }

    fn advance(&mut self) {
        if self.this_cycle > 0 {
            self.last_cycle = std::mem::take(&mut self.this_cycle);
        }
    }
}

/// How much more than the estimated rate arrives at once, because acknowledgements bunch up.
#[derive(Clone, Copy, Debug)]
struct Aggregation {
    began: Instant,
    delivered: u64,
    /// Maxima of the current and the last stretch of five rounds.
    extra: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    fn update(
        &mut self,
        ack: &AckSample,
        rate: u64,
        window: u64,
        round_started: bool,
        settled: bool,
    ) {
        if round_started {
            self.rounds += 1;
            if self.rounds >= if settled { 5 } else { 1 } {
                self.rounds = 0;
                self.extra = [0, self.extra[0]];
            }
        }
        let expected = volume(rate, ack.now.saturating_duration_since(self.began));
        if self.delivered <= expected {
            self.began = ack.now;
            self.delivered = 0;
        }
        let expected = volume(rate, ack.now.saturating_duration_since(self.began));
        self.delivered += ack.acked;
        let extra = self.delivered.saturating_sub(expected).min(window);
        self.extra[0] = self.extra[0].max(extra);
    }

    fn extra(&self) -> u64 {
        self.extra[0].max(self.extra[1])
    }
}

impl Bbr {
    pub(super) fn new(now: Instant, window: u64, datagram: u64, seed: u64) -> Self {
        Self {
            phase: Phase::Startup,
            ack_phase: AckPhase::None,
            random: fastrand::Rng::with_seed(seed),
            datagram,
            initial_window: window,
            window,
            saved_window: window,
            pacing_rate: 0,
            pacing_measured: false,
            pacing_gain: STARTUP_PACING_GAIN,
            window_gain: STARTUP_WINDOW_GAIN,
            rate_max: RateMax::default(),
            rate_short: UNBOUNDED,
            flight_long: UNBOUNDED,
            flight_short: UNBOUNDED,
            min_rtt: NO_RTT,
            min_rtt_at: now,
            probe_rtt_min: NO_RTT,
            probe_rtt_min_at: now,
            aggregation: Aggregation {
                began: now,
                delivered: 0,
                extra: [0; 2],
                rounds: 0,
            },
            rounds: Rounds::default(),
            loss_rounds: Rounds::default(),
            rate_latest: 0,
            flight_latest: 0,
            rtt_in_round: NO_RTT,
            lost_at_round: 0,
            delivered_at_round: 0,
            bursts_in_round: 0,
            marked_in_round: 0,
            loss_in_round: false,
            before_loss: None,
            full_rate_reached: false,
            full_rate_now: false,
            full_rate: 0,
            full_rate_rounds: 0,
            probe_samples: false,
            cycle_at: now,
            probe_wait: Duration::ZERO,
            shared: false,
            early: true,
            rounds_since_probe: 0,
            up_rounds: 0,
            up_acked: 0,
            up_per_packet: UNBOUNDED,
            window_limited: false,
            window_limited_until: 0,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            idle_restart: false,
        }
    }

    /// True while the flight is kept small on purpose, to see the RTT without a queue.
    pub(super) fn probing_rtt(&self) -> bool {
        self.phase == Phase::ProbeRtt
    }

    fn probing_bandwidth(&self) -> bool {
        matches!(
            self.phase,
            Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up
        )
    }

    fn rate(&self) -> u64 {
        self.rate_max.get().min(self.rate_short)
    }

    fn min_window(&self) -> u64 {
        MIN_WINDOW_PACKETS * self.datagram
    }

    /// The bandwidth-delay product times `gain`.
    fn bdp(&self, rate: u64, gain: f64) -> u64 {
        if self.min_rtt == NO_RTT || rate == 0 {
            return self.initial_window;
        }
        scale(volume(rate, self.min_rtt), gain)
    }

    /// What has to be in flight for `gain` times the rate, with room for our own bursts.
    fn flight_for(&self, rate: u64, gain: f64) -> u64 {
        let quantum = (self.pacing_rate / 1000)
            .min(super::MAX_QUANTUM as u64)
            .max(2 * self.datagram);
        let mut flight = self.bdp(rate, gain).max(3 * quantum).max(self.min_window());
        if self.phase == Phase::Up {
            flight += 2 * self.datagram;
        }
        flight
    }

    fn target_flight(&self) -> u64 {
        self.bdp(self.rate(), 1.0).min(self.window)
    }

    /// What has to be in flight for the measured rate while acknowledgements bunch up: no bound
    /// that only makes room for others goes below it.
    fn least_flight(&self) -> u64 {
        self.flight_for(self.rate(), 1.0) + self.aggregation.extra()
    }

    fn flight_with_headroom(&self) -> u64 {
        if self.flight_long == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = scale(self.flight_long, HEADROOM).max(self.datagram);
        self.flight_long
            .saturating_sub(headroom)
            .max(self.least_flight().min(self.flight_long))
    }

    fn probe_rtt_window(&self) -> u64 {
        self.bdp(self.rate(), PROBE_RTT_WINDOW_GAIN)
            .max(self.min_window())
    }

    // --- Signals of the round -----------------------------------------------------------------

    fn update_signals(&mut self, ack: &AckSample, flight: &Flight) {
        if self.rounds.update(ack, flight.delivered()) {
            self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
        }
        if let Some(rate) = ack.rate {
            if !ack.newest.app_limited() || rate >= self.rate_max.get() {
                self.rate_max.update(rate);
            }
            self.rate_latest = self.rate_latest.max(rate);
        }
        if let Some(rtt) = ack.rtt {
            self.rtt_in_round = self.rtt_in_round.min(rtt);
        }
        self.flight_latest = self.flight_latest.max(ack.delivered);
        self.loss_rounds.update(ack, flight.delivered());
    }

    /// At the end of a round: lowers the short bounds if the round lost too much.
    fn adapt_short_bounds(&mut self, flight: &Flight) {
        if !self.loss_rounds.started {
            return;
        }
        if self.probing_for_more() {
            return;
        }
        if self.loss_in_round && self.round_lost_too_much(flight) {
            if self.rate_short == UNBOUNDED {
                self.rate_short = self.rate_max.get();
            }
            if self.flight_short == UNBOUNDED {
                self.flight_short = self.window;
            }
            self.rate_short = self.rate_latest.max(scale(self.rate_short, BETA));
            self.flight_short = self.flight_latest.max(scale(self.flight_short, BETA));
        } else if self.rate_short != UNBOUNDED {
            self.rate_short = scale(self.rate_short, SHORT_RECOVERY);
            if self.rate_short >= self.rate_max.get() {
                self.rate_short = UNBOUNDED;
            }
        }
        let queued = self.phase == Phase::Cruise && self.queued(self.rtt_in_round);
        if self.loss_in_round && queued {
            // A few losses from a full queue lower the flight, to no less than what keeps the
            // measured rate: losses at random come in queues too.
            let lowered = scale(self.flight_short.min(self.window), BETA).max(self.least_flight());
            self.flight_short = self.flight_short.min(lowered);
        }
    }

    /// True if `rtt` shows a queue.
    fn queued(&self, rtt: Duration) -> bool {
        rtt != NO_RTT && rtt > self.min_rtt + self.min_rtt / QUEUED_DIVISOR
    }

    /// True if `rtt` shows that nothing waits in the queue, as finely as it can be measured.
    fn seems_empty(&self, rtt: Duration) -> bool {
        let noise = EMPTY_NOISE.min(self.min_rtt / EMPTY_NOISE_DIVISOR);
        rtt <= self.min_rtt + noise.max(self.min_rtt / EMPTY_DIVISOR)
    }

    /// At the end of a round, after all who look at it have done so.
    fn begin_loss_round(&mut self, ack: &AckSample, flight: &Flight) {
        if !self.loss_rounds.started {
            return;
        }
        self.rate_latest = ack.rate.unwrap_or(0);
        self.flight_latest = ack.delivered;
        self.loss_in_round = false;
        self.bursts_in_round = 0;
        self.marked_in_round = 0;
        self.rtt_in_round = NO_RTT;
        self.lost_at_round = flight.lost();
        self.delivered_at_round = flight.delivered();
    }

    fn round_lost_too_much(&self, flight: &Flight) -> bool {
        let lost = flight.lost().saturating_sub(self.lost_at_round);
        let delivered = flight.delivered().saturating_sub(self.delivered_at_round);
        let marked = self.marked_in_round;
        self.too_much(lost + marked, lost + delivered)
    }

    /// True if `lost` of `sent` bytes is more than random loss below the threshold explains.
    ///
    /// Without a queue a few losses among few packets are no sign of congestion: there the
    /// threshold is raised by as much as chance may add to it.
    fn too_much(&self, lost: u64, sent: u64) -> bool {
        let allowed = sent as f64 * LOSS_THRESHOLD;
        if self.queued(self.rtt_in_round) {
            return lost as f64 > allowed;
        }
        lost as f64 > allowed + CHANCE_DEVIATIONS * (allowed * self.datagram as f64).sqrt()
    }

    fn probing_for_more(&self) -> bool {
        matches!(self.phase, Phase::Startup | Phase::Refill | Phase::Up)
    }

    // --- Startup and Drain --------------------------------------------------------------------

    fn check_full_rate(&mut self, ack: &AckSample) {
        if self.full_rate_now || !self.rounds.started || ack.newest.app_limited() {
            return;
        }
        let Some(rate) = ack.rate else { return };
        if rate >= scale(self.full_rate, FULL_RATE_GROWTH) {
            self.reset_full_rate();
            self.full_rate = rate;
            return;
        }
        // Where the queue grows and the rate does not, one round says as much as two.
        self.full_rate_rounds += if self.queued(self.rtt_in_round) { 2 } else { 1 };
        self.full_rate_now = self.full_rate_rounds >= FULL_RATE_ROUNDS;
        self.full_rate_reached |= self.full_rate_now;
    }

    fn reset_full_rate(&mut self) {
        self.full_rate = 0;
        self.full_rate_rounds = 0;
        self.full_rate_now = false;
    }

    fn check_startup(&mut self, flight: &Flight) {
        if self.phase != Phase::Startup {
            return;
        }
        let lossy = self.loss_rounds.started
            && self.bursts_in_round >= STARTUP_LOSS_BURSTS
            && self.round_lost_too_much(flight);
        if lossy && !self.full_rate_reached {
            self.full_rate_reached = true;
            self.full_rate_now = true;
            self.flight_long = self.bdp(self.rate_max.get(), 1.0).max(self.flight_latest);
        }
        if self.full_rate_reached {
            self.phase = Phase::Drain;
            self.pacing_gain = DRAIN_PACING_GAIN;
            self.window_gain = STARTUP_WINDOW_GAIN;
        }
    }

    fn check_drain(&mut self, now: Instant, flight: &Flight) {
        if self.phase == Phase::Drain
            && flight.in_flight() <= self.flight_for(self.rate_max.get(), 1.0)
        {
            self.begin_down(now, flight);
        }
    }

    // --- Probing for bandwidth ----------------------------------------------------------------

    fn begin_down(&mut self, now: Instant, flight: &Flight) {
        self.loss_in_round = false;
        self.rate_latest = 0;
        self.flight_latest = 0;
        self.up_per_packet = UNBOUNDED;
        self.rounds_since_probe = self.random.u32(0..=1);
        self.probe_wait = Duration::from_millis(self.random.u64(2000..3000));
        if self.shared {
            let packets = self.target_flight() as f64 / self.datagram as f64;
            let period = SHARED_PERIOD * (packets * CUBIC_DEPTH).cbrt();
            // Flows that share a queue must not all probe at the same time, whether the period is cut or not.
            let spread = (0.75 + 0.5 * self.random.f64()) * period.min(SHARED_WAIT_MAX);
            let wait = Duration::from_secs_f64(spread);
            self.probe_wait = self.probe_wait.max(wait);
        }
        self.cycle_at = now;
        self.ack_phase = AckPhase::Stopping;
        self.rounds.restart(flight.delivered());
        self.phase = Phase::Down;
        self.pacing_gain = DOWN_PACING_GAIN;
        self.window_gain = WINDOW_GAIN;
    }

    fn begin_cruise(&mut self) {
        self.phase = Phase::Cruise;
        self.pacing_gain = 1.0;
        self.window_gain = WINDOW_GAIN;
    }

    fn begin_refill(&mut self, flight: &Flight) {
        self.rate_short = UNBOUNDED;
        self.flight_short = UNBOUNDED;
        self.up_rounds = 0;
        self.up_acked = 0;
        self.shared = false;
        self.early = false;
        self.ack_phase = AckPhase::Refilling;
        self.rounds.restart(flight.delivered());
        self.phase = Phase::Refill;
        self.pacing_gain = 1.0;
        self.window_gain = WINDOW_GAIN;
    }

    fn begin_up(&mut self, now: Instant, ack: &AckSample, flight: &Flight) {
        self.ack_phase = AckPhase::Starting;
        self.rounds.restart(flight.delivered());
        self.reset_full_rate();
        self.full_rate = ack.rate.unwrap_or(0);
        self.cycle_at = now;
        self.phase = Phase::Up;
        self.pacing_gain = UP_PACING_GAIN;
        self.window_gain = UP_WINDOW_GAIN;
        self.steepen_up();
    }

    fn steepen_up(&mut self) {
        let growth = self.datagram << self.up_rounds.min(30);
        self.up_rounds = (self.up_rounds + 1).min(30);
        self.up_per_packet =
            scale(self.window, self.datagram as f64 / growth as f64).max(self.datagram);
    }

    /// Raises the long bound while a probe goes well, doubling the step each round.
    fn raise_flight_long(&mut self, ack: &AckSample) {
        if !self.window_limited || self.window < self.flight_long {
            return;
        }
        self.up_acked += ack.acked;
        if self.up_acked >= self.up_per_packet {
            let steps = self.up_acked / self.up_per_packet;
            self.up_acked -= steps * self.up_per_packet;
            self.flight_long = self
                .flight_long
                .saturating_add(steps.saturating_mul(self.datagram));
        }
        if self.rounds.started {
            self.steepen_up();
        }
    }

    fn update_cycle(&mut self, ack: &AckSample, flight: &Flight) {
        if !self.full_rate_reached {
            return;
        }
        self.adapt_long_bound(ack, flight);
        let go_down = self.phase == Phase::Up && self.time_to_go_down(ack);
        match self.phase {
            Phase::Down => {
                if self.time_to_probe(ack.now) {
                    self.begin_refill(flight);
                } else if flight.in_flight() <= self.flight_with_headroom()
                    && flight.in_flight() <= self.flight_for(self.rate_max.get(), 1.0)
                {
                    self.begin_cruise();
                }
            }
            Phase::Cruise if self.time_to_probe(ack.now) => self.begin_refill(flight),
            Phase::Refill if self.rounds.started => {
                self.probe_samples = true;
                self.begin_up(ack.now, ack, flight);
            }
            Phase::Up if go_down => self.begin_down(ack.now, flight),
            _ => {}
        }
    }

    fn time_to_probe(&self, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.cycle_at) > self.probe_wait;
        let packets = self.target_flight() / self.datagram;
        let rounds = if self.early {
            EARLY_ROUNDS
        } else if self.shared {
            4 * packets
        } else {
            packets.min(RENO_ROUNDS_MAX)
        };
        waited || u64::from(self.rounds_since_probe) >= rounds
    }

    fn time_to_go_down(&mut self, ack: &AckSample) -> bool {
        if self.window_limited && self.window >= self.flight_long {
            // The bound, not the path, limits: what the rate shows is no plateau.
            self.reset_full_rate();
            self.full_rate = ack.rate.unwrap_or(0);
            return false;
        }
        self.full_rate_now
    }

    fn adapt_long_bound(&mut self, ack: &AckSample, flight: &Flight) {
        if self.rounds.started {
            match self.ack_phase {
                AckPhase::Starting => self.ack_phase = AckPhase::Feedback,
                AckPhase::Stopping => {
                    self.probe_samples = false;
                    self.ack_phase = AckPhase::None;
                    if self.probing_bandwidth() && !ack.newest.app_limited() {
                        self.rate_max.advance();
                    }
                }
                _ => {}
            }
        }
        if self.too_much(ack.lost, ack.newest.in_flight()) {
            if self.probe_samples {
                self.flight_too_large(
                    ack.newest.in_flight(),
                    ack.newest.app_limited(),
                    ack.now,
                    flight,
                );
            }
            return;
        }
        if self.flight_long == UNBOUNDED {
            return;
        }
        self.flight_long = self.flight_long.max(ack.newest.in_flight());
        if self.phase == Phase::Up {
            self.raise_flight_long(ack);
        }
    }

    fn flight_too_large(&mut self, size: u64, app_limited: bool, now: Instant, flight: &Flight) {
        self.probe_samples = false;
        if !app_limited {
            self.shared = self.queued(self.rtt_in_round);
            let size = if self.shared {
                scale(size, SHARED_LONG_BETA)
            } else {
                size
            };
            self.flight_long = size.max(self.least_flight());
        }
        if self.phase == Phase::Up {
            self.begin_down(now, flight);
        }
    }

    // --- RTT ----------------------------------------------------------------------------------

    fn update_min_rtt(&mut self, ack: &AckSample, flight: &Flight) {
        let age = ack.now.saturating_duration_since(self.probe_rtt_min_at);
        let probe_due = age > PROBE_RTT_INTERVAL;
        if let Some(rtt) = ack.rtt
            && (rtt < self.probe_rtt_min || probe_due)
        {
            self.probe_rtt_min = rtt;
            self.probe_rtt_min_at = ack.now;
        } else if let Some(rtt) = ack.rtt
            && rtt <= self.min_rtt + self.min_rtt / NEAR_MIN_DIVISOR
        {
            // The queue is as good as empty: there is no need to empty it on purpose.
            self.probe_rtt_min_at = ack.now;
            self.min_rtt_at = ack.now;
        }
        let expired = ack.now.saturating_duration_since(self.min_rtt_at) > MIN_RTT_WINDOW;
        if self.probe_rtt_min < self.min_rtt || expired {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
        if self.phase != Phase::ProbeRtt && probe_due && !self.idle_restart {
            self.phase = Phase::ProbeRtt;
            self.pacing_gain = 1.0;
            self.window_gain = PROBE_RTT_WINDOW_GAIN;
            self.saved_window = self.saved_window.max(self.window);
            self.probe_rtt_done_at = None;
            self.ack_phase = AckPhase::Stopping;
            self.rounds.restart(flight.delivered());
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(ack.now, flight);
        }
        self.idle_restart = false;
    }

    fn handle_probe_rtt(&mut self, now: Instant, flight: &Flight) {
        match self.probe_rtt_done_at {
            None if flight.in_flight() <= self.probe_rtt_window() => {
                self.probe_rtt_done_at = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.rounds.restart(flight.delivered());
            }
            None => {}
            Some(done_at) => {
                self.probe_rtt_round_done |= self.rounds.started;
                if self.probe_rtt_round_done && now > done_at {
                    self.end_probe_rtt(now, flight);
                }
            }
        }
    }

    fn end_probe_rtt(&mut self, now: Instant, flight: &Flight) {
        self.probe_rtt_min_at = now;
        self.probe_rtt_done_at = None;
        self.window = self.window.max(self.saved_window);
        self.saved_window = 0;
        self.rate_short = UNBOUNDED;
        self.flight_short = UNBOUNDED;
        if self.full_rate_reached {
            // The next probe for bandwidth is due when it was: it may wait for longer than the RTT does.
            let due = (self.cycle_at, self.probe_wait, self.rounds_since_probe);
            self.begin_down(now, flight);
            (self.cycle_at, self.probe_wait, self.rounds_since_probe) = due;
            self.begin_cruise();
        } else {
            self.phase = Phase::Startup;
            self.pacing_gain = STARTUP_PACING_GAIN;
            self.window_gain = STARTUP_WINDOW_GAIN;
        }
    }

    // --- What follows from the model ----------------------------------------------------------

    fn set_pacing_rate(&mut self, path: PathView<'_>) {
        if !self.pacing_measured {
            self.pacing_measured = path.rtt.has_sample();
            self.pacing_rate =
                rate_over(scale(self.window, STARTUP_PACING_GAIN), path.rtt.smoothed());
        }
        let empty = self.phase == Phase::Cruise && self.seems_empty(path.rtt.latest());
        let margin = if empty { 1.0 } else { PACING_MARGIN };
        let mut rate = scale(self.rate(), self.pacing_gain * margin);
        if !self.full_rate_reached && self.phase == Phase::Startup && path.rtt.has_sample() {
            // The rate measured is that of a round trip ago; the window is ahead of it.
            let window = scale(self.window, STARTUP_WINDOW_GAIN);
            rate = rate.max(rate_over(window, path.rtt.smoothed()));
        }
        if rate > 0 && (self.full_rate_reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    fn set_window(&mut self, ack: &AckSample, flight: &Flight) {
        let target = self.flight_for(self.rate(), self.window_gain) + self.aggregation.extra();
        if self.full_rate_reached {
            self.window = (self.window + ack.acked).min(target);
        } else if self.window < target
            || flight.delivered() < SLOW_RATE_WINDOWS * self.initial_window
        {
            self.window += ack.acked;
        }
        self.window = self.window.max(self.min_window());
        if self.phase == Phase::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        let long = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.flight_long,
            Phase::Cruise | Phase::ProbeRtt => self.flight_with_headroom(),
            Phase::Startup | Phase::Drain => UNBOUNDED,
        };
        self.window = self
            .window
            .min(long.min(self.flight_short).max(self.min_window()));
    }
}

impl CongestionControl for Bbr {
    fn on_packet_sent(&mut self, now: Instant, bytes: u64, restarted: bool, path: PathView<'_>) {
        if self.pacing_rate == 0 {
            self.set_pacing_rate(path);
        }
        if restarted && path.flight.app_limited() {
            self.idle_restart = true;
            self.aggregation.began = now;
            self.aggregation.delivered = 0;
            if self.probing_bandwidth() {
                self.pacing_rate = scale(self.rate(), PACING_MARGIN).max(1);
            } else if self.phase == Phase::ProbeRtt
                && self.probe_rtt_done_at.is_some_and(|done_at| now > done_at)
            {
                self.end_probe_rtt(now, path.flight);
            }
        }
        if path.flight.in_flight() + bytes > self.window {
            self.window_limited = true;
            self.window_limited_until = path.flight.delivered() + path.flight.in_flight();
        }
    }

    fn on_ack(&mut self, ack: &AckSample, path: PathView<'_>) {
        let flight = path.flight;
        self.window_limited &= flight.delivered() <= self.window_limited_until;
        self.update_signals(ack, flight);
        self.adapt_short_bounds(flight);
        let (rate, settled) = (self.rate(), self.full_rate_reached);
        self.aggregation
            .update(ack, rate, self.window, self.rounds.started, settled);
        self.check_full_rate(ack);
        self.check_startup(flight);
        self.check_drain(ack.now, flight);
        self.update_cycle(ack, flight);
        self.update_min_rtt(ack, flight);
        self.begin_loss_round(ack, flight);
        self.set_pacing_rate(path);
        self.set_window(ack, flight);
    }

    fn on_loss(&mut self, loss: &Loss, path: PathView<'_>) {
        let bytes = loss.packet.bytes as u64;
        let token = loss.packet.token;
        if self
            .before_loss
            .is_none_or(|before| loss.packet.time_sent > before.began)
        {
            let bounds = Bounds {
                rate_short: self.rate_short,
                flight_short: self.flight_short,
                flight_long: self.flight_long,
            };
            self.before_loss = Some(BeforeLoss {
                bounds,
                began: loss.now,
                unexplained: 0,
            });
        }
        if let Some(before) = &mut self.before_loss {
            before.unexplained += 1;
        }
        self.loss_in_round = true;
        self.bursts_in_round += u32::from(loss.new_burst);
        if loss.persistent {
            self.on_persistent_timeout(loss.now, path);
            return;
        }
        if !self.probe_samples {
            return;
        }
        let lost = path.flight.lost().saturating_sub(token.lost());
        if self.too_much(lost, token.in_flight()) {
            // The flight at which the losses passed the threshold was still good.
            let before = token.in_flight().saturating_sub(bytes);
            let allowed = scale(before, LOSS_THRESHOLD).saturating_sub(lost.saturating_sub(bytes));
            let size = before + scale(allowed, 1.0 / (1.0 - LOSS_THRESHOLD));
            self.flight_too_large(size, token.app_limited(), loss.now, path.flight);
        }
    }

    fn on_spurious_loss(&mut self, _now: Instant, _bytes: u64, time_sent: Instant) {
        let Some(before) = &mut self.before_loss else {
            return;
        };
        if time_sent > before.began || before.unexplained == 0 {
            return;
        }
        before.unexplained -= 1;
        if before.unexplained > 0 {
            return;
        }
        let bounds = before.bounds;
        self.before_loss = None;
        self.loss_in_round = false;
        self.bursts_in_round = 0;
        self.rate_short = self.rate_short.max(bounds.rate_short);
        self.flight_short = self.flight_short.max(bounds.flight_short);
        self.flight_long = self.flight_long.max(bounds.flight_long);
    }

    fn on_ecn_ce(&mut self, _now: Instant, count: u64, _time_sent: Instant, _path: PathView<'_>) {
        self.marked_in_round += count * self.datagram;
        self.loss_in_round = true;
        self.bursts_in_round += 1;
    }

    fn on_persistent_timeout(&mut self, _now: Instant, _path: PathView<'_>) {
        self.saved_window = self.saved_window.max(self.window);
        self.window = self.min_window();
    }

    fn on_idle_restart(&mut self, _now: Instant, _path: PathView<'_>) {
        // The model outlives idleness, and pacing at its rate keeps the first flight smooth.
        self.idle_restart = true;
    }

    fn on_mtu_change(&mut self, old: u64, new: u64) {
        self.datagram = new;
        self.initial_window = scale(self.initial_window, new as f64 / old as f64);
        self.window = self.window.max(self.min_window());
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self, rtt: &RttEstimator) -> Option<u64> {
        if self.pacing_rate == 0 {
            return Some(rate_over(scale(self.window, STARTUP_PACING_GAIN), rtt.smoothed()).max(1));
        }
        Some(self.pacing_rate)
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Down => "probe-down",
            Phase::Cruise => "cruise",
            Phase::Refill => "refill",
            Phase::Up => "probe-up",
            Phase::ProbeRtt => "probe-rtt",
        }
    }
}
