//! What is dumped and restored is what it was.

use afar_store::dump::{DumpReader, Limits};
use afar_store::{
    NewClone, NewVnode, RestoreMode, RestoreOptions, StoreError, StoreOptions, VolumeChange,
};
use afar_types::{PtsId, Uniquifier, VolumeId, VolumeType};

use super::{assert_same, dump, file, new_volume, partition, restore, sample};

#[test]
fn a_volume_comes_back_as_it_was() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let stream = dump(&volume);
    let copy = restore(&partition, &stream, 20);
    assert_same(&volume, &copy);
    let (one, other) = (volume.state().unwrap(), copy.state().unwrap());
    assert_eq!(one.disk_used, other.disk_used);
    assert_eq!(one.file_count, other.file_count);
    assert_eq!(one.creation_date, other.creation_date);
    assert_eq!(one.update_date, other.update_date);
    assert_eq!(one.uniquifier, other.uniquifier);
    assert_eq!(other.restored_from, VolumeId(10));
    assert_eq!(other.name, "restored.20");
    assert!(other.online);
}

#[test]
fn a_dump_of_what_was_restored_is_the_same_bytes() {
    let (_dir, partition) = partition();
    let (_other_dir, other) = super::partition();
    let volume = sample(&partition, 10);
    let change = VolumeChange {
        max_quota: Some(5_000_000),
        owner: Some(PtsId(77)),
        offline_message: Some(b"not now".to_vec()),
        day_use: Some(12),
        ..VolumeChange::default()
    };
    volume.change(change).unwrap();
    let stream = dump(&volume);
    let options = RestoreOptions::new(VolumeId(10));
    other.restore(&stream[..], &options).unwrap();
    let again = dump(&other.volume(VolumeId(10)).unwrap());
    assert!(stream == again);
}

/// OpenAFS's file server takes a volume out of service and repairs it where that is not so.
#[test]
fn no_vnode_has_the_uniquifier_of_the_header() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    file(&volume, volume.root(), "newest", b"x");
    let stream = dump(&volume);
    let (mut reader, _) = DumpReader::new(&stream[..], Limits::default()).unwrap();
    let next = reader.volume_header().unwrap().uniquifier;
    let mut greatest = Uniquifier(0);
    while let Some(record) = reader.next_vnode().unwrap() {
        greatest = greatest.max(record.uniquifier);
        std::io::copy(&mut reader.data(), &mut std::io::sink()).unwrap();
    }
    assert!(greatest < next, "{greatest} is not below {next}");
    let copy = restore(&partition, &stream, 20);
    let made = file(&copy, copy.root(), "one more", b"x");
    assert_eq!(made.uniquifier, next);
}

#[test]
fn a_clone_is_dumped_with_its_own_date() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let new = NewClone::new(VolumeId(11), "vol.10.readonly", VolumeType::ReadOnly);
    let clone = volume.make_clone(&new).unwrap();
    volume.remove_file(volume.root(), b"small").unwrap();
    let copy = restore(&partition, &dump(&clone), 20);
    assert_same(&clone, &copy);
    let state = copy.state().unwrap();
    assert_eq!(state.kind, VolumeType::ReadWrite);
    assert_eq!(state.parent, VolumeId(20));
    assert_eq!(state.creation_date, clone.state().unwrap().creation_date);
}

#[test]
fn what_is_restored_takes_changes_and_uses_free_numbers() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let copy = restore(&partition, &dump(&volume), 20);
    let free: Vec<u32> = (0..100)
        .map(|i| {
            file(&copy, copy.root(), &format!("new {i}"), b"new")
                .vnode
                .0
        })
        .collect();
    let last = free.iter().max().unwrap();
    let most = super::tree(&volume)
        .values()
        .map(|node| node.0.fid.vnode.0)
        .max()
        .unwrap();
    assert!(
        *last < most,
        "vnode {last} was taken although lower ones are free"
    );
    let named = NewVnode::new(PtsId(1), 0o755);
    copy.make_directory(copy.root(), b"new directory", &named)
        .unwrap();
    copy.write(
        copy.lookup(copy.root(), b"large").unwrap(),
        100,
        b"changed",
        &StoreOptions::default(),
    )
    .unwrap();
    copy.remove_file(copy.root(), b"other name").unwrap();
}

#[test]
fn a_volume_is_replaced_only_when_asked() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let other = new_volume(&partition, 20);
    file(&other, other.root(), "mine", b"mine");
    let stream = dump(&volume);
    let options = RestoreOptions::new(VolumeId(20));
    let refused = partition.restore(&stream[..], &options);
    assert!(matches!(
        refused,
        Err(StoreError::VolumeExists(VolumeId(20)))
    ));
    assert!(other.lookup(other.root(), b"mine").is_ok());

    let options = options.mode(RestoreMode::Full { overwrite: true });
    partition.restore(&stream[..], &options).unwrap();
    assert_same(&volume, &other);
    let state = other.state().unwrap();
    assert_eq!(state.name, "vol.20");
    assert_eq!(state.kind, VolumeType::ReadWrite);
}

#[test]
fn a_half_made_volume_is_whole_after_its_restore() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let new = afar_store::NewVolume::new(VolumeId(20), "target")
        .without_root()
        .unfinished();
    let target = partition.create_volume(&new).unwrap();
    let options = RestoreOptions {
        mode: RestoreMode::Full { overwrite: true },
        in_service: Some(false),
        ..RestoreOptions::new(VolumeId(20))
    };
    partition.restore(&dump(&volume)[..], &options).unwrap();
    let state = target.state().unwrap();
    assert!(!state.destroy_me && !state.in_service && !state.online);
    let online = VolumeChange {
        in_service: Some(true),
        ..VolumeChange::default()
    };
    target.change(online).unwrap();
    assert_same(&volume, &target);
}
