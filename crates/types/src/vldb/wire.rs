//! The wire forms (AFS-3 vldbentry, nvldbentry, uvldbentry).

use afar_xdr::{CharArray, Decode, Encode};

use crate::{AfsUuid, PartitionId, VolumeId};

use super::{SiteFlags, VldbFlags};

/// The oldest form, of up to 8 sites (96 words, 384 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct VldbEntryO {
    /// Name of the read-write volume.
    pub name: CharArray<65>,
    /// Unused.
    pub spare: u32,
    /// Sites in use.
    pub n_servers: u32,
    /// IPv4 addresses.
    pub server_number: [u32; 8],
    /// Partitions.
    pub server_partition: [PartitionId; 8],
    /// What is at each site.
    pub server_flags: [SiteFlags; 8],
    /// Read-write, read-only and backup id.
    pub volume_id: [VolumeId; 3],
    /// The clone of a release in progress.
    pub clone_id: VolumeId,
    /// What exists, and the operation that holds the entry.
    pub flags: VldbFlags,
}

/// The form with up to 13 sites, by address (119 words, 476 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct NvldbEntry {
    /// Name of the read-write volume.
    pub name: CharArray<65>,
    /// Sites in use.
    pub n_servers: u32,
    /// IPv4 addresses.
    pub server_number: [u32; 13],
    /// Partitions.
    pub server_partition: [PartitionId; 13],
    /// What is at each site.
    pub server_flags: [SiteFlags; 13],
    /// Read-write, read-only and backup id.
    pub volume_id: [VolumeId; 3],
    /// The clone of a release in progress.
    pub clone_id: VolumeId,
    /// What exists, and the operation that holds the entry.
    pub flags: VldbFlags,
    /// Which site matched a list request.
    pub match_index: u32,
    /// Unused.
    pub spares: [u32; 8],
}

/// The form with up to 13 sites, by server UUID (262 words, 1048 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct UvldbEntry {
    /// Name of the read-write volume.
    pub name: CharArray<65>,
    /// Sites in use.
    pub n_servers: u32,
    /// Servers: UUIDs, or an IPv4 address in `time_low` where the site's flag for it is clear.
    pub server_number: [AfsUuid; 13],
    /// Changes when a server's addresses do.
    pub server_unique: [u32; 13],
    /// Partitions.
    pub server_partition: [PartitionId; 13],
    /// What is at each site.
    pub server_flags: [SiteFlags; 13],
    /// Read-write, read-only and backup id.
    pub volume_id: [VolumeId; 3],
    /// The clone of a release in progress.
    pub clone_id: VolumeId,
    /// What exists, and the operation that holds the entry.
    pub flags: VldbFlags,
    /// Which site matched a list request.
    pub match_index: u32,
    /// Unused.
    pub spares: [u32; 8],
}
