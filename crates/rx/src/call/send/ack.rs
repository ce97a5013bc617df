//! What an acknowledgement says of a call's packets.

use std::time::{Duration, Instant};

use super::Sender;
use super::loss::Transmission;
use super::sent::{Arrived, SentPackets};
use crate::packet::ack::{Ack, Reason};
use crate::peer::Path;
use crate::peer::congestion::AckedPacket;
use crate::types::Key;

/// PINGs or answers with older serials than one seen, after which the peer counts as restarted.
const RESTARTED_AFTER: u8 = 3;

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effect {
    /// Something was newly acknowledged.
    pub(crate) progress: bool,
    /// Losses that proved false.
    pub(crate) spurious: u32,
    /// An RTT sample was taken.
    pub(crate) sampled: bool,
}

/// Why an acknowledgement was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was overtaken by a newer one.
    Stale,
    /// It speaks of packets never sent.
    Impossible,
}

/// Tells which acknowledgements were overtaken.
#[derive(Debug, Default)]
pub(super) struct AckOrder {
    /// Serial of the newest ACK packet processed.
    newest: u32,
    /// PINGs and answers since then that had older serials.
    older_pings: u8,
}

impl AckOrder {
    /// Whether no newer ACK packet than this was seen; overtaken ones must not withdraw anything.
    ///
    /// PINGs and their answers are seconds apart, so several in a row with older serials were not
    /// overtaken: the peer was restarted and counts from 1 again.
    fn is_newest(&mut self, ack: &Ack, ack_serial: u32) -> bool {
        let is_newer = ack_serial.wrapping_sub(self.newest) < u32::MAX / 2;
        if !is_newer {
            let counts = matches!(ack.reason, Reason::Ping | Reason::PingResponse);
            self.older_pings += u8::from(counts);
            if self.older_pings < RESTARTED_AFTER {
                return false;
            }
        }
        self.older_pings = 0;
        self.newest = ack_serial;
        true
    }
}

/// What is gathered while one acknowledgement is processed.
struct Round {
    now: Instant,
    /// The transmission that it names.
    echo: Option<Transmission>,
    /// The least time in which a packet can be acknowledged.
    soonest: Option<Duration>,
    /// Whether the peer never takes a soft acknowledgement back, as afar's do not.
    is_final: bool,
    progress: bool,
    spurious: u32,
    newest_sent: Option<Instant>,
}

impl Round {
    fn new(now: Instant, echo: Option<Transmission>, path: &Path) -> Self {
        let rtt = &path.rtt;
        Self {
            now,
            echo,
            soonest: rtt.has_sample().then(|| rtt.min() - rtt.min() / 8),
            is_final: path.afar,
            progress: false,
            spurious: 0,
            newest_sent: None,
        }
    }

    /// All packets below `first` have arrived for good.
    fn hard(&mut self, first: u32, sent: &mut SentPackets, path: &mut Path) {
        for sequence in sent.first()..first {
            if let Some(arrived) = sent.arrived(sequence, self.is_final) {
                self.on_arrived(&arrived, path);
            }
        }
        sent.release_below(first);
    }

    /// A packet has arrived.
    fn on_arrived(&mut self, packet: &Arrived, path: &mut Path) {
        let newest = packet.newest;
        self.progress = true;
        // An acknowledgement that comes sooner than the path can bring one, or names an older
        // serial, is for the transmission that had been given up.
        let echo_is_older = self
            .echo
            .is_some_and(|echo| echo.sequence == packet.sequence && echo.serial != newest.serial);
        let took = self.now.saturating_duration_since(newest.time);
        let too_soon = self.soonest.is_some_and(|soonest| took < soonest);
        let original = match packet.lost_transmission {
            _ if packet.was_lost => Some(newest.time),
            Some(earlier) if echo_is_older || too_soon => Some(earlier),
            _ => None,
        };
        if packet.was_lost {
            // It left the flight when it was declared lost.
        } else {
            let acked = AckedPacket {
                token: newest.token,
                time_sent: newest.time,
                bytes: newest.size,
            };
            path.controller.on_packet_acked(self.now, &acked);
        }
        match original {
            Some(time) => {
                path.controller
                    .on_spurious_loss(self.now, newest.token, newest.size, time);
                path.counters.spurious += 1;
                self.spurious += 1;
            }
            None => self.newest_sent = self.newest_sent.max(Some(newest.time)),
        }
    }

    /// Takes an RTT sample, if this acknowledgement, which the peer held back for so long, is the first to report the
    /// packet that it names.
    fn sample_rtt(&self, held: Duration, path: &mut Path) -> bool {
        let (Some(echo), true) = (self.echo, self.progress) else {
            return false;
        };
        let sample = self
            .now
            .saturating_duration_since(echo.time)
            .saturating_sub(held);
        path.sample_rtt(self.now, sample);
        true
    }
}

impl Sender {
    /// Everything sent has arrived: the peer's reply or its next call says so.
    pub(crate) fn on_implicit_ack(&mut self, now: Instant, path: &mut Path) {
        if self.sent.is_empty() {
            return;
        }
        path.controller.begin_ack();
        Round::new(now, None, path).hard(self.sent.next(), &mut self.sent, path);
        path.controller.end_ack(now, &path.rtt);
        self.loss.clear();
        self.timeouts.clear();
    }

    /// Processes an acknowledgement. `ack_serial` is the ACK packet's own serial.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        ack_serial: u32,
        connection: Key,
        path: &mut Path,
    ) -> Result<Effect, Refused> {
        // spec: rx#what-acknowledgements-may-say
        if ack.first.saturating_add(u32::from(ack.soft.len())) > self.sent.next() {
            return Err(Refused::Impossible);
        }
        if ack.first < self.sent.first() {
            return Err(Refused::Stale);
        }
        let newest = self.acks.is_newest(ack, ack_serial);
        let echo = match ack.reason {
            Reason::Ping => None,
            _ => self.loss.transmission(ack.serial),
        };
        // afar peers say how long they held the acknowledgement back; classic ones do not.
        let held = (ack.extension.as_ref().filter(|_| path.afar)).map_or(Duration::ZERO, |ext| {
            Duration::from_micros(u64::from(ext.ack_delay_us))
        });
        let pinged = ack.reason == Reason::PingResponse
            && path.on_ping_answer(now, connection, ack.serial, held);
        path.controller.begin_ack();
        let mut round = Round::new(now, echo, path);
        round.hard(ack.first, &mut self.sent, path);
        let reneged = self.on_soft_acks(ack, newest, &mut round, path);
        if let Some(extension) = ack.extension.as_ref().filter(|_| path.afar) {
            for range in extension.ranges_from(ack.first) {
                (self.sent).range_arrived(range.start, range.end, round.is_final, |arrived| {
                    round.on_arrived(arrived, path);
                });
            }
            if newest {
                self.window = extension.window;
            }
            path.on_ecn_report(now, extension, round.newest_sent.unwrap_or(now));
        } else if let (Some(window), true) = (ack.trailer.window, newest) {
            // spec: rx#windows
            self.window = window.clamp(1, 255);
        }
        let sampled = round.sample_rtt(held, path) || pinged;
        self.loss.on_ack(now, round.newest_sent, round.spurious);
        self.loss.detect(now, &mut self.sent, path);
        path.controller.end_ack(now, &path.rtt);
        if round.progress {
            self.timeouts.on_progress(now, self.is_done(), path);
        }
        if reneged {
            self.timeouts.on_taken_back(now);
        }
        Ok(Effect {
            progress: round.progress,
            spurious: round.spurious,
            sampled,
        })
    }

    /// Notes the soft acknowledgements. Says whether any was taken back, which only the newest
    /// acknowledgement of an old peer may do.
    fn on_soft_acks(
        &mut self,
        ack: &Ack,
        newest: bool,
        round: &mut Round,
        path: &mut Path,
    ) -> bool {
        let may_take_back = newest && !path.afar;
        let mut reneged = false;
        for (sequence, received) in (ack.first..self.sent.next()).zip(ack.soft.iter()) {
            if received {
                if let Some(arrived) = self.sent.arrived_softly(sequence, round.is_final) {
                    round.on_arrived(&arrived, path);
                }
            } else if may_take_back {
                reneged |= self.take_back(sequence);
            }
        }
        // spec: rx#hard-and-soft-acknowledgements
        if may_take_back && ack.soft.len() < u8::MAX {
            // What an old peer does not speak of it does not have.
            let end = ack.first + u32::from(ack.soft.len());
            while let Some(highest) = self.sent.highest_acked().filter(|highest| *highest >= end)
                && self.take_back(highest)
            {
                reneged = true;
            }
        }
        reneged
    }

    /// A soft acknowledgement was taken back: the packet must be sent again, but not for congestion.
    fn take_back(&mut self, sequence: u32) -> bool {
        let is_taken_back = self.sent.take_back(sequence);
        if is_taken_back {
            self.loss.on_taken_back(sequence);
        }
        is_taken_back
    }

    /// Whether an acknowledgement says that a packet is missing which was acknowledged before.
    pub(crate) fn contradicts(&self, ack: &Ack) -> bool {
        let known = |sequence| self.sent.get(sequence).is_some_and(|sent| sent.is_acked());
        (ack.first..self.sent.next())
            .zip(ack.soft.iter())
            .any(|(seq, received)| !received && known(seq))
    }
}
