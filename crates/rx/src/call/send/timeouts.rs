//! How long the peer may be silent about what was sent, and what follows when it is for longer.

use std::time::{Duration, Instant};

use super::sent::SentPackets;
use crate::peer::Path;

/// Retransmission timeout's least value towards afar.
pub(super) const AFAR_RTO_MIN: Duration = Duration::from_millis(10);
/// Packets that an old peer may leave without an acknowledgement for a while: it sends one for every
/// second or third.
// spec: rx#when-acknowledgements-come
const CLASSIC_UNASKED: usize = 3;
/// Retransmission timeout's least value towards old peers, as OpenAFS and Linux have it.
// spec: rx#retransmission
const CLASSIC_RTO_MIN: Duration = Duration::from_millis(200);
/// What OpenAFS adds for the last packet of a direction, whose acknowledgement it delays.
// spec: rx#retransmission
const CLASSIC_LAST_ALLOWANCE: Duration = Duration::from_millis(400);
/// Longest time between two tries, on paths with shorter round trips. TCP waits for up to a minute; but a call
/// is dead after some seconds, and somebody waits for it: of a thousand calls through a flood that
/// takes every second packet, one is lost ten times in a row.
pub(super) const RTO_MAX: Duration = Duration::from_secs(1);
/// Timeouts in a row after which what is lost counts as stuck.
const STUCK_TIMEOUTS: u32 = 3;

/// The retransmission timer of one call.
#[derive(Debug)]
pub(super) struct Timeouts {
    /// Of a reply, and not of a request, which its reply acknowledges.
    is_reply: bool,
    /// Timeouts without any acknowledgement in between.
    count: u32,
    /// When the first of them was.
    silent_since: Instant,
    /// When a timeout is counted from.
    base: Instant,
    /// The packet that is to be sent as a tail-loss probe.
    probe: Option<u32>,
    /// The newest transmission asked for an acknowledgement.
    asked: bool,
}

impl Timeouts {
    pub(super) const fn new(now: Instant, is_reply: bool) -> Self {
        Self {
            is_reply,
            count: 0,
            silent_since: now,
            base: now,
            probe: None,
            asked: false,
        }
    }

    /// That packet has left.
    pub(super) fn on_sent(&mut self, now: Instant, sequence: u32, asked: bool) {
        if self.probe == Some(sequence) {
            self.probe = None;
        }
        self.base = self.base.max(now);
        self.asked = asked;
    }

    /// The peer has acknowledged something new; all of the stream, if it is `done`.
    pub(super) fn on_progress(&mut self, now: Instant, done: bool, path: &mut Path) {
        if self.is_reply && done && self.count == 0 {
            let took = now.saturating_duration_since(self.base);
            path.is_prompt = took <= path.rtt.min() * 2;
        }
        self.clear();
        self.base = now;
    }

    /// The peer has taken an acknowledgement back.
    pub(super) const fn on_taken_back(&mut self, now: Instant) {
        self.base = now;
    }

    /// The peer owes no acknowledgement any more.
    pub(super) const fn clear(&mut self) {
        self.count = 0;
        self.probe = None;
    }

    /// Since when what is in flight waits for an answer.
    #[cfg(test)]
    pub(super) const fn base(&self) -> Instant {
        self.base
    }

    /// A tail-loss probe that is due, and its payload's size.
    pub(super) fn next_probe(&mut self, sent: &SentPackets) -> Option<(u32, usize)> {
        let sequence = self.probe?;
        match sent.get(sequence) {
            Some(packet) if !packet.is_acked() => Some((sequence, packet.payload.len())),
            _ => {
                self.probe = None;
                None
            }
        }
    }

    /// Has that packet sent as a tail-loss probe.
    pub(super) const fn probe(&mut self, sequence: Option<u32>) {
        self.probe = sequence;
    }

    /// When the peer has been silent for too long about so many packets, the last of the stream among those sent if
    /// it has `ended`.
    pub(super) fn deadline(&self, path: &Path, unacknowledged: usize, ended: bool) -> Instant {
        self.base + self.timeout(path, unacknowledged, ended)
    }

    fn timeout(&self, path: &Path, unacknowledged: usize, ended: bool) -> Duration {
        let rtt = &path.rtt;
        let first = if path.afar {
            rtt.rto(AFAR_RTO_MIN) + path.ack_allowance()
        } else if !self.is_answered_at_once(unacknowledged) || !rtt.has_sample() {
            // The reply that acknowledges a request may take longer. One more packet costs less than to
            // wait for one that was lost.
            let soon = !self.is_reply || path.is_prompt;
            if self.count == 0 && soon && rtt.has_sample() {
                return path.probe_timeout() + path.ack_allowance();
            }
            let last = if ended {
                CLASSIC_LAST_ALLOWANCE
            } else {
                Duration::ZERO
            };
            rtt.rto(CLASSIC_RTO_MIN) + path.ack_allowance() + last
        } else if self.count == 0 {
            return path.probe_timeout();
        } else {
            rtt.rto(CLASSIC_RTO_MIN)
        };
        first
            .saturating_mul(1 << self.count.min(12))
            .min(RTO_MAX.max(first))
    }

    /// Whether an old peer that has what is in flight has no reason to hold the acknowledgement back.
    const fn is_answered_at_once(&self, unacknowledged: usize) -> bool {
        self.asked || unacknowledged > CLASSIC_UNASKED
    }

    /// The deadline has passed; gives the number of timeouts in a row.
    pub(super) fn expire(&mut self, now: Instant, path: &mut Path) -> u32 {
        if self.count == 0 {
            self.silent_since = now;
        }
        self.count += 1;
        self.base = now;
        // Whatever answers now does not tell whether it would have been said without being asked.
        path.is_prompt &= !self.is_reply;
        self.count
    }

    /// Whether the peer, of which was heard last at `heard`, was since the timeouts in a row began.
    pub(super) fn is_heard(&self, heard: Instant) -> bool {
        heard > self.silent_since
    }

    /// Whether timeouts follow each other though the peer, of which was heard last at `heard`, is there.
    pub(super) fn is_stuck(&self, heard: Instant) -> bool {
        self.count >= STUCK_TIMEOUTS && self.is_heard(heard)
    }
}
