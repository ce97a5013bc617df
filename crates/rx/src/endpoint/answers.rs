//! Answers that need no connection: VERSION, and DEBUG for `rxdebug`.
//!
//! Anybody may ask, so answers are limited by rate, never larger than their fixed layouts, and
//! walking the tables costs no more than stepping from one entry to the next.

use std::net::SocketAddr;
use std::ops::Bound;
use std::time::{Duration, Instant};

use super::{ConnectionIndex, Endpoint, TokenBucket};
use crate::call::{Call, Role, Stage};
use crate::connection::{Channel, Connection};
use crate::packet::debug::{
    BAD_TYPE, ChannelAnswer, ConnectionAnswer, PeerAnswer, Question, RxStatsAnswer, StatsAnswer,
    flag, mode, state,
};
use crate::packet::{CLASSIC_PACKET_SIZE, Flags, Header};
use crate::types::Key;

/// Octets of a version answer, NUL-padded.
const VERSION_SIZE: usize = 65;
/// Entries of a table that are passed over for one answer; asking further costs more of the rate.
const STEPS_PER_ANSWER: usize = 256;

/// What answering strangers needs to remember.
#[derive(Debug)]
pub(super) struct Answers {
    rate: TokenBucket,
    /// The connection told last, its running number, and whether all were counted.
    last_connection: Option<(ConnectionIndex, u32, bool)>,
    /// The peer told last and its running number.
    last_peer: Option<(SocketAddr, u32)>,
}

/// The question is not answered, as too many are asked; tools ask again.
struct RateLimited;

impl Answers {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            rate: TokenBucket::full(now),
            last_connection: None,
            last_peer: None,
        }
    }
}

impl Endpoint {
    /// Answers a VERSION request; those without CLIENT_INITIATED are answers or NAT keep-alives.
    pub(super) fn on_version(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        if !header.from_client() || !self.answers.rate.take(now) {
            return;
        }
        let mut body = [0; VERSION_SIZE];
        let text = self.config.version.as_bytes();
        let len = text.len().min(VERSION_SIZE - 1);
        body[..len].copy_from_slice(&text[..len]);
        self.answer(from, header, &body);
    }

    /// Answers a DEBUG request of `rxdebug`; those without CLIENT_INITIATED are answers.
    pub(super) fn on_debug(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        body: &[u8],
    ) {
        let Some(question) = Question::decode(body) else {
            self.stats.malformed += 1;
            return;
        };
        if !header.from_client() || !self.answers.rate.take(now) {
            return;
        }
        match question {
            Question::Stats => self.answer(from, header, &self.debug_stats().encode()),
            Question::RxStats => self.answer(from, header, &self.debug_rx_stats().encode()),
            Question::Connection { index, all } => {
                let Ok(answer) = self.debug_connection(now, index, all) else {
                    return;
                };
                let body = answer.map_or_else(ConnectionAnswer::end, |answer| answer.encode());
                self.answer(from, header, &body);
            }
            Question::Peer { index } => {
                let Ok(answer) = self.debug_peer(now, index) else {
                    return;
                };
                let body = answer.map_or_else(PeerAnswer::end, |answer| answer.encode());
                self.answer(from, header, &body);
            }
            Question::Unknown => self.answer(from, header, &BAD_TYPE),
        }
    }

    fn answer(&mut self, from: SocketAddr, question: &Header, body: &[u8]) {
        let flags = question.flags.without(Flags::CLIENT_INITIATED);
        self.push_datagram(from, &Header { flags, ..*question }, body);
    }

    fn debug_stats(&self) -> StatsAnswer {
        let packet = CLASSIC_PACKET_SIZE as u64;
        let memory = self.config.receive_memory_max;
        let services = || self.services.values();
        StatsAnswer {
            free_packets: memory.saturating_sub(self.stats.receive_memory) / packet,
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
            server_connections: self.server_connections,
            client_connections: self.by_id.len().saturating_sub(self.server_connections),
            peers: self.by_address.len(),
            calls: self.calls.iter().count(),
        }
    }

    /// The connection with that running number. The tool asks for them one after the other, so the
    /// search goes on where it ended.
    fn debug_connection(
        &mut self,
        now: Instant,
        index: u32,
        all: bool,
    ) -> Result<Option<ConnectionAnswer>, RateLimited> {
        let (mut from, mut number) = (Bound::Unbounded, 0);
        if let Some((last, its_number, its_all)) = self.answers.last_connection
            && its_all == all
            && its_number < index
        {
            (from, number) = (Bound::Excluded(last), its_number + 1);
        }
        let mut steps = 0;
        let mut found = None;
        for (id, key) in self.by_id.range((from, Bound::Unbounded)) {
            steps += 1;
            if steps % STEPS_PER_ANSWER == 0 && !self.answers.rate.take(now) {
                return Err(RateLimited);
            }
            let Some(connection) = self.connections.get(*key) else {
                continue;
            };
            if !all && !self.is_interesting(connection) {
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

    /// Whether a connection has something to do, in the sense of `rxdebug` without `-allconnections`.
    fn is_interesting(&self, connection: &Connection) -> bool {
        connection.wants_channel
            || connection
                .channels
                .iter()
                .filter_map(|channel| self.calls.get(channel.call?))
                .any(|call| call.stage != Stage::Lingering)
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
            error: connection.error,
            flags,
            is_server: connection.role() == Role::Server,
            security_index: connection.security_index,
            channels: connection
                .channels
                .map(|channel| self.describe_channel(&channel)),
            packet_size: path.packet_size(),
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
    fn debug_peer(&mut self, now: Instant, index: u32) -> Result<Option<PeerAnswer>, RateLimited> {
        let (mut from, mut number) = (Bound::Unbounded, 0);
        if let Some((last, its_number)) = self.answers.last_peer
            && its_number < index
        {
            (from, number) = (Bound::Excluded(last), its_number + 1);
        }
        for (steps, (address, key)) in self.by_address.range((from, Bound::Unbounded)).enumerate() {
            if steps % STEPS_PER_ANSWER == STEPS_PER_ANSWER - 1 && !self.answers.rate.take(now) {
                return Err(RateLimited);
            }
            if number < index {
                number += 1;
                continue;
            }
            self.answers.last_peer = Some((*address, index));
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
