//! One direction of a link in virtual time: the fate of each wire packet, decided on arrival.
//!
//! Arrival, queue, serialisation, loss, delay, delivery. The transmitter is modelled by the
//! moment it will be free again, so rate and queue are exact however late the caller's timers are.
//! Times are nanoseconds on any clock that does not go back; inside they are picoseconds, so that
//! a 64-byte packet at 1 Tbit/s still takes a whole number of them and rounding never adds up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::stats::PathCounters;

const PICOS_PER_NANO: u64 = 1_000;
/// Bits per byte times picoseconds per second.
const BYTE_PICOS: u64 = 8_000_000_000_000;
/// How long jitter takes from one random offset to the next.
const JITTER_STEP: u64 = 10_000_000;

/// What one direction of a link does to packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Bits per second of IP packets; `None` is unlimited.
    pub rate: Option<u64>,
    /// Most bytes that wait for or are in serialisation; more are dropped at the tail.
    pub queue_bytes: u64,
    /// One-way propagation delay.
    pub delay: Duration,
    /// The delay wanders by up to this much either way, without reordering.
    pub jitter: Duration,
    /// Share of packets lost at random, after the queue.
    pub loss: f64,
    /// Share of packets that arrive late by `reorder_delay`.
    pub reorder: f64,
    /// How late a reordered packet is.
    pub reorder_delay: Duration,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets that arrive with one bit flipped behind the IP header.
    pub corrupt: f64,
    /// Packets larger than this disappear silently; `None` is no such limit.
    pub path_mtu: Option<u32>,
    /// Bytes in the queue above which an ECN-capable packet is marked; `None` is never.
    pub ecn_mark_bytes: Option<u64>,
}

impl Shape {
    /// A path that only takes time.
    pub fn with_delay(delay: Duration) -> Self {
        Self {
            rate: None,
            queue_bytes: 64 * 1024,
            delay,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            duplicate: 0.0,
            corrupt: 0.0,
            path_mtu: None,
            ecn_mark_bytes: None,
        }
    }
}

/// The fate of a packet that gets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// When it arrives, in nanoseconds.
    pub due: u64,
    /// It was held back and those behind it may overtake.
    pub late: bool,
    /// It arrives twice.
    pub duplicate: bool,
    /// It arrives damaged; the number chooses where.
    pub corrupt: Option<u64>,
    /// It arrives with the congestion-experienced mark, if it can bear one.
    pub mark: bool,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Path {
    shape: Shape,
    /// When the transmitter is free again, in picoseconds.
    free_at: u64,
    /// What the last division left over, in byte-picoseconds; below the rate.
    remainder: u64,
    /// The queue limit and the marking threshold as transmission times, in picoseconds.
    queue_limit: u64,
    mark_above: u64,
    /// When the youngest packet in order is due: jitter must not let another pass it.
    last_due: u64,
    dice: Dice,
    jitter: Jitter,
    /// What happened so far.
    pub counters: PathCounters,
}

impl Path {
    /// A path of this shape. Equal seeds give the n-th packet offered the same fate, whenever it
    /// comes; `direction` tells the two directions of a link apart.
    pub fn new(shape: Shape, seed: u64, direction: u64) -> Self {
        let picos = |bytes: u64| match shape.rate {
            None => u64::MAX,
            Some(rate) => {
                u64::try_from(u128::from(bytes) * u128::from(BYTE_PICOS) / u128::from(rate))
                    .unwrap_or(u64::MAX)
            }
        };
        let queue_limit = picos(shape.queue_bytes);
        let mark_above = shape.ecn_mark_bytes.map_or(u64::MAX, picos);
        let dice = Dice::new(seed, direction);
        let jitter = Jitter::new(&shape, seed, direction);
        Self {
            shape,
            free_at: 0,
            remainder: 0,
            queue_limit,
            mark_above,
            last_due: 0,
            dice,
            jitter,
            counters: PathCounters::default(),
        }
    }

    /// The shape of this path.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// A wire packet of `len` bytes arrives at `now`. `None` if it is dropped.
    ///
    /// `slack` is how many nanoseconds the caller may have been late to look: what came in
    /// meanwhile came spread over that time and not as the burst it now appears to be, so the
    /// queue takes that much more.
    pub fn offer(&mut self, now: u64, len: u32, slack: u64) -> Option<Passage> {
        let fate = self.dice.roll(&self.shape);
        self.counters.in_packets += 1;
        self.counters.in_bytes += u64::from(len);
        if self.shape.path_mtu.is_some_and(|most| len > most) {
            self.counters.dropped_path_mtu += 1;
            return None;
        }
        let Some((sent, mark)) = self.transmit(now * PICOS_PER_NANO, len, slack * PICOS_PER_NANO)
        else {
            self.counters.dropped_queue += 1;
            return None;
        };
        if fate.lost {
            self.counters.dropped_loss += 1;
            return None;
        }
        let sent = sent / PICOS_PER_NANO;
        let mut due = (sent + nanos(self.shape.delay)).saturating_add_signed(self.jitter.at(sent));
        due = due.max(now).max(self.last_due);
        if fate.late {
            self.counters.reordered += 1;
            due += nanos(self.shape.reorder_delay);
        } else {
            self.last_due = due;
        }
        self.counters.duplicated += u64::from(fate.duplicate);
        self.counters.corrupted += u64::from(fate.corrupt.is_some());
        Some(Passage {
            due,
            late: fate.late,
            duplicate: fate.duplicate,
            corrupt: fate.corrupt,
            mark,
        })
    }

    /// Queues and serialises a packet: when its last bit has left (in picoseconds), and whether
    /// the queue it found was above the marking threshold. `None` if the queue is full.
    fn transmit(&mut self, now: u64, len: u32, slack: u64) -> Option<(u64, bool)> {
        let Some(rate) = self.shape.rate else {
            return Some((now, false));
        };
        let backlog = self.free_at.saturating_sub(now);
        let remainder = if backlog == 0 { 0 } else { self.remainder };
        let work = u64::from(len) * BYTE_PICOS + remainder;
        let (time, remainder) = (work / rate, work % rate);
        let queue = backlog.saturating_add(time);
        // A packet that finds the transmitter idle goes through even if it alone exceeds the limit.
        if backlog > 0 && queue > self.queue_limit {
            if queue > self.queue_limit.saturating_add(slack) {
                return None;
            }
            self.counters.admitted_after_stall += 1;
        }
        self.counters.queue_max_picos = self.counters.queue_max_picos.max(queue);
        self.remainder = remainder;
        self.free_at = now.max(self.free_at) + time;
        Some((self.free_at, queue > self.mark_above))
    }

    /// The bytes that a transmission time of `picos` stands for; 0 if the rate is unlimited.
    pub fn bytes_of(&self, picos: u64) -> u64 {
        let rate = u128::from(self.shape.rate.unwrap_or(0));
        u64::try_from(u128::from(picos) * rate / u128::from(BYTE_PICOS)).unwrap_or(u64::MAX)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What chance has in store for one packet.
struct Fate {
    lost: bool,
    late: bool,
    duplicate: bool,
    corrupt: Option<u64>,
}

/// A random sequence for each kind of event. Every packet takes one number from each that is in
/// use, whatever happens to it otherwise, so its fate depends on its place alone and switching
/// one kind on leaves the others as they were.
#[derive(Debug)]
struct Dice {
    loss: fastrand::Rng,
    reorder: fastrand::Rng,
    duplicate: fastrand::Rng,
    corrupt: fastrand::Rng,
    damage: fastrand::Rng,
}

impl Dice {
    fn new(seed: u64, direction: u64) -> Self {
        Self {
            loss: generator(seed, direction, 1),
            reorder: generator(seed, direction, 2),
            duplicate: generator(seed, direction, 3),
            corrupt: generator(seed, direction, 4),
            damage: generator(seed, direction, 5),
        }
    }

    fn roll(&mut self, shape: &Shape) -> Fate {
        let hit = |rng: &mut fastrand::Rng, share: f64| share > 0.0 && rng.f64() < share;
        let corrupt = hit(&mut self.corrupt, shape.corrupt);
        Fate {
            lost: hit(&mut self.loss, shape.loss),
            late: hit(&mut self.reorder, shape.reorder),
            duplicate: hit(&mut self.duplicate, shape.duplicate),
            corrupt: corrupt.then(|| self.damage.u64(..)),
        }
    }
}

/// A generator of its own for each seed, direction and purpose. The state goes through a
/// generator first, since neighbouring seeds must not give neighbouring sequences.
fn generator(seed: u64, direction: u64, purpose: u64) -> fastrand::Rng {
    let mut mixer = fastrand::Rng::with_seed(seed);
    let state = mixer.u64(..) ^ (direction << 32 | purpose).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixer.seed(state);
    fastrand::Rng::with_seed(mixer.u64(..))
}

/// An offset to the delay that goes in straight lines from one random value to the next.
#[derive(Debug)]
struct Jitter {
    most: i64,
    rng: fastrand::Rng,
    from: i64,
    to: i64,
    step: Option<u64>,
}

impl Jitter {
    fn new(shape: &Shape, seed: u64, direction: u64) -> Self {
        let most = i64::try_from(shape.jitter.as_nanos()).unwrap_or(i64::MAX);
        let mut rng = generator(seed, direction, 6);
        let (from, to) = (rng.i64(-most..=most), rng.i64(-most..=most));
        Self {
            most,
            rng,
            from,
            to,
            step: None,
        }
    }

    /// The offset for a packet sent at `sent`, in nanoseconds.
    fn at(&mut self, sent: u64) -> i64 {
        if self.most == 0 {
            return 0;
        }
        let step = sent / JITTER_STEP;
        let passed = step - *self.step.get_or_insert(step);
        // Two draws are enough to forget what came before, however long nothing was sent.
        for _ in 0..passed.min(2) {
            self.from = self.to;
            self.to = self.rng.i64(-self.most..=self.most);
        }
        self.step = Some(step);
        let part = i128::from(sent % JITTER_STEP);
        let between = i128::from(self.to - self.from) * part / i128::from(JITTER_STEP);
        self.from + i64::try_from(between).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
