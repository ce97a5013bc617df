//! Dumps of what changed, restored on top of what was there.

use std::time::{Duration, SystemTime};

use afar_store::{
    DumpOptions, NewClone, RestoreMode, RestoreOptions, StoreError, StoreOptions, Volume,
};
use afar_types::{UnixTime, VolumeId, VolumeType};

use super::{assert_same, dump, dump_since, file, new, noise, partition, restore, sample};

/// Waits for the next second, and returns it.
fn next_second() -> u32 {
    let now = UnixTime::from(SystemTime::now()).0;
    loop {
        let then = UnixTime::from(SystemTime::now()).0;
        if then > now {
            return then;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn change(volume: &Volume) {
    let root = volume.root();
    let sub = volume.lookup(root, b"sub").unwrap();
    let deep = volume.lookup(sub, b"deep").unwrap();
    volume.remove_file(root, b"small").unwrap();
    volume
        .rename(deep, b"file number 1", root, b"moved")
        .unwrap();
    let two = volume.lookup(deep, b"file number 2").unwrap();
    volume
        .write(two, 0, &noise(300_000, 5), &StoreOptions::default())
        .unwrap();
    let large = volume.lookup(root, b"large").unwrap();
    volume
        .truncate(large, 1000, &StoreOptions::default())
        .unwrap();
    let more = volume
        .make_directory(sub, b"more", &new(3, 0o755))
        .unwrap()
        .vnode
        .fid;
    file(volume, more, "added", b"added");
    for number in 4..200 {
        if number % 3 != 0 && number % 5 == 0 {
            volume
                .remove_file(deep, format!("file number {number}").as_bytes())
                .unwrap();
        }
    }
}

fn incremental(id: u32) -> RestoreOptions {
    RestoreOptions::new(VolumeId(id)).mode(RestoreMode::Incremental)
}

#[test]
fn changes_on_top_of_a_full_dump_are_the_whole() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let copy = restore(&partition, &dump(&volume), 20);
    let from = next_second();
    change(&volume);
    let stream = dump_since(&volume, Some(from));
    assert!(stream.len() < 500_000, "{}", stream.len());
    let summary = partition.restore(&stream[..], &incremental(20)).unwrap();
    assert!(summary.removed > 20, "{summary:?}");
    assert!(summary.given < 20, "{summary:?}");
    assert_same(&volume, &copy);
    // Once more changes nothing.
    partition.restore(&stream[..], &incremental(20)).unwrap();
    assert_same(&volume, &copy);
    let (one, other) = (volume.state().unwrap(), copy.state().unwrap());
    assert_eq!(
        (one.disk_used, one.file_count),
        (other.disk_used, other.file_count)
    );
    file(&copy, copy.root(), "after", b"after");
}

#[test]
fn a_clone_of_the_target_keeps_what_was() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let copy = restore(&partition, &dump(&volume), 20);
    let before = restore(&partition, &dump(&volume), 30);
    let new = NewClone::new(VolumeId(22), "copy.backup", VolumeType::Backup);
    let backup = copy.make_clone(&new).unwrap();
    let from = next_second();
    change(&volume);
    partition
        .restore(&dump_since(&volume, Some(from))[..], &incremental(20))
        .unwrap();
    assert_same(&volume, &copy);
    assert_same(&before, &backup);
    partition.remove_volume(VolumeId(22)).unwrap();
    partition.wait_reaped().unwrap();
    assert_same(&volume, &copy);
}

#[test]
fn unchanged_directories_can_be_left_out() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let copy = restore(&partition, &dump(&volume), 20);
    let from = next_second();
    let small = volume.lookup(volume.root(), b"small").unwrap();
    volume
        .write(small, 0, b"other", &StoreOptions::default())
        .unwrap();
    let mut stream = Vec::new();
    let mut options = DumpOptions {
        from: Some(UnixTime(from)),
        omit_unchanged_directories: true,
    };
    let summary = volume.dump(&mut stream, &options).unwrap();
    assert_eq!((summary.given, summary.data), (1, 5));
    options.omit_unchanged_directories = false;
    assert_eq!(volume.dump(std::io::sink(), &options).unwrap().given, 4);
    partition.restore(&stream[..], &incremental(20)).unwrap();
    assert_same(&volume, &copy);
}

#[test]
fn a_read_only_copy_is_brought_up_to_date() {
    let (_dir, partition) = partition();
    let (_site, site) = super::partition();
    let volume = sample(&partition, 10);
    let options = RestoreOptions {
        kind: Some(VolumeType::ReadOnly),
        parent: Some(VolumeId(10)),
        ..RestoreOptions::new(VolumeId(11)).name("vol.10.readonly")
    };
    site.restore(&dump(&volume)[..], &options).unwrap();
    let copy = site.volume(VolumeId(11)).unwrap();
    let from = next_second();
    change(&volume);
    site.restore(&dump_since(&volume, Some(from))[..], &incremental(11))
        .unwrap();
    assert_same(&volume, &copy);
    let state = copy.state().unwrap();
    assert_eq!(
        (state.kind, state.parent),
        (VolumeType::ReadOnly, VolumeId(10))
    );
    assert_eq!(state.name, "vol.10.readonly");
}

#[test]
fn changes_need_what_they_are_changes_of() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let from = next_second();
    change(&volume);
    let stream = dump_since(&volume, Some(from));
    let full = partition.restore(&stream[..], &RestoreOptions::new(VolumeId(20)));
    assert!(matches!(full, Err(StoreError::BadDump { .. })), "{full:?}");
    let nothing = partition.restore(&stream[..], &incremental(20));
    assert!(
        matches!(nothing, Err(StoreError::NoVolume(_))),
        "{nothing:?}"
    );
    let empty = super::new_volume(&partition, 20);
    let before = dump(&empty);
    let refused = partition
        .restore(&stream[..], &incremental(20))
        .unwrap_err();
    assert!(
        refused.to_string().contains("does not have it"),
        "{refused}"
    );
    assert!(dump(&empty) == before);
}

#[test]
fn little_is_read_when_little_changed() {
    let (_dir, partition) = partition();
    let volume = super::new_volume(&partition, 10);
    let files: Vec<_> = (0..200)
        .map(|i| file(&volume, volume.root(), &format!("f{i}"), &noise(100_000, i)))
        .collect();
    let full = volume
        .dump(std::io::sink(), &DumpOptions::default())
        .unwrap();
    let from = next_second();
    for fid in files.iter().step_by(100) {
        volume
            .write(*fid, 500, b"touched", &StoreOptions::default())
            .unwrap();
    }
    let options = DumpOptions {
        from: Some(UnixTime(from)),
        ..DumpOptions::default()
    };
    let some = volume.dump(std::io::sink(), &options).unwrap();
    assert!(some.data * 100 <= full.data * 3, "{some:?} of {full:?}");
}

#[test]
fn who_writes_meanwhile_stops_an_incremental_restore() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let copy = restore(&partition, &dump(&volume), 20);
    let from = next_second();
    change(&volume);
    let stream = dump_since(&volume, Some(from));
    let mut made = false;
    let result = partition.restore_with_progress(&stream[..], &incremental(20), |_| {
        if !made {
            file(&copy, copy.root(), "meanwhile", b"meanwhile");
            made = true;
        }
    });
    assert!(result.is_err(), "{result:?}");
    assert!(copy.lookup(copy.root(), b"meanwhile").is_ok());
}
