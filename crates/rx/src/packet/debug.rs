//! DEBUG packets: what `rxdebug` asks and is told.
//!
//! The layouts are those of OpenAFS's `rx_debugIn`, `rx_debugStats`, `rx_debugConn`, `rx_debugPeer`
//! and `rx_statistics`, C structures in network order, at the version that the letter `S` names.
//! Everything they have no place for is 0.

mod decode;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::security::SecurityStatus;
use crate::{Cid, Epoch, SecurityIndex, Stats};

pub use decode::Row;

/// Bytes of a question.
pub const QUESTION_SIZE: usize = 8;
/// Bytes of the answer to [`Question::Stats`].
pub const STATS_SIZE: usize = 56;
/// Bytes of the answer to [`Question::Connection`].
pub const CONNECTION_SIZE: usize = 176;
/// Bytes of the answer to [`Question::RxStats`].
pub const RX_STATS_SIZE: usize = 284;
/// Bytes of the answer to [`Question::Peer`].
pub const PEER_SIZE: usize = 132;
/// The answer to a question of unknown type: -8 twice.
pub const BAD_TYPE: [u8; QUESTION_SIZE] = [0xff, 0xff, 0xff, 0xf8, 0xff, 0xff, 0xff, 0xf8];

/// Says which questions are answered: all that OpenAFS 1.6 and later know.
// spec: rx#debug
const VERSION: u8 = b'S';

/// What a DEBUG packet asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Basic counters.
    Stats,
    /// One connection.
    Connection {
        /// Its running number.
        index: u32,
        /// Whether those are counted that have nothing to do.
        all: bool,
    },
    /// The counters of packets.
    RxStats,
    /// One peer.
    Peer {
        /// Its running number.
        index: u32,
    },
    /// Something else.
    Unknown,
}

impl Question {
    /// Reads the body of a DEBUG packet; `None` if it is too short.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first_chunk::<4>()?;
        let index = u32::from_be_bytes(*rest.first_chunk::<4>()?);
        Some(match u32::from_be_bytes(*kind) {
            1 => Self::Stats,
            2 => Self::Connection { index, all: false },
            3 => Self::Connection { index, all: true },
            4 => Self::RxStats,
            5 => Self::Peer { index },
            _ => Self::Unknown,
        })
    }

    /// The body that asks this, for tools and tests.
    #[must_use]
    pub fn encode(self) -> [u8; QUESTION_SIZE] {
        let (kind, index) = match self {
            Self::Stats => (1, 0),
            Self::Connection { index, all } => (2 + u32::from(all), index),
            Self::RxStats => (4, 0),
            Self::Peer { index } => (5, index),
            Self::Unknown => (0, 0),
        };
        let mut body = Writer([0; QUESTION_SIZE]);
        body.word(0, kind);
        body.word(4, index);
        body.0
    }
}

/// The basic counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsAnswer {
    /// Packets there is still memory for.
    pub free_packets: u64,
    /// Packets there is memory for.
    pub packets: u64,
    /// Calls that peers began and that ran.
    pub calls_executed: u64,
    /// Calls that wait for a place.
    pub waiting: u64,
    /// Calls that have waited, so far.
    pub waited: u64,
    /// Further calls that could run at once.
    pub idle: u64,
}

impl StatsAnswer {
    /// The answer's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; STATS_SIZE] {
        let mut out = Writer([0; STATS_SIZE]);
        out.count(0, self.free_packets);
        out.count(8, self.calls_executed);
        // One socket: the only descriptor that Rx has.
        out.0[13] = 1;
        out.0[14] = VERSION;
        out.count(16, self.waiting);
        out.count(20, self.idle);
        out.count(24, self.waited);
        out.count(28, self.packets);
        out.0
    }
}

/// State numbers of [`ChannelAnswer`].
pub mod state {
    /// No call.
    pub const NOT_INITIALISED: u8 = 0;
    /// A server call that waits to be run.
    pub const PRECALL: u8 = 1;
    /// The application has it.
    pub const ACTIVE: u8 = 2;
    /// Done but for acknowledgements.
    pub const DALLY: u8 = 3;
}

/// Mode numbers of [`ChannelAnswer`].
pub mod mode {
    /// This side's stream is open.
    pub const SENDING: u8 = 1;
    /// The peer's stream is open.
    pub const RECEIVING: u8 = 2;
    /// Both have ended.
    pub const EOF: u8 = 4;
}

/// Flag bits of [`ChannelAnswer`] and [`ConnectionAnswer`].
pub mod flag {
    /// Of a call: waits for the peer's window.
    pub const WAIT_WINDOW_SEND: u8 = 4;
    /// Of a call: waits for a place among the service's calls.
    pub const WAIT_PROC: u8 = 16;
    /// Of a call: the peer's whole stream has arrived.
    pub const RECEIVE_DONE: u8 = 32;
    /// Of a connection: the application waits for a channel.
    pub const MAKECALL_WAITING: u8 = 1;
    /// Of a connection: the security class seals packets.
    pub const USING_PACKET_CHECKSUM: u8 = 4;
    /// Of a connection: a window of the peer is known.
    pub const KNOW_WINDOW: u8 = 8;
    /// In `other`: bytes have arrived that the application has not consumed.
    pub const OTHER_IN: u8 = 1;
    /// In `other`: packets are unsent or not acknowledged.
    pub const OTHER_OUT: u8 = 2;
}

/// One channel of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelAnswer {
    /// The number of the last call.
    pub call_number: u32,
    /// See [`state`].
    pub state: u8,
    /// See [`mode`].
    pub mode: u8,
    /// See [`flag`].
    pub flags: u8,
    /// See [`flag`].
    pub other: u8,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAnswer {
    /// The peer's address; one of IPv6 is told as 0.0.0.0, as the layout has no room for it.
    pub peer: SocketAddr,
    /// The client's epoch.
    pub epoch: Epoch,
    /// The connection's number.
    pub cid: Cid,
    /// The last serial sent.
    pub serial: u32,
    /// See [`flag`].
    pub flags: u8,
    /// Whether a client opened it to this side.
    pub is_server: bool,
    /// Its security class.
    pub security_index: SecurityIndex,
    /// The channels.
    pub channels: [ChannelAnswer; 4],
    /// Largest packet sent to the peer.
    pub packet_size: usize,
    /// What its security class says of it.
    pub status: SecurityStatus,
    /// DATA that the class opened: packets and bytes of payload.
    pub opened: (u64, u64),
    /// The same of what it sealed.
    pub sealed: (u64, u64),
}

impl ConnectionAnswer {
    /// The same without what packets of the connection could be made with.
    #[must_use]
    pub fn without_secrets(self) -> Self {
        Self {
            epoch: Epoch(0),
            cid: Cid(0),
            serial: 0,
            channels: self.channels.map(|channel| ChannelAnswer {
                call_number: 0,
                ..channel
            }),
            opened: (0, 0),
            sealed: (0, 0),
            ..self
        }
    }

    /// The answer's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CONNECTION_SIZE] {
        let mut out = Writer([0; CONNECTION_SIZE]);
        out.address(0, 32, self.peer);
        out.word(4, self.cid.0);
        out.word(8, self.serial);
        out.0[34] = self.flags;
        out.0[35] = u8::from(self.is_server);
        out.0[36] = self.security_index.0;
        for (index, channel) in self.channels.iter().enumerate() {
            out.word(12 + 4 * index, channel.call_number);
            out.0[40 + index] = channel.state;
            out.0[44 + index] = channel.mode;
            out.0[48 + index] = channel.flags;
            out.0[52 + index] = channel.other;
        }
        let SecurityStatus {
            kind,
            level,
            authenticated,
            checksums,
            expires,
        } = self.status;
        (out.0[56], out.0[57]) = (kind, level);
        out.word(
            68,
            u32::from(authenticated) << 1 | u32::from(checksums) << 3,
        );
        out.word(72, expires);
        // OpenAFS counts what its rxkad sealed and opened.
        if kind > 1 {
            out.count(76, self.opened.0);
            out.count(80, self.sealed.0);
            out.count(84, self.opened.1);
            out.count(88, self.sealed.1);
        }
        out.word(132, self.epoch.0);
        out.count(136, self.packet_size as u64);
        out.0
    }

    /// What is told after the last connection.
    #[must_use]
    pub fn end() -> [u8; CONNECTION_SIZE] {
        let mut out = Writer([0; CONNECTION_SIZE]);
        out.word(4, u32::MAX);
        out.0
    }
}

/// One peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAnswer {
    /// Its address; one of IPv6 is told as 0.0.0.0.
    pub address: SocketAddr,
    /// Connections to and from it.
    pub connections: usize,
    /// The smoothed RTT.
    pub rtt: Duration,
    /// The RTT's mean deviation.
    pub rtt_variation: Duration,
    /// DATA packets sent.
    pub sent: u64,
    /// DATA packets sent again.
    pub resent: u64,
    /// Largest packet sent to it.
    pub packet_size: usize,
    /// Largest packet ever to be sent to it.
    pub packet_size_max: usize,
    /// Congestion window in packets.
    pub window_packets: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

impl PeerAnswer {
    /// The answer's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PEER_SIZE] {
        let mut out = Writer([0; PEER_SIZE]);
        out.address(0, 4, self.address);
        out.short(6, self.packet_size);
        out.short(12, self.connections);
        // Eighths and quarters of a millisecond, as OpenAFS keeps them.
        out.count(
            24,
            (self.rtt * 8).as_millis().try_into().unwrap_or(u64::MAX),
        );
        out.count(
            28,
            (self.rtt_variation * 4)
                .as_millis()
                .try_into()
                .unwrap_or(u64::MAX),
        );
        out.count(40, self.sent);
        out.count(44, self.resent);
        out.short(60, self.packet_size);
        out.short(62, self.packet_size_max);
        // Packets a datagram, the most and now: jumbograms are never sent.
        out.short(64, 1);
        out.short(66, 1);
        out.short(68, self.packet_size);
        out.short(
            70,
            usize::try_from(self.window_packets).unwrap_or(usize::MAX),
        );
        out.short(72, 1);
        out.long(76, self.bytes_sent);
        out.long(84, self.bytes_received);
        out.0
    }

    /// What is told after the last peer.
    #[must_use]
    pub fn end() -> [u8; PEER_SIZE] {
        let mut out = Writer([0; PEER_SIZE]);
        out.word(0, u32::MAX);
        out.0
    }
}

/// The counters of packets, and what exists.
#[derive(Clone, Copy, Debug)]
pub struct RxStatsAnswer {
    /// The endpoint's counters.
    pub stats: Stats,
    /// The least, the mean and the greatest RTT of all paths that have one.
    pub rtt: Option<[Duration; 3]>,
    /// Connections that clients opened to this side.
    pub server_connections: usize,
    /// Connections this side opened.
    pub client_connections: usize,
    /// Peers.
    pub peers: usize,
    /// Calls.
    pub calls: usize,
}

impl RxStatsAnswer {
    /// The answer's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RX_STATS_SIZE] {
        let mut out = Writer([0; RX_STATS_SIZE]);
        let stats = &self.stats;
        out.count(20, stats.malformed);
        for (index, (received, sent)) in stats
            .packets_received
            .iter()
            .zip(&stats.packets_sent)
            .enumerate()
        {
            out.count(44 + 4 * index, *received);
            out.count(112 + 4 * index, *sent);
        }
        let [data_read, acks_read, ..] = stats.packets_received;
        let [data_sent, acks_sent, busy_sent, aborts_sent, ..] = stats.packets_sent;
        out.count(96, data_read);
        out.count(100, acks_read);
        out.count(104, stats.duplicates);
        out.count(108, stats.unmatched + stats.violations);
        out.count(164, acks_sent);
        out.count(172, aborts_sent);
        out.count(176, busy_sent);
        out.count(180, data_sent.saturating_sub(stats.data_resent));
        out.count(184, stats.data_resent);
        if let Some([least, mean, greatest]) = self.rtt {
            // The tool divides the sum by the number of samples.
            let samples = u32::try_from(stats.rtt_samples.max(1)).unwrap_or(u32::MAX);
            out.duration(196, mean.saturating_mul(samples));
            out.duration(204, least);
            out.duration(212, greatest);
            out.count(220, u64::from(samples));
        }
        out.count(224, self.server_connections as u64);
        out.count(228, self.client_connections as u64);
        out.count(232, self.peers as u64);
        out.count(236, self.calls as u64);
        out.count(264, stats.refused);
        out.0
    }
}

/// An answer being filled in. The layouts' fields are 32 bits and less; counts wrap as they do there.
struct Writer<const N: usize>([u8; N]);

impl<const N: usize> Writer<N> {
    fn put<const M: usize>(&mut self, at: usize, octets: [u8; M]) {
        self.0[at..at + M].copy_from_slice(&octets);
    }

    fn word(&mut self, at: usize, value: u32) {
        self.put(at, value.to_be_bytes());
    }

    fn count(&mut self, at: usize, value: u64) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "counters wrap at 32 bits there"
        )]
        self.word(at, value as u32);
    }

    fn long(&mut self, at: usize, value: u64) {
        self.put(at, value.to_be_bytes());
    }

    fn short(&mut self, at: usize, value: usize) {
        self.put(at, u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes());
    }

    fn duration(&mut self, at: usize, value: Duration) {
        self.count(at, value.as_secs());
        self.word(at + 4, value.subsec_micros());
    }

    fn address(&mut self, host: usize, port: usize, address: SocketAddr) {
        if let IpAddr::V4(ip) = address.ip().to_canonical() {
            self.put(host, ip.octets());
        }
        self.put(port, address.port().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn word(octets: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn questions() {
        assert_eq!(Question::decode(&[0, 0, 0, 1, 0, 0, 0]), None);
        for question in [
            Question::Stats,
            Question::Connection {
                index: 7,
                all: false,
            },
            Question::Connection {
                index: u32::MAX,
                all: true,
            },
            Question::RxStats,
            Question::Peer { index: 3 },
            Question::Unknown,
        ] {
            assert_eq!(Question::decode(&question.encode()), Some(question));
        }
        assert_eq!(Question::decode(&[0xff; 8]), Some(Question::Unknown));
    }

    #[test]
    fn fields_lie_where_rxdebug_looks() {
        let stats = StatsAnswer {
            free_packets: 5,
            packets: 9,
            idle: 3,
            ..Default::default()
        };
        let octets = stats.encode();
        assert_eq!(
            (word(&octets, 0), word(&octets, 28), word(&octets, 20)),
            (5, 9, 3)
        );
        assert_eq!(octets[14], b'S');

        let peer = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 7001));
        let channel = ChannelAnswer {
            call_number: 4,
            state: 2,
            mode: 1,
            flags: 36,
            other: 3,
        };
        let connection = ConnectionAnswer {
            peer,
            epoch: Epoch(0x9a5b_3c21),
            cid: Cid(0x4c6d_8e70),
            serial: 77,
            flags: 9,
            is_server: true,
            security_index: SecurityIndex(2),
            channels: [ChannelAnswer::default(), channel, channel, channel],
            packet_size: 1444,
            status: SecurityStatus {
                kind: 3,
                level: 2,
                authenticated: true,
                checksums: true,
                expires: 0x6a5b_3c21,
            },
            opened: (3, 1000),
            sealed: (4, 2000),
        };
        let told = connection.without_secrets();
        assert_eq!((told.peer, told.channels[1].state), (peer, 2));
        let secrets = (
            told.epoch,
            told.cid,
            told.serial,
            told.channels[1].call_number,
        );
        assert_eq!(secrets, (Epoch(0), Cid(0), 0, 0));
        let octets = connection.encode();
        // OpenAFS's rx_securityObjectStats: kind, level, flags, end, packets and bytes in and out.
        assert_eq!(octets[56..58], [3, 2]);
        let status = [68, 72, 76, 80, 84, 88].map(|at| word(&octets, at));
        assert_eq!(status, [2 | 8, 0x6a5b_3c21, 3, 4, 1000, 2000]);
        assert_eq!(octets[..4], [192, 0, 2, 1]);
        assert_eq!((word(&octets, 4), word(&octets, 8)), (0x4c6d_8e70, 77));
        assert_eq!((word(&octets, 12), word(&octets, 16)), (0, 4));
        assert_eq!(octets[32..37], [0x1b, 0x59, 9, 1, 2]);
        assert_eq!(
            octets[40..56],
            [0, 2, 2, 2, 0, 1, 1, 1, 0, 36, 36, 36, 0, 3, 3, 3]
        );
        assert_eq!(
            (word(&octets, 132), word(&octets, 136)),
            (0x9a5b_3c21, 1444)
        );

        let answer = PeerAnswer {
            address: peer,
            connections: 2,
            rtt: Duration::from_micros(25_250),
            rtt_variation: Duration::from_micros(500),
            sent: 10,
            resent: 1,
            packet_size: 1444,
            packet_size_max: 65_507,
            window_packets: 1 << 20,
            bytes_sent: (7 << 32) | 6,
            bytes_received: 5,
        };
        let octets = answer.encode();
        assert_eq!(octets[..8], [192, 0, 2, 1, 0x1b, 0x59, 0x05, 0xa4]);
        assert_eq!((word(&octets, 24), word(&octets, 28)), (202, 2));
        assert_eq!(octets[70..72], [0xff, 0xff]);
        assert_eq!(
            (word(&octets, 76), word(&octets, 80), word(&octets, 88)),
            (7, 6, 5)
        );
    }

    #[test]
    fn counters_of_packets() {
        let mut stats = Stats {
            data_resent: 2,
            rtt_samples: 10,
            ..Default::default()
        };
        stats.packets_received[12] = 3;
        stats.packets_sent[0] = 7;
        let answer = RxStatsAnswer {
            stats,
            rtt: Some([1, 2, 3].map(Duration::from_millis)),
            server_connections: 4,
            client_connections: 5,
            peers: 6,
            calls: 7,
        };
        let octets = answer.encode();
        assert_eq!(word(&octets, 44 + 4 * 12), 3);
        assert_eq!(
            (word(&octets, 112), word(&octets, 180), word(&octets, 184)),
            (7, 5, 2)
        );
        assert_eq!(
            (word(&octets, 200), word(&octets, 208), word(&octets, 216)),
            (20_000, 1000, 3000)
        );
        assert_eq!(
            [224, 228, 232, 236].map(|at| word(&octets, at)),
            [4, 5, 6, 7]
        );
    }
}
