//! Eight threads at once, each in a directory of its own and all in a common one, while a ninth
//! makes clones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use afar_store::segment::Compression;
use afar_store::{
    CheckOptions, NewClone, NewVnode, NewVolume, Partition, PartitionOptions, StoreError, Volume,
};
use afar_types::{Fid, PtsId, VolumeId, VolumeType};
use fastrand::Rng;

use crate::driver::{Driver, temp_dir};
use crate::model::Model;
use crate::setting;

const THREADS: u64 = 8;
const VOLUME: u32 = 1;
const BACKUP: u32 = 2;
/// Names all threads want in the common directory.
const COMMON: u64 = 30;

/// What a thread has done in the common directory.
#[derive(Default)]
struct Common {
    changes: u64,
    /// Names the thread made and nobody else could, but all may remove.
    made: BTreeMap<Vec<u8>, i64>,
    removed: BTreeMap<Vec<u8>, i64>,
}

struct Client {
    driver: Driver,
    volume: Volume,
    shared: Fid,
    common: Common,
}

impl Client {
    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.driver.random.u8(..5) == 0 {
                self.in_common();
            } else {
                self.driver.run_in(VOLUME);
            }
        }
    }

    /// Makes or removes a name that others make and remove too.
    fn in_common(&mut self) {
        let name = format!("common{}", self.driver.random.u64(..COMMON)).into_bytes();
        if self.driver.random.bool() {
            match self
                .volume
                .create_file(self.shared, &name, &NewVnode::new(PtsId(1), 0o644))
            {
                Ok(_) => *self.common.made.entry(name).or_default() += 1,
                Err(StoreError::Exists(_)) => return,
                Err(error) => panic!("{error}"),
            }
        } else {
            match self.volume.remove_file(self.shared, &name) {
                Ok(_) => *self.common.removed.entry(name).or_default() += 1,
                Err(StoreError::NotFound(_)) => return,
                Err(error) => panic!("{error}"),
            }
        }
        self.common.changes += 1;
    }
}

/// Makes a backup clone, brings it up to date and removes it, over and over. Each is whole.
fn clone_over_and_over(volume: &Volume, stop: &AtomicBool) {
    let partition = volume.partition();
    let new = NewClone::new(VolumeId(BACKUP), "v.backup", VolumeType::Backup);
    while !stop.load(Ordering::Relaxed) {
        let backup = volume.make_clone(&new).unwrap();
        for _ in 0..3 {
            volume.reclone(VolumeId(BACKUP)).unwrap();
            let report = partition
                .check(&CheckOptions::default(), &mut |_| {})
                .unwrap();
            assert!(report.is_clean(), "{:#?}", report.problems);
            assert_eq!(backup.state().unwrap().kind, VolumeType::Backup);
        }
        partition.remove_volume(VolumeId(BACKUP)).unwrap();
    }
}

#[test]
fn threads_in_one_volume_agree_with_their_models() {
    let seed = setting("AFAR_TEST_SEED", 1);
    let steps = setting("AFAR_TEST_MODEL_OPS", 80_000) / THREADS;
    let dir = temp_dir();
    let options = PartitionOptions::default()
        .durability(afar_store::Durability::Async)
        .map_size(4 << 30)
        .and_then(|options| options.segment_size(4 << 20))
        .unwrap();
    let partition = Arc::new(Partition::init(&dir.path().join("p"), &options).unwrap());
    let new = NewVolume::new(VolumeId(VOLUME), "v")
        .max_quota(0)
        .compression(Compression::Lz4);
    let volume = partition.create_volume(&new).unwrap();
    let own = |name: &str| {
        let new = NewVnode::new(PtsId(1), 0o755);
        volume
            .make_directory(volume.root(), name.as_bytes(), &new)
            .unwrap()
            .vnode
            .fid
    };
    let shared = own("common");
    let homes: Vec<Fid> = (0..THREADS)
        .map(|thread| own(&format!("own{thread}")))
        .collect();

    let stop = AtomicBool::new(false);
    let clients: Vec<Client> = thread::scope(|scope| {
        let cloning = scope.spawn(|| clone_over_and_over(&volume, &stop));
        let threads: Vec<_> = (seed..)
            .zip(&homes)
            .map(|(seed, home)| {
                let mut client = Client {
                    driver: Driver::beside(
                        Rng::with_seed(seed),
                        seed,
                        Arc::clone(&partition),
                        Model::of_directory(&volume, *home),
                        Compression::Lz4,
                        options.clone(),
                    ),
                    volume: volume.clone(),
                    shared,
                    common: Common::default(),
                };
                scope.spawn(move || {
                    client.run(steps);
                    client
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        cloning.join().unwrap();
        ended.into_iter().map(|client| client.unwrap()).collect()
    });

    for client in &clients {
        client.driver.compare_vnodes(VOLUME);
    }
    compare_common(&volume, shared, &clients);
    let state = volume.state().unwrap();
    let nodes = || {
        clients
            .iter()
            .flat_map(|client| client.driver.model.vnodes(VOLUME))
    };
    let common = volume.read_all(shared, 4 << 20).unwrap();
    let names = afar_dir::Directory::new(&common).unwrap().entries().count() as u64 - 2;
    // The root and the common directory are nobody's.
    let blocks: u64 = nodes().map(|node| node.blocks()).sum();
    let root = volume.status(volume.root()).unwrap().length;
    assert_eq!(
        state.disk_used,
        blocks + names + (root + common.len() as u64) / 1024
    );
    assert_eq!(
        u64::from(state.file_count),
        nodes().count() as u64 + names + 2
    );
    drop(clients);
    partition.wait_reaped().unwrap();
    let report = partition
        .check(&CheckOptions::default(), &mut |_| {})
        .unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// What is in the common directory is what was made there and not removed.
fn compare_common(volume: &Volume, shared: Fid, clients: &[Client]) {
    let changes: u64 = clients.iter().map(|client| client.common.changes).sum();
    let status = volume.status(shared).unwrap();
    assert_eq!(status.data_version.0, changes);
    for number in 0..COMMON {
        let name = format!("common{number}").into_bytes();
        let sum = |counts: fn(&Common) -> &BTreeMap<Vec<u8>, i64>| -> i64 {
            clients
                .iter()
                .filter_map(|client| counts(&client.common).get(&name))
                .sum()
        };
        let there = sum(|common| &common.made) - sum(|common| &common.removed);
        let found = volume.lookup(shared, &name);
        assert_eq!(there, i64::from(found.is_ok()), "common{number}");
    }
}
