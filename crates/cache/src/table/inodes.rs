//! Numbers of what the kernel knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use afar_types::{CellName, Fid};
use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::model::place::{Inode, Mount, Referent, Spot};
use crate::model::types::Ino;
use crate::model::vnode::Vnode;

/// The lowest of the numbers that fids make: below are those that are given out in turn. They end at 2⁵³, up to where
/// languages whose numbers are floating-point tell all from each other.
const OF_FIDS: u64 = 1 << 52;

/// The number of what has this fid, the same on every machine and after every restart: programs such as git and backups
/// take a file with another number for another file, and read it again.
pub(crate) fn number_of_fid(cell: &CellName, fid: Fid) -> Ino {
    let mut bytes = [0; 12];
    let words = [fid.volume.0, fid.vnode.0, fid.uniquifier.0];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    let hash = xxh3_64_with_seed(&bytes, xxh3_64(cell.as_str().as_bytes()));
    Ino(OF_FIDS | (hash % OF_FIDS))
}

/// All numbers given out and not taken back.
///
/// A holder of this lock may lock a vnode, and not the other way round.
#[derive(Debug, Default)]
pub(crate) struct Inodes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    root: Option<Referent>,
    /// What numbers stand for, and how many times each was given out.
    given: BTreeMap<Ino, (Referent, u64)>,
    /// The last of those given out in turn.
    last: u64,
    /// The numbers of cells into which nobody went.
    cells: BTreeMap<Vec<u8>, Ino>,
}

impl Table {
    fn get_mut(&mut self, ino: Ino) -> Option<&mut (Referent, u64)> {
        self.given.get_mut(&ino)
    }

    /// Gives a place a new number.
    fn add(&mut self, place: Referent) -> Ino {
        let own = match &place {
            Referent::Vnode(spot) => Some(number_of_fid(spot.vnode.cell(), spot.vnode.fid)),
            Referent::Cells | Referent::Volumes | Referent::Cell(_) => None,
        };
        // The own number is another's if a vnode is reached through a second mount point, or by chance.
        let free = own.filter(|own| !self.given.contains_key(own));
        let ino = free.unwrap_or_else(|| {
            self.last += 1;
            Ino(self.last)
        });
        let before = self.given.insert(ino, (place, 1));
        debug_assert!(before.is_none(), "{ino:?} is in use");
        ino
    }

    /// The number of a place, if it has one.
    fn number_of(&mut self, mount: &Mount, vnode: &Vnode) -> Option<Ino> {
        let state = vnode.lock();
        let mut numbers = state.numbers();
        numbers.find(|ino| match (*ino, &self.root) {
            // The top stands in no row: it is never given out.
            (Ino::ROOT, Some(Referent::Vnode(spot))) => spot.mount.id == mount.id,
            _ => (self.get_mut(*ino)).is_some_and(|(place, _)| place.is_in(mount)),
        })
    }
}

impl Inodes {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Sets what the top directory is, once. It is never forgotten.
    pub(crate) fn set_root(&self, place: Referent) {
        let mut table = self.lock();
        table.last = Ino::VOLUMES.0;
        if let Referent::Vnode(spot) = &place {
            spot.vnode.lock().add_number(Ino::ROOT);
        }
        table.root = Some(place);
    }

    /// What a number stands for.
    pub(crate) fn find(&self, ino: Ino) -> Option<Inode> {
        let mut table = self.lock();
        let place = match ino {
            Ino::ROOT => table.root.clone(),
            Ino::VOLUMES => match &table.root {
                Some(Referent::Cells) => Some(Referent::Volumes),
                _ => None,
            },
            _ => table.get_mut(ino).map(|(place, _)| place.clone()),
        };
        place.map(|place| Inode { ino, place })
    }

    /// The number of a place, given out once more.
    pub(crate) fn give(&self, spot: &Spot) -> Ino {
        let mut table = self.lock();
        if let Some(ino) = table.number_of(&spot.mount, &spot.vnode) {
            if let Some((_, count)) = table.get_mut(ino) {
                debug_assert!(*count > 0, "{ino:?} was taken back");
                *count += 1;
            }
            return ino;
        }
        let ino = table.add(Referent::Vnode(spot.clone()));
        spot.vnode.lock().add_number(ino);
        ino
    }

    /// The number of a cell into which nobody went, given out once more.
    pub(crate) fn give_cell(&self, name: &[u8]) -> Ino {
        let mut table = self.lock();
        if let Some(ino) = table.cells.get(name).copied() {
            if let Some((_, count)) = table.get_mut(ino) {
                debug_assert!(*count > 0, "{ino:?} was taken back");
                *count += 1;
            }
            return ino;
        }
        let ino = table.add(Referent::Cell(Arc::new(name.to_vec())));
        table.cells.insert(name.to_vec(), ino);
        ino
    }

    /// The number of a cell into which nobody went, if it has one.
    pub(crate) fn number_of_cell(&self, name: &[u8]) -> Option<Ino> {
        self.lock().cells.get(name).copied()
    }

    /// What was not visited is found to be this.
    pub(crate) fn visited(&self, ino: Ino, spot: &Spot) {
        let mut table = self.lock();
        let Some((place, _)) = table.get_mut(ino) else {
            return;
        };
        // Another may have been here before.
        if matches!(place, Referent::Vnode(now) if Arc::ptr_eq(&now.vnode, &spot.vnode)) {
            return;
        }
        let before = std::mem::replace(place, Referent::Vnode(spot.clone()));
        match &before {
            Referent::Cell(name) => {
                let removed = table.cells.remove(name.as_slice());
                debug_assert_eq!(removed, Some(ino), "the number of a cell");
            }
            Referent::Vnode(point) => point.vnode.lock().remove_number(ino),
            Referent::Cells | Referent::Volumes => {}
        }
        spot.vnode.lock().add_number(ino);
        // As in `forget`: the last of a vnode must not be dropped under the lock.
        drop(table);
        drop(before);
    }

    /// The number of a place, if it has one.
    pub(crate) fn number_of(&self, spot: &Spot) -> Option<Ino> {
        self.lock().number_of(&spot.mount, &spot.vnode)
    }

    /// Takes back that a number was given out so many times.
    pub(crate) fn forget(&self, ino: Ino, times: u64) {
        let mut guard = self.lock();
        let table = &mut *guard;
        let Some((place, count)) = table.get_mut(ino) else {
            return;
        };
        *count = count.saturating_sub(times);
        if *count > 0 {
            return;
        }
        match place {
            Referent::Vnode(spot) => spot.vnode.lock().remove_number(ino),
            Referent::Cell(name) => {
                let name = Arc::clone(name);
                let removed = table.cells.remove(name.as_slice());
                debug_assert_eq!(removed, Some(ino), "the number of a cell");
            }
            Referent::Cells | Referent::Volumes => {}
        }
        let forgotten = table.given.remove(&ino);
        // The last of a vnode or mount must not be dropped under the lock.
        drop(guard);
        drop(forgotten);
    }
}
