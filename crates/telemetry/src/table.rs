//! Rows of numbers by key, in bounded memory.
//!
//! The first keys each have a row, until there are as many rows as configured. A further key is counted
//! in the row of the rest, and in a [sketch](crate::sketch) that tells how busy it is. When it is
//! clearly busier than the least busy key with a row, it takes that one's place, whose row is added
//! to the rest. So the sum of all rows is always exact, and the row of a busy key too, from the moment
//! it has one.
//!
//! How busy a key is fades with the number of updates, without a clock: old rows make room, and
//! keys that an attacker invents do not, as each of them is seen too seldom.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::collect::{Cells, Collect};
use crate::desc::{Desc, is_name};
use crate::shard::Apart;
use crate::sketch::{Lookup, Sketch};

/// The value of the labels of the rest.
const REST: &str = "(other)";
/// Rows that a part of the table has on average.
const ROWS_PER_PART: usize = 64;
/// Parts of a table, each with a lock of its own, at most.
const PARTS_MAX: usize = 16;
/// Updates for each row of a part after which how busy keys are is halved.
const AGE: u64 = 64;
/// How much busier than the least busy row a key must be: a quarter, and this.
const AHEAD: u64 = 8;

/// The numbers of a key.
pub trait Row: Default + Clone + Send + 'static {
    /// What it tells.
    const DESCS: &'static [Desc];

    /// Adds the numbers of another one.
    fn merge(&mut self, other: &Self);

    /// Tells its numbers. The labels of the key are there already.
    fn tell(&self, cells: &mut Cells);
}

/// How large a table gets, and when it counts.
#[derive(Debug, Clone, Copy)]
pub struct TableConfig {
    /// Names of the labels that stand for the key.
    pub labels: &'static [&'static str],
    /// Keys that have a row of their own, at most.
    pub rows: usize,
    /// Whether it counts only as long as somebody looks ([`Table::watch`]).
    pub watched_only: bool,
}

/// Makes the values of a key's labels, as many as there are names.
pub(crate) type KeyLabels<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Rows by key. Its clones are the same table.
pub struct Table<K, R>(Arc<Inner<K, R>>);

struct Inner<K, R> {
    config: TableConfig,
    labels: KeyLabels<K>,
    hasher: RandomState,
    parts: Box<[Locked<K, R>]>,
    /// Rows of all parts.
    rows: AtomicUsize,
    watchers: AtomicUsize,
}

type Locked<K, R> = Apart<Mutex<Part<K, R>>>;

/// What is behind one lock.
struct Part<K, R> {
    rows: HashTable<Scored<K, R>>,
    sketch: Sketch<K>,
    rest: R,
    /// No row is less busy than this.
    least: u64,
    /// Updates since the last time that scores were halved.
    updates: u64,
}

struct Scored<K, R> {
    key: K,
    hash: u64,
    /// How busy the key has been of late.
    score: u64,
    row: R,
}

/// A table at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot<K, R> {
    /// Keys with their rows, in no order.
    pub rows: Vec<(K, R)>,
    /// The sum of all others.
    pub rest: R,
    /// Some of the others: how busy they were of late, and how much of that may be of different keys.
    pub sketch: Vec<(K, u64, u64)>,
}

impl<K, R> Clone for Table<K, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, R> fmt::Debug for Table<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("config", &self.0.config)
            .field("rows", &self.0.rows.load(Relaxed))
            .finish_non_exhaustive()
    }
}

impl<K, R> Table<K, R>
where
    K: Hash + Eq + Clone + Send + 'static,
    R: Row,
{
    pub(crate) fn new(config: TableConfig, labels: KeyLabels<K>) -> Self {
        assert!(
            config.labels.iter().all(|name| is_name(name)),
            "a label's name is of a-z, 0-9 and _"
        );
        let parts = (config.rows / ROWS_PER_PART).clamp(1, PARTS_MAX);
        let part = || Part {
            rows: HashTable::new(),
            sketch: Sketch::new((config.rows / parts / 2).clamp(8, ROWS_PER_PART)),
            rest: R::default(),
            least: 0,
            updates: 0,
        };
        Self(Arc::new(Inner {
            config,
            labels,
            hasher: RandomState::new(),
            parts: (0..parts).map(|_| Apart(Mutex::new(part()))).collect(),
            rows: AtomicUsize::new(0),
            watchers: AtomicUsize::new(0),
        }))
    }

    /// Whether it counts at the moment: callers may spare themselves what they would count.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        cfg!(not(feature = "off"))
            && (!self.0.config.watched_only || self.0.watchers.load(Relaxed) != 0)
    }

    /// Changes a key's row, or that of the rest. `weight` is how much busier the key is by that, 1 for
    /// a call.
    pub fn update(&self, key: &impl Lookup<K>, weight: u64, change: impl FnOnce(&mut R)) {
        if !self.is_counting() {
            return;
        }
        let hash = self.0.hasher.hash_one(key);
        // The map within a part uses the low bits and the highest ones.
        let number = usize::try_from(hash >> 32).unwrap_or(0) % self.0.parts.len();
        let mut part = self.0.parts[number].lock();
        part.note(weight);
        if let Some(scored) = part.rows.find_mut(hash, |scored| key.is(&scored.key)) {
            scored.score = scored.score.saturating_add(weight);
            change(&mut scored.row);
            return;
        }
        match self.admit(&mut part, key, weight) {
            Some(score) => {
                let mut row = R::default();
                change(&mut row);
                let scored = Scored {
                    key: key.to_key(),
                    hash,
                    score,
                    row,
                };
                part.rows.insert_unique(hash, scored, |scored| scored.hash);
            }
            None => change(&mut part.rest),
        }
    }

    /// Whether a key gets a row, if need be in place of another one: how busy it is.
    fn admit(&self, part: &mut Part<K, R>, key: &impl Lookup<K>, weight: u64) -> Option<u64> {
        let most = self.0.config.rows;
        let more = |rows: usize| (rows < most).then_some(rows + 1);
        if self.0.rows.fetch_update(Relaxed, Relaxed, more).is_ok() {
            part.least = 0;
            return Some(weight);
        }
        let certain = part.sketch.count(key, weight);
        let enough = |least: u64| certain > least.saturating_add(least / 4 + AHEAD);
        // Usually the key is not busy enough for a look at all rows.
        if !enough(part.least) {
            return None;
        }
        let least = part.rows.iter().min_by_key(|scored| scored.score);
        let Some(least) = least.map(|scored| (scored.hash, scored.key.clone(), scored.score))
        else {
            // All rows are in other parts.
            part.least = u64::MAX;
            return None;
        };
        let (hash, other, score) = least;
        part.least = score;
        if !enough(score) {
            return None;
        }
        part.sketch.remove(key);
        if let Ok(found) = part.rows.find_entry(hash, |scored| scored.key == other) {
            let (gone, _) = found.remove();
            part.rest.merge(&gone.row);
            part.sketch.insert(gone.key, gone.score);
        }
        Some(certain)
    }

    /// Has the table count until the guard is dropped. A table that counts only while somebody
    /// looks forgets everything when the last one looks away.
    #[must_use]
    pub fn watch(&self) -> Watch<K, R> {
        self.0.watchers.fetch_add(1, Relaxed);
        Watch(self.clone())
    }

    /// All rows. Each part is locked for as long as copying its rows takes.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K, R> {
        let mut snapshot = Snapshot {
            rows: Vec::new(),
            rest: R::default(),
            sketch: Vec::new(),
        };
        for part in &self.0.parts {
            let part = part.lock();
            let rows = part.rows.iter();
            let rows = rows.map(|scored| (scored.key.clone(), scored.row.clone()));
            snapshot.rows.extend(rows);
            snapshot.rest.merge(&part.rest);
            let counts = part.sketch.counts();
            let counts = counts.map(|(key, count, error)| (key.clone(), count, error));
            snapshot.sketch.extend(counts);
        }
        snapshot
    }

    fn clear(&self) {
        for part in &self.0.parts {
            let mut part = part.lock();
            self.0.rows.fetch_sub(part.rows.len(), Relaxed);
            part.rows = HashTable::new();
            part.sketch.clear();
            part.rest = R::default();
            (part.least, part.updates) = (0, 0);
        }
    }
}

impl<K, R> Part<K, R> {
    /// Notes an update. After many of them what was busy long ago counts less.
    fn note(&mut self, weight: u64) {
        self.updates = self.updates.saturating_add(weight);
        if self.updates <= AGE * self.rows.len().max(ROWS_PER_PART) as u64 {
            return;
        }
        self.updates = 0;
        self.least /= 2;
        self.sketch.age();
        for scored in &mut self.rows {
            scored.score /= 2;
        }
    }
}

impl<K, R> Collect for Table<K, R>
where
    K: Hash + Eq + Clone + Send + 'static,
    R: Row,
{
    fn describe(&self) -> Vec<Desc> {
        R::DESCS.to_vec()
    }

    fn collect(&self, cells: &mut Cells) {
        let snapshot = self.snapshot();
        let names = self.0.config.labels;
        for (key, row) in &snapshot.rows {
            // Without any lock: to name a key may take a look at a disk.
            cells.common(names, &(self.0.labels)(key));
            row.tell(cells);
        }
        cells.common(names, &vec![REST.to_owned(); names.len()]);
        snapshot.rest.tell(cells);
        cells.common(&[], &[]);
    }

    fn watch_all(&self) -> Option<Box<dyn Any + Send + Sync>> {
        let watched_only = self.0.config.watched_only;
        watched_only.then(|| Box::new(self.watch()) as Box<dyn Any + Send + Sync>)
    }
}

/// Somebody looks at a table.
pub struct Watch<K, R>(Table<K, R>)
where
    K: Hash + Eq + Clone + Send + 'static,
    R: Row;

impl<K, R> fmt::Debug for Watch<K, R>
where
    K: Hash + Eq + Clone + Send + 'static,
    R: Row,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0).finish()
    }
}

impl<K, R> Drop for Watch<K, R>
where
    K: Hash + Eq + Clone + Send + 'static,
    R: Row,
{
    fn drop(&mut self) {
        let table = &self.0;
        if table.0.watchers.fetch_sub(1, Relaxed) == 1 && table.0.config.watched_only {
            table.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::Unit;

    const CALLS: Desc = Desc::counter("calls_total", Unit::None, "Calls.");

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Calls(u64);

    impl Row for Calls {
        const DESCS: &'static [Desc] = &[CALLS];

        fn merge(&mut self, other: &Self) {
            self.0 += other.0;
        }

        fn tell(&self, cells: &mut Cells) {
            cells.count(&CALLS, &[], self.0);
        }
    }

    fn table(rows: usize, watched_only: bool) -> Table<u64, Calls> {
        let config = TableConfig {
            labels: &["key"],
            rows,
            watched_only,
        };
        Table::new(config, Box::new(|key: &u64| vec![key.to_string()]))
    }

    fn sum(snapshot: &Snapshot<u64, Calls>) -> u64 {
        snapshot.rows.iter().map(|(_, row)| row.0).sum::<u64>() + snapshot.rest.0
    }

    fn of(snapshot: &Snapshot<u64, Calls>, wanted: u64) -> Option<u64> {
        let found = snapshot.rows.iter().find(|(key, _)| *key == wanted);
        found.map(|(_, row)| row.0)
    }

    #[test]
    fn a_table_with_room_is_exact() {
        let table = table(100, false);
        for key in 0..100 {
            (0..=key).for_each(|_| table.update(&key, 1, |row| row.0 += 1));
        }
        let snapshot = table.snapshot();
        assert!((0..100).all(|key| of(&snapshot, key) == Some(key + 1)));
        assert_eq!(snapshot.rest.0, 0);
    }

    #[test]
    fn memory_is_bounded_and_the_sum_is_exact() {
        for rows in [1, 10, 256] {
            let table = table(rows, false);
            (0..50_000_u64).for_each(|key| table.update(&key, 1, |row| row.0 += 1));
            let snapshot = table.snapshot();
            assert!(snapshot.rows.len() <= rows);
            assert!(snapshot.sketch.len() <= 16 * ROWS_PER_PART);
            assert_eq!(sum(&snapshot), 50_000);
        }
    }

    #[test]
    fn a_flood_of_keys_seen_once_does_not_displace_busy_ones() {
        let table = table(64, false);
        for round in 0..20_000_u64 {
            for busy in 0..8 {
                table.update(&busy, 1, |row| row.0 += 1);
            }
            (0..8).for_each(|n| table.update(&(1000 + 8 * round + n), 1, |row| row.0 += 1));
        }
        let snapshot = table.snapshot();
        assert!(
            (0..8).all(|busy| of(&snapshot, busy) == Some(20_000)),
            "{snapshot:?}"
        );
    }

    #[test]
    fn a_key_that_gets_busy_takes_the_row_of_an_idle_one() {
        let table = table(16, false);
        for key in 0..16_u64 {
            (0..1000).for_each(|_| table.update(&key, 1, |row| row.0 += 1));
        }
        for _ in 0..100_000 {
            table.update(&99, 1, |row| row.0 += 1);
        }
        let snapshot = table.snapshot();
        assert!(
            of(&snapshot, 99).is_some_and(|calls| calls > 90_000),
            "{snapshot:?}"
        );
        assert_eq!((sum(&snapshot), snapshot.rows.len()), (116_000, 16));
        assert!(snapshot.rest.0 >= 1000);
    }

    #[test]
    fn a_table_for_viewers_counts_only_while_there_is_one() {
        let table = table(16, true);
        table.update(&1, 1, |row| row.0 += 1);
        assert!(!table.is_counting());
        let (first, second) = (table.watch(), table.watch());
        table.update(&1, 1, |row| row.0 += 1);
        drop(first);
        table.update(&1, 1, |row| row.0 += 1);
        assert_eq!(of(&table.snapshot(), 1), Some(2));
        drop(second);
        table.update(&1, 1, |row| row.0 += 1);
        let _again = table.watch();
        assert_eq!(sum(&table.snapshot()), 0);
    }

    #[test]
    fn threads_share_a_table() {
        let table = table(1024, false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..10_000_u64).for_each(|n| table.update(&(n % 2000), 1, |row| row.0 += 1));
                });
            }
        });
        let snapshot = table.snapshot();
        assert_eq!(sum(&snapshot), 40_000);
        assert!(snapshot.rows.len() <= 1024);
    }

    #[test]
    fn the_rest_is_told_as_others() {
        let table = table(1, false);
        table.update(&1, 1, |row| row.0 += 1);
        table.update(&2, 1, |row| row.0 += 1);
        let mut cells = Cells::default();
        table.collect(&mut cells);
        let families = cells.families();
        let labels: Vec<_> = families[0]
            .series
            .iter()
            .map(|s| s.labels[0].1.as_str())
            .collect();
        assert_eq!(labels, [REST, "1"]);
    }
}
