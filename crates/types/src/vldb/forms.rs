//! An entry in the wire forms, as a server answers with them and a tool sends them.

use std::net::Ipv4Addr;

use crate::AfsUuid;

use super::{
    EntryError, NvldbEntry, Site, SiteFlags, SiteServer, UvldbEntry, VldbEntry, VldbEntryO,
};

/// Sites in the forms of today (AFS-3 NMAXNSERVERS).
// spec: afs-rpc#location-entries
const SITES: usize = 13;

/// Why an entry has no form by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// It has more sites than the form.
    #[error(transparent)]
    Sites(#[from] EntryError),
    /// No address is known of a server.
    #[error("no address is known of server {0}")]
    NoAddress(SiteServer),
}

impl SiteFlags {
    /// These flags with those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl VldbEntry {
    /// The form with up to 13 sites by address. `address` tells the one of a server known by
    /// UUID.
    ///
    /// # Errors
    /// When there are more sites, or a server without an address.
    pub fn to_nvldb(
        &self,
        address: impl Fn(&AfsUuid) -> Option<Ipv4Addr>,
    ) -> Result<NvldbEntry, FormError> {
        let mut entry = NvldbEntry {
            name: self.name,
            n_servers: self.claim(SITES)?,
            volume_id: self.volume_ids,
            clone_id: self.clone_id,
            flags: self.flags,
            ..NvldbEntry::default()
        };
        for (slot, site) in self.sites.iter().enumerate() {
            entry.server_number[slot] = number(site, &address)?;
            entry.server_partition[slot] = site.partition;
            entry.server_flags[slot] = site.flags.without(SiteFlags::UUID);
        }
        Ok(entry)
    }

    /// The oldest form, with the first 8 sites by address; OpenAFS too leaves out the others.
    ///
    /// # Errors
    /// When one of these sites is at a server without an address.
    pub fn to_vldb_o(
        &self,
        address: impl Fn(&AfsUuid) -> Option<Ipv4Addr>,
    ) -> Result<VldbEntryO, FormError> {
        let mut entry = VldbEntryO {
            name: self.name,
            volume_id: self.volume_ids,
            clone_id: self.clone_id,
            flags: self.flags,
            ..VldbEntryO::default()
        };
        for (slot, site) in self
            .sites
            .iter()
            .take(entry.server_number.len())
            .enumerate()
        {
            entry.server_number[slot] = number(site, &address)?;
            entry.server_partition[slot] = site.partition;
            entry.server_flags[slot] = site.flags.without(SiteFlags::UUID);
            entry.n_servers += 1;
        }
        Ok(entry)
    }

    /// Checks the number of sites against the room for them.
    fn claim(&self, room: usize) -> Result<u32, EntryError> {
        let claimed = u32::try_from(self.sites.len()).unwrap_or(u32::MAX);
        if self.sites.len() <= room {
            Ok(claimed)
        } else {
            Err(EntryError { claimed, room })
        }
    }
}

fn number(site: &Site, address: impl Fn(&AfsUuid) -> Option<Ipv4Addr>) -> Result<u32, FormError> {
    let known = match &site.server {
        SiteServer::Address(known) => Some(*known),
        SiteServer::Uuid { uuid, .. } => address(uuid),
    };
    known
        .map(u32::from)
        .ok_or(FormError::NoAddress(site.server))
}

/// The form with up to 13 sites by UUID or address.
impl TryFrom<&VldbEntry> for UvldbEntry {
    type Error = EntryError;

    fn try_from(from: &VldbEntry) -> Result<Self, EntryError> {
        let mut entry = Self {
            name: from.name,
            n_servers: from.claim(SITES)?,
            volume_id: from.volume_ids,
            clone_id: from.clone_id,
            flags: from.flags,
            ..Self::default()
        };
        for (slot, site) in from.sites.iter().enumerate() {
            match site.server {
                SiteServer::Address(address) => {
                    entry.server_number[slot].time_low = address.into();
                    entry.server_flags[slot] = site.flags.without(SiteFlags::UUID);
                }
                SiteServer::Uuid { uuid, unique } => {
                    entry.server_number[slot] = uuid;
                    entry.server_unique[slot] = unique;
                    entry.server_flags[slot] = site.flags.with(SiteFlags::UUID);
                }
            }
            entry.server_partition[slot] = site.partition;
        }
        Ok(entry)
    }
}
