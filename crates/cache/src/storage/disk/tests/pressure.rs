//! Limits, and what is used longest.

use afar_types::{DataVersion, UnixTime, VolumeId};

use super::{Limits, fill, has_all, joined, key, open, set, settle, there};
use crate::storage::disk::Disk;
use crate::storage::{Storage, Wait};

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    files: 100,
};

#[test]
fn what_was_used_longest_ago_goes_and_dirty_octets_stay() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path(), LIMITS).unwrap();
    let dirty = vec![7; 300_000];
    disk.write_dirty(&key(2), 50, &dirty).unwrap();
    for vnode in 0..20 {
        fill(&disk, 4 + 2 * vnode, 1, 65_536);
        // The first is used all the time.
        assert!(has_all(&disk, 4, 1, 65_536), "{vnode}");
        let taken = disk.shared.lock().space.taken();
        assert!(taken + 300_000 <= LIMITS.bytes, "{taken}");
    }
    assert!(there(&disk, 6, 1, 0..65_536).is_empty());
    assert!(has_all(&disk, 42, 1, 65_536));
    let read = disk.read_dirty(&key(2), 0..u64::MAX).unwrap();
    assert_eq!(joined(&read, 50), dirty);
    // More is written than there is room: all that is clean goes, and nothing else.
    let more = vec![9; 2 << 20];
    disk.write_dirty(&key(4), 0, &more).unwrap();
    assert!(there(&disk, 42, 1, 0..65_536).is_empty());
    assert_eq!(
        joined(&disk.read_dirty(&key(4), 0..u64::MAX).unwrap(), 0),
        more
    );
    assert_eq!(
        joined(&disk.read_dirty(&key(2), 0..u64::MAX).unwrap(), 50),
        dirty
    );
    // When that is stored, there is room again.
    disk.stored(&key(4), &set(&[0..2 << 20]), None, DataVersion(3))
        .unwrap();
    fill(&disk, 8, 1, 65_536);
    assert!(has_all(&disk, 8, 1, 65_536));
}

#[test]
fn files_are_counted_and_small_ones_take_little() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path(), LIMITS).unwrap();
    for vnode in 0..250 {
        fill(&disk, vnode, 1, 100 + u64::from(vnode));
    }
    let state = disk.shared.lock();
    assert_eq!(state.index.files(), 100);
    // One more was there for a moment.
    assert_eq!(state.space.taken(), 101 * 4096);
    drop(state);
    assert!(has_all(&disk, 249, 1, 349) && !has_all(&disk, 149, 1, 249));
}

#[test]
fn the_disk_gets_back_what_goes() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path(), LIMITS).unwrap();
    let taken = || -> u64 {
        let files = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap());
        let files = files.filter(|file| file.file_name().to_str().unwrap().starts_with("blocks"));
        files
            .map(|file| file.metadata().unwrap().blocks() * 512)
            .sum()
    };
    for vnode in 0..100 {
        fill(&disk, vnode, 1, 65_536);
    }
    for vnode in 200..300 {
        fill(&disk, vnode, 1, 3000);
    }
    for vnode in 0..100 {
        fill(&disk, vnode, 2, 20_000);
    }
    disk.close();
    // A file system may round up.
    assert!(taken() <= LIMITS.bytes + (256 << 10), "{}", taken());
}

#[test]
fn what_is_written_over_and_over_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let key = key(2);
    let mut truth = super::content(2, 1, 0..100_000);
    disk.write_clean(&key, DataVersion(1), 0, &truth, 100_000);
    for version in 1..250_u8 {
        let at = usize::from(version) * 1009 % 90_000;
        let data = [version; 4096];
        disk.write_dirty(&key, at as u64, &data).unwrap();
        truth[at..at + 4096].copy_from_slice(&data);
        let ranges = set(&[at as u64..at as u64 + 4096]);
        let (from, to) = (
            DataVersion(version.into()),
            DataVersion(u64::from(version) + 1),
        );
        disk.stored(&key, &ranges, Some((from, 100_000)), to)
            .unwrap();
        let read = disk.read(&key, to, 0..100_000, Wait::Yes).unwrap();
        let read = joined(&read, 0);
        let same = read.iter().zip(&truth).take_while(|(a, b)| a == b).count();
        assert!(
            read == truth,
            "{version}: {} bytes, right up to {same}",
            read.len()
        );
    }
    settle(&disk);
    drop(disk);
    let disk = open(dir.path());
    let read = disk
        .read(&key, DataVersion(250), 0..100_000, Wait::Yes)
        .unwrap();
    assert!(joined(&read, 0) == truth);
    assert_eq!(
        std::fs::read_dir(dir.path().join("dirty")).unwrap().count(),
        0
    );
}

#[test]
fn a_restored_volume_has_nothing_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let cell = key(2).cell;
    let made = |disk: &Disk, time| disk.instance(&cell, VolumeId(7), UnixTime(time));
    let disk = open(dir.path());
    fill(&disk, 2, 5, 1000);
    // When it was made is only known now.
    made(&disk, 100);
    assert!(has_all(&disk, 2, 5, 1000));
    drop(disk);
    let disk = open(dir.path());
    made(&disk, 100);
    assert!(has_all(&disk, 2, 5, 1000));
    drop(disk);
    // Restored while nobody looked.
    let disk = open(dir.path());
    made(&disk, 200);
    assert!(there(&disk, 2, 5, 0..1000).is_empty());
    fill(&disk, 2, 5, 2000);
    drop(disk);
    let disk = open(dir.path());
    made(&disk, 200);
    assert!(has_all(&disk, 2, 5, 2000));
}
