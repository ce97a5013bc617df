//! Dumps made by OpenAFS 1.8.9: read, and written again byte for byte.

use super::*;

macro_rules! dump {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/openafs-",
            $name,
            ".dump"
        ))
    };
}

/// The whole of a stream, which must come out the same when written.
fn reproduced(stream: &[u8]) -> Dump {
    let dump = read(stream, 100).unwrap();
    assert_eq!(write(&dump, 1000).unwrap(), stream);
    dump
}

fn unchanged(dump: &Dump) -> usize {
    let listed = |(record, _): &&(VnodeRecord, Vec<u8>)| record.body.is_none();
    dump.vnodes.iter().filter(listed).count()
}

#[test]
fn full_of_a_read_write_volume() {
    let dump = reproduced(dump!("full"));
    assert_eq!(dump.header.name, b"test.sub");
    assert!(!dump.header.is_incremental());
    assert_eq!(dump.header.to, dump.volume.update);
    assert_eq!(dump.volume.kind, VolumeType::ReadWrite);
    assert_eq!(dump.volume.parent, dump.volume.id);
    let lengths: Vec<_> = dump.vnodes.iter().map(|(_, data)| data.len()).collect();
    assert_eq!(lengths, [2048, 1000, 2000]);
    let root = dump.vnodes[0].0.body.as_ref().unwrap();
    assert_eq!(root.kind, VnodeKind::Directory);
    assert_eq!(root.acl.unwrap()[4..8], [0, 0, 0, 1]);
    afar_dir::Directory::new(&dump.vnodes[0].1).unwrap();
}

#[test]
fn full_of_a_read_only_volume_with_mount_points() {
    let dump = reproduced(dump!("read-only"));
    assert_eq!(dump.header.name, b"root.cell.readonly");
    assert_eq!(dump.header.to, dump.volume.creation);
    assert_eq!(dump.volume.kind, VolumeType::ReadOnly);
    assert_ne!(dump.volume.parent, dump.volume.id);
    let mut targets = dump.vnodes.iter().map(|(_, data)| &data[..]);
    assert!(targets.any(|target| target == b"%test.pub.readonly."));
}

#[test]
fn full_of_a_backup_volume() {
    let dump = reproduced(dump!("backup"));
    assert_eq!(dump.header.name, b"test.sub.backup");
    assert_eq!(dump.volume.kind, VolumeType::Backup);
    assert_eq!(dump.header.to, dump.volume.backup);
}

#[test]
fn incremental_of_a_changed_file() {
    let dump = reproduced(dump!("incremental"));
    assert!(dump.header.is_incremental());
    assert_eq!(unchanged(&dump), 0);
    let (record, data) = &dump.vnodes[1];
    assert_eq!(data, b"changed by a client\n");
    let body = record.body.as_ref().unwrap();
    assert!(body.server_modify_time >= dump.header.from);
}

#[test]
fn incremental_of_nothing_changed() {
    let dump = reproduced(dump!("unchanged"));
    assert_eq!(dump.vnodes.len(), 10);
    assert_eq!(unchanged(&dump), 9, "the directory is given nevertheless");
}

#[test]
fn incremental_without_directories() {
    let dump = reproduced(dump!("omit-directories"));
    assert_eq!(dump.vnodes.len(), 10);
    assert_eq!(unchanged(&dump), 10);
}
