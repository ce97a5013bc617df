//! Volumes as they are reached: through mount points, and at the top.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use afar_cell::{MountPoint, Volume, Wanted};
use afar_types::{CellName, Fid, VolumeId, VolumeType};

use crate::cache::Cache;
use crate::error::Errno;
use crate::inodes::Spot;
use crate::users::User;

/// Mount points one below the other.
const DEPTH_MOST: usize = 64;
/// How often a volume may be below itself: two mount points that lead upwards make a tree of so many
/// branches that no one sees its end.
const SAME_MOST: usize = 4;
/// The volume at the root of each cell.
const ROOT_CELL: &str = "root.cell";

/// A volume as it is reached through one mount point, which may be in another such.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    pub(crate) volume: Arc<Volume>,
    /// The mount point's text, if it is reached through one.
    pub(crate) text: Option<String>,
    /// What the mount point is in.
    above: Option<Arc<Self>>,
}

impl Mount {
    /// This one and those it is in, from below.
    fn path(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |mount| mount.above.as_deref())
    }

    /// Whether a mount point in this one may lead to that volume.
    fn may_hold(&self, volume: &Volume) -> Result<(), Errno> {
        // As OpenAFS: a backup volume that a user keeps mounted in the home directory contains itself, too.
        if [self.volume.kind(), volume.kind()] == [VolumeType::Backup; 2] {
            return Err(Errno::ENODEV);
        }
        let is_it = |mount: &&Self| {
            let known = &mount.volume;
            known.id() == volume.id() && known.cell_name() == volume.cell_name()
        };
        // Programs that go through all of a tree know a volume they are in by the number of its root
        // (`Attr::file`). For those that do not look, the tree has an end.
        let path = || self.path();
        if path().filter(is_it).count() >= SAME_MOST || path().count() > DEPTH_MOST {
            return Err(Errno::ELOOP);
        }
        Ok(())
    }
}

/// Where a mount is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    /// At the top, as this cell; whether it is the read-write volume.
    Cell(CellName, bool),
    /// In the directory of all volumes.
    Volumes,
    /// At the mount point with this fid in another mount.
    Point(u64, Fid),
    /// It is the top.
    Top,
}

/// The mounts in use, and which volume they lead to.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    known: Mutex<BTreeMap<(Where, CellName, VolumeId), Weak<Mount>>>,
    last: AtomicU64,
}

impl Mounts {
    fn of(
        &self,
        place: Where,
        volume: Arc<Volume>,
        text: Option<String>,
        above: Option<Arc<Mount>>,
    ) -> Arc<Mount> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (place, volume.cell_name().clone(), volume.id());
        if let Some(mount) = known.get(&key).and_then(Weak::upgrade) {
            return mount;
        }
        known.retain(|_, mount| mount.strong_count() > 0);
        let mount = Arc::new(Mount {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            volume,
            text,
            above,
        });
        known.insert(key, Arc::downgrade(&mount));
        mount
    }
}

impl Cache {
    /// The root of a mounted volume.
    pub(crate) fn root_of(&self, mount: Arc<Mount>) -> Spot {
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
