//! Numbers of what the kernel knows.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afar_types::DataVersion;

use crate::mount::Mount;
use crate::types::Ino;
use crate::unvisited::kept;
use crate::vnode::{State, Vnode};

/// Numbers in a row that are kept together.
const ROW: u64 = ROW_LENGTH as u64;
const ROW_LENGTH: usize = 16;

/// Names of one directory that the kernel is told to forget one by one.
const NAMES_MOST: usize = 65_536;

/// The number of a vnode that has none.
pub(crate) const NONE: Ino = Ino(0);

/// What a number stands for.
#[derive(Debug, Clone)]
pub(crate) enum Place {
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

impl Place {
    /// Whether it is something that is reached through this mount.
    fn is_in(&self, mount: &Mount) -> bool {
        matches!(self, Self::Vnode(spot) if spot.mount.id == mount.id)
    }
}

/// A number and what it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) place: Place,
}

impl Inode {
    /// The kernel knows this name in it now.
    pub(crate) fn note_name(&self, name: &[u8]) {
        // What is made up tells for a while, and breaks no promise.
        if let Place::Vnode(spot) = &self.place {
            let mut state = spot.vnode.lock();
            if state.has_number(self.ino) {
                state.rare.names.insert(name);
            }
        }
    }

    /// Whether the kernel can be told to forget every name it knows.
    pub(crate) fn has_room(&self) -> bool {
        match &self.place {
            Place::Cells | Place::Volumes | Place::Cell(_) => true,
            Place::Vnode(spot) => {
                let state = spot.vnode.lock();
                state.has_number(self.ino) && state.rare.names.has_room()
            }
        }
    }

    /// This version of it is opened. Returns whether it was this one the last time.
    pub(crate) fn note_opened(&self, version: DataVersion) -> bool {
        let Place::Vnode(spot) = &self.place else {
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

/// The version of a file that was opened last by one of its numbers: what the kernel keeps is of this
/// one or older. Only the lower half is kept: that many are never stored between two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Opened(Option<NonZeroU32>);

impl Opened {
    fn new(version: DataVersion) -> Self {
        let [.., a, b, c, d] = version.0.to_be_bytes();
        // One more, so that none has a number of its own.
        Self(NonZeroU32::new(
            u32::from_be_bytes([a, b, c, d]).wrapping_add(1),
        ))
    }

    /// Whether this is known to be the same version.
    fn is(self, other: Self) -> bool {
        self.0.is_some() && self == other
    }
}

/// A number of a vnode besides its first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number {
    ino: Ino,
    opened: Opened,
}

/// All numbers given out and not taken back.
///
/// A holder of these locks may lock a vnode, and not the other way round.
#[derive(Debug, Default)]
pub(crate) struct Inodes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    root: Option<Place>,
    /// By number, [`ROW`] in a row: as numbers are given out one after the other, most rows are full.
    rows: BTreeMap<u64, Box<Row>>,
    last: u64,
    /// The numbers of cells into which nobody went.
    cells: BTreeMap<Vec<u8>, Ino>,
}

/// What numbers stand for, and how many times each was given out.
type Row = [Option<(Place, u64)>; ROW_LENGTH];

impl Table {
    fn get_mut(&mut self, ino: Ino) -> Option<&mut (Place, u64)> {
        let row = self.rows.get_mut(&(ino.0 / ROW))?;
        row[(ino.0 % ROW) as usize].as_mut()
    }

    /// Gives a place a new number.
    fn add(&mut self, place: Place) -> Ino {
        self.last += 1;
        let ino = Ino(self.last);
        let row = self.rows.entry(ino.0 / ROW).or_default();
        row[(ino.0 % ROW) as usize] = Some((place, 1));
        ino
    }

    /// The number of a place, if it has one.
    fn number_of(&mut self, mount: &Mount, vnode: &Vnode) -> Option<Ino> {
        let state = vnode.lock();
        let mut numbers = state.numbers();
        numbers.find(|ino| match (*ino, &self.root) {
            (Ino::ROOT, Some(Place::Vnode(spot))) => spot.mount.id == mount.id,
            _ => (self.get_mut(*ino)).is_some_and(|(place, _)| place.is_in(mount)),
        })
    }
}

impl Inodes {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the top directory is, once. It is never forgotten.
    pub(crate) fn set_root(&self, place: Place) {
        let mut table = self.lock();
        table.last = Ino::VOLUMES.0;
        if let Place::Vnode(spot) = &place {
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
                Some(Place::Cells) => Some(Place::Volumes),
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
                *count += 1;
            }
            return ino;
        }
        let ino = table.add(Place::Vnode(spot.clone()));
        spot.vnode.lock().add_number(ino);
        ino
    }

    /// The number of a cell into which nobody went, given out once more.
    pub(crate) fn give_cell(&self, name: &[u8]) -> Ino {
        let mut table = self.lock();
        if let Some(ino) = table.cells.get(name).copied() {
            if let Some((_, count)) = table.get_mut(ino) {
                *count += 1;
            }
            return ino;
        }
        let ino = table.add(Place::Cell(kept(name)));
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
        if matches!(place, Place::Vnode(now) if Arc::ptr_eq(&now.vnode, &spot.vnode)) {
            return;
        }
        let before = std::mem::replace(place, Place::Vnode(spot.clone()));
        match &before {
            Place::Cell(name) => drop(table.cells.remove(name.as_slice())),
            Place::Vnode(point) => point.vnode.lock().remove_number(ino),
            Place::Cells | Place::Volumes => {}
        }
        spot.vnode.lock().add_number(ino);
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
            Place::Vnode(spot) => spot.vnode.lock().remove_number(ino),
            Place::Cell(name) => {
                let name = Arc::clone(name);
                table.cells.remove(name.as_slice());
            }
            Place::Cells | Place::Volumes => {}
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

impl State {
    /// The numbers by which it is known: one in each mount that it was reached through.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Ino> + '_ {
        let first = (self.number != NONE).then_some(self.number);
        let others = self.rare.numbers.iter().map(|number| number.ino);
        first.into_iter().chain(others)
    }

    fn has_number(&self, ino: Ino) -> bool {
        self.numbers().any(|number| number == ino)
    }

    /// What was opened by each number.
    fn opened_mut(&mut self) -> impl Iterator<Item = (Ino, &mut Opened)> + '_ {
        let others = self.rare.if_any().map(|rare| &mut rare.numbers);
        let others = others.into_iter().flatten();
        let others = others.map(|number| (number.ino, &mut number.opened));
        std::iter::once((self.number, &mut self.opened)).chain(others)
    }

    fn add_number(&mut self, ino: Ino) {
        if self.number == NONE {
            (self.number, self.opened) = (ino, Opened::default());
        } else {
            let opened = Opened::default();
            self.rare.numbers.push(Number { ino, opened });
        }
    }

    fn remove_number(&mut self, ino: Ino) {
        let mut next = None;
        if let Some(rare) = self.rare.if_any() {
            rare.numbers.retain(|number| number.ino != ino);
            if self.number == ino {
                next = rare.numbers.pop();
            }
        }
        if self.number == ino {
            (self.number, self.opened) = match next {
                Some(number) => (number.ino, number.opened),
                None => (NONE, Opened::default()),
            };
        }
        if self.number == NONE
            && let Some(rare) = self.rare.if_any()
        {
            rare.names = Names::new();
        }
        self.rare.tidy();
    }

    /// What was written here made a new version of an old one: whoever has the old one has the new one.
    pub(crate) fn note_stored(&mut self, old: DataVersion, new: DataVersion) {
        let (old, new) = (Opened::new(old), Opened::new(new));
        for (_, opened) in self.opened_mut().filter(|(_, opened)| opened.is(old)) {
            *opened = new;
        }
    }

    /// The names in it that the kernel may know; it is told to forget them.
    pub(crate) fn take_names(&mut self) -> Names {
        let names = self.rare.if_any().map(|rare| &mut rare.names);
        names.map_or(Names::new(), |names| std::mem::replace(names, Names::new()))
    }
}

/// Names in a directory that the kernel may know, one behind the other.
#[derive(Debug)]
pub(crate) struct Names {
    /// Each with its length before it.
    octets: Vec<u8>,
    /// Where each begins, in the order of the names.
    order: Vec<u32>,
}

impl Names {
    pub(crate) const fn new() -> Self {
        Self {
            octets: Vec::new(),
            order: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn at(&self, place: u32) -> &[u8] {
        let (length, rest) = self.octets[place as usize..].split_at(2);
        &rest[..usize::from(u16::from_be_bytes([length[0], length[1]]))]
    }

    fn insert(&mut self, name: &[u8]) {
        let found = self
            .order
            .binary_search_by(|place| self.at(*place).cmp(name));
        let (Err(at), true) = (found, self.has_room()) else {
            return;
        };
        // No name of a file is as long as that.
        let sizes = (u32::try_from(self.octets.len()), u16::try_from(name.len()));
        let (Ok(place), Ok(length)) = sizes else {
            return;
        };
        reserve(&mut self.octets, 2 + name.len());
        self.octets.extend(length.to_be_bytes());
        self.octets.extend(name);
        reserve(&mut self.order, 1);
        self.order.insert(at, place);
    }

    fn has_room(&self) -> bool {
        self.order.len() < NAMES_MOST
    }

    /// The names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.order.iter().map(|place| self.at(*place))
    }
}

/// Makes room for some more without doubling what is there.
fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_in_order() {
        let mut names = Names::new();
        for name in ["b", "", "abc", "b", "ab", "abc"] {
            names.insert(name.as_bytes());
        }
        let all: Vec<_> = names.iter().collect();
        assert_eq!(all, [&b""[..], b"ab", b"abc", b"b"]);
        for number in 0..NAMES_MOST {
            names.insert(format!("{number}").as_bytes());
        }
        assert!(!names.has_room());
        assert_eq!(names.iter().count(), NAMES_MOST);
        assert!(names.iter().is_sorted());
    }
}
