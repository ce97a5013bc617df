//! Damage of every sort is named, and nothing else is.

use std::path::Path;
use std::sync::Arc;

use afar_types::{Fid, PtsId, VolumeId, VolumeType};
use tempfile::TempDir;

use super::{CheckOptions, CheckReport};
use crate::segment::Compression;
use crate::{
    Durability, NewClone, NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions, Volume,
};

mod damage;
mod random;
mod reclaim;
mod torn;

fn options() -> PartitionOptions {
    PartitionOptions::default()
        .durability(Durability::Async)
        .compression(Compression::Lz4)
        .map_size(1 << 30)
        .and_then(|options| options.segment_size(2 << 20))
        .unwrap()
}

fn init(dir: &Path) -> Arc<Partition> {
    Arc::new(Partition::init(dir, &options()).unwrap())
}

fn volume(partition: &Arc<Partition>, id: u32) -> Volume {
    let new = NewVolume::new(VolumeId(id), format!("vol.{id}")).max_quota(0);
    partition.create_volume(&new).unwrap()
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

fn vnode() -> NewVnode {
    NewVnode::new(PtsId(7), 0o644)
}

fn file(volume: &Volume, directory: Fid, name: &str, data: &[u8]) -> Fid {
    let made = volume
        .create_file(directory, name.as_bytes(), &vnode())
        .unwrap();
    volume
        .write(made.vnode.fid, 0, data, &StoreOptions::default())
        .unwrap();
    made.vnode.fid
}

fn backup(volume: &Volume, id: u32) -> Volume {
    let new = NewClone::new(VolumeId(id), format!("vol.{id}.backup"), VolumeType::Backup);
    volume.make_clone(&new).unwrap()
}

fn check(partition: &Partition) -> CheckReport {
    partition
        .check(&CheckOptions::default(), &mut |_| {})
        .unwrap()
}

#[track_caller]
fn assert_clean(partition: &Partition) -> CheckReport {
    let all = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = partition.check(&all, &mut |_| {}).unwrap();
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{problems:#?}");
    report
}
