//! How many calls a file server gets at a time, and when each starts.
//!
//! An OpenAFS file server sends little in one call: it begins each with one packet, doubles that each
//! round trip and stops at 32 packets. A long link therefore takes many calls to fill, as it takes TCP many packets. A
//! [`Controller`] finds how many. It has no clock, socket or thread: the caller tells it what happens and
//! when, and asks it how many calls may run and when the next may start.
//!
//! | controller | follows | for |
//! |---|---|---|
//! | [`Fill`] | BBR: bottleneck bandwidth and round-trip time, start-up, drain, probe | transfers that take their share of the link |
//! | [`Scavenge`] | LEDBAT (RFC 6817) at the receiver (RFC 9840) | transfers that take what others leave |
//!
//! [`Tuning`] holds every number. `tests` simulates the link and the server in virtual time.

mod fill;
mod filter;
mod scavenge;
#[cfg(test)]
mod tests;
mod tuning;

use std::time::{Duration, Instant};

pub use fill::Fill;
pub use filter::Filter;
pub use scavenge::Scavenge;
pub use tuning::Tuning;

/// Payload bytes of a packet that an OpenAFS server sends.
// spec: rx#packet-sizes
const PACKET: f64 = 1416.0;
/// The most packets that an OpenAFS server sends in a round trip of one call.
// spec: rx#windows
const WINDOW: f64 = 32.0;
/// Round trips that a piece of 63 packets takes: 1, 2, 4, 8, 16 and 32 packets.
// spec: rx#how-openafs-sends
const CALL_TRIPS: f64 = 6.0;

/// Decides how many calls run at a time and when each starts.
///
/// The order of events for one call: `may_start`, `on_start`, `on_first_byte`, any number of `on_progress`,
/// `on_end`. `on_refused` may come in between, and any but the first may be missing. Time must not go back.
pub trait Controller: std::fmt::Debug + Send {
    /// Calls that may be admitted at a time. The caller calls `may_start` only while fewer are.
    fn limit(&self) -> usize;

    /// Admits a call for this many bytes; returns when it may start, which is not before `now`.
    fn may_start(&mut self, now: Instant, bytes: u64) -> Instant;

    /// The call starts: its request is sent.
    fn on_start(&mut self, now: Instant, call: &mut Call);

    /// The first byte of a reply came, this long after the request was sent.
    fn on_first_byte(&mut self, now: Instant, call: &mut Call, delay: Duration);

    /// This many bytes of the reply came.
    fn on_progress(&mut self, now: Instant, call: &mut Call, bytes: u64);

    /// The server refused a call because it was busy, or did not answer it.
    fn on_refused(&mut self, now: Instant);

    /// The call is over, however it went, or was admitted and never started.
    fn on_end(&mut self, now: Instant, call: &Call);

    /// Takes in a round-trip time known from elsewhere, to have one to begin with.
    fn learn(&mut self, now: Instant, round_trip: Duration);
}

/// One call as controllers count it.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Bytes that the call asks for.
    bytes: u64,
    /// Bytes that came.
    received: u64,
    /// When it started.
    started: Option<Instant>,
    /// Whether the reply has begun.
    answered: bool,
}

impl Call {
    /// A call for this many bytes, not yet started.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            received: 0,
            started: None,
            answered: false,
        }
    }

    /// Bytes that the call asks for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn real(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The next whole number, up to a bound.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the bound"
)]
fn ceil(number: f64, most: usize) -> usize {
    number.ceil().clamp(0.0, count(most)) as usize
}

/// The seconds since a moment that is not later.
fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}
