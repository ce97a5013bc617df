//! The table against a model, and by example.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const FILE: Fid = Fid::new(7, 2, 5);

fn table(hosts: u32) -> Table {
    let mut table = Table::new();
    (0..hosts).for_each(|host| table.open_host(host));
    table
}

fn broken(table: &mut Table, fid: Fid, except: Option<u32>, now: u32) -> BTreeSet<u32> {
    let mut hosts = Vec::new();
    table.break_fid(fid, except, now, &mut hosts);
    let set: BTreeSet<u32> = hosts.iter().copied().collect();
    assert_eq!(set.len(), hosts.len(), "each host once");
    set
}

#[test]
fn a_promise_stands_until_it_is_broken() {
    let mut table = table(3);
    let own = table.add(0, FILE, 9).unwrap();
    let other = table.add(1, FILE, 9).unwrap();
    assert_eq!(table.tell(own), Some(9));
    assert_eq!(broken(&mut table, FILE, Some(0), 0), BTreeSet::from([1]));
    assert_eq!(table.tell(other), None);
    assert_eq!(
        table.holders(FILE),
        1,
        "who made the change keeps its promise"
    );
    assert_eq!(
        table.tell(own),
        None,
        "a reply that began before it is of no use"
    );
    let again = table.add(0, FILE, 9).unwrap();
    assert_eq!(table.tell(again), Some(9));
    assert_eq!((table.len(), table.files()), (1, 1));
}

#[test]
fn a_slot_that_is_used_again_is_another_promise() {
    let mut table = table(2);
    let old = table.add(0, FILE, 9).unwrap();
    assert!(table.remove(0, FILE));
    assert!(!table.remove(0, FILE));
    let new = table.add(1, Fid::new(7, 4, 5), 9).unwrap();
    assert_eq!(table.tell(old), None);
    table.drop_untold(old);
    assert_eq!(table.tell(new), Some(9));
    table.drop_untold(new);
    assert_eq!(table.tell(new), Some(9), "the host has been told");
}

#[test]
fn what_nobody_was_told_of_goes() {
    let mut table = table(1);
    let promise = table.add(0, FILE, 9).unwrap();
    table.drop_untold(promise);
    assert_eq!((table.len(), table.files()), (0, 0));
}

#[test]
fn a_promise_is_only_made_longer() {
    let mut table = table(1);
    let long = table.add(0, FILE, 9).unwrap();
    let short = table.add(0, FILE, 3).unwrap();
    assert_eq!(long, short);
    assert_eq!(table.expire(8 * TICK, 10), 0);
    table.add(0, FILE, 12).unwrap();
    assert_eq!(table.expire(11 * TICK, 10), 0);
    assert_eq!(table.expire(12 * TICK, 10), 1);
}

#[test]
fn a_shut_host_is_promised_nothing() {
    let mut table = table(2);
    for vnode in 0..10 {
        table.add(0, Fid::new(7, vnode, 1), 9).unwrap();
        table.add(1, Fid::new(7, vnode, 1), 9).unwrap();
    }
    assert_eq!(table.shut_host(0, 4), 4);
    assert_eq!(table.add(0, FILE, 9), None);
    assert_eq!(table.shut_host(0, 100), 6);
    assert_eq!((table.held(0), table.held(1), table.len()), (0, 10, 10));
    table.open_host(0);
    assert!(table.add(0, FILE, 9).is_some());
    assert_eq!(table.add(77, FILE, 9), None, "a number nobody has");
}

#[test]
fn a_long_rest_hides_nothing_and_forgets_nothing() {
    let mut table = table(2);
    table.add(0, FILE, 100).unwrap();
    // Nobody calls for weeks. What is promised then stands, whatever the wheel has seen.
    let now = 10_000;
    let late = table.add(1, FILE, now + 115).unwrap();
    assert_eq!(table.expire(now * TICK, 1000), 1);
    assert_eq!(table.tell(late), Some(now + 115));
    assert_eq!(
        broken(&mut table, FILE, None, now * TICK),
        BTreeSet::from([1])
    );
}

#[test]
fn what_ends_first_makes_room_first() {
    let mut table = table(3);
    table.add(0, Fid::new(7, 2, 1), 30).unwrap();
    table.add(1, Fid::new(7, 4, 1), 10).unwrap();
    table.add(2, Fid::new(7, 6, 1), 20).unwrap();
    assert_eq!(table.evict(), Some((1, Fid::new(7, 4, 1))));
    assert_eq!(table.evict(), Some((2, Fid::new(7, 6, 1))));
    assert_eq!(table.evict(), Some((0, Fid::new(7, 2, 1))));
    assert_eq!(table.evict(), None);
}

#[test]
fn a_promise_takes_forty_bytes() {
    assert_eq!(size_of::<Entry>(), 40);
    assert_eq!(size_of::<File>(), 28);
}

#[derive(Debug, Clone)]
enum Op {
    Add { host: u32, fid: Fid, lifetime: u32 },
    Tell { nth: usize },
    DropUntold { nth: usize },
    Break { fid: Fid, except: Option<u32> },
    BreakVolume { volume: u32 },
    Discard { fid: Fid },
    Remove { host: u32, fid: Fid },
    Shut { host: u32 },
    Open { host: u32 },
    Pass { ticks: u32 },
    Expire { budget: usize },
    Evict,
}

const HOSTS: u32 = 5;

fn fid() -> impl Strategy<Value = Fid> {
    (1..4u32, 0..6u32).prop_map(|(volume, vnode)| Fid::new(volume, vnode, vnode.min(1)))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..HOSTS, fid(), 1..115u32)
            .prop_map(|(host, fid, lifetime)| Op::Add { host, fid, lifetime }),
        4 => any::<usize>().prop_map(|nth| Op::Tell { nth }),
        2 => any::<usize>().prop_map(|nth| Op::DropUntold { nth }),
        4 => (fid(), proptest::option::of(0..HOSTS))
            .prop_map(|(fid, except)| Op::Break { fid, except }),
        1 => (1..4u32).prop_map(|volume| Op::BreakVolume { volume }),
        1 => fid().prop_map(|fid| Op::Discard { fid }),
        2 => (0..HOSTS, fid()).prop_map(|(host, fid)| Op::Remove { host, fid }),
        1 => (0..HOSTS).prop_map(|host| Op::Shut { host }),
        2 => (0..HOSTS).prop_map(|host| Op::Open { host }),
        3 => (0..300u32).prop_map(|ticks| Op::Pass { ticks }),
        3 => (0..8usize).prop_map(|budget| Op::Expire { budget }),
        1 => Just(Op::Evict),
    ]
}

/// A promise as the model has it.
#[derive(Debug, Clone, PartialEq)]
struct Modelled {
    tick: u32,
    told: bool,
    /// Grows with each promise made and each doubt.
    version: u64,
}

/// What the table must be like.
#[derive(Default)]
struct Model {
    promises: BTreeMap<(Fid, u32), Modelled>,
    open: BTreeSet<u32>,
    handles: Vec<(Handle, (Fid, u32), u64)>,
    versions: u64,
    /// In ticks.
    now: u32,
}

impl Model {
    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    fn nth(&self, nth: usize) -> Option<(Handle, Option<(Fid, u32)>)> {
        let (handle, key, version) = *self.handles.get(nth % self.handles.len().max(1))?;
        let stands = self
            .promises
            .get(&key)
            .is_some_and(|promise| promise.version == version);
        Some((handle, stands.then_some(key)))
    }

    /// Takes out what the filter is true of, and returns whose promises have not ended.
    fn take(&mut self, filter: impl Fn(&Fid, u32) -> bool) -> BTreeSet<u32> {
        let mut hosts = BTreeSet::new();
        self.promises.retain(|(fid, host), promise| {
            let taken = filter(fid, *host);
            if taken && promise.tick > self.now {
                hosts.insert(*host);
            }
            !taken
        });
        hosts
    }

    fn apply(&mut self, table: &mut Table, op: Op) {
        let seconds = self.now * TICK;
        match op {
            Op::Add {
                host,
                fid,
                lifetime,
            } => {
                let tick = self.now + lifetime;
                let handle = table.add(host, fid, tick);
                assert_eq!(handle.is_some(), self.open.contains(&host));
                let Some(handle) = handle else { return };
                let version = self.version();
                let new = Modelled {
                    tick,
                    told: false,
                    version,
                };
                let promise = self.promises.entry((fid, host)).or_insert(new);
                promise.tick = promise.tick.max(tick);
                self.handles.push((handle, (fid, host), promise.version));
            }
            Op::Tell { nth } => {
                let Some((handle, stands)) = self.nth(nth) else {
                    return;
                };
                let promise = stands.and_then(|key| self.promises.get_mut(&key));
                let expected = promise.map(|promise| {
                    promise.told = true;
                    promise.tick
                });
                assert_eq!(table.tell(handle), expected);
            }
            Op::DropUntold { nth } => {
                let Some((handle, stands)) = self.nth(nth) else {
                    return;
                };
                table.drop_untold(handle);
                if let Some(key) = stands
                    && !self.promises[&key].told
                {
                    self.promises.remove(&key);
                }
            }
            Op::Break { fid, except } => {
                let hosts = broken(table, fid, except, seconds);
                let version = self.version();
                let expected = self.take(|of, host| *of == fid && Some(host) != except);
                assert_eq!(hosts, expected);
                if let Some(kept) = except.and_then(|host| self.promises.get_mut(&(fid, host))) {
                    kept.version = version;
                }
            }
            Op::BreakVolume { volume } => {
                let mut hosts = Vec::new();
                let files = table.files_of(VolumeId(volume));
                for _ in 0..files {
                    assert!(table.break_first_of(VolumeId(volume), seconds, &mut hosts));
                }
                assert!(!table.break_first_of(VolumeId(volume), seconds, &mut hosts));
                let expected = self.take(|of, _| of.volume.0 == volume);
                assert_eq!(hosts.into_iter().collect::<BTreeSet<_>>(), expected);
            }
            Op::Discard { fid } => {
                table.discard(fid);
                self.take(|of, _| *of == fid);
            }
            Op::Remove { host, fid } => {
                let was_there = self.promises.remove(&(fid, host)).is_some();
                assert_eq!(table.remove(host, fid), was_there);
            }
            Op::Shut { host } => {
                let held = table.held(host) as usize;
                assert_eq!(table.shut_host(host, usize::MAX), held);
                self.take(|_, holder| holder == host);
                self.open.remove(&host);
            }
            Op::Open { host } => {
                table.open_host(host);
                self.open.insert(host);
            }
            Op::Pass { ticks } => self.now += ticks,
            Op::Expire { budget } => {
                let ended = |promise: &Modelled| promise.tick <= self.now;
                let due = self.promises.values().filter(|one| ended(one)).count();
                assert_eq!(table.expire(seconds, budget), due.min(budget));
                // Which of them went is the table's choice.
                let stands: BTreeSet<(Fid, u32)> = standing(table).into_keys().collect();
                let now = self.now;
                self.promises
                    .retain(|key, promise| promise.tick > now || stands.contains(key));
            }
            Op::Evict => match table.evict() {
                Some((host, fid)) => assert!(self.promises.remove(&(fid, host)).is_some()),
                None => assert!(self.promises.is_empty()),
            },
        }
    }
}

/// Every promise in the table, told or not, found from its host's side.
fn standing(table: &Table) -> BTreeMap<(Fid, u32), (u32, bool)> {
    let mut all = BTreeMap::new();
    for host in 0..HOSTS {
        let mut slot = table.first_of_host(host).unwrap_or(NIL);
        while slot != NIL {
            let entry = &table.promises[slot];
            let key = (table.files[entry.file].fid, host);
            assert_eq!(all.insert(key, (entry.tick(), entry.end & 1 == 1)), None);
            slot = entry.of_host.next;
        }
    }
    all
}

fn check(table: &Table, model: &Model) {
    let expected: BTreeMap<_, _> = model
        .promises
        .iter()
        .map(|(key, promise)| (*key, (promise.tick, promise.told)))
        .collect();
    assert_eq!(standing(table), expected);
    assert_eq!(table.len(), expected.len());
    let mut files: BTreeMap<Fid, u32> = BTreeMap::new();
    for (fid, _) in expected.keys() {
        *files.entry(*fid).or_default() += 1;
    }
    assert_eq!(table.files(), files.len());
    for (fid, holders) in files {
        assert_eq!(table.holders(fid), holders);
    }
    for host in 0..HOSTS {
        let told = expected
            .iter()
            .filter(|((_, of), (_, told))| *of == host && *told);
        assert_eq!(table.of_host(host).count(), told.count());
    }
}

proptest! {
    #[test]
    fn the_table_does_what_a_map_does(ops in prop::collection::vec(op(), 1..200)) {
        let mut table = table(0);
        let mut model = Model::default();
        for op in ops {
            model.apply(&mut table, op);
            check(&table, &model);
        }
    }
}
