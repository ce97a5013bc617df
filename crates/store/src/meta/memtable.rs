//! The memtable: rows that are in the log and not yet in the database.
//!
//! Each commit makes a few new rows, many of them the same ones again and again. Written to LMDB with
//! each commit they cost some pages each, copied, written and, at the next checkpoint, synced, though
//! nobody ever reads most of them. So commits change a map in memory, and a checkpoint writes what
//! became of it to the database in one transaction. The map is persistent in the sense of
//! functional programming: a copy costs nothing and stays as it is, so each view has its own.
//!
//! A view sees up to three layers: the memtable, the one that a checkpoint is writing, and the database.

use std::ops::Bound;
use std::sync::Arc;

use heed::types::Bytes;
use heed::{AnyTls, RoTxn};
use rpds::RedBlackTreeMapSync;

use super::env::{Env, TABLES, Table};
use crate::error::Result;

/// A sealed value, or that the row was deleted.
pub(crate) type Sealed = Option<Arc<[u8]>>;
/// A row of a layer: its key, and its sealed value or that it is deleted.
type LayerRow<'a> = (&'a [u8], Option<&'a [u8]>);

/// Numbers below which a tree has none to use again, for directories and for others.
pub(super) type Slots = RedBlackTreeMapSync<(u64, bool), u64>;

/// Rows of all tables.
#[derive(Clone)]
pub(crate) struct Memtable {
    tables: [RedBlackTreeMapSync<Arc<[u8]>, Sealed>; TABLES],
    /// A search for the least number would go over all that were taken, which are deleted only
    /// here.
    slots: Slots,
}

impl Default for Memtable {
    fn default() -> Self {
        Self {
            tables: std::array::from_fn(|_| RedBlackTreeMapSync::new_sync()),
            slots: RedBlackTreeMapSync::new_sync(),
        }
    }
}

impl Memtable {
    /// Sets or deletes a row. That it is deleted is kept, as older layers may have it. Returns what
    /// it had of the row before.
    pub(super) fn set(&mut self, table: Table, key: Arc<[u8]>, sealed: Sealed) -> Option<Sealed> {
        let rows = &mut self.tables[table as usize];
        let before = rows.get(&key).cloned();
        rows.insert_mut(key, sealed);
        before
    }

    /// Takes back what [`set`](Self::set) did.
    pub(super) fn restore(&mut self, table: Table, key: &Arc<[u8]>, before: Option<Sealed>) {
        let rows = &mut self.tables[table as usize];
        match before {
            Some(before) => rows.insert_mut(Arc::clone(key), before),
            None => _ = rows.remove_mut(key),
        }
    }

    /// What it has of a row, if anything.
    fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(Option::as_deref)
    }

    /// What it has of a table, in the order of the keys.
    pub(super) fn rows(&self, table: Table) -> impl Iterator<Item = LayerRow<'_>> {
        let rows = self.tables[table as usize].iter();
        rows.map(|(key, sealed)| (&**key, sealed.as_deref()))
    }

    /// The same from the first key not below `from`.
    fn from(&self, table: Table, from: &[u8]) -> LayerRows<'_> {
        let rows = &self.tables[table as usize];
        if rows.is_empty() {
            return LayerRows::default();
        }
        let range = (Bound::Included(Arc::from(from)), Bound::Unbounded);
        let mut rows = rows
            .range(range)
            .map(|(key, sealed): (&Arc<[u8]>, &Sealed)| (&**key, sealed.as_deref()));
        LayerRows {
            first: rows.next(),
            rest: Some(Box::new(rows)),
        }
    }

    /// The last row in a range.
    fn last_between(&self, table: Table, from: &[u8], to: &[u8]) -> Option<LayerRow<'_>> {
        let rows = &self.tables[table as usize];
        if rows.is_empty() {
            return None;
        }
        let range = (Bound::Included(from), Bound::Excluded(to));
        let (key, sealed) = rows.range::<[u8], _>(range).next_back()?;
        Some((key, sealed.as_deref()))
    }

    /// What is known of free vnode numbers.
    pub(super) fn slots(&self) -> Slots {
        self.slots.clone()
    }

    /// Sets it back.
    pub(super) fn restore_slots(&mut self, slots: Slots) {
        self.slots = slots;
    }

    /// The number below which a tree has none to use again.
    pub(super) fn first_slot(&self, tree: u64, directory: bool) -> u64 {
        self.slots.get(&(tree, directory)).copied().unwrap_or(0)
    }

    /// Sets the number below which a tree has none to use again.
    pub(super) fn set_first_slot(&mut self, tree: u64, directory: bool, first: u64) {
        self.slots.insert_mut((tree, directory), first);
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(RedBlackTreeMapSync::is_empty)
    }
}

/// The rows of a layer that are still to come.
#[derive(Default)]
struct LayerRows<'a> {
    first: Option<LayerRow<'a>>,
    rest: Option<Box<dyn Iterator<Item = LayerRow<'a>> + 'a>>,
}

impl<'a> LayerRows<'a> {
    /// Takes the first row if it has a key.
    fn take(&mut self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        let (_, sealed) = self.first.filter(|(first, _)| *first == key)?;
        self.first = self.rest.as_mut().and_then(Iterator::next);
        Some(sealed)
    }
}

/// What a row is looked for in, the newest layer first.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    pub(super) env: &'a Env,
    pub(super) newest: &'a Memtable,
    pub(super) frozen: Option<&'a Memtable>,
    pub(super) txn: &'a RoTxn<'a, AnyTls>,
}

impl<'a> Layers<'a> {
    fn memtables(&self) -> impl Iterator<Item = &'a Memtable> + use<'a> {
        std::iter::once(self.newest).chain(self.frozen)
    }

    /// The sealed value of a key.
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&'a [u8]>> {
        for memtable in self.memtables() {
            if let Some(found) = memtable.get(table, key) {
                return Ok(found);
            }
        }
        let found = self.env.table(table).get(self.txn, key);
        found.map_err(|e| self.env.database(e))
    }

    /// Sealed rows in the order of their keys, from the first not below `from`.
    pub(super) fn scan(&self, table: Table, from: &[u8]) -> Result<Merged<'a>> {
        // LMDB knows no empty key, and none of ours is shorter or before this one.
        let from = if from.is_empty() { &[0] } else { from };
        let range = (Bound::Included(from), Bound::Unbounded);
        let rows = self.env.table(table).range(self.txn, &range);
        let mut merged = Merged {
            env: self.env,
            newest: self.newest.from(table, from),
            frozen: self
                .frozen
                .map_or_else(LayerRows::default, |rows| rows.from(table, from)),
            stored: rows.map_err(|e| self.env.database(e))?,
            first_stored: None,
        };
        merged.next_stored()?;
        Ok(merged)
    }

    /// The last sealed row with a key not below `from` and below `to`.
    pub(super) fn last_between(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<(&'a [u8], &'a [u8])>> {
        let mut to = to;
        while from < to {
            let stored = self.env.table(table).get_lower_than(self.txn, to);
            let stored = stored.map_err(|e| self.env.database(e))?;
            let stored = stored.filter(|(key, _)| *key >= from);
            let mut last = stored.map(|(key, sealed)| (key, Some(sealed)));
            // Of rows with the same key, the newest layer's counts, which comes last here.
            for memtable in self.frozen.into_iter().chain([self.newest]) {
                let found = memtable.last_between(table, from, to);
                if found.map(|(key, _)| key) >= last.map(|(key, _)| key) {
                    last = found;
                }
            }
            match last {
                None => return Ok(None),
                Some((key, Some(sealed))) => return Ok(Some((key, sealed))),
                Some((deleted, None)) => to = deleted,
            }
        }
        Ok(None)
    }

    /// How many rows a table has.
    pub(super) fn count(&self, table: Table) -> Result<u64> {
        let database = self.env.table(table);
        let failed = |e| self.env.database(e);
        let mut count = database.len(self.txn).map_err(failed)?;
        let newest = self.newest.rows(table);
        let frozen = self.frozen.into_iter().flat_map(|rows| rows.rows(table));
        let frozen = frozen.filter(|(key, _)| self.newest.get(table, key).is_none());
        for (key, sealed) in newest.chain(frozen) {
            let stored = database.get(self.txn, key).map_err(failed)?;
            match (stored, sealed) {
                (None, Some(_)) => count += 1,
                (Some(_), None) => count -= 1,
                _ => {}
            }
        }
        Ok(count)
    }
}

/// Sealed rows of one table, of all layers.
pub(super) struct Merged<'a> {
    env: &'a Env,
    newest: LayerRows<'a>,
    frozen: LayerRows<'a>,
    stored: heed::RoRange<'a, Bytes, Bytes>,
    first_stored: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Merged<'a> {
    fn next_stored(&mut self) -> Result<()> {
        let next = self.stored.next().transpose();
        self.first_stored = next.map_err(|e| self.env.database(e))?;
        Ok(())
    }

    /// The next row, unless it is the last.
    pub(super) fn next_row(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>> {
        loop {
            // Most of what there is is in the database only.
            if self.newest.first.is_none() && self.frozen.first.is_none() {
                let stored = self.first_stored;
                if stored.is_some() {
                    self.next_stored()?;
                }
                return Ok(stored);
            }
            let key = [
                self.newest.first.map(|(key, _)| key),
                self.frozen.first.map(|(key, _)| key),
                self.first_stored.map(|(key, _)| key),
            ];
            let Some(key) = key.into_iter().flatten().min() else {
                return Ok(None);
            };
            let newest = self.newest.take(key);
            let frozen = self.frozen.take(key);
            let stored = self.first_stored.filter(|(first, _)| *first == key);
            if stored.is_some() {
                self.next_stored()?;
            }
            let stored = stored.map(|(_, sealed)| Some(sealed));
            if let Some(Some(sealed)) = newest.or(frozen).or(stored) {
                return Ok(Some((key, sealed)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use fastrand::Rng;
    use tempfile::TempDir;

    use super::*;
    use crate::meta::{Change, Rows, View};

    fn env() -> (TempDir, Env) {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::open(dir.path(), dir.path(), 1 << 26).unwrap();
        (dir, env)
    }

    /// What a table should have.
    type Model = BTreeMap<[u8; 2], Vec<u8>>;

    const TABLE: Table = Table::Dead;

    /// Keys are few, so that rows of several layers meet.
    fn key(random: &mut Rng) -> [u8; 2] {
        [random.u8(1..4), random.u8(..16)]
    }

    /// A commit of some operations, of which some fail.
    fn commit(env: &Env, model: &mut Model, random: &mut Rng) {
        let mut batch = env.begin().unwrap();
        for _ in 0..random.u8(1..4) {
            let before = model.clone();
            let mut change = Change::new(&mut batch, 0);
            for _ in 0..random.u8(1..6) {
                let key = key(random);
                if random.bool() {
                    let value = vec![random.u8(..); usize::from(random.u8(..3))];
                    model.insert(key, value.clone());
                    change.put(TABLE, &key, value);
                } else {
                    model.remove(&key);
                    change.delete(TABLE, &key).unwrap();
                }
            }
            if random.u8(..4) == 0 {
                change.roll_back();
                *model = before;
            } else {
                change.finish();
            }
        }
        env.publish(batch);
    }

    fn compare(view: &View, model: &Model, random: &mut Rng) {
        let count = model.len() as u64;
        assert_eq!(view.count(TABLE).unwrap(), count);
        let (from, to) = (key(random), key(random));
        let found = view.get(TABLE, &from).unwrap();
        assert_eq!(found, model.get(&from).map(Vec::as_slice));
        let rows = view.scan(TABLE, &from).unwrap().map(Result::unwrap);
        let expected = model.range(from..);
        assert!(rows.eq(expected.map(|(key, value)| (key.as_slice(), value.as_slice()))));
        let expected = model.range(..to).next_back().filter(|row| *row.0 >= from);
        assert_eq!(
            view.last_between(TABLE, &from, &to).unwrap(),
            expected.map(|(key, value)| (key.as_slice(), value.as_slice()))
        );
    }

    #[test]
    fn views_stay_as_they_were_and_new_ones_show_each_commit() {
        let (_dir, env) = env();
        let mut random = Rng::with_seed(1);
        let mut model = Model::new();
        let mut views: Vec<(View, Model)> = Vec::new();
        let mut frozen = false;
        for _ in 0..6_000 {
            match random.u8(..8) {
                0 if !frozen => {
                    env.freeze();
                    frozen = true;
                }
                0 | 1 => {
                    env.flush().unwrap();
                    frozen = false;
                }
                2 | 3 => {
                    let view = (env.view().unwrap(), model.clone());
                    if views.len() < 6 {
                        views.push(view);
                    } else {
                        views[random.usize(..6)] = view;
                    }
                }
                4 | 5 => commit(&env, &mut model, &mut random),
                _ => {
                    if let Some((view, model)) = random.choice(&views) {
                        compare(view, model, &mut random);
                    }
                    compare(&env.view().unwrap(), &model, &mut random);
                }
            }
        }
    }

    #[test]
    fn a_view_is_of_one_commit_while_the_database_is_written_to() {
        let (_dir, env) = env();
        let keys: Vec<[u8; 1]> = (1..20).map(|key| [key]).collect();
        let write = |number: u32| {
            let mut batch = env.begin().unwrap();
            let mut change = Change::new(&mut batch, 0);
            for key in &keys {
                change.put(TABLE, key, number.to_be_bytes().to_vec());
            }
            change.finish();
            env.publish(batch);
        };
        write(0);
        let done = AtomicBool::new(false);
        let frozen = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if frozen.load(Ordering::Acquire) {
                        env.flush().unwrap();
                        frozen.store(false, Ordering::Release);
                    }
                    thread::yield_now();
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let view = env.view().unwrap();
                    let number = |key: &[u8; 1]| {
                        let value = view.get(TABLE, key).unwrap().unwrap();
                        u32::from_be_bytes(value.try_into().unwrap())
                    };
                    let first = number(&keys[0]);
                    assert!(keys.iter().all(|key| number(key) == first));
                    assert!(first >= last, "{first} after {last}");
                    last = first;
                }
            });
            for number in 1..3_000 {
                write(number);
                if !frozen.load(Ordering::Acquire) {
                    env.freeze();
                    frozen.store(true, Ordering::Release);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn the_least_number_is_used_again_first() {
        let (_dir, env) = env();
        let numbers = |numbers: &[u32]| {
            let mut batch = env.begin().unwrap();
            let mut change = Change::new(&mut batch, 0);
            for number in numbers {
                change.put_slot(7, false, *number);
            }
            change.put_slot(7, true, 1);
            change.put_slot(8, false, 2);
            change.finish();
            env.publish(batch);
        };
        let take = |keep: bool| {
            let mut batch = env.begin().unwrap();
            let mut change = Change::new(&mut batch, 0);
            let taken = change.take_slot(7, false).unwrap();
            if keep {
                change.finish();
            } else {
                change.roll_back();
            }
            env.publish(batch);
            taken
        };
        numbers(&[4, 10, 6]);
        assert_eq!(take(true), Some(4));
        env.freeze();
        assert_eq!(take(false), Some(6));
        assert_eq!(take(true), Some(6));
        env.flush().unwrap();
        numbers(&[8]);
        assert_eq!(take(true), Some(8));
        assert_eq!(take(true), Some(10));
        assert_eq!(take(true), None);
        numbers(&[2]);
        assert_eq!(take(true), Some(2));
        assert_eq!(take(true), None);
    }
}
