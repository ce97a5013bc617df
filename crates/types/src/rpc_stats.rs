//! Counters that Rx keeps of the RPCs of a process (AFS-3 rxstat).

use afar_xdr::{Decode, Decoder, Encode, List, to_bytes};

/// The words of a reply with counters: [`RpcStat::WORDS`] for each operation. AFS-3 sets no
/// limit.
pub type RpcStatWords = List<u32, 1_048_576>;

/// A span of time, or the sum or the square of some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct RxTime {
    /// Whole seconds.
    pub seconds: i32,
    /// Microseconds beside them.
    pub microseconds: i32,
}

/// How much time something took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct RpcTimes {
    /// All of it.
    pub sum: RxTime,
    /// The sum of the squares.
    pub sum_of_squares: RxTime,
    /// The least.
    pub min: RxTime,
    /// The most.
    pub max: RxTime,
}

/// The counters of one operation (28 words, the first and only version).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct RpcStat {
    /// The other side's IPv4 address; 0xffffffff where all are counted together.
    pub peer: u32,
    /// Its port.
    pub port: u32,
    /// 1 where the other side is the server.
    pub peer_is_server: bool,
    /// The number of the interface among those that are counted, such as 7 for RXAFS.
    pub interface: u32,
    /// Operations of the interface.
    pub n_operations: u32,
    /// Which of them, from 0, in the order of its definition.
    pub operation: u32,
    /// Calls made.
    pub invocations: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// From the arrival of the call, or its start, to its first bytes.
    pub queue_time: RpcTimes,
    /// From then to its end.
    pub execution_time: RpcTimes,
}

impl RpcStat {
    /// Words of an entry.
    pub const WORDS: usize = 28;

    /// The entries that these words hold; fewer than 28 at the end are left out.
    pub fn from_words(words: &[u32]) -> impl Iterator<Item = Self> + '_ {
        words.chunks_exact(Self::WORDS).filter_map(|words| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            Self::decode(&mut Decoder::new(&bytes)).ok()
        })
    }

    /// The words of this entry.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        let bytes = to_bytes(self);
        let words = bytes.as_chunks::<4>().0.to_vec();
        words.into_iter().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_has_28_words_in_this_order() {
        let mut words: Vec<u32> = (1..=28).collect();
        words[2] = 1;
        let entries: Vec<_> = RpcStat::from_words(&words).collect();
        let [entry] = entries[..] else {
            panic!("{entries:?}")
        };
        assert_eq!((entry.peer, entry.port, entry.peer_is_server), (1, 2, true));
        assert_eq!(
            (entry.interface, entry.n_operations, entry.operation),
            (4, 5, 6)
        );
        assert_eq!(entry.invocations, 7 << 32 | 8);
        assert_eq!(entry.bytes_sent, 9 << 32 | 10);
        assert_eq!(entry.bytes_received, 11 << 32 | 12);
        let time = |seconds| RxTime {
            seconds,
            microseconds: seconds + 1,
        };
        let times = |first| RpcTimes {
            sum: time(first),
            sum_of_squares: time(first + 2),
            min: time(first + 4),
            max: time(first + 6),
        };
        assert_eq!(
            (entry.queue_time, entry.execution_time),
            (times(13), times(21))
        );
        assert_eq!(entry.words().collect::<Vec<_>>(), words);
        assert_eq!(RpcStat::MAX_LEN, 4 * RpcStat::WORDS);
    }

    proptest! {
        #[test]
        fn any_words_are_entries(words in prop::collection::vec(any::<u32>(), 0..100)) {
            let entries: Vec<_> = RpcStat::from_words(&words).collect();
            prop_assert_eq!(entries.len(), words.len() / RpcStat::WORDS);
            let again: Vec<u32> = entries.iter().flat_map(RpcStat::words).collect();
            prop_assert_eq!(RpcStat::from_words(&again).collect::<Vec<_>>(), entries);
        }
    }
}
