//! The path to one address: everything that belongs to the network and not to a call.
//!
//! RTT, congestion window, pacing, MTU and what the peer can do are kept here and shared by all
//! its calls, so that many parallel calls behave as one flow and a new call starts warm.

pub(crate) mod congestion;
pub(crate) mod mtu;
pub(crate) mod pacing;
pub(crate) mod rtt;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use self::congestion::Controller;
use self::mtu::MtuSearch;
use self::pacing::Pacer;
use self::rtt::RttEstimator;
use crate::addresses::{AMPLIFICATION, is_believed};
use crate::packet::ack::{Extension, Trailer};
use crate::packet::{CLASSIC_PACKET_SIZE, HEADER_SIZE};
use crate::types::Key;
use crate::{Config, PeerStats};

/// The least time in which an old peer that has reason to must have answered.
// spec: rx#retransmission
const CLASSIC_PROBE_MIN: Duration = Duration::from_millis(30);
/// RTT assumed before the first sample; RFC 9002 §6.2.2 has 333 ms, most AFS cells are nearer.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Least RTT believed: drivers stamp whole batches with one time, so finer ones are not measured.
const RTT_LEAST: Duration = Duration::from_micros(10);
/// Classic acknowledgements after which a peer counts as old and is spared the extension.
// spec: rx-extension#when-it-is-sent
pub(crate) const CLASSIC_SURE: u32 = 8;
/// How old an RTT sample may be before a PING takes a new one.
const RTT_EVERY: Duration = Duration::from_millis(500);
/// Smallest Rx packet size a trailer may impose: OpenAFS's own minimum.
// spec: rx#packet-sizes
const MIN_PACKET_SIZE: usize = 520;
/// Packets in flight up to which nothing is paced, as TCP's initial window is not.
const UNPACED_PACKETS: u64 = 10;
/// The same in bytes: what one call has on the way to an unmodified peer. Nobody paces it there, and
/// the peer's window makes the measured rate: a pace of that would only make each round trip longer
/// by the time it takes.
// spec: rx#windows
const UNPACED_OCTETS: u64 = 32 * CLASSIC_PACKET_SIZE as u64;
/// The most that may be sent to an address that has not answered: what needs more needs an answer first.
const CREDIT_MAX: u64 = 64 << 10;
/// How far above its least an RTT must be, besides an eighth, to mean a queue.
const QUEUE_SIGN: Duration = Duration::from_millis(1);
/// One packet of so many is sent again on a path that counts as lossy.
const LOSSY: u64 = 10;
/// How often a peer can have all calls of its path looked at, by answering now sooner and now later.
const TIMED_EVERY: Duration = Duration::from_millis(100);
/// How far ahead of that it may be: the first answers of a peer come close together, and each tells something.
const TIMED_AHEAD: Duration = Duration::from_secs(1);
/// Marked packets in a row without a count from the peer, after which ECN is given up.
const ECN_TRIAL_PACKETS: u32 = 64;

/// The path to one address.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) address: SocketAddr,
    pub(crate) rtt: RttEstimator,
    pub(crate) controller: Controller,
    pub(crate) pacer: Pacer,
    pub(crate) mtu: MtuSearch,
    /// Whether the peer has sent the afar extension.
    pub(crate) afar: bool,
    /// Classic acknowledgements without the extension seen from the peer.
    pub(crate) classic_acks: u32,
    /// Whether the peer, an old one, acknowledged the end of the last reply at once, unasked.
    pub(crate) is_prompt: bool,
    /// Acknowledgements we have sent; the first ones introduce us.
    pub(crate) acks_sent: u32,
    /// The largest window an afar peer advertised: where its next call starts, which is told of a
    /// smaller one before long. The last would not do: a call that waits at the peer has none left.
    pub(crate) window_hint: u32,
    /// The largest window we have told an afar peer: it may begin its next call with that.
    pub(crate) window_told: u32,
    /// Shares of the path that we ask the peer to give us.
    pub(crate) shares_wanted: u8,
    /// Calls that may have DATA to send, in turn.
    pub(crate) ready: VecDeque<Key>,
    /// Whether the endpoint has this path in its list of those to send on.
    pub(crate) listed: bool,
    /// When the pending pacing timer is due.
    pub(crate) wake_at: Option<Instant>,
    /// Connections that use the path.
    pub(crate) connections: usize,
    /// When a packet last came from it.
    pub(crate) last_used: Instant,
    /// Our own address at which it asks us, to answer from.
    pub(crate) local: Option<IpAddr>,
    /// When a packet only to keep a NAT mapping was last sent.
    pub(crate) kept_alive: Option<Instant>,
    /// When the peer last proved that it receives at this address.
    pub(crate) reached_at: Option<Instant>,
    /// Whether the peer has acknowledged data of an answer of ours.
    pub(crate) took_answer: bool,
    pub(crate) ecn: EcnState,
    pub(crate) counters: PathCounters,
    /// Bytes that may be sent before the peer has proved that it receives.
    credit: u64,
    last_sent_at: Option<Instant>,
    /// The PING that measures the RTT, until it is answered: its connection and serial.
    ping: Option<(Key, u32)>,
    /// When the last one was sent.
    pinged_at: Option<Instant>,
    /// When the peer last acknowledged anything, or answered a PING.
    answered_at: Option<Instant>,
    /// The RTT by the last PING that was answered.
    rtt_ping: Option<Duration>,
    sampled_at: Option<Instant>,
    /// What calls' timers were last set by, all together, and when that would be with a rest between each two times.
    timing: Timing,
    timed_until: Option<Instant>,
}

/// What the timeouts of a path's calls depend on.
#[derive(Clone, Copy, Debug)]
struct Timing {
    timeout: Duration,
    afar: bool,
    prompt: bool,
    measured: bool,
}

impl Timing {
    fn of(path: &Path) -> Self {
        Self {
            timeout: path.rtt.rto(Duration::ZERO),
            afar: path.afar,
            prompt: path.is_prompt,
            measured: path.rtt.has_sample(),
        }
    }
}

/// Whether DATA is sent as ECN-capable, and what has been counted.
#[derive(Debug, Default)]
pub(crate) struct EcnState {
    pub(crate) enabled: bool,
    sent_unconfirmed: u32,
    /// What the peer last reported.
    reported_ect0: u32,
    reported_ce: u32,
    /// What we received, for our own reports.
    pub(crate) received_ect0: u32,
    pub(crate) received_ce: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounters {
    pub(crate) data_sent: u64,
    pub(crate) data_resent: u64,
    pub(crate) lost: u64,
    pub(crate) spurious: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) ecn_ce: u64,
}

impl Path {
    pub(crate) fn new(address: SocketAddr, config: &Config, now: Instant, seed: u64) -> Self {
        Self {
            address,
            rtt: RttEstimator::new(INITIAL_RTT),
            controller: Controller::new(
                config.congestion,
                now,
                CLASSIC_PACKET_SIZE,
                config.initial_window_packets,
                seed,
            ),
            pacer: Pacer::new(now, CLASSIC_PACKET_SIZE),
            mtu: MtuSearch::new(config.datagram_max, config.mtu_discovery),
            afar: false,
            classic_acks: 0,
            is_prompt: false,
            acks_sent: 0,
            window_hint: 0,
            window_told: 0,
            shares_wanted: 1,
            ready: VecDeque::new(),
            listed: false,
            wake_at: None,
            connections: 0,
            last_used: now,
            local: None,
            kept_alive: None,
            reached_at: None,
            took_answer: false,
            ecn: EcnState::default(),
            counters: PathCounters::default(),
            credit: 0,
            last_sent_at: None,
            ping: None,
            pinged_at: None,
            answered_at: None,
            rtt_ping: None,
            sampled_at: None,
            timing: Timing {
                timeout: RttEstimator::new(INITIAL_RTT).rto(Duration::ZERO),
                afar: false,
                prompt: false,
                measured: false,
            },
            timed_until: None,
        }
    }

    /// Whether nothing was learned of the peer that a later connection could use.
    pub(crate) fn is_unknown(&self) -> bool {
        !self.rtt.has_sample() && !self.afar && self.classic_acks == 0 && self.reached_at.is_none()
    }

    /// Whether the peer answers in less than half of the time that calls' timers were last set by, or in another
    /// manner.
    pub(crate) fn answers_sooner(&mut self, now: Instant) -> bool {
        let found = Timing::of(self);
        let before = self.timing;
        let is_first = (found.afar, found.measured) != (before.afar, before.measured);
        let is_sooner = found.timeout < before.timeout / 2 || found.prompt != before.prompt;
        let until = self.timed_until.map_or(now, |until| until.max(now));
        let looks = (is_first || is_sooner) && until < now + TIMED_AHEAD;
        if looks {
            self.timed_until = Some(until + TIMED_EVERY);
            self.timing = found;
        } else if found.timeout > before.timeout {
            self.timing.timeout = found.timeout;
        }
        looks
    }

    /// By how much calls' timers may be late, as a share of what they wait: they are set again only when the peer
    /// answers in less than half of the time that they count on, and not more often than [`TIMED_EVERY`].
    #[cfg(test)]
    pub(crate) fn timers_lag(&self) -> f64 {
        let now = Timing::of(self).timeout;
        let lag = self.timing.timeout.div_duration_f64(now) - 1.0;
        lag.max(1.0)
    }

    /// Takes an RTT sample.
    pub(crate) fn sample_rtt(&mut self, now: Instant, sample: Duration) {
        self.sampled_at = Some(now);
        self.rtt.update(now, sample.max(RTT_LEAST), None);
    }

    /// Whether the RTT has not been measured for so long that a PING should do it: a side that only
    /// receives gets no other samples but those of requests, which an old peer's reply acknowledges when
    /// its program has done something.
    pub(crate) fn wants_ping(&self, now: Instant) -> bool {
        let is_old =
            |at: Option<Instant>| at.is_none_or(|at| now.saturating_duration_since(at) > RTT_EVERY);
        (is_old(self.sampled_at) || !self.afar) && is_old(self.pinged_at)
    }

    pub(crate) const fn on_ping_sent(&mut self, now: Instant, connection: Key, serial: u32) {
        self.ping = Some((connection, serial));
        self.pinged_at = Some(now);
    }

    /// The serial of the last PING on a connection, if it was not answered yet.
    pub(crate) fn unanswered_ping(&self, connection: Key) -> Option<u32> {
        let (key, serial) = self.ping?;
        (key == connection).then_some(serial)
    }

    /// A PING was answered, which may have been a probe of a size; true if it gave an RTT sample.
    pub(crate) fn on_ping_answer(
        &mut self,
        now: Instant,
        connection: Key,
        serial: u32,
        held: Duration,
    ) -> bool {
        let probed = self.mtu.on_answer(connection, serial);
        if probed.is_some() {
            self.controller.on_mtu_change(self.mtu.packet_size());
        }
        let pinged = self
            .pinged_at
            .filter(|_| self.ping == Some((connection, serial)));
        let Some(sent) = probed.or(pinged) else {
            return false;
        };
        self.ping = None;
        let rtt = now.saturating_duration_since(sent).saturating_sub(held);
        self.rtt_ping = Some(rtt.max(RTT_LEAST));
        self.sample_rtt(now, rtt);
        true
    }

    /// Lets an address that has not proved that it receives be sent more, as more came from it.
    pub(crate) fn credit(&mut self, bytes: usize) {
        let more = bytes.saturating_mul(AMPLIFICATION) as u64;
        self.credit = (self.credit + more).min(CREDIT_MAX);
    }

    /// Bytes that may be sent to an address that has not.
    pub(crate) const fn room(&self) -> u64 {
        self.credit
    }

    /// Takes bytes off what may be sent there; false if there are not as many left.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.credit.checked_sub(bytes as u64);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// Whether it is known that the peer receives at this address.
    pub(crate) fn is_reached(&self, now: Instant) -> bool {
        is_believed(self.reached_at, now)
    }

    /// Largest Rx packet to send, header included.
    pub(crate) fn packet_size(&self) -> usize {
        self.mtu.packet_size()
    }

    /// The size to probe now, if any, of those up to `most`.
    pub(crate) fn probe_wanted(&mut self, now: Instant, most: usize) -> Option<usize> {
        self.mtu
            .wanted(now, most, self.answered_at, self.is_lossy())
    }

    /// Whether so much is lost that what a few packets meet tells nothing.
    pub(crate) const fn is_lossy(&self) -> bool {
        self.counters.data_resent * LOSSY > self.counters.data_sent
    }

    /// How long the peer may hold an acknowledgement back.
    pub(crate) fn ack_allowance(&self) -> Duration {
        // spec: rx#when-acknowledgements-come
        // afar peers acknowledge within 5 ms, OpenAFS within 100 ms.
        if self.afar {
            Duration::from_millis(10)
        } else {
            Duration::from_millis(120)
        }
    }

    /// How long an old peer may be silent that has reason to answer at once, before what it should have
    /// had is sent again. No more than a probe is sent upon this (RFC 8985 §7.2).
    pub(crate) fn probe_timeout(&self) -> Duration {
        let rtt = &self.rtt;
        rtt.rto(CLASSIC_PROBE_MIN).max(rtt.smoothed() * 2)
    }

    /// Learns from the trailer and the extension of an acknowledgement.
    pub(crate) fn on_ack_info(
        &mut self,
        now: Instant,
        config: &Config,
        trailer: &Trailer,
        extension: Option<&Extension>,
        answers_ping: bool,
    ) {
        self.answered_at = Some(now);
        let before = self.mtu.packet_size();
        match extension.filter(|_| config.extension) {
            Some(extension) => {
                if !self.afar {
                    self.afar = true;
                    self.ecn.enabled = config.ecn;
                }
                self.window_hint = self.window_hint.max(extension.window);
                // spec: rx-extension#shares
                self.controller.set_shares(now, extension.shares);
                let peer_max = usize::try_from(extension.datagram_max).unwrap_or(usize::MAX);
                self.mtu
                    .limit(peer_max.clamp(MIN_PACKET_SIZE, config.datagram_max));
            }
            None => {
                // An afar peer answers our extension with its own.
                let sign = if answers_ping { CLASSIC_SURE } else { 1 };
                self.classic_acks = self.classic_acks.saturating_add(sign);
                // spec: rx#packet-sizes
                let peer_max = [trailer.max_mtu, trailer.interface_mtu]
                    .iter()
                    .flatten()
                    .filter_map(|size| usize::try_from(*size).ok())
                    .filter(|size| *size >= MIN_PACKET_SIZE)
                    .min();
                if let (Some(size), false) = (peer_max, self.afar) {
                    self.mtu.limit(size.min(CLASSIC_PACKET_SIZE));
                }
            }
        }
        if self.mtu.packet_size() != before {
            self.controller.on_mtu_change(self.mtu.packet_size());
        }
    }

    /// Learns from the ECN counts of an acknowledgement whose newest packet left at `time_sent`.
    pub(crate) fn on_ecn_report(
        &mut self,
        now: Instant,
        extension: &Extension,
        time_sent: Instant,
    ) {
        // spec: rx-extension#delay-and-counts
        let marked = extension.ecn_ce.wrapping_sub(self.ecn.reported_ce);
        let seen = extension
            .ecn_ect0
            .wrapping_sub(self.ecn.reported_ect0)
            .wrapping_add(marked);
        // Counts belong to the peer, so a report that was overtaken would run backwards.
        if seen == 0 || seen > u32::MAX / 2 || marked > u32::MAX / 2 {
            return;
        }
        self.ecn.reported_ce = extension.ecn_ce;
        self.ecn.reported_ect0 = extension.ecn_ect0;
        self.ecn.sent_unconfirmed = 0;
        self.counters.ecn_ce += u64::from(marked);
        self.controller
            .on_ecn_ce(now, u64::from(marked), time_sent, &self.rtt);
    }

    /// Notes a DATA packet that left; gives the controller's token for it.
    pub(crate) fn on_data_sent(
        &mut self,
        now: Instant,
        bytes: usize,
        app_limited: bool,
        resent: bool,
    ) -> congestion::SentToken {
        let idle = self.last_sent_at.is_some_and(|at| {
            self.controller.bytes_in_flight() == 0
                && now.saturating_duration_since(at) > self.rtt.rto(Duration::from_millis(200))
        });
        if idle {
            self.controller.on_idle_restart(now, &self.rtt);
        }
        self.last_sent_at = Some(now);
        self.counters.data_sent += 1;
        self.counters.data_resent += u64::from(resent);
        if self.ecn.enabled {
            self.ecn.sent_unconfirmed += 1;
            // The path drops the marks, or the peer does not see them.
            self.ecn.enabled = self.ecn.sent_unconfirmed
                < ECN_TRIAL_PACKETS.max(
                    u32::try_from(4 * self.controller.window() / self.packet_size() as u64)
                        .unwrap_or(u32::MAX),
                );
        }
        self.pacer.on_sent(now, bytes);
        self.controller
            .on_packet_sent(now, bytes, app_limited, &self.rtt)
    }

    /// Bytes that window and pacing allow now.
    pub(crate) fn budget(&mut self, now: Instant) -> u64 {
        let rate = self.controller.pacing_rate(&self.rtt);
        let quantum = self.controller.send_quantum(&self.rtt);
        if self.rtt.latest() > self.rtt.min() + self.rtt.min() / 8 + QUEUE_SIGN {
            self.pacer.forgive();
        }
        // The pacer is asked in any case, so that it knows that the window, not the machine, made
        // a release late.
        let paced = self.pacer.budget(now, rate, quantum);
        let window = self.controller.available();
        if window == 0 {
            return 0;
        }
        // A flight so small is no burst: many small calls must not wait for a pace that only says
        // how little they have sent so far.
        let unpaced = (UNPACED_PACKETS * self.packet_size() as u64)
            .max(UNPACED_OCTETS)
            .saturating_sub(self.controller.bytes_in_flight());
        paced.max(unpaced).min(window)
    }

    /// What is known, for people.
    pub(crate) fn stats(&self) -> PeerStats {
        let measured = self.rtt.has_sample();
        PeerStats {
            address: self.address,
            afar: self.afar,
            rtt_min: measured.then(|| self.rtt.min()),
            rtt_smoothed: measured.then(|| self.rtt.smoothed()),
            rtt_ping: self.rtt_ping,
            rtt_variation: measured.then(|| self.rtt.variation()),
            congestion_window: self.controller.window(),
            in_flight: self.controller.bytes_in_flight(),
            pacing_rate: self.controller.pacing_rate(&self.rtt),
            congestion: self.controller.name(),
            congestion_state: self.controller.state(),
            shares: self.controller.shares(),
            packet_size: self.packet_size(),
            window_packets: self.window_hint,
            data_sent: self.counters.data_sent,
            data_resent: self.counters.data_resent,
            lost: self.counters.lost,
            spurious: self.counters.spurious,
            bytes_sent: self.counters.bytes_sent,
            bytes_received: self.counters.bytes_received,
            ecn_ce: self.counters.ecn_ce,
        }
    }

    /// Bytes of stream one packet carries when the security class adds `overhead`.
    pub(crate) fn payload_size(&self, overhead: usize) -> usize {
        self.packet_size()
            .saturating_sub(HEADER_SIZE + overhead)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn one_window_of_an_old_peer_is_not_paced_and_more_is() {
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant cannot be made in another way"
        )]
        let now = Instant::now();
        let config = Config {
            initial_window_packets: 64,
            ..Config::default()
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7000));
        let mut path = Path::new(address, &config, now, 1);
        path.sample_rtt(now, Duration::from_millis(12));
        let size = CLASSIC_PACKET_SIZE;
        for packet in 0..32 {
            assert!(path.budget(now) >= size as u64, "packet {packet}");
            path.on_data_sent(now, size, false, false);
        }
        assert_eq!(path.budget(now), 0);
    }
}
