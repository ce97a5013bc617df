//! Rows are put and deleted, and members come and go, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afar_types::{VolumeId, VolumeType};
use fastrand::Rng;
use tempfile::TempDir;

use super::{Seen, item, options, seen, value};
use crate::error::StoreError;
use crate::meta::{
    At, FIRST_GENERATION, Item, MemberState, Rows, Table, split_change_key, split_row_key,
};
use crate::partition::Partition;
use crate::volume::{Filling, NewClone, NewVolume, is_writable};

/// Numbers of volumes there can be.
const VOLUMES: u32 = 9;

struct Run {
    dir: TempDir,
    partition: Option<Arc<Partition>>,
    random: Rng,
    volumes: BTreeMap<u32, Seen>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let dir = TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .unwrap();
        let partition = Partition::init(&dir.path().join("p"), &options()).unwrap();
        Self {
            dir,
            partition: Some(Arc::new(partition)),
            random: Rng::with_seed(seed),
            volumes: BTreeMap::new(),
        }
    }

    fn partition(&self) -> &Arc<Partition> {
        self.partition.as_ref().unwrap()
    }

    fn any(&mut self) -> u32 {
        let from = self.random.u32(..VOLUMES);
        let mut ids = self.volumes.range(from..).chain(&self.volumes);
        ids.next().map_or(from, |(id, _)| *id)
    }

    fn unused(&mut self) -> Option<u32> {
        let free: Vec<u32> = (1..=VOLUMES)
            .filter(|id| !self.volumes.contains_key(id))
            .collect();
        (!free.is_empty()).then(|| free[self.random.usize(..free.len())])
    }

    fn row(&self, id: u32) -> Option<crate::meta::VolumeRow> {
        self.partition().reader().unwrap().volume(id).unwrap()
    }

    fn step(&mut self) {
        match self.random.u32(..100) {
            0..4 => self.create(),
            4..54 => self.write(),
            54..68 => self.make_clone(),
            68..78 => self.reclone(),
            78..86 => self.remove(),
            86..89 => self.convert(),
            89..92 => self.fill(true),
            92..96 => self.fill(false),
            96 => self.reopen(),
            _ => self.reap(),
        }
    }

    fn create(&mut self) {
        let Some(id) = self.unused() else { return };
        let new = NewVolume::new(VolumeId(id), "v").without_root();
        self.partition().create_volume(&new).unwrap();
        self.volumes.insert(id, Seen::new());
    }

    /// Some rows of a read-write volume, in one operation.
    fn write(&mut self) {
        let id = self.any();
        let Some(row) = self.row(id).filter(|row| is_writable(row.kind)) else {
            return;
        };
        let mut shown = self.volumes[&id].clone();
        self.put_some(row.at(), &mut shown);
        self.volumes.insert(id, shown);
    }

    fn put_some(&mut self, at: At, shown: &mut Seen) {
        let mut puts: Vec<(Item, Option<Vec<u8>>)> = Vec::new();
        for _ in 0..self.random.usize(1..6) {
            let item = item(&mut self.random);
            let value = self
                .random
                .bool()
                .then(|| value(&mut self.random, item.kind));
            match &value {
                Some(value) => drop(shown.insert(item, value.clone())),
                None => drop(shown.remove(&item)),
            }
            puts.push((item, value));
        }
        self.partition()
            .commit(move |change| {
                for (item, value) in puts {
                    match value {
                        Some(value) => change.put_row(at, item, value)?,
                        None => change.delete_row(at, item)?,
                    }
                }
                Ok(())
            })
            .unwrap();
    }

    fn make_clone(&mut self) {
        let (source, id) = (self.any(), self.unused());
        let (Some(shown), Some(id)) = (self.volumes.get(&source).cloned(), id) else {
            return;
        };
        let volume = self.partition().volume(VolumeId(source)).unwrap();
        volume
            .make_clone(&NewClone::new(VolumeId(id), "c", VolumeType::ReadOnly))
            .unwrap();
        self.volumes.insert(id, shown);
    }

    fn reclone(&mut self) {
        let (source, clone) = (self.any(), self.any());
        let Ok(volume) = self.partition().volume(VolumeId(source)) else {
            return;
        };
        match volume.reclone(VolumeId(clone)) {
            Ok(()) => drop(self.volumes.insert(clone, self.volumes[&source].clone())),
            Err(StoreError::NoVolume(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self) {
        let id = self.any();
        if self.volumes.remove(&id).is_some() {
            self.partition().remove_volume(VolumeId(id)).unwrap();
        }
    }

    fn convert(&mut self) {
        let id = self.any();
        let clone = self.row(id).filter(|row| !is_writable(row.kind));
        if clone.is_none() {
            return;
        }
        let volume = self.partition().volume(VolumeId(id)).unwrap();
        match volume.convert_to_read_write(VolumeId(id), "w") {
            Ok(_) | Err(StoreError::NewerClone(..)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Fills a volume from scratch or on top of what it has, and finishes or gives up.
    fn fill(&mut self, fresh: bool) {
        let id = self.any();
        let Some(row) = self.row(id) else { return };
        let (volume, mut shown) = (VolumeId(id), Seen::new());
        let filling = if fresh {
            Filling::fresh(self.partition(), volume).unwrap()
        } else {
            shown.clone_from(&self.volumes[&id]);
            match Filling::next(self.partition(), volume) {
                Ok(filling) => filling,
                Err(StoreError::Busy(_)) => return,
                Err(error) => panic!("{error}"),
            }
        };
        for _ in 0..self.random.u8(..4) {
            self.put_some(filling.at(), &mut shown);
            assert_eq!(
                seen(self.partition(), volume),
                self.volumes[&id],
                "while it is filled"
            );
        }
        if self.random.bool() {
            let info = self
                .partition()
                .reader()
                .unwrap()
                .info(id)
                .unwrap()
                .unwrap();
            filling.finish(row, info, |_| Ok(())).unwrap();
            self.volumes.insert(id, shown);
        }
    }

    fn reopen(&mut self) {
        drop(Arc::into_inner(self.partition.take().unwrap()).unwrap());
        let partition = Partition::open(&self.dir.path().join("p"), &options()).unwrap();
        self.partition = Some(Arc::new(partition));
    }

    fn reap(&mut self) {
        self.partition().wait_reaped().unwrap();
        self.compare();
        self.no_row_is_left();
    }

    fn compare(&self) {
        for (id, shown) in &self.volumes {
            assert_eq!(&seen(self.partition(), VolumeId(*id)), shown, "volume {id}");
        }
    }

    /// After the reaper, each row is seen by some member, and only rows of later generations are
    /// in the list of changes.
    fn no_row_is_left(&self) {
        let reader = self.partition().reader().unwrap();
        assert_eq!(reader.count(Table::Doomed).unwrap(), 0);
        let mut trees: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for id in self.volumes.keys() {
            let at = reader.volume(*id).unwrap().unwrap().at();
            trees.entry(at.tree).or_default().insert(at.generation);
        }
        assert_eq!(
            reader.count(Table::Members).unwrap(),
            self.volumes.len() as u64
        );
        let mut versions: BTreeMap<(u64, Item), Vec<(u32, bool)>> = BTreeMap::new();
        let mut later = BTreeSet::new();
        for row in reader.scan(Table::Rows, &[]).unwrap() {
            let (key, value) = row.unwrap();
            let (at, item) = split_row_key(key).unwrap();
            versions
                .entry((at.tree, item))
                .or_default()
                .push((at.generation, value.is_empty()));
            if at.generation > FIRST_GENERATION {
                later.insert((at, item));
            }
        }
        let changes = reader.scan(Table::Changes, &[]).unwrap();
        let changes: BTreeSet<_> = changes
            .map(|row| split_change_key(row.unwrap().0).unwrap())
            .collect();
        assert_eq!(changes, later);
        for ((tree, item), versions) in versions {
            let members = trees
                .get(&tree)
                .unwrap_or_else(|| panic!("{item:?} of tree {tree}"));
            assert!(
                !versions[0].1,
                "{item:?} of tree {tree} begins with being gone"
            );
            for (index, (generation, _)) in versions.iter().enumerate() {
                let next = versions.get(index + 1).map_or(u32::MAX, |(next, _)| *next);
                let seen = members.range(*generation..next).next();
                assert!(
                    seen.is_some(),
                    "nobody sees {item:?} of tree {tree}, {generation}"
                );
            }
        }
        for (tree, generation) in reader.members_of(&trees) {
            assert!(trees[&tree].contains(&generation));
        }
    }
}

trait Members {
    fn members_of(&self, trees: &BTreeMap<u64, BTreeSet<u32>>) -> Vec<(u64, u32)>;
}

impl<R: Rows> Members for R {
    fn members_of(&self, trees: &BTreeMap<u64, BTreeSet<u32>>) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        for tree in trees.keys() {
            for (generation, _, state) in self.members(*tree).unwrap() {
                assert_eq!(state, MemberState::Live);
                found.push((*tree, generation));
            }
        }
        found
    }
}

#[test]
fn each_member_sees_its_own_and_nothing_is_left_over() {
    for seed in 0..12 {
        let mut run = Run::new(seed);
        for step in 0..500 {
            run.step();
            if step % 10 == 0 {
                run.compare();
            }
        }
        run.reap();
        let ids: Vec<u32> = run.volumes.keys().copied().collect();
        for id in ids {
            run.partition().remove_volume(VolumeId(id)).unwrap();
            run.volumes.remove(&id);
            run.reap();
        }
        let reader = run.partition().reader().unwrap();
        for table in [
            Table::Rows,
            Table::Changes,
            Table::Members,
            Table::VnodeSlots,
        ] {
            assert_eq!(reader.count(table).unwrap(), 0, "{table:?}, seed {seed}");
        }
    }
}
