//! Changes of parts of an entry, and what a location server tells of itself.

use afar_xdr::{CharArray, Decode, Encode};

use crate::{PartitionId, UnixTime, VolumeId};

use super::{SiteFlags, VldbFlags};

/// Values to give to an entry (AFS-3 VldbUpdateEntry, 120 words). A field counts if its bit is in
/// `mask`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct VldbUpdateEntry {
    /// Bits as in the constants without `SITE_`.
    pub mask: u32,
    /// Name of the read-write volume.
    pub name: CharArray<65>,
    /// Unused.
    pub spare: u32,
    /// What exists, and the operation that holds the entry.
    pub flags: VldbFlags,
    /// Id of the read-only volume.
    pub read_only_id: VolumeId,
    /// Id of the backup volume.
    pub backup_id: VolumeId,
    /// The clone of a release in progress.
    pub clone_id: VolumeId,
    /// Changes of sites that follow, up to 8.
    pub n_modified_sites: u32,
    /// What to do with each site: bits `SITE_*`.
    pub site_mask: [u32; 8],
    /// The site's server as it is in the entry: an IPv4 address.
    pub site_target_server: [u32; 8],
    /// The site's partition as it is in the entry.
    pub site_target_partition: [PartitionId; 8],
    /// The server it gets.
    pub site_new_server: [u32; 8],
    /// The partition it gets.
    pub site_new_partition: [PartitionId; 8],
    /// The flags it gets.
    pub site_new_flags: [SiteFlags; 8],
}

impl VldbUpdateEntry {
    /// `name` counts.
    pub const NAME: u32 = 0x01;
    /// `flags` count.
    pub const FLAGS: u32 = 0x04;
    /// `read_only_id` counts.
    pub const READ_ONLY_ID: u32 = 0x08;
    /// `backup_id` counts.
    pub const BACKUP_ID: u32 = 0x10;
    /// The changes of sites count.
    pub const SITES: u32 = 0x20;
    /// `clone_id` counts.
    pub const CLONE_ID: u32 = 0x80;
    /// The entry is to be found by its name again.
    pub const NAME_HASH: u32 = 0x100;
    /// The entry is to be found by its read-write id again.
    pub const READ_WRITE_ID: u32 = 0x200;
    /// Of a site: it is removed.
    pub const SITE_DELETE: u32 = 0x100;
    /// Of a site: it is added.
    pub const SITE_ADD: u32 = 0x200;
    /// Of a site: its server changes.
    pub const SITE_SERVER: u32 = 0x400;
    /// Of a site: its partition changes.
    pub const SITE_PARTITION: u32 = 0x800;
    /// Of a site: its flags change.
    pub const SITE_FLAGS: u32 = 0x1000;
}

/// How often each operation was called and failed (AFS-3 vldstats, 106 words).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct VldStats {
    /// Since when it is counted.
    pub start_time: UnixTime,
    /// Calls, by the place of the operation in the server.
    pub requests: [i32; 50],
    /// Of these, failed ones.
    pub aborts: [i32; 50],
    /// 0.
    pub reserved: [i32; 5],
}

/// Nothing counted.
impl Default for VldStats {
    fn default() -> Self {
        Self {
            start_time: UnixTime(0),
            requests: [0; 50],
            aborts: [0; 50],
            reserved: [0; 5],
        }
    }
}

/// The head of the database (AFS-3 vital_vlheader, 10 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct VitalVlHeader {
    /// Version of its format; 4 in current servers.
    pub version: i32,
    /// Bytes of the head.
    pub header_size: i32,
    /// Where the first free entry is; 0 if there is none.
    pub free_pointer: i32,
    /// Where the file ends.
    pub end_pointer: i32,
    /// Entries taken.
    pub allocs: i32,
    /// Entries given back.
    pub frees: i32,
    /// The greatest volume id given out.
    pub max_volume_id: VolumeId,
    /// Entries with a read-write, a read-only and a backup volume.
    pub total_entries: [i32; 3],
}

/// What GetAddrs returns beside addresses; all 0 (AFS-3 VLCallBack, 4 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct VlCallBack {
    /// Unused.
    pub version: u32,
    /// Unused.
    pub expires: u32,
    /// Unused.
    pub kind: u32,
    /// Changes when an address does.
    pub handle: u32,
}
