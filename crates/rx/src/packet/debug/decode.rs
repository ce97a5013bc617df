//! Answers as those who ask read them: any bytes are taken, and what is missing counts as 0.
//!
//! Servers of strangers' questions cut their answers short, so that none is much longer than its question.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::{PeerAnswer, StatsAnswer};

/// What a table has at a running number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row<T> {
    /// This.
    Entry(T),
    /// Nothing: the table ends before it.
    End,
}

/// The answer to a question of unknown type, in its first word.
const BAD_TYPE_WORD: u32 = 8_u32.wrapping_neg();

impl StatsAnswer {
    /// Reads an answer; `None` if it is none, or an empty one.
    // spec: rx#debug
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<Self> {
        let read = Reader(body);
        // A version letter from before counters of threads says nothing of these.
        if body.len() < 16 || read.word(0) == BAD_TYPE_WORD {
            return None;
        }
        Some(Self {
            free_packets: read.count(0),
            calls_executed: read.count(8),
            waiting: read.count(16),
            idle: read.count(20),
            waited: read.count(24),
            packets: read.count(28),
        })
    }
}

impl PeerAnswer {
    /// Reads an answer; `None` if it is none.
    // spec: rx#debug
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<Row<Self>> {
        let read = Reader(body);
        if body.len() < 8 || read.word(0) == BAD_TYPE_WORD {
            return None;
        }
        if read.word(0) == u32::MAX {
            return Some(Row::End);
        }
        let address = Ipv4Addr::from_bits(read.word(0));
        Some(Row::Entry(Self {
            address: SocketAddr::from((address, read.short(4))),
            connections: read.short(12).into(),
            rtt: Duration::from_millis(read.count(24)) / 8,
            rtt_variation: Duration::from_millis(read.count(28)) / 4,
            sent: read.count(40),
            resent: read.count(44),
            packet_size: read.short(60).into(),
            packet_size_max: read.short(62).into(),
            window_packets: read.short(70).into(),
            bytes_sent: read.long(76),
            bytes_received: read.long(84),
        }))
    }
}

/// An answer being read: behind its end there are zeros.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|n| self.0.get(at + n).copied().unwrap_or(0))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    fn count(&self, at: usize) -> u64 {
        self.word(at).into()
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    fn short(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }
}

#[cfg(test)]
mod tests {
    use super::super::BAD_TYPE;
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written() {
        let stats = StatsAnswer {
            free_packets: 5,
            packets: 9,
            calls_executed: 700,
            waiting: 12,
            waited: 40,
            idle: 3,
        };
        assert_eq!(StatsAnswer::decode(&stats.encode()), Some(stats));
        let peer = PeerAnswer {
            address: "192.0.2.1:7001".parse().unwrap(),
            connections: 2,
            rtt: Duration::from_millis(25),
            rtt_variation: Duration::from_millis(1),
            sent: 10,
            resent: 1,
            packet_size: 1444,
            packet_size_max: 65_507,
            window_packets: 32,
            bytes_sent: (7 << 32) | 6,
            bytes_received: 5,
        };
        assert_eq!(PeerAnswer::decode(&peer.encode()), Some(Row::Entry(peer)));
        assert_eq!(PeerAnswer::decode(&PeerAnswer::end()), Some(Row::End));
    }

    #[test]
    fn short_answers_have_zeros_behind_them() {
        let stats = StatsAnswer {
            waiting: 12,
            idle: 3,
            ..StatsAnswer::default()
        };
        let whole = stats.encode();
        assert_eq!(StatsAnswer::decode(&whole[..24]), Some(stats));
        assert_eq!(StatsAnswer::decode(&whole[..22]).map(|it| it.idle), Some(0));
        assert_eq!(StatsAnswer::decode(&whole[..15]), None);
        assert_eq!(StatsAnswer::decode(&BAD_TYPE), None);
        assert_eq!(PeerAnswer::decode(&BAD_TYPE), None);
        assert_eq!(PeerAnswer::decode(&[192, 0, 2, 1]), None);
    }
}
