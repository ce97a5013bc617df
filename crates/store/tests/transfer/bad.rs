//! Streams that do not hold together.

use std::sync::Arc;

use afar_store::{Partition, RestoreMode, RestoreOptions, StoreError, Volume};
use afar_types::{VnodeId, VolumeId};

use super::build::{Part, directory, file, stream};
use super::{dump, noise, partition, tree};

fn sound() -> Vec<Part> {
    vec![
        directory(1, 0, &[("a", 2, 2), ("sub", 3, 3), ("b", 4, 4)]),
        directory(3, 1, &[("c", 6, 6), ("c again", 6, 6), ("below", 5, 5)]),
        directory(5, 3, &[]),
        file(2, 1, b"a"),
        file(4, 1, &noise(200_000, 1)),
        file(6, 3, b"c").with(|fields| fields.link_count = 2),
    ]
}

/// Restores it over an existing volume and as a new one; neither may be touched.
fn refused(parts: &[Part]) -> String {
    refused_stream(&stream(parts))
}

fn refused_stream(stream: &[u8]) -> String {
    let (_dir, partition) = partition();
    let volume = super::new_volume(&partition, 10);
    super::file(&volume, volume.root(), "kept", &noise(100_000, 9));
    let before = dump(&volume);
    partition.wait_reaped().unwrap();
    let live = partition.space().unwrap().live;
    let error = partition
        .restore(stream, &RestoreOptions::new(VolumeId(20)))
        .unwrap_err();
    assert!(matches!(
        partition.volume(VolumeId(20)),
        Err(StoreError::NoVolume(_))
    ));
    for mode in [
        RestoreMode::Full { overwrite: true },
        RestoreMode::Incremental,
    ] {
        let options = RestoreOptions::new(VolumeId(10)).mode(mode);
        partition.restore(stream, &options).unwrap_err();
    }
    assert_untouched(&partition, &volume, &before, live);
    assert!(
        matches!(error, StoreError::Dump(_) | StoreError::BadDump { .. }),
        "{error:?}"
    );
    error.to_string()
}

fn assert_untouched(partition: &Arc<Partition>, volume: &Volume, before: &[u8], live: u64) {
    partition.wait_reaped().unwrap();
    assert!(dump(volume) == before);
    assert_eq!(partition.volume_count().unwrap(), 1);
    assert_eq!(partition.space().unwrap().live, live);
}

#[test]
fn what_is_sound_is_restored() {
    let (_dir, partition) = partition();
    let summary = partition
        .restore(&stream(&sound())[..], &RestoreOptions::new(VolumeId(20)))
        .unwrap();
    assert_eq!(
        (summary.vnodes, summary.orphans, summary.link_counts),
        (6, 0, 0)
    );
    let volume = partition.volume(VolumeId(20)).unwrap();
    assert_eq!(tree(&volume).len(), 7);
    assert_eq!(volume.state().unwrap().file_count, 6);
    assert_eq!(volume.state().unwrap().disk_used, 3 * 2 + 1 + 196 + 1);
}

#[test]
fn vnodes_come_in_order_and_once() {
    let mut parts = sound();
    parts.swap(1, 2);
    assert!(refused(&parts).contains("vnode 3 is out of order: it follows vnode 5"));
    let mut parts = sound();
    parts.swap(0, 5);
    assert!(refused(&parts).contains("out of order"));
    let mut parts = sound();
    parts.push(parts[5].clone());
    assert!(refused(&parts).contains("vnode 6 is given twice"));
}

#[test]
fn there_is_a_root() {
    assert!(refused(&[]).contains("no root directory"));
    assert!(refused(&sound()[1..]).contains("no root directory"));
    let mut parts = sound();
    parts[0] = parts[0].clone().with(|fields| fields.parent = VnodeId(3));
    assert!(refused(&parts).contains("the root directory is in directory 3"));
}

#[test]
fn entries_name_what_is_there() {
    let mut parts = sound();
    parts.pop();
    assert!(refused(&parts).contains("names vnode 6 with uniquifier 6, which is not there"));
    let mut parts = sound();
    parts[5].uniquifier = 9;
    assert!(refused(&parts).contains("names vnode 6 with uniquifier 6, which is not there"));
    let mut parts = sound();
    parts[1] = directory(3, 1, &[("c", 6, 6), ("c again", 6, 7), ("below", 5, 5)]);
    assert!(refused(&parts).contains("uniquifiers"));
    let mut parts = sound();
    parts[0] = directory(
        1,
        0,
        &[("a", 2, 2), ("sub", 3, 3), ("b", 4, 4), ("c", 6, 6)],
    );
    assert!(refused(&parts).contains("vnode 6 is in directory 3 and has a name in directory 1"));
    let mut parts = sound();
    parts[2] = directory(5, 3, &[("root", 1, 1)]);
    assert!(refused(&parts).contains("vnode 1 is in directory 0"));
    let mut parts = sound();
    parts[0] = directory(
        1,
        0,
        &[("a", 2, 2), ("sub", 3, 3), ("b", 4, 4), ("sub too", 3, 3)],
    );
    assert!(refused(&parts).contains("directory 3 has 2 names"));
}

#[test]
fn directories_are_not_below_themselves() {
    let parts = [
        directory(1, 0, &[]),
        directory(3, 5, &[("five", 5, 5)]),
        directory(5, 3, &[("three", 3, 3)]),
    ];
    assert!(refused(&parts).contains("is below itself"));
    let parts = [directory(1, 0, &[]), directory(3, 3, &[("self", 3, 3)])];
    assert!(refused(&parts).contains("directory 3 is below itself"));
}

#[test]
fn dots_name_the_directory_and_the_one_above() {
    let mut parts = sound();
    parts[2].data = directory(5, 1, &[]).data;
    assert!(refused(&parts).contains("entry \"..\" of directory 5 names vnode 1.1, not 3.3"));
    let mut parts = sound();
    parts[2].data = directory(7, 3, &[]).data;
    assert!(refused(&parts).contains("entry \".\" of directory 5 names vnode 7.7, not 5.5"));
    let mut parts = sound();
    parts[0].data = directory(1, 3, &[("a", 2, 2), ("sub", 3, 3), ("b", 4, 4)]).data;
    assert!(refused(&parts).contains("entry \"..\" of directory 1"));
}

/// Writes over a name in a directory's pages.
fn rename(part: &mut Part, from: &[u8], to: &[u8]) {
    let at = part
        .data
        .windows(from.len())
        .position(|place| place == from)
        .unwrap();
    part.data[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn names_are_names() {
    for (to, says) in [
        (&b"bel/w"[..], "name"),
        (b"\0elow", "name"),
        (b".\0", "chain"),
        (b"..\0", "chain"),
    ] {
        let mut parts = sound();
        rename(&mut parts[1], b"below", to);
        let error = refused(&parts);
        assert!(
            error.contains("directory 3 is damaged") && error.contains(says),
            "{error}"
        );
    }
    // A second name that is the first one's.
    let mut parts = sound();
    rename(&mut parts[1], b"c again", b"c\0");
    assert!(refused(&parts).contains("directory 3 is damaged"));
    // One that does not end within its page.
    let mut parts = sound();
    let at = parts[1]
        .data
        .windows(5)
        .position(|place| place == b"below")
        .unwrap();
    parts[1].data[at..2048].fill(b'x');
    assert!(refused(&parts).contains("directory 3 is damaged"));
}

#[test]
fn directories_are_of_a_known_format() {
    let mut parts = sound();
    parts[2].data[2] = 9;
    assert!(refused(&parts).contains("directory 5 is damaged"));
    let mut parts = sound();
    parts[2].data[1] = 2;
    assert!(refused(&parts).contains("directory 5 is damaged"));
    let mut parts = sound();
    parts[2].data[40] ^= 1;
    assert!(refused(&parts).contains("directory 5 is damaged"));
    let mut parts = sound();
    parts[2] = parts[2].clone().with(|fields| fields.length = None);
    parts[2].data.clear();
    assert!(refused(&parts).contains("directory 5 has no pages"));
    let mut parts = sound();
    parts[1] = parts[1]
        .clone()
        .with(|fields| fields.acl = Some([0xff; 192]));
    assert!(refused(&parts).contains("access list of directory 3"));
}

#[test]
fn a_full_dump_gives_everything() {
    let mut parts = sound();
    parts[4].fields = None;
    parts[4].data.clear();
    assert!(refused(&parts).contains("vnode 4 has no content"));
}

#[test]
fn a_stream_that_is_cut_or_goes_on_is_refused() {
    let whole = stream(&sound());
    for cut in [0, 1, 20, 100, 300, 5_000, whole.len() / 2, whole.len() - 1] {
        let error = refused_stream(&whole[..cut]);
        assert!(error.contains("the stream ends"), "{cut}: {error}");
    }
    let mut more = whole;
    more.push(0);
    assert!(refused_stream(&more).contains("continues after the end"));
}

#[test]
fn lengths_that_lie_are_found_out() {
    let whole = stream(&sound());
    let data = noise(200_000, 1);
    let at = whole
        .windows(32)
        .position(|place| place == &data[..32])
        .unwrap()
        - 4;
    assert_eq!(whole[at..at + 4], 200_000u32.to_be_bytes());
    for length in [0u32, 1, 199_999, 200_001, 250_000, 1 << 31, u32::MAX] {
        let mut lying = whole.clone();
        lying[at..at + 4].copy_from_slice(&length.to_be_bytes());
        refused_stream(&lying);
    }
}

#[test]
fn what_has_no_name_is_left_out_and_counted() {
    let (_dir, partition) = partition();
    let mut parts = sound();
    // A directory whose name is gone, with a file in it; and a file in no directory.
    parts.insert(3, directory(7, 3, &[("lost", 8, 8)]));
    parts.push(file(8, 7, &noise(300_000, 3)));
    parts.push(file(10, 99, &noise(300_000, 4)));
    let summary = partition
        .restore(&stream(&parts)[..], &RestoreOptions::new(VolumeId(20)))
        .unwrap();
    assert_eq!(
        (summary.vnodes, summary.orphans, summary.link_counts),
        (9, 3, 0)
    );
    let volume = partition.volume(VolumeId(20)).unwrap();
    assert_eq!(volume.state().unwrap().file_count, 6);
    assert_eq!(tree(&volume).len(), 7);
    let again = dump(&volume);
    partition
        .restore(&again[..], &RestoreOptions::new(VolumeId(30)))
        .unwrap();
    partition.wait_reaped().unwrap();
    assert_eq!(partition.space().unwrap().live, 2 * 200_000);
}

#[test]
fn link_counts_are_put_right() {
    let (_dir, partition) = partition();
    let mut parts = sound();
    parts[0] = parts[0].clone().with(|fields| fields.link_count = 77);
    parts[5] = parts[5].clone().with(|fields| fields.link_count = 1);
    let summary = partition
        .restore(&stream(&parts)[..], &RestoreOptions::new(VolumeId(20)))
        .unwrap();
    assert_eq!(summary.link_counts, 2);
    let volume = partition.volume(VolumeId(20)).unwrap();
    assert_eq!(volume.status(volume.root()).unwrap().link_count, 3);
    let sub = volume.lookup(volume.root(), b"sub").unwrap();
    let linked = volume.lookup(sub, b"c").unwrap();
    assert_eq!(volume.status(linked).unwrap().link_count, 2);
}

#[test]
fn a_failed_restore_gives_its_space_back() {
    let (_dir, partition) = partition();
    let mut parts = sound();
    parts[4] = file(4, 1, &noise(30_000_000, 5));
    parts.pop();
    partition
        .restore(&stream(&parts)[..], &RestoreOptions::new(VolumeId(20)))
        .unwrap_err();
    partition.wait_reaped().unwrap();
    assert_eq!(partition.space().unwrap().live, 0);
    // What is left was allocated ahead, in the one segment that is written to.
    let (_, allocated) = partition.disk_usage().unwrap();
    assert!(
        allocated <= 4 << 20,
        "{allocated} bytes are still allocated"
    );
}

#[test]
fn great_vnode_numbers_cost_nothing() {
    let (_dir, partition) = partition();
    let parts = [
        directory(
            1,
            0,
            &[
                ("far", u32::MAX, u32::MAX),
                ("last", u32::MAX - 1, u32::MAX - 1),
            ],
        ),
        directory(u32::MAX, 1, &[]),
        file(u32::MAX - 1, 1, b"x"),
    ];
    partition
        .restore(&stream(&parts)[..], &RestoreOptions::new(VolumeId(20)))
        .unwrap();
    let volume = partition.volume(VolumeId(20)).unwrap();
    assert_eq!(tree(&volume).len(), 3);
}
