//! The mounts in use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use afar_cell::Volume;
use afar_types::{CellName, Fid, VolumeId};
use parking_lot::Mutex;

use crate::model::place::Mount;

/// Where a mount is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Where {
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
    /// A volume as it is reached in a place: the mount there, a new one if there is none.
    pub(crate) fn of(
        &self,
        place: Where,
        volume: Arc<Volume>,
        text: Option<String>,
        above: Option<Arc<Mount>>,
    ) -> Arc<Mount> {
        let mut known = self.known.lock();
        let key = (place, volume.cell_name().clone(), volume.id());
        if let Some(mount) = known.get(&key).and_then(Weak::upgrade) {
            return mount;
        }
        // Only here: mounts are found much more often than they are made.
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
