//! Random operations, beside a model that keeps all in memory.

use std::collections::BTreeMap;
use std::path::Path;

use afar_types::{DataVersion, UnixTime, VolumeId};
use fastrand::Rng;

use super::{FileKey, Limits, key};
use crate::model::ranges::RangeSet;
use crate::storage::disk::Disk;
use crate::storage::{Storage, Wait};

const FILES: u32 = 6;
const LENGTH: usize = 300_000;

/// A file as it is in truth.
#[derive(Debug, Clone, Default)]
struct File {
    version: u64,
    /// What the server has.
    stored: Vec<u8>,
    /// What was written over that; only the bytes in `dirty` count.
    written: Vec<u8>,
    dirty: RangeSet,
}

struct Model {
    rng: Rng,
    files: BTreeMap<u32, File>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut files = BTreeMap::new();
        for vnode in 0..FILES {
            let mut stored = vec![0; rng.usize(0..LENGTH)];
            rng.fill(&mut stored);
            let file = File {
                version: 1,
                stored,
                written: vec![0; LENGTH],
                dirty: RangeSet::default(),
            };
            files.insert(vnode, file);
        }
        Self { rng, files }
    }

    fn some_range(&mut self, length: usize) -> (usize, usize) {
        let start = self.rng.usize(0..=length);
        let most = match self.rng.u32(0..3) {
            0 => 1000,
            1 => 70_000,
            _ => LENGTH,
        };
        (start, (start + self.rng.usize(0..=most)).min(length))
    }

    fn step(&mut self, disk: &Disk) {
        let vnode = self.rng.u32(0..FILES);
        let key = key(vnode);
        match self.rng.u32(0..100) {
            0..30 => self.check(disk, vnode),
            30..55 => self.fetch(disk, vnode),
            55..75 => self.write(disk, vnode, &key),
            75..80 => {
                let at = self.rng.u64(0..LENGTH as u64);
                disk.cut_dirty(&key, at).unwrap();
                let file = self.files.get_mut(&vnode).unwrap();
                file.dirty.remove(at..u64::MAX);
            }
            80..92 => self.store(disk, vnode, &key),
            92..95 => self.other(vnode),
            95..97 => {
                disk.forget(&key);
                self.files.get_mut(&vnode).unwrap().dirty = RangeSet::default();
            }
            97 => {
                let made = UnixTime(self.rng.u32(1..4));
                disk.instance(&key.cell, VolumeId(7), made);
            }
            _ => self.check_dirty(disk, vnode),
        }
    }

    /// A part of what the server has comes.
    fn fetch(&mut self, disk: &Disk, vnode: u32) {
        let length = self.files[&vnode].stored.len();
        let (start, end) = self.some_range(length);
        let file = &self.files[&vnode];
        let mut at = start;
        while at < end {
            let next = (at + self.rng.usize(1..=80_000)).min(end);
            let (version, data) = (DataVersion(file.version), &file.stored[at..next]);
            disk.write_clean(&key(vnode), version, at as u64, data, length as u64);
            at = next;
        }
    }

    fn write(&mut self, disk: &Disk, vnode: u32, key: &FileKey) {
        let (start, end) = self.some_range(LENGTH);
        let mut data = vec![0; end - start];
        self.rng.fill(&mut data);
        disk.write_dirty(key, start as u64, &data).unwrap();
        let file = self.files.get_mut(&vnode).unwrap();
        file.written[start..end].copy_from_slice(&data);
        file.dirty.insert(start as u64..end as u64);
    }

    /// What was written is stored, alone or among changes of others.
    fn store(&mut self, disk: &Disk, vnode: u32, key: &FileKey) {
        let alone = self.rng.u32(0..5) > 0;
        let cut = self.rng.u32(0..4) == 0;
        let file = self.files.get_mut(&vnode).unwrap();
        let mut ranges = file.dirty.clone();
        if self.rng.bool() {
            // Only a part of it.
            ranges.remove(100_000..150_000);
        }
        let before = file.stored.len() as u64;
        let limit = if cut { before / 2 } else { before };
        let base = file.version;
        file.version += if alone { 1 } else { 3 };
        file.stored.truncate(usize::try_from(limit).unwrap());
        if !alone {
            file.stored.iter_mut().for_each(|octet| *octet ^= 0x5a);
        }
        for range in ranges.iter() {
            let place = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            if file.stored.len() < place.end {
                file.stored.resize(place.end, 0);
            }
            file.stored[place.clone()].copy_from_slice(&file.written[place]);
            file.dirty.remove(range);
        }
        let from = alone.then_some((DataVersion(base), limit));
        let to = DataVersion(file.version);
        disk.stored(key, &ranges, from, to).unwrap();
    }

    /// Somebody else changes a file.
    fn other(&mut self, vnode: u32) {
        let length = self.rng.usize(0..LENGTH);
        let file = self.files.get_mut(&vnode).unwrap();
        file.stored.resize(length, 0);
        file.stored
            .iter_mut()
            .for_each(|octet| *octet = octet.wrapping_add(1));
        file.version += 1;
    }

    /// What is there is right.
    fn check(&mut self, disk: &Disk, vnode: u32) {
        let length = self.files[&vnode].stored.len();
        let (start, end) = self.some_range(length);
        let file = &self.files[&vnode];
        let version = DataVersion(file.version);
        let range = start as u64..end as u64;
        let mut last = range.start;
        for (at, data) in disk
            .read(&key(vnode), version, range.clone(), Wait::Yes)
            .unwrap()
        {
            assert!(last <= at && at + data.len() as u64 <= range.end);
            last = at + data.len() as u64;
            let place = usize::try_from(at).unwrap();
            assert!(
                data == file.stored[place..place + data.len()],
                "{vnode} at {at}"
            );
        }
        let newer = disk.read(&key(vnode), DataVersion(file.version + 1), range, Wait::Yes);
        assert!(newer.unwrap().is_empty());
    }

    fn check_dirty(&self, disk: &Disk, vnode: u32) {
        let file = &self.files[&vnode];
        let mut there = RangeSet::default();
        for (at, data) in disk.read_dirty(&key(vnode), 0..u64::MAX).unwrap() {
            let place = usize::try_from(at).unwrap();
            assert!(
                data == file.written[place..place + data.len()],
                "{vnode} at {at}"
            );
            there.insert(at..at + data.len() as u64);
        }
        assert_eq!(there, file.dirty, "{vnode}");
    }

    /// The process ends in order; what was not stored is not kept here.
    fn reopened(&mut self) {
        for file in self.files.values_mut() {
            file.dirty = RangeSet::default();
        }
    }
}

fn run(seed: u64, dir: &Path, steps: u32) {
    let mut model = Model::new(seed);
    let limits = Limits {
        bytes: model.rng.u64(100_000..3_000_000),
        files: model.rng.usize(2..8),
    };
    let mut disk = Disk::open(dir, limits).unwrap();
    for step in 0..steps {
        model.step(&disk);
        if model.rng.u32(0..150) == 0 {
            if model.rng.bool() {
                disk.close();
            }
            drop(disk);
            disk = Disk::open(dir, limits).unwrap();
            model.reopened();
        }
        if step % 16 == 0 {
            let state = disk.shared.lock();
            let taken = state.space.taken();
            assert!(
                taken <= limits.bytes || state.index.files() == 0,
                "{taken}: {limits:?}"
            );
            assert!(state.index.files() <= limits.files);
        }
    }
    for vnode in 0..FILES {
        model.check_dirty(&disk, vnode);
    }
}

#[test]
fn it_is_what_a_map_in_memory_is() {
    let seeds = std::env::var("AFAR_TEST_CACHE_SEEDS");
    let seeds = seeds
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(12);
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..seeds {
        println!("seed {seed}");
        run(seed, &dir.path().join(seed.to_string()), 1500);
    }
}
