//! Volumes and files that are reached by their [names](PlaceName), without a mount point.

use afar_cell::MountPoint;
use afar_types::{CellName, FetchStatus, Fid, Rights, VolumeType};

use crate::model::error::Errno;
use crate::model::place::Spot;
use crate::model::place_name::{Object, PlaceName};
use crate::model::rights::rights;
use crate::model::types::{Entry, Ino};
use crate::model::user::User;
use crate::ops::cache::Cache;
use crate::ops::status::MADE_UP_VALID;

impl Cache {
    /// The directory of all volumes.
    pub(crate) fn volumes_entry(&self) -> Entry {
        Entry {
            attr: self.made_up(Ino::VOLUMES),
            generation: 0,
            valid: MADE_UP_VALID,
        }
    }

    /// What a name in the directory of all volumes stands for.
    pub(crate) async fn place_named(
        &self,
        user: &User,
        name: &[u8],
    ) -> Result<(Spot, FetchStatus), Errno> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let place: PlaceName = text.parse().map_err(|_| Errno::ENOENT)?;
        match place.object {
            Object::Volume(volume) => {
                let root = self.named_root(&place.cell, &volume).await?;
                let status = self.fresh(user, &root.vnode).await?;
                Ok((root, status))
            }
            Object::Fid(fid) => self.by_fid(user, &place.cell, fid).await,
        }
    }

    /// The root of a volume by its name or number.
    async fn named_root(&self, cell: &CellName, volume: &str) -> Result<Spot, Errno> {
        // It is reached as by a mount point of the read-write kind, which stands in no volume.
        let point = MountPoint::parse(format!("%{cell}:{volume}").as_bytes());
        let point = point.map_err(|_| Errno::ENOENT)?;
        let client = &self.0.client;
        let found = async {
            let known = client.cell(cell).await?;
            let wanted = point.wanted(VolumeType::ReadWrite, true);
            client.volume(&known, &point.volume, wanted).await
        };
        let found = found.await.map_err(|error| {
            tracing::debug!(%point, %error, "no such volume");
            Errno::of(&error)
        })?;
        Ok(self.volume_root(found))
    }

    /// Something by its identifier.
    pub(crate) async fn spot_of(&self, cell: &CellName, fid: Fid) -> Result<Spot, Errno> {
        let root = self.named_root(cell, &fid.volume.to_string()).await?;
        Ok(self.beside(&root, fid))
    }

    /// The same, and through it if it is a mount point. No directory is on the way to
    /// it that a user must have rights to, so he must have some to it.
    async fn by_fid(
        &self,
        user: &User,
        cell: &CellName,
        fid: Fid,
    ) -> Result<(Spot, FetchStatus), Errno> {
        let spot = self.spot_of(cell, fid).await?;
        let may = |status: &FetchStatus| {
            let has = rights(status);
            [Rights::LOOKUP, Rights::READ, Rights::ADMINISTER]
                .iter()
                .any(|&right| has.contains(right))
        };
        let status = self.rights_for(user, &spot.vnode, may).await?;
        if !may(&status) {
            return Err(Errno::EACCES);
        }
        self.through(user, spot, status).await
    }
}
