//! Partitions of a volume server: which there are, and how full they are.

use afar_xdr::{CharArray, Decode, Encode};

use crate::PartitionId;

/// The partitions `/vicepa` to `/vicepz` that a server has (AFS-3 pIDs, 26 words); the form for
/// servers that cannot list more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PartitionIds {
    /// Partition numbers. A server writes number *n* into slot *n*, and -1 where there is none.
    pub slots: [i32; 26],
}

/// None.
impl Default for PartitionIds {
    fn default() -> Self {
        Self { slots: [-1; 26] }
    }
}

impl PartitionIds {
    /// The partitions.
    pub fn iter(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.slots
            .iter()
            .filter_map(|&slot| u32::try_from(slot).ok().map(PartitionId))
    }
}

/// Each partition in its slot; those beyond `/vicepz` have none and are left out.
impl FromIterator<PartitionId> for PartitionIds {
    fn from_iter<I: IntoIterator<Item = PartitionId>>(partitions: I) -> Self {
        let mut ids = Self::default();
        for PartitionId(number) in partitions {
            let slot = usize::try_from(number).ok();
            if let Some(slot) = slot.and_then(|slot| ids.slots.get_mut(slot)) {
                *slot = i32::try_from(number).unwrap_or(-1);
            }
        }
        ids
    }
}

/// A partition's size and free space with 64-bit numbers (AFS-3 diskPartition64, 519 words).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DiskPartition64 {
    /// Its name, such as `/vicepa`.
    pub name: CharArray<256>,
    /// The device it is on.
    pub device: CharArray<256>,
    /// A file descriptor of the server; of no use to others.
    pub lock_fd: i32,
    /// 0 from OpenAFS: see [`total`](Self::total).
    pub total_usable: i64,
    /// KiB free.
    pub free: i64,
    /// From OpenAFS, the partition's size and no minimum of anything.
    pub min_free: i64,
}

impl DiskPartition64 {
    /// A partition of this size in KiB, of which so much is free, in the form OpenAFS sends.
    #[must_use]
    pub fn new(name: CharArray<256>, device: CharArray<256>, total: i64, free: i64) -> Self {
        Self {
            name,
            device,
            lock_fd: 0,
            total_usable: 0,
            free,
            min_free: total,
        }
    }

    /// The partition's size in KiB, which servers send as the minimum of free space and tools
    /// take from there.
    #[must_use]
    // spec: volumes#partitions
    pub fn total(&self) -> i64 {
        self.min_free
    }
}

/// A partition's size and free space in 32-bit numbers (AFS-3 diskPartition, 68 words); the form
/// for tools that know no other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct DiskPartition {
    /// Its name, such as `/vicepa`.
    pub name: CharArray<32>,
    /// The device it is on.
    pub device: CharArray<32>,
    /// A file descriptor of the server; of no use to others.
    pub lock_fd: i32,
    /// 0 from OpenAFS: see [`total`](Self::total).
    pub total_usable: i32,
    /// KiB free, at most 2 TiB.
    pub free: i32,
    /// From OpenAFS, the partition's size, at most 2 TiB.
    pub min_free: i32,
}

impl DiskPartition {
    /// The partition's size in KiB, at most 2 TiB (see [`DiskPartition64::total`]).
    #[must_use]
    pub fn total(&self) -> i32 {
        self.min_free
    }
}

/// Names are cut after 31 bytes; numbers too large become the largest.
impl From<&DiskPartition64> for DiskPartition {
    fn from(partition: &DiskPartition64) -> Self {
        Self {
            name: cut(&partition.name),
            device: cut(&partition.device),
            lock_fd: partition.lock_fd,
            total_usable: clamp(partition.total_usable),
            free: clamp(partition.free),
            min_free: clamp(partition.min_free),
        }
    }
}

impl From<&DiskPartition> for DiskPartition64 {
    fn from(partition: &DiskPartition) -> Self {
        Self {
            name: cut(&partition.name),
            device: cut(&partition.device),
            lock_fd: partition.lock_fd,
            total_usable: partition.total_usable.into(),
            free: partition.free.into(),
            min_free: partition.min_free.into(),
        }
    }
}

fn cut<const FROM: usize, const TO: usize>(name: &CharArray<FROM>) -> CharArray<TO> {
    let bytes = name.as_bytes();
    let length = bytes.len().min(TO.saturating_sub(1));
    CharArray::new(&bytes[..length]).unwrap_or_default()
}

fn clamp(number: i64) -> i32 {
    let limit = if number < 0 { i32::MIN } else { i32::MAX };
    i32::try_from(number).unwrap_or(limit)
}
