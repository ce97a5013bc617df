//! An entry as clients and tools use it, whatever form it came in.

use std::fmt;
use std::net::Ipv4Addr;

use afar_xdr::{CharArray, Decode, Encode};

use crate::{AfsUuid, PartitionId, VolumeId, VolumeType};

use super::{NvldbEntry, UvldbEntry, VldbEntryO};

/// What is at a site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SiteFlags(pub u32);

impl SiteFlags {
    /// A release in progress has brought this site the new version.
    pub const NEW_REPLICA: Self = Self(0x01);
    /// The read-only volume.
    pub const READ_ONLY: Self = Self(0x02);
    /// The read-write volume.
    pub const READ_WRITE: Self = Self(0x04);
    /// The backup volume. Not set in practice: the backup is where the read-write volume is.
    pub const BACKUP: Self = Self(0x08);
    /// The server is given by UUID.
    pub const UUID: Self = Self(0x10);
    /// Added or being rewritten: not to be used.
    pub const DONT_USE: Self = Self(0x20);

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What exists of a volume group, and the operation that holds its entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct VldbFlags(pub u32);

impl VldbFlags {
    /// Held by a move.
    pub const MOVE: Self = Self(0x10);
    /// Held by a release.
    pub const RELEASE: Self = Self(0x20);
    /// Held by the making of a backup.
    pub const BACKUP: Self = Self(0x40);
    /// Held by a removal, or by the adding of a site.
    pub const DELETE: Self = Self(0x80);
    /// Held by a dump or restore.
    pub const DUMP: Self = Self(0x100);
    /// The read-write volume exists.
    pub const READ_WRITE_EXISTS: Self = Self(0x1000);
    /// The read-only volume exists.
    pub const READ_ONLY_EXISTS: Self = Self(0x2000);
    /// The backup volume exists.
    pub const BACKUP_EXISTS: Self = Self(0x4000);

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flag that says that this member of the group exists.
    #[must_use]
    pub const fn exists(kind: VolumeType) -> Self {
        match kind {
            VolumeType::ReadWrite => Self::READ_WRITE_EXISTS,
            VolumeType::ReadOnly => Self::READ_ONLY_EXISTS,
            VolumeType::Backup => Self::BACKUP_EXISTS,
        }
    }
}

/// A server as an entry names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteServer {
    /// By one of its addresses.
    Address(Ipv4Addr),
    /// By its identity; addresses are asked for with GetAddrsU.
    Uuid {
        /// The identity.
        uuid: AfsUuid,
        /// Changes when the server's addresses do.
        unique: u32,
    },
}

impl fmt::Display for SiteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Uuid { uuid, .. } => uuid.fmt(f),
        }
    }
}

/// A place that holds members of a volume group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The server.
    pub server: SiteServer,
    /// The partition there.
    pub partition: PartitionId,
    /// What is there.
    pub flags: SiteFlags,
}

/// Where the volumes of a group are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VldbEntry {
    /// Name of the read-write volume.
    pub name: CharArray<65>,
    /// The sites, in the database's order.
    pub sites: Vec<Site>,
    /// Read-write, read-only and backup id; 0 where none was ever given.
    pub volume_ids: [VolumeId; 3],
    /// The clone of a release in progress.
    pub clone_id: VolumeId,
    /// What exists, and the operation that holds the entry.
    pub flags: VldbFlags,
}

/// An entry that cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the entry claims {claimed} sites and has room for {room}")]
pub struct EntryError {
    /// Sites claimed.
    pub claimed: u32,
    /// Sites its form has room for.
    pub room: usize,
}

impl VldbEntry {
    /// The id of this member of the group, if the entry says that it exists.
    #[must_use]
    pub fn id_of(&self, kind: VolumeType) -> Option<VolumeId> {
        let [read_write, read_only, backup] = self.volume_ids;
        let id = match kind {
            VolumeType::ReadWrite => read_write,
            VolumeType::ReadOnly => read_only,
            VolumeType::Backup => backup,
        };
        (!id.is_none() && self.flags.contains(VldbFlags::exists(kind))).then_some(id)
    }

    /// Which member of the group has this id.
    #[must_use]
    pub fn kind_of(&self, id: VolumeId) -> Option<VolumeType> {
        VolumeType::ALL
            .into_iter()
            .zip(self.volume_ids)
            .find_map(|(kind, known)| (known == id && !id.is_none()).then_some(kind))
    }

    /// The sites a client may use for this member of the group: never one marked not to be used;
    /// of read-only sites only those a release in progress has reached, if there are any. The
    /// backup is where the read-write volume is.
    // spec: volumes#sites
    pub fn sites_of(&self, kind: VolumeType) -> impl Iterator<Item = &Site> {
        let wanted = match kind {
            VolumeType::ReadOnly => SiteFlags::READ_ONLY,
            VolumeType::ReadWrite | VolumeType::Backup => SiteFlags::READ_WRITE,
        };
        let usable = move |site: &&Site| {
            site.flags.contains(wanted) && !site.flags.contains(SiteFlags::DONT_USE)
        };
        let renewed = |site: &Site| site.flags.contains(SiteFlags::NEW_REPLICA);
        let only_renewed =
            kind == VolumeType::ReadOnly && self.sites.iter().filter(usable).any(renewed);
        self.sites
            .iter()
            .filter(usable)
            .filter(move |site| !only_renewed || renewed(site))
    }
}

/// Checks the number of sites an entry claims.
fn claimed(claimed: u32, room: usize) -> Result<usize, EntryError> {
    match usize::try_from(claimed) {
        Ok(number) if number <= room => Ok(number),
        _ => Err(EntryError { claimed, room }),
    }
}

impl TryFrom<&VldbEntryO> for VldbEntry {
    type Error = EntryError;

    fn try_from(entry: &VldbEntryO) -> Result<Self, EntryError> {
        let number = claimed(entry.n_servers, entry.server_number.len())?;
        let sites = by_address(
            &entry.server_number,
            &entry.server_partition,
            &entry.server_flags,
        );
        Ok(Self {
            name: entry.name,
            sites: sites.take(number).collect(),
            volume_ids: entry.volume_id,
            clone_id: entry.clone_id,
            flags: entry.flags,
        })
    }
}

impl TryFrom<&NvldbEntry> for VldbEntry {
    type Error = EntryError;

    fn try_from(entry: &NvldbEntry) -> Result<Self, EntryError> {
        let number = claimed(entry.n_servers, entry.server_number.len())?;
        let sites = by_address(
            &entry.server_number,
            &entry.server_partition,
            &entry.server_flags,
        );
        Ok(Self {
            name: entry.name,
            sites: sites.take(number).collect(),
            volume_ids: entry.volume_id,
            clone_id: entry.clone_id,
            flags: entry.flags,
        })
    }
}

impl TryFrom<&UvldbEntry> for VldbEntry {
    type Error = EntryError;

    fn try_from(entry: &UvldbEntry) -> Result<Self, EntryError> {
        let number = claimed(entry.n_servers, entry.server_number.len())?;
        let servers = entry.server_number.iter().zip(entry.server_unique);
        let places = entry.server_partition.iter().zip(entry.server_flags);
        let sites = servers
            .zip(places)
            .map(|((&uuid, unique), (&partition, flags))| {
                // spec: afs-rpc#location-entries
                let server = if flags.contains(SiteFlags::UUID) {
                    SiteServer::Uuid { uuid, unique }
                } else {
                    SiteServer::Address(uuid.time_low.into())
                };
                Site {
                    server,
                    partition,
                    flags,
                }
            });
        Ok(Self {
            name: entry.name,
            sites: sites.take(number).collect(),
            volume_ids: entry.volume_id,
            clone_id: entry.clone_id,
            flags: entry.flags,
        })
    }
}

fn by_address<'a>(
    servers: &'a [u32],
    partitions: &'a [PartitionId],
    flags: &'a [SiteFlags],
) -> impl Iterator<Item = Site> + 'a {
    servers
        .iter()
        .zip(partitions)
        .zip(flags)
        .map(|((&server, &partition), &flags)| Site {
            server: SiteServer::Address(server.into()),
            partition,
            flags,
        })
}
