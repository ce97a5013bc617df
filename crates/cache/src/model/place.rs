//! Places in the tree that programs see: what a number stands for, and how it is reached.

use std::sync::Arc;

use afar_cell::Volume;
use afar_types::{DataVersion, VolumeType};

use crate::model::error::Errno;
use crate::model::numbers::Opened;
use crate::model::types::Ino;
use crate::model::vnode::Vnode;

/// Mount points one below the other.
const DEPTH_MOST: usize = 64;
/// How often a volume may be below itself: two mount points that lead upwards make a tree of so many
/// branches that no one sees its end.
const SAME_MOST: usize = 4;
/// A volume as it is reached through one mount point, which may be in another such.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    pub(crate) volume: Arc<Volume>,
    /// The mount point's text, if it is reached through one.
    pub(crate) text: Option<String>,
    /// What the mount point is in.
    pub(crate) above: Option<Arc<Self>>,
}

impl Mount {
    /// This one and those it is in, from below.
    fn path(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |mount| mount.above.as_deref())
    }

    /// Whether a mount point in this one may lead to that volume.
    pub(crate) fn may_hold(&self, volume: &Volume) -> Result<(), Errno> {
        // As OpenAFS: everybody who keeps his backup volume in his home directory has it in there, too.
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

/// What a number stands for.
#[derive(Debug, Clone)]
pub(crate) enum Referent {
    /// The list of cells.
    Cells,
    /// All volumes, by name or number: a directory that lists none.
    Volumes,
    /// A cell by its name at the top, into which nobody went.
    Cell(Arc<Vec<u8>>),
    /// Something in a volume; one that is a mount point itself is one through which nobody went.
    Vnode(Spot),
}

/// A vnode as it is reached through one mount point.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    pub(crate) mount: Arc<Mount>,
    pub(crate) vnode: Arc<Vnode>,
}

impl Referent {
    /// Whether it is something that is reached through this mount.
    pub(crate) fn is_in(&self, mount: &Mount) -> bool {
        matches!(self, Self::Vnode(spot) if spot.mount.id == mount.id)
    }
}

/// A number and what it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) place: Referent,
}

impl Inode {
    /// The kernel knows this name in it now.
    pub(crate) fn note_name(&self, name: &[u8]) {
        // What is made up tells for a while, and breaks no promise.
        if let Referent::Vnode(spot) = &self.place {
            let mut state = spot.vnode.lock();
            if state.has_number(self.ino) {
                state.rare.names.insert(name);
            }
        }
    }

    /// Whether the kernel can be told to forget every name it knows.
    pub(crate) fn has_room(&self) -> bool {
        match &self.place {
            Referent::Cells | Referent::Volumes | Referent::Cell(_) => true,
            Referent::Vnode(spot) => {
                let state = spot.vnode.lock();
                state.has_number(self.ino) && state.rare.names.has_room()
            }
        }
    }

    /// This version of it is opened. Returns whether it was this one the last time.
    pub(crate) fn note_opened(&self, version: DataVersion) -> bool {
        let Referent::Vnode(spot) = &self.place else {
            return false;
        };
        let mut state = spot.vnode.lock();
        let number = state.opened_mut().find(|(ino, _)| *ino == self.ino);
        number.is_some_and(|(_, opened)| {
            let now = Opened::new(version);
            std::mem::replace(opened, now).is(now)
        })
    }
}
