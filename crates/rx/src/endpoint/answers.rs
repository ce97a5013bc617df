//! Answers that need no connection: VERSION, and DEBUG for `rxdebug`.
//!
//! Anybody may ask, so answers are limited by rate, to strangers by size too, and walking the tables costs no more
//! than stepping from one entry to the next. Strangers are not told what connections could be taken over with.

use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::time::{Duration, Instant};

use super::{ConnectionIndex, Endpoint};
use crate::addresses::{AMPLIFICATION, Addresses, TokenBucket};
use crate::arena::Arena;
use crate::call::{Call, Role, Stage};
use crate::connection::{Channel, Connection};
use crate::packet::debug::{
    BAD_TYPE, ChannelAnswer, ConnectionAnswer, PeerAnswer, Question, RxStatsAnswer, StatsAnswer,
    flag, mode, state,
};
use crate::packet::{CLASSIC_PACKET_SIZE, Flags, HEADER_SIZE, Header};
use crate::types::Key;

/// Bytes of a version answer, NUL-padded. OpenAFS sends 65, which with the header is more than three times an
/// empty question.
// spec: rx#version, rx-strangers#answers-without-a-connection
const VERSION_SIZE: usize = 56;
/// Answers a second, and at once, to this machine and to monitors.
const TRUSTED_RATE: (f64, f64) = (1000.0, 200.0);
/// Entries of a table that are passed over for one answer; asking further costs more of the rate.
const STEPS_PER_ANSWER: usize = 256;

/// What answering strangers needs to remember.
#[derive(Debug)]
pub(super) struct Answers {
    /// Of this machine and monitors.
    rate: TokenBucket,
    /// The connection told last, its running number, and whether all were counted.
    last_connection: Option<(ConnectionIndex, u32, bool)>,
    /// The peer told last and its running number.
    last_peer: Option<(SocketAddr, u32)>,
}

/// The question is not answered, as too many are asked; tools ask again.
struct RateLimited;

/// The asking address.
#[derive(Clone, Copy, Debug)]
enum Asker {
    /// This machine, or a monitor: it is told everything.
    Trusted,
    Stranger(IpAddr),
}

impl Answers {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            rate: TokenBucket::full(TRUSTED_RATE, now),
            last_connection: None,
            last_peer: None,
        }
    }

    /// Whether one more question is answered, or the search for an answer goes on.
    fn may_tell(&mut self, now: Instant, asker: Asker, addresses: &mut Addresses) -> bool {
        match asker {
            Asker::Trusted => self.rate.take(now),
            Asker::Stranger(ip) => addresses.may_answer(now, ip),
        }
    }
}

impl Endpoint {
    /// Answers a VERSION request. Those without CLIENT_INITIATED are answers or NAT keep-alives, and show at least
    /// that somebody is there.
    pub(super) fn on_version(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: Option<IpAddr>,
        header: &Header,
    ) {
        // spec: rx#version
        if !header.from_client() {
            // The answer to a question of ours: somebody is there, which keeps a connection from moving.
            let path = self.by_address.get(&from).copied();
            if let Some(path) = path.and_then(|key| self.paths.get_mut(key)) {
                path.last_used = now;
            }
            return;
        }
        if !self.may_tell(now, self.asker(from, to)) {
            return;
        }
        let mut body = [0; VERSION_SIZE];
        let text = self.config.version.as_bytes();
        let len = text.len().min(VERSION_SIZE - 1);
        body[..len].copy_from_slice(&text[..len]);
        self.answer(from, to, header, &body);
    }

    /// Answers a DEBUG request of `rxdebug`; those without CLIENT_INITIATED are answers.
    pub(super) fn on_debug(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: Option<IpAddr>,
        header: &Header,
        body: &[u8],
    ) {
        let Some(question) = Question::decode(body) else {
            self.stats.malformed += 1;
            return;
        };
        let asker = self.asker(from, to);
        // spec: rx-strangers#what-debug-tells
        let is_told = self.config.debug_for_all || matches!(asker, Asker::Trusted);
        if !header.from_client() || !is_told || !self.may_tell(now, asker) {
            return;
        }
        let Some(mut answer) = self.tell(now, asker, question) else {
            return;
        };
        if matches!(asker, Asker::Stranger(ip) if self.addresses.reached_at(ip, now).is_none()) {
            // spec: rx#debug
            // What is missing counts as 0 with those who ask.
            let size = HEADER_SIZE + body.len();
            answer.truncate(AMPLIFICATION * size - HEADER_SIZE);
        }
        self.answer(from, to, header, &answer);
    }

    fn tell(&mut self, now: Instant, asker: Asker, question: Question) -> Option<Vec<u8>> {
        Some(match question {
            Question::Stats => self.debug_stats().encode().to_vec(),
            Question::RxStats => self.debug_rx_stats().encode().to_vec(),
            Question::Connection { index, all } => {
                let answer = self.debug_connection(now, asker, index, all).ok()?;
                let told = answer.map(|answer| match asker {
                    Asker::Trusted => answer,
                    Asker::Stranger(_) => answer.without_secrets(),
                });
                told.map_or_else(ConnectionAnswer::end, |answer| answer.encode())
                    .to_vec()
            }
            Question::Peer { index } => {
                let answer = self.debug_peer(now, asker, index).ok()?;
                (answer.map_or_else(PeerAnswer::end, |answer| answer.encode())).to_vec()
            }
            Question::Unknown => BAD_TYPE.to_vec(),
        })
    }

    /// The asking address. The answer to a question from our own address does not leave this machine.
    fn asker(&self, from: SocketAddr, to: Option<IpAddr>) -> Asker {
        let ip = from.ip();
        let is_here = self.config.private || ip.is_loopback() || to == Some(ip);
        if is_here || self.config.monitors.contains(&ip) {
            Asker::Trusted
        } else {
            Asker::Stranger(ip)
        }
    }

    /// Whether one more question is answered.
    fn may_tell(&mut self, now: Instant, asker: Asker) -> bool {
        let may = self.answers.may_tell(now, asker, &mut self.addresses);
        self.stats.answers_limited += u64::from(!may);
        may
    }

    fn answer(&mut self, from: SocketAddr, to: Option<IpAddr>, question: &Header, body: &[u8]) {
        let flags = question.flags.without(Flags::CLIENT_INITIATED);
        self.push_datagram(from, to, &Header { flags, ..*question }, body);
    }

    fn debug_stats(&self) -> StatsAnswer {
        let packet = CLASSIC_PACKET_SIZE as u64;
        let memory = self.config.memory_max;
        let services = || self.services.values();
        StatsAnswer {
            free_packets: memory.saturating_sub(self.account.memory()) / packet,
            packets: memory / packet,
            calls_executed: self.stats.calls_received,
            waiting: services().map(|service| service.waiting.len() as u64).sum(),
            waited: self.stats.calls_waited,
            idle: services()
                .map(|one| one.service.max_calls.saturating_sub(one.running) as u64)
                .sum(),
        }
    }

    fn debug_rx_stats(&self) -> RxStatsAnswer {
        let measured = || self.paths.iter().filter(|(_, path)| path.rtt.has_sample());
        let count = u32::try_from(measured().count()).unwrap_or(u32::MAX);
        let sum: Duration = measured().map(|(_, path)| path.rtt.smoothed()).sum();
        let least = measured().map(|(_, path)| path.rtt.min()).min();
        let greatest = measured().map(|(_, path)| path.rtt.smoothed()).max();
        RxStatsAnswer {
            stats: self.stats,
            rtt: least
                .zip(greatest)
                .map(|(least, greatest)| [least, sum / count, greatest]),
            server_connections: self.by_source.len(),
            client_connections: self.by_id.len().saturating_sub(self.by_source.len()),
            peers: self.by_address.len(),
            calls: self.calls.iter().count(),
        }
    }

    /// The connection with that running number. The tool asks for them one after the other, so the
    /// search goes on where it ended.
    fn debug_connection(
        &mut self,
        now: Instant,
        asker: Asker,
        index: u32,
        all: bool,
    ) -> Result<Option<ConnectionAnswer>, RateLimited> {
        let Self {
            by_id,
            connections,
            calls,
            answers,
            addresses,
            ..
        } = self;
        let (mut from, mut number) = (Bound::Unbounded, 0);
        if let Some((last, its_number, its_all)) = answers.last_connection
            && its_all == all
            && its_number < index
        {
            (from, number) = (Bound::Excluded(last), its_number + 1);
        }
        let mut steps = 0;
        let mut found = None;
        for (id, key) in by_id.range((from, Bound::Unbounded)) {
            steps += 1;
            if steps % STEPS_PER_ANSWER == 0 && !answers.may_tell(now, asker, addresses) {
                return Err(RateLimited);
            }
            let Some(connection) = connections.get(*key) else {
                continue;
            };
            if !all && !is_interesting(connection, calls) {
                continue;
            }
            if number == index {
                found = Some((*id, *key));
                break;
            }
            number += 1;
        }
        let Some((id, key)) = found else {
            return Ok(None);
        };
        self.answers.last_connection = Some((id, index, all));
        Ok(self.describe_connection(key))
    }

    fn describe_connection(&self, key: Key) -> Option<ConnectionAnswer> {
        let connection = self.connections.get(key)?;
        let path = self.paths.get(connection.path)?;
        let mut flags = 0;
        if connection.wants_channel {
            flags |= flag::MAKECALL_WAITING;
        }
        if !connection.security.is_transparent() {
            flags |= flag::USING_PACKET_CHECKSUM;
        }
        if connection.channels.iter().any(|channel| channel.window > 0) {
            flags |= flag::KNOW_WINDOW;
        }
        Some(ConnectionAnswer {
            peer: path.address,
            epoch: connection.epoch,
            cid: connection.cid,
            serial: connection.serial(),
            flags,
            is_server: connection.role() == Role::Server,
            security_index: connection.security_index,
            channels: connection
                .channels
                .map(|channel| self.describe_channel(&channel)),
            packet_size: path.packet_size(),
            status: connection.security.status(),
            opened: connection.opened,
            sealed: connection.sealed,
        })
    }

    fn describe_channel(&self, channel: &Channel) -> ChannelAnswer {
        let call = channel.call.and_then(|key| self.calls.get(key));
        ChannelAnswer {
            call_number: channel.number,
            ..call.map(describe_call).unwrap_or_default()
        }
    }

    /// The peer with that running number, searched as connections are.
    fn debug_peer(
        &mut self,
        now: Instant,
        asker: Asker,
        index: u32,
    ) -> Result<Option<PeerAnswer>, RateLimited> {
        let Self {
            answers, addresses, ..
        } = self;
        let (mut from, mut number) = (Bound::Unbounded, 0);
        if let Some((last, its_number)) = answers.last_peer
            && its_number < index
        {
            (from, number) = (Bound::Excluded(last), its_number + 1);
        }
        for (steps, (address, key)) in self.by_address.range((from, Bound::Unbounded)).enumerate() {
            if steps % STEPS_PER_ANSWER == STEPS_PER_ANSWER - 1
                && !answers.may_tell(now, asker, addresses)
            {
                return Err(RateLimited);
            }
            if number < index {
                number += 1;
                continue;
            }
            answers.last_peer = Some((*address, index));
            let Some(path) = self.paths.get(*key) else {
                continue;
            };
            return Ok(Some(PeerAnswer {
                address: *address,
                connections: path.connections,
                rtt: if path.rtt.has_sample() {
                    path.rtt.smoothed()
                } else {
                    Duration::ZERO
                },
                rtt_variation: path.rtt.variation(),
                sent: path.counters.data_sent,
                resent: path.counters.data_resent,
                packet_size: path.packet_size(),
                packet_size_max: self.config.datagram_max,
                window_packets: path.controller.window() / path.packet_size() as u64,
                bytes_sent: path.counters.bytes_sent,
                bytes_received: path.counters.bytes_received,
            }));
        }
        Ok(None)
    }
}

/// Whether a connection has something to do, in the sense of `rxdebug` without `-allconnections`.
fn is_interesting(connection: &Connection, calls: &Arena<Call>) -> bool {
    let mut known = (connection.channels.iter()).filter_map(|channel| calls.get(channel.call?));
    connection.wants_channel || known.any(|call| call.stage != Stage::Lingering)
}

/// State, mode and flags of a call in OpenAFS's terms.
fn describe_call(call: &Call) -> ChannelAnswer {
    let (sender, receiver) = (&call.sender, &call.receiver);
    let is_sent = sender.is_last_sent();
    let state = match (call.stage, call.role) {
        (Stage::Waiting, _) => state::PRECALL,
        (Stage::Running, Role::Server) if is_sent => state::DALLY,
        (Stage::Running, _) => state::ACTIVE,
        (Stage::Lingering, _) => state::DALLY,
    };
    let mode = match (receiver.is_complete(), is_sent, call.role) {
        (true, true, _) => mode::EOF,
        (_, false, Role::Client) | (true, false, Role::Server) => mode::SENDING,
        (false, ..) => mode::RECEIVING,
    };
    let mut flags = 0;
    if sender.is_window_blocked() {
        flags |= flag::WAIT_WINDOW_SEND;
    }
    if call.stage == Stage::Waiting {
        flags |= flag::WAIT_PROC;
    }
    if receiver.is_complete() {
        flags |= flag::RECEIVE_DONE;
    }
    let mut other = 0;
    if receiver.held() > 0 {
        other |= flag::OTHER_IN;
    }
    if sender.has_begun() && !sender.is_done() {
        other |= flag::OTHER_OUT;
    }
    ChannelAnswer {
        call_number: call.number.0,
        state,
        mode,
        flags,
        other,
    }
}
