//! Directories whose pages are partly in rows of changes, beside clones of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use afar_dir::Directory;
use afar_types::{Fid, PtsId, VolumeId, VolumeType};
use tempfile::TempDir;

use super::options;
use crate::check::CheckOptions;
use crate::meta::{At, Item, Kind, Rows};
use crate::partition::Partition;
use crate::vnode::NewVnode;
use crate::volume::{NewClone, NewVolume, Volume};

/// Names in a volume's root.
fn names(volume: &Volume) -> BTreeSet<String> {
    let data = volume.read_all(volume.root(), 1 << 20).unwrap();
    let directory = Directory::new(&data).unwrap();
    let names = directory.entries().map(|entry| entry.unwrap().name);
    names
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

fn numbered(numbers: std::ops::Range<u32>) -> BTreeSet<String> {
    numbers.map(|number| format!("file{number}")).collect()
}

fn make(volume: &Volume, numbers: std::ops::Range<u32>) {
    for name in numbered(numbers) {
        let new = NewVnode::new(PtsId(1), 0o644);
        volume
            .create_file(volume.root(), name.as_bytes(), &new)
            .unwrap();
    }
}

/// Bytes of the rows of changes, by generation, that are there; none of them may be long.
fn changes(partition: &Arc<Partition>, at: At) -> Vec<(u32, usize)> {
    let reader = partition.reader().unwrap();
    let mut found = Vec::new();
    for generation in 1..=at.generation {
        let at = At { generation, ..at };
        for page in 0..20 {
            let key = crate::meta::row_key(at, Item::page_change(1, page));
            if let Some(row) = reader.get(crate::meta::Table::Rows, &key).unwrap() {
                assert!(row.len() <= 512, "{} bytes", row.len());
                found.push((generation, row.len()));
            }
        }
    }
    found
}

fn at(partition: &Arc<Partition>) -> At {
    partition.reader().unwrap().volume(1).unwrap().unwrap().at()
}

fn check(partition: &Arc<Partition>) {
    let report = partition
        .check(&CheckOptions::default(), &mut |_| {})
        .unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn each_member_sees_its_own_pages() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("p");
    let mut partition = Arc::new(Partition::init(&path, &options()).unwrap());
    let new = NewVolume::new(VolumeId(1), "v").max_quota(0);
    let mut volume = partition.create_volume(&new).unwrap();
    make(&volume, 0..100);
    let whole = changes(&partition, at(&partition));
    assert!(!whole.is_empty(), "all pages are in rows of their own");
    let clone = |id, kind| volume.make_clone(&NewClone::new(VolumeId(id), "c", kind));
    clone(2, VolumeType::ReadOnly).unwrap();
    make(&volume, 100..105);
    clone(3, VolumeType::Backup).unwrap();
    make(&volume, 105..300);
    volume.remove_file(volume.root(), b"file0").unwrap();
    let mine = &numbered(1..300);
    for round in 0..2 {
        let clones = [2, 3].map(|id| partition.volume(VolumeId(id)).unwrap());
        assert_eq!(names(&clones[0]), numbered(0..100), "round {round}");
        assert_eq!(names(&clones[1]), numbered(0..105), "round {round}");
        assert_eq!(names(&volume), *mine, "round {round}");
        assert_eq!(
            clones[0].lookup(Fid::root(VolumeId(2)), b"file0").unwrap(),
            clones[0].fid(2.into(), 2.into()),
        );
        check(&partition);
        drop((volume, clones));
        drop(partition);
        partition = Arc::new(Partition::open(&path, &options()).unwrap());
        volume = partition.volume(VolumeId(1)).unwrap();
    }
    let copy = volume.copy(&NewClone::new(VolumeId(4), "copy", VolumeType::ReadWrite));
    assert_eq!(names(&copy.unwrap()), *mine);
    for id in [2, 3] {
        partition.remove_volume(VolumeId(id)).unwrap();
        partition.wait_reaped().unwrap();
        assert_eq!(names(&volume), *mine);
        check(&partition);
    }
    make(&volume, 300..310);
    let all = numbered(1..310);
    for name in &all {
        volume.remove_file(volume.root(), name.as_bytes()).unwrap();
    }
    assert_eq!(names(&volume), BTreeSet::new());
    check(&partition);
    for id in [1, 4] {
        partition.remove_volume(VolumeId(id)).unwrap();
    }
    partition.wait_reaped().unwrap();
    let reader = partition.reader().unwrap();
    for kind in Kind::ALL {
        let first = Item {
            kind,
            vnode: 0,
            index: 0,
        };
        let left = reader.items(at_end(), first).unwrap().count();
        assert_eq!(left, 0, "{kind:?}");
    }
}

fn at_end() -> At {
    At {
        tree: 1,
        generation: u32::MAX,
    }
}
