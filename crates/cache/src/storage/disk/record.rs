//! What the index tells of a block, byte by byte as docs/formats/cache.md has it.

use afar_types::DataVersion;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::slots::{BLOCK, Slot};

/// Bytes of a record.
pub(super) const RECORD: usize = 64;

/// A file of an instance of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    /// The number of the instance.
    pub(super) instance: u32,
    pub(super) vnode: u32,
    pub(super) uniquifier: u32,
}

/// A part of a file: so many bytes from a multiple of [`BLOCK`] on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId {
    pub(super) file: FileId,
    pub(super) number: u32,
}

impl BlockId {
    /// Where it begins in its file.
    pub(super) fn start(self) -> u64 {
        u64::from(self.number) * BLOCK
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&self.file.instance.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.file.vnode.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.file.uniquifier.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// The checksum of its bytes from this place on, which no other block's bytes have.
    pub(super) fn sum(self, from: u32, data: &[u8]) -> u64 {
        let seed = xxh3_64_with_seed(&self.bytes(), from.into());
        xxh3_64_with_seed(data, seed)
    }
}

/// What is known of bytes of a block that are in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) block: BlockId,
    /// The version of the file they belong to.
    pub(super) version: DataVersion,
    /// Where in the block they begin.
    pub(super) from: u32,
    /// How many there are; at least one.
    pub(super) length: u32,
    /// Their checksum.
    pub(super) sum: u64,
    /// When they were put there, in seconds since 1970.
    pub(super) time: u32,
}

impl Record {
    pub(super) fn encode(&self, slot: Slot) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[8..24].copy_from_slice(&self.block.bytes());
        bytes[24..32].copy_from_slice(&self.version.0.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.from.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.length.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.sum.to_be_bytes());
        bytes[48..52].copy_from_slice(&self.time.to_be_bytes());
        let sum = sum(slot, &bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Nothing if it is empty, damaged, or of another slot.
    pub(super) fn decode(bytes: &[u8; RECORD], slot: Slot) -> Option<Self> {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|more| bytes[at + more]));
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if long(0) != sum(slot, &bytes[8..]) {
            return None;
        }
        let file = FileId {
            instance: word(8),
            vnode: word(12),
            uniquifier: word(16),
        };
        let record = Self {
            block: BlockId {
                file,
                number: word(20),
            },
            version: DataVersion(long(24)),
            from: word(32),
            length: word(36),
            sum: long(40),
            time: word(48),
        };
        let fits = record.length > 0
            && record.length <= slot.size()
            && u64::from(record.from) + u64::from(record.length) <= BLOCK;
        fits.then_some(record)
    }
}

/// The checksum of a record in a slot.
fn sum(slot: Slot, rest: &[u8]) -> u64 {
    let mut place = [0; 5];
    place[0] = slot.class;
    place[1..].copy_from_slice(&slot.number.to_be_bytes());
    xxh3_64_with_seed(rest, xxh3_64(&place))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(numbers: [u32; 5], version: u64, from: u32, length: u32) -> Record {
        let [instance, vnode, uniquifier, number, time] = numbers;
        Record {
            block: BlockId {
                file: FileId {
                    instance,
                    vnode,
                    uniquifier,
                },
                number,
            },
            version: DataVersion(version),
            from,
            length,
            sum: version.rotate_left(7),
            time,
        }
    }

    proptest! {
        #[test]
        fn records_come_back_and_changed_ones_do_not(
            numbers in any::<[u32; 5]>(),
            version in any::<u64>(),
            from in 0_u32..32_768,
            length in 1_u32..=32_768,
            slot in any::<u32>(),
            bit in 0_usize..RECORD * 8,
        ) {
            let slot = Slot { class: 3, number: slot };
            let record = record(numbers, version, from, length);
            let mut bytes = record.encode(slot);
            prop_assert_eq!(Record::decode(&bytes, slot), Some(record));
            let elsewhere = Slot { number: slot.number ^ 1, ..slot };
            prop_assert_eq!(Record::decode(&bytes, elsewhere), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Record::decode(&bytes, slot), None);
        }

        #[test]
        fn no_octets_panic(bytes in any::<[u8; RECORD]>()) {
            prop_assert_eq!(Record::decode(&bytes, Slot { class: 0, number: 0 }), None);
        }
    }

    #[test]
    fn an_empty_record_tells_nothing() {
        let slot = Slot {
            class: 0,
            number: 9,
        };
        assert_eq!(Record::decode(&[0; RECORD], slot), None);
        // More than the slot or the block has room for is no record, whatever its checksum.
        for (from, length) in [(0, 0), (0, 4097), (65_530, 100), (u32::MAX, 4)] {
            let bytes = record([1; 5], 1, from, length).encode(slot);
            assert_eq!(Record::decode(&bytes, slot), None, "{from} {length}");
        }
    }
}
