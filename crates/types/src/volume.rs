//! Volumes as file servers describe them.

use std::fmt;

use afar_xdr::{Decode, Encode};

use crate::VolumeId;

/// Which member of its group a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum VolumeType {
    /// The one that is changed.
    ReadWrite = 0,
    /// A released copy, at any number of sites.
    ReadOnly = 1,
    /// A clone beside the read-write volume.
    Backup = 2,
}

impl VolumeType {
    /// All three, in the order of the ids in a VLDB entry.
    pub const ALL: [Self; 3] = [Self::ReadWrite, Self::ReadOnly, Self::Backup];

    /// The type of this number, as requests and listings carry it in a word of its own; `None`
    /// for -1, which stands for any, and for 3, a replicated read-write volume that no server
    /// made.
    #[must_use]
    // spec: volumes#volumes-and-their-groups
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::ReadWrite),
            1 => Some(Self::ReadOnly),
            2 => Some(Self::Backup),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::ReadWrite => 0,
            Self::ReadOnly => 1,
            Self::Backup => 2,
        }
    }
}

impl fmt::Display for VolumeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Backup => "backup",
        })
    }
}

/// A volume's state, quota and partition (AFS-3 AFSFetchVolumeStatus, 12 words). Sizes are in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct FetchVolumeStatus {
    /// The volume.
    pub volume: VolumeId,
    /// Its read-write volume.
    pub parent: VolumeId,
    /// Whether it can be used.
    pub online: bool,
    /// Whether it is meant to be used.
    pub in_service: bool,
    /// Whether an administrator has let it be used.
    pub blessed: bool,
    /// Whether it must be repaired first.
    pub needs_salvage: bool,
    /// 0 read-only or backup, 1 read-write.
    pub kind: u32,
    /// Space kept for it.
    pub min_quota: u32,
    /// Space it may use; 0 is no limit.
    pub max_quota: u32,
    /// Space it uses.
    pub blocks_in_use: u32,
    /// Space free on its partition.
    pub partition_blocks_available: u32,
    /// Size of its partition.
    pub partition_max_blocks: u32,
}

/// Quotas to set on a volume (AFS-3 AFSStoreVolumeStatus, 3 words). A field counts if its bit is
/// in `mask`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct StoreVolumeStatus {
    /// Bits `SET_*`.
    pub mask: u32,
    /// Space to keep for it, in KiB.
    pub min_quota: u32,
    /// Space it may use, in KiB; 0 is no limit.
    pub max_quota: u32,
}

impl StoreVolumeStatus {
    /// `min_quota` counts.
    pub const SET_MIN_QUOTA: u32 = 1;
    /// `max_quota` counts.
    pub const SET_MAX_QUOTA: u32 = 2;
}
