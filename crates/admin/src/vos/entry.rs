//! Sites of an entry, and an entry in words.

use std::fmt::Write;
use std::net::Ipv4Addr;

use afar_types::{
    PartitionId, Site, SiteFlags, SiteServer, VldbEntry, VldbFlags, VolumeId, VolumeType,
};
use afar_xdr::CharArray;

use super::event::OrFail;
use super::{Failure, ServerPartition, Vos, complain};

/// Where a volume is, by its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The place; of a read-only volume, the first that can be used.
    pub place: ServerPartition,
    /// Which member of its group it is.
    pub kind: VolumeType,
    /// The entry.
    pub entry: VldbEntry,
}

/// All operations that hold entries.
pub(super) const ALL_OPERATIONS: u32 = 0x1f0;

/// A site's server by address. An entry in the form that `vos` asks for has no other servers.
#[must_use]
pub(super) fn address(site: &Site) -> Ipv4Addr {
    match site.server {
        SiteServer::Address(address) => address,
        SiteServer::Uuid { .. } => Ipv4Addr::UNSPECIFIED,
    }
}

pub(super) fn place(site: &Site) -> ServerPartition {
    ServerPartition {
        server: address(site),
        partition: site.partition,
    }
}

pub(super) fn site(place: ServerPartition, flags: SiteFlags) -> Site {
    Site {
        server: SiteServer::Address(place.server),
        partition: place.partition,
        flags,
    }
}

/// An entry of one volume at one site.
pub(super) fn new_entry(
    name: &str,
    place: ServerPartition,
    kind: VolumeType,
    ids: [VolumeId; 3],
) -> VldbEntry {
    let flag = match kind {
        VolumeType::ReadOnly => SiteFlags::READ_ONLY,
        VolumeType::ReadWrite | VolumeType::Backup => SiteFlags::READ_WRITE,
    };
    VldbEntry {
        name: CharArray::new(name).unwrap_or_default(),
        sites: vec![site(place, flag)],
        volume_ids: ids,
        clone_id: VolumeId(0),
        flags: VldbFlags::exists(kind),
    }
}

pub(super) fn set(flags: &mut VldbFlags, flag: VldbFlags) {
    flags.0 |= flag.0;
}

pub(super) fn clear(flags: &mut VldbFlags, flag: VldbFlags) {
    flags.0 &= !flag.0;
}

/// The site of the read-write volume.
#[must_use]
pub(super) fn rw_index(entry: &VldbEntry) -> Option<usize> {
    let mut sites = entry.sites.iter();
    sites.position(|site| site.flags.contains(SiteFlags::READ_WRITE))
}

pub(super) fn id_of(entry: &VldbEntry, kind: VolumeType) -> VolumeId {
    let [read_write, read_only, backup] = entry.volume_ids;
    match kind {
        VolumeType::ReadWrite => read_write,
        VolumeType::ReadOnly => read_only,
        VolumeType::Backup => backup,
    }
}

pub(super) fn set_id(entry: &mut VldbEntry, kind: VolumeType, id: VolumeId) {
    let [read_write, read_only, backup] = &mut entry.volume_ids;
    *match kind {
        VolumeType::ReadWrite => read_write,
        VolumeType::ReadOnly => read_only,
        VolumeType::Backup => backup,
    } = id;
}

impl Vos {
    /// The read-write site, if it is at this place.
    pub(super) async fn rw_match(&self, entry: &VldbEntry, at: ServerPartition) -> Option<usize> {
        let found = rw_index(entry)?;
        self.is_at(&entry.sites[found], at).await.then_some(found)
    }

    /// The read-only site at this place.
    pub(super) async fn ro_match(&self, entry: &VldbEntry, at: ServerPartition) -> Option<usize> {
        for (number, site) in entry.sites.iter().enumerate() {
            if site.flags.contains(SiteFlags::READ_ONLY) && self.is_at(site, at).await {
                return Some(number);
            }
        }
        None
    }

    async fn is_at(&self, site: &Site, at: ServerPartition) -> bool {
        if site.partition != at.partition {
            return false;
        }
        match self.is_same_server(address(site), at.server).await {
            Ok(same) => same,
            Err(code) => {
                complain!(
                    self,
                    "Failed to get info about server's {} address(es) from vlserver (err={code})\n",
                    address(site)
                );
                false
            }
        }
    }

    /// Where the volume with this id is.
    ///
    /// # Errors
    /// What the location server says, or -1 if the entry names no such place.
    pub async fn locate(&self, id: VolumeId) -> Result<Location, Failure> {
        let entry = self.entry(id, None).await.or_fail(self, || {
            format!("Could not fetch the entry for volume {id} from VLDB \n")
        });
        let entry = self.end(entry)?;
        let (kind, index) = if id == entry.volume_ids[1] {
            let usable = |site: &Site| {
                site.flags.contains(SiteFlags::READ_ONLY)
                    && !site.flags.contains(SiteFlags::DONT_USE)
            };
            let Some(index) = entry.sites.iter().position(usable) else {
                complain!(
                    self,
                    "RO volume is not found in VLDB entry for volume {id}\n"
                );
                return Err(Failure(-1));
            };
            (VolumeType::ReadOnly, index)
        } else {
            let Some(index) = rw_index(&entry) else {
                complain!(
                    self,
                    "RW Volume is not found in VLDB entry for volume {id}\n"
                );
                return Err(Failure(-1));
            };
            let Some(kind) = entry.kind_of(id) else {
                complain!(self, "unexpected volume type for volume {id}\n");
                return Err(Failure(-1));
            };
            (kind, index)
        };
        Ok(Location {
            place: place(&entry.sites[index]),
            kind,
            entry,
        })
    }
}

/// An entry as `vos listvldb` prints it.
pub fn enumerate(entry: &VldbEntry, name_of: &dyn Fn(Ipv4Addr) -> String) -> String {
    format!("\n{} \n{}", entry.name, sub_enumerate(entry, name_of))
}

/// The same without the name.
pub fn sub_enumerate(entry: &VldbEntry, name_of: &dyn Fn(Ipv4Addr) -> String) -> String {
    let mut text = String::new();
    let kinds = [
        (VolumeType::ReadWrite, "RWrite"),
        (VolumeType::ReadOnly, "ROnly"),
        (VolumeType::Backup, "Backup"),
    ];
    let mut id = |what: &str, id: VolumeId| {
        // Writing to a string does not fail.
        let _written = write!(text, "    {what}: {:<10}", id.0);
    };
    for (kind, what) in kinds {
        if entry.flags.contains(VldbFlags::exists(kind)) {
            id(what, id_of(entry, kind));
        }
    }
    if entry.clone_id.0 != 0 && entry.flags.contains(VldbFlags::READ_ONLY_EXISTS) {
        id("RClone", entry.clone_id);
    }
    let _written = write!(text, "\n    number of sites -> {}\n", entry.sites.len());
    let has = |site: &Site, flag| site.flags.contains(flag);
    let mixed = entry
        .sites
        .iter()
        .any(|site| has(site, SiteFlags::NEW_REPLICA));
    for site in &entry.sites {
        let read_write = has(site, SiteFlags::READ_WRITE);
        let state = match (mixed, read_write) {
            (true, _) if has(site, SiteFlags::NEW_REPLICA) => " -- New release",
            (true, false) => " -- Old release",
            (false, _) if has(site, SiteFlags::DONT_USE) => " -- Not released",
            _ => "",
        };
        let _written = writeln!(
            text,
            "       server {} partition {} {} Site {state}",
            name_of(address(site)),
            partition_name(site.partition),
            if read_write { "RW" } else { "RO" },
        );
    }
    text
}

/// `/vicepXX`.
pub(super) fn partition_name(partition: PartitionId) -> String {
    partition.to_string()
}
