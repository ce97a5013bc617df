//! Read-write copies.

use afar_store::{NewClone, StoreError, StoreOptions};
use afar_types::{VolumeId, VolumeType};

use super::{assert_same, dump, file, noise, partition, restore, sample};

fn new(id: u32) -> NewClone {
    NewClone::new(VolumeId(id), format!("copy.{id}"), VolumeType::ReadWrite)
}

#[test]
fn a_copy_goes_its_own_way() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let before = restore(&partition, &dump(&volume), 30);
    let live = partition.space().unwrap().live;
    let copy = volume.copy(&new(20)).unwrap();
    assert_same(&volume, &copy);
    assert_eq!(partition.space().unwrap().live, live, "data is shared");
    let (one, other) = (volume.state().unwrap(), copy.state().unwrap());
    assert_eq!(
        (one.disk_used, one.file_count),
        (other.disk_used, other.file_count)
    );
    assert_eq!(
        (other.kind, other.parent),
        (VolumeType::ReadWrite, VolumeId(20))
    );

    let large = copy.lookup(copy.root(), b"large").unwrap();
    copy.write(large, 0, &noise(200_000, 8), &StoreOptions::default())
        .unwrap();
    file(&copy, copy.root(), "only here", b"x");
    assert_same(&volume, &before);
    let after = restore(&partition, &dump(&copy), 40);
    partition.remove_volume(VolumeId(10)).unwrap();
    partition.wait_reaped().unwrap();
    assert_same(&copy, &after);
    for id in [20, 30, 40] {
        partition.remove_volume(VolumeId(id)).unwrap();
    }
    partition.wait_reaped().unwrap();
    assert_eq!(partition.space().unwrap().live, 0);
}

#[test]
fn a_copy_is_a_new_read_write_volume() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let there = volume.copy(&new(10)).err();
    assert!(
        matches!(there, Some(StoreError::VolumeExists(VolumeId(10)))),
        "{there:?}"
    );
    let clone = NewClone::new(VolumeId(20), "clone", VolumeType::Backup);
    assert!(matches!(
        volume.copy(&clone).err(),
        Some(StoreError::OutOfRange { .. })
    ));
}
