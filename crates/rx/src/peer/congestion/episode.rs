//! A loss episode of a window-based algorithm: proportional rate reduction while it lasts
//! (RFC 9937), and what is needed to undo it should its losses prove spurious.

use std::time::Instant;

use super::{MIN_WINDOW_PACKETS, flight::AckSample};

/// One reduction of the window and the recovery after it. `S` is the algorithm's state before.
#[derive(Clone, Debug)]
pub(super) struct Episode<S> {
    /// Losses of packets sent before this belong to the episode.
    began: Instant,
    /// Losses of packets sent before this belonged to the one before.
    previous: Option<Instant>,
    /// The state to go back to; `None` if a congestion mark or a timeout confirmed the episode.
    undo: Option<S>,
    /// Losses not yet shown to be spurious.
    unexplained: u64,
    prr: Option<Prr>,
}

#[derive(Clone, Debug)]
struct Prr {
    /// Bytes in flight when recovery began (RecoverFS).
    flight: u64,
    target: u64,
    delivered: u64,
    sent: u64,
    window: u64,
    lost_since_ack: bool,
    /// What may be in flight whatever was lost, so that recovery never stalls.
    floor: u64,
}

impl<S> Episode<S> {
    /// Begins an episode that reduces the window to `target` bytes.
    pub(super) fn begin(
        now: Instant,
        previous: Option<&Self>,
        undo: Option<S>,
        target: u64,
        flight: u64,
        datagram: u64,
    ) -> Self {
        let prr = Prr {
            flight: flight.max(1),
            target,
            delivered: 0,
            sent: 0,
            // The retransmission that recovery begins with may leave at once.
            window: flight.min(target.max(flight.saturating_sub(datagram))),
            lost_since_ack: true,
            floor: MIN_WINDOW_PACKETS * datagram,
        };
        Self {
            began: now,
            previous: previous.map(|p| p.began),
            undo,
            unexplained: 0,
            prr: Some(prr),
        }
    }

    /// True if a packet sent then belongs to this episode or an earlier one.
    pub(super) fn covers(&self, time_sent: Instant) -> bool {
        time_sent <= self.began
    }

    /// True until a packet sent after the episode began is acknowledged.
    pub(super) fn recovering(&self) -> bool {
        self.prr.is_some()
    }

    /// The window during recovery.
    pub(super) fn recovery_window(&self) -> Option<u64> {
        self.prr.as_ref().map(|prr| prr.window.max(prr.floor))
    }

    /// Counts one loss.
    pub(super) fn on_loss(&mut self, bytes: u64) {
        self.unexplained += 1;
        if let Some(prr) = &mut self.prr {
            prr.lost_since_ack = true;
            prr.window = prr.window.saturating_sub(bytes);
        }
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        if let Some(prr) = &mut self.prr {
            prr.sent += bytes;
        }
    }

    /// True if this acknowledgement ended recovery.
    pub(super) fn on_ack(&mut self, ack: &AckSample, in_flight: u64, datagram: u64) -> bool {
        if self.prr.is_some() && !self.covers(ack.newest_sent) {
            self.prr = None;
            return true;
        }
        if let Some(prr) = &mut self.prr {
            prr.on_ack(ack.acked, in_flight, datagram);
        }
        false
    }

    /// The episode stands, whatever turns out about its losses.
    pub(super) fn confirm(&mut self) {
        self.undo = None;
    }

    /// Takes back one loss; answers the state to go back to if it was the last unexplained one.
    pub(super) fn on_spurious_loss(&mut self, time_sent: Instant) -> Option<S> {
        let ours =
            self.covers(time_sent) && self.previous.is_none_or(|previous| time_sent > previous);
        if !ours || self.unexplained == 0 {
            return None;
        }
        self.unexplained -= 1;
        if self.unexplained > 0 {
            return None;
        }
        let state = self.undo.take()?;
        self.prr = None;
        Some(state)
    }
}

impl Prr {
    fn on_ack(&mut self, acked: u64, in_flight: u64, datagram: u64) {
        self.delivered += acked;
        let may_send = if in_flight > self.target {
            let share = u128::from(self.delivered) * u128::from(self.target);
            let due = u64::try_from(share.div_ceil(u128::from(self.flight))).unwrap_or(u64::MAX);
            due.saturating_sub(self.sent)
        } else {
            // Below the target: as many bytes as arrived, and one packet more when no further loss shows.
            let more = if self.lost_since_ack { 0 } else { datagram };
            let due = self.delivered.saturating_sub(self.sent).max(acked) + more;
            due.min(self.target - in_flight)
        };
        self.lost_since_ack = false;
        let first = if self.sent == 0 { datagram } else { 0 };
        self.window = in_flight.saturating_add(may_send.max(first));
    }
}
