//! Volumes as they are reached: through mount points, and at the top.

use std::sync::Arc;

use afar_cell::{MountPoint, Volume, Wanted};
use afar_types::{CellName, Fid, VolumeType};

use crate::model::error::Errno;
use crate::model::place::{Mount, Spot};
use crate::model::user::User;
use crate::ops::cache::Cache;
use crate::table::mounts::Where;

/// The volume at the root of each cell.
const ROOT_CELL: &str = "root.cell";

impl Cache {
    /// The root of a mounted volume.
    pub(crate) fn root_of(&self, mount: Arc<Mount>) -> Spot {
        // spec: volumes#vnodes
        let root = Fid::root(mount.volume.id());
        let vnode = self.0.vnodes.of(&mount.volume, root);
        Spot { mount, vnode }
    }

    /// The volume at the top, if it is one.
    pub(crate) async fn top(
        &self,
        cell: &CellName,
        volume: &str,
    ) -> Result<Spot, afar_cell::Error> {
        let client = &self.0.client;
        let cell = client.cell(cell).await?;
        let found = client
            .volume(&cell, volume, Wanted::PreferReadWrite)
            .await?;
        Ok(self.root_of(self.0.mounts.of(Where::Top, found, None, None)))
    }

    /// The root of a volume as the directory of all volumes has it.
    pub(crate) fn volume_root(&self, volume: Arc<Volume>) -> Spot {
        self.root_of(self.0.mounts.of(Where::Volumes, volume, None, None))
    }

    /// The root of a cell, as a name at the top has it: with a dot, that of the read-write volume.
    pub(crate) async fn cell_root(&self, name: &[u8]) -> Result<Spot, Errno> {
        let (dotted, plain) = match name.strip_prefix(b".") {
            Some(plain) => (true, plain),
            None => (false, name),
        };
        let text = std::str::from_utf8(plain).map_err(|_| Errno::ENOENT)?;
        let cell: CellName = text.parse().map_err(|_| Errno::ENOENT)?;
        let wanted = if dotted {
            Wanted::Exactly(VolumeType::ReadWrite)
        } else {
            Wanted::PreferReadOnly
        };
        let client = &self.0.client;
        let found = async {
            let known = client.cell(&cell).await?;
            client.volume(&known, ROOT_CELL, wanted).await
        };
        let volume = found.await.map_err(|error| {
            tracing::debug!(%cell, %error, "no such cell");
            Errno::of(&error)
        })?;
        let place = Where::Cell(cell, dotted);
        Ok(self.root_of(self.0.mounts.of(place, volume, None, None)))
    }

    /// What a mount point leads to.
    pub(crate) async fn cross(&self, user: &User, point: &Spot) -> Result<Spot, Errno> {
        let (parent, fid) = (&point.mount, point.vnode.fid);
        let text = self.link_text(user, &point.vnode).await?;
        let mount = MountPoint::parse(&text).map_err(|error| {
            tracing::warn!(%fid, volume = %parent.volume, %error, "an invalid mount point");
            Errno::EIO
        })?;
        let client = &self.0.client;
        let found = async {
            let cell = match &mount.cell {
                Some(name) => client.cell(name).await?,
                None => Arc::clone(parent.volume.cell()),
            };
            let same_cell = cell.name() == parent.volume.cell_name();
            let wanted = mount.wanted(parent.volume.kind(), same_cell);
            client.volume(&cell, &mount.volume, wanted).await
        };
        let volume = found.await.map_err(|error| {
            tracing::warn!(%fid, %mount, %error, "cannot enter a mount point");
            // A cell is a name only at the top; here something is there and leads nowhere.
            match Errno::of(&error) {
                Errno::ENOENT => Errno::ENODEV,
                other => other,
            }
        })?;
        parent.may_hold(&volume).inspect_err(|_| {
            tracing::info!(%fid, %mount, "a mount point leads to a volume that contains it");
        })?;
        let (place, text) = (Where::Point(parent.id, fid), Some(mount.to_string()));
        let above = Some(Arc::clone(parent));
        let mount = self.0.mounts.of(place, volume, text, above);
        Ok(self.root_of(mount))
    }
}
