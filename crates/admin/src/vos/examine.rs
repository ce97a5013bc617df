//! `vos examine`: a volume by its entry and its servers.

use afar_types::{SiteFlags, VldbEntry, VldbFlags, VolintInfo, VolintXInfo, VolumeId, VolumeType};

use super::codes::{ENODEV, ENOENT};
use super::entry::place;
use super::event::OrFail;
use super::{Failure, ServerPartition, Vos, step};

/// A volume as a server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// In short.
    Plain(VolintInfo),
    /// With statistics.
    Extended(Box<VolintXInfo>),
}

/// What is known of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Its entry.
    pub entry: VldbEntry,
    /// Which member of its group it is.
    pub kind: VolumeType,
    /// What each of its servers said, or the code it failed with.
    pub members: Vec<(ServerPartition, Result<Member, Failure>)>,
}

impl Examined {
    /// Whether the entry says that this member of the group exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.entry.flags.contains(VldbFlags::exists(self.kind))
    }
}

impl Vos {
    /// Asks the servers that an entry names for a volume. `tell` hears of each answer as it comes.
    ///
    /// # Errors
    /// The location server's code.
    pub async fn examine(
        &self,
        id: VolumeId,
        extended: bool,
        mut tell: impl FnMut(&VldbEntry, VolumeType, ServerPartition, &Result<Member, Failure>),
    ) -> Result<Examined, Failure> {
        step!(self, "Fetching VLDB entry for {id} .. ");
        let entry = self.entry(id, None).await.or_fail(self, || {
            format!("Could not fetch the entry for volume number {id} from VLDB \n")
        })?;
        step!(self, "done\n");
        let kind = match entry.kind_of(id) {
            Some(kind @ (VolumeType::ReadWrite | VolumeType::Backup)) => kind,
            Some(VolumeType::ReadOnly) | None => VolumeType::ReadOnly,
        };
        let wanted = match kind {
            VolumeType::ReadOnly => SiteFlags::READ_ONLY,
            VolumeType::ReadWrite | VolumeType::Backup => SiteFlags::READ_WRITE,
        };
        let sites = entry.sites.iter();
        let mut sites: Vec<_> = sites
            .filter(|site| site.flags.contains(wanted))
            .map(place)
            .collect();
        if kind != VolumeType::ReadOnly {
            sites.truncate(1);
        }
        let mut members = Vec::new();
        for at in sites {
            let host = self.name_of(at.server);
            step!(self, "Getting volume listing from the server {host} .. ");
            let found = match extended {
                true => {
                    let found = self.volume_extended(at, id).await;
                    found.map(|info| Member::Extended(Box::new(info)))
                }
                false => self.volume(at, id).await.map(Member::Plain),
            };
            step!(self, "done\n");
            tell(&entry, kind, at, &found);
            members.push((at, found));
        }
        Ok(Examined {
            entry,
            kind,
            members,
        })
    }
}

/// Whether a failure says that the volume is not on the server.
#[must_use]
pub fn is_missing(failure: Failure) -> bool {
    failure.0 == ENODEV || failure.0 == ENOENT
}
