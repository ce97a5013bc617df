//! Numbers of what the kernel knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::model::place::{Inode, Mount, Referent, Spot};
use crate::model::types::Ino;
use crate::model::vnode::Vnode;

/// Numbers in a row that are kept together.
const ROW: u64 = ROW_LENGTH as u64;
const ROW_LENGTH: usize = 16;

/// All numbers given out and not taken back.
///
/// A holder of this lock may lock a vnode, and not the other way round.
#[derive(Debug, Default)]
pub(crate) struct Inodes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    root: Option<Referent>,
    /// By number, [`ROW`] in a row: as numbers are given out one after the other, most rows are full.
    rows: BTreeMap<u64, Box<Row>>,
    last: u64,
    /// The numbers of cells into which nobody went.
    cells: BTreeMap<Vec<u8>, Ino>,
}

/// What numbers stand for, and how many times each was given out.
type Row = [Option<(Referent, u64)>; ROW_LENGTH];

impl Table {
    fn get_mut(&mut self, ino: Ino) -> Option<&mut (Referent, u64)> {
        let row = self.rows.get_mut(&(ino.0 / ROW))?;
        row[(ino.0 % ROW) as usize].as_mut()
    }

    /// Gives a place a new number.
    fn add(&mut self, place: Referent) -> Ino {
        self.last += 1;
        let ino = Ino(self.last);
        let row = self.rows.entry(ino.0 / ROW).or_default();
        debug_assert!(row[(ino.0 % ROW) as usize].is_none(), "{ino:?} is in use");
        row[(ino.0 % ROW) as usize] = Some((place, 1));
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
        let mut forgotten = None;
        if let Some(row) = table.rows.get_mut(&(ino.0 / ROW)) {
            forgotten = row[(ino.0 % ROW) as usize].take();
            if row.iter().all(Option::is_none) {
                table.rows.remove(&(ino.0 / ROW));
            }
        }
        // The last of a vnode or mount must not be dropped under the lock.
        drop(guard);
        drop(forgotten);
    }
}
