//! Volumes from outside: made, filled, cloned, removed, opened again.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use afar_store::{
    CheckOptions, NewClone, NewVnode, NewVolume, Partition, PartitionOptions, StoreError,
    StoreOptions, Volume,
};
use afar_types::{Fid, FileType, PtsId, VolumeId, VolumeType};
use tempfile::TempDir;

fn options() -> PartitionOptions {
    PartitionOptions::default()
        .map_size(1 << 30)
        .and_then(|options| options.segment_size(4 << 20))
        .unwrap()
}

fn init(dir: &Path) -> Arc<Partition> {
    Arc::new(Partition::init(dir, &options()).unwrap())
}

fn open(dir: &Path) -> Arc<Partition> {
    Arc::new(Partition::open(dir, &options()).unwrap())
}

fn volume(partition: &Arc<Partition>, id: u32) -> Volume {
    let new = NewVolume::new(VolumeId(id), format!("vol.{id}")).max_quota(0);
    partition.create_volume(&new).unwrap()
}

fn file(volume: &Volume, name: &str, data: &[u8]) -> Fid {
    let new = NewVnode::new(PtsId(7), 0o644);
    let made = volume
        .create_file(volume.root(), name.as_bytes(), &new)
        .unwrap();
    volume
        .write(made.vnode.fid, 0, data, &StoreOptions::default())
        .unwrap();
    made.vnode.fid
}

fn read(volume: &Volume, fid: Fid) -> Vec<u8> {
    volume.read_all(fid, 64 << 20).unwrap()
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

#[test]
fn partitions_of_an_older_format_are_taken_over() {
    let dir = TempDir::new().unwrap();
    let fid = {
        let partition = init(dir.path());
        file(&volume(&partition, 1), "a", b"text")
    };
    let format = dir.path().join("format");
    assert_eq!(fs::read_to_string(&format).unwrap(), "afar-store 3\n");
    // Those had no checksums of the database's pages.
    fs::remove_file(dir.path().join("meta").join("data.sums")).unwrap();
    fs::write(&format, "afar-store 1\n").unwrap();
    {
        let partition = open(dir.path());
        let volume = partition.volume(VolumeId(1)).unwrap();
        assert_eq!(read(&volume, fid), b"text");
        file(&volume, "b", b"more");
    }
    assert_eq!(fs::read_to_string(&format).unwrap(), "afar-store 3\n");
    drop(open(dir.path()));
    fs::write(&format, "afar-store 4\n").unwrap();
    let error = Partition::open(dir.path(), &options()).err();
    let said = error.unwrap().to_string();
    assert!(
        said.contains("version 4") && said.contains("1 to 3"),
        "{said}"
    );
}

#[test]
fn a_tree_is_there_after_opening_again() {
    let dir = TempDir::new().unwrap();
    let big = noise(700_000, 1);
    let (small, large, link);
    {
        let partition = init(dir.path());
        let volume = volume(&partition, 536_870_912);
        small = file(&volume, "small", b"hello");
        large = file(&volume, "large", &big);
        let new = NewVnode::new(PtsId(7), 0o755);
        let sub = volume.make_directory(volume.root(), b"sub", &new).unwrap();
        assert_eq!(sub.directory.link_count, 3);
        assert_eq!(sub.vnode.fid.vnode.0 % 2, 1);
        link = volume
            .symlink(sub.vnode.fid, b"link", b"../small", &new)
            .unwrap()
            .vnode
            .fid;
        let moved = volume
            .rename(volume.root(), b"small", sub.vnode.fid, b"moved")
            .unwrap();
        assert_eq!(moved.vnode.parent, sub.vnode.fid.vnode);
    }
    let partition = open(dir.path());
    let volume = partition.volume(VolumeId(536_870_912)).unwrap();
    let sub = volume.lookup(volume.root(), b"sub").unwrap();
    assert_eq!(volume.lookup(sub, b"moved").unwrap(), small);
    assert_eq!(read(&volume, small), b"hello");
    assert_eq!(read(&volume, large), big);
    assert_eq!(read(&volume, link), b"../small");
    assert_eq!(volume.status(link).unwrap().file_type, FileType::Symlink);
    let state = volume.state().unwrap();
    assert_eq!(state.file_count, 5);
    assert_eq!(state.disk_used, 2 + 2 + 1 + 684 + 1);
}

#[test]
fn data_is_written_at_any_offset_and_cut() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let fid = file(&volume, "f", b"");
    let mut model: Vec<u8> = Vec::new();
    let mut random = fastrand::Rng::with_seed(3);
    for step in 0..200 {
        let offset = random.usize(..600_000);
        let len = random.usize(..200_000);
        if random.u8(..4) == 0 {
            volume
                .truncate(fid, offset as u64, &StoreOptions::default())
                .unwrap();
            model.resize(offset, 0);
        } else {
            let data = if random.bool() {
                noise(len, step)
            } else {
                vec![b'x'; len]
            };
            volume
                .write(fid, offset as u64, &data, &StoreOptions::default())
                .unwrap();
            if len > 0 {
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&data);
            }
        }
        let status = volume.status(fid).unwrap();
        assert_eq!(status.length, model.len() as u64, "step {step}");
        assert!(read(&volume, fid) == model, "step {step}");
    }
}

#[test]
fn a_clone_keeps_what_was() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let kept = file(&volume, "kept", &noise(300_000, 1));
    let changed = file(&volume, "changed", &noise(300_000, 2));
    let new = NewClone::new(VolumeId(3), "vol.1.backup", VolumeType::Backup);
    let backup = volume.make_clone(&new).unwrap();
    volume
        .write(changed, 100_000, &noise(10, 9), &StoreOptions::default())
        .unwrap();
    volume.remove_file(volume.root(), b"kept").unwrap();
    file(&volume, "more", b"more");

    let in_backup = |fid: Fid| Fid {
        volume: VolumeId(3),
        ..fid
    };
    assert!(read(&backup, in_backup(kept)) == noise(300_000, 1));
    assert!(read(&backup, in_backup(changed)) == noise(300_000, 2));
    assert!(matches!(
        backup.lookup(backup.root(), b"more"),
        Err(StoreError::NotFound(_))
    ));
    let denied = backup.create_file(backup.root(), b"x", &NewVnode::new(PtsId(1), 0o644));
    assert!(matches!(denied, Err(StoreError::ReadOnly(_))));

    volume.reclone(VolumeId(3)).unwrap();
    assert!(matches!(
        backup.lookup(backup.root(), b"kept"),
        Err(StoreError::NotFound(_))
    ));
    assert_eq!(
        read(&backup, backup.lookup(backup.root(), b"more").unwrap()),
        b"more"
    );
    partition.remove_volume(VolumeId(1)).unwrap();
    partition.wait_reaped().unwrap();
    assert_eq!(
        read(&backup, backup.lookup(backup.root(), b"more").unwrap()),
        b"more"
    );
}

#[test]
fn removed_data_gives_its_space_back() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let keep = volume(&partition, 10);
    let kept = file(&keep, "kept", &noise(1_000_000, 5));
    let volume = volume(&partition, 1);
    for i in 0..20 {
        file(&volume, &format!("f{i}"), &noise(1_000_000, i));
    }
    let (_, before) = partition.disk_usage().unwrap();
    assert!(before > 20_000_000);
    partition.remove_volume(VolumeId(1)).unwrap();
    partition.wait_reaped().unwrap();
    let (_, after) = partition.disk_usage().unwrap();
    assert!(after < 8_000_000, "{after} bytes are still allocated");
    assert!(read(&keep, kept) == noise(1_000_000, 5));
    assert!(matches!(
        partition.volume(VolumeId(1)),
        Err(StoreError::NoVolume(_))
    ));
}

#[test]
fn a_quota_holds() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let new = NewVolume::new(VolumeId(1), "small").max_quota(100);
    let volume = partition.create_volume(&new).unwrap();
    let fid = file(&volume, "f", &noise(50_000, 1));
    let over = volume.write(fid, 0, &noise(200_000, 1), &StoreOptions::default());
    assert!(matches!(over, Err(StoreError::OverQuota(_, 100))));
    assert!(read(&volume, fid) == noise(50_000, 1));
    volume.truncate(fid, 0, &StoreOptions::default()).unwrap();
    assert_eq!(volume.state().unwrap().disk_used, 3);
}

#[test]
fn fids_are_set_aside_for_good_and_used_once() {
    let dir = tempfile::tempdir().unwrap();
    let partition = init(dir.path());
    let vol = volume(&partition, 7);
    let root = Fid::root(VolumeId(7));
    let before = file(&vol, "before", b"x");
    let first = vol.reserve(5).unwrap();
    let at = |place| Fid::new(7, first.vnode.0 + place, first.uniquifier.0 + place);
    assert!(vol.has_set_aside(at(4)).unwrap());
    assert!(!vol.has_set_aside(at(5)).unwrap());
    let files: Vec<Fid> = (0..5)
        .map(at)
        .filter(|fid| !fid.vnode.is_directory())
        .collect();
    let make = |name: &str, fid| {
        let new = NewVnode {
            fid: Some(fid),
            ..NewVnode::new(PtsId(7), 0o644)
        };
        vol.create_file(root, name.as_bytes(), &new)
    };
    let made = make("a", files[0]).unwrap().vnode.fid;
    assert_eq!(made, files[0]);
    assert_eq!(vol.lookup(root, b"a").unwrap(), files[0]);
    let directory = (0..5).map(at).find(|fid| fid.vnode.is_directory());
    let beyond = Fid::new(7, first.vnode.0 + 100, first.uniquifier.0);
    let later = Fid::new(7, files[1].vnode.0, first.uniquifier.0 + 100);
    for wrong in [files[0], before, root, directory.unwrap(), beyond, later] {
        let refused = make("b", wrong);
        assert!(
            matches!(refused, Err(StoreError::NotReserved(_))),
            "{wrong}"
        );
    }
    // What comes later has none of them, also after a restart.
    drop((vol, partition));
    let partition = open(dir.path());
    let vol = partition.volume(VolumeId(7)).unwrap();
    for name in ["c", "d", "e", "f"] {
        let other = file(&vol, name, b"");
        assert!((0..5).map(at).all(|fid| fid.vnode != other.vnode));
        assert!((0..5).map(at).all(|fid| fid.uniquifier != other.uniquifier));
    }
    let new = NewVnode {
        fid: Some(files[1]),
        ..NewVnode::new(PtsId(7), 0o644)
    };
    vol.create_file(root, b"b", &new).unwrap();
    let report = partition
        .check(&CheckOptions::default(), &mut |_| {})
        .unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_promised_quota_is_not_there_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let partition = init(dir.path());
    let new = NewVolume::new(VolumeId(7), "vol").max_quota(1000);
    let vol = partition.create_volume(&new).unwrap();
    vol.promise_quota(900);
    let root = Fid::root(VolumeId(7));
    let fid = vol.create_file(root, b"a", &NewVnode::new(PtsId(7), 0o644));
    let fid = fid.unwrap().vnode.fid;
    let write = || {
        let mut writer = vol.writer(fid, 0, 500 << 10)?;
        writer.write(&noise(500 << 10, 1))?;
        writer.finish(&StoreOptions::default())
    };
    assert!(matches!(write(), Err(StoreError::OverQuota(..))));
    vol.promise_quota(400);
    write().unwrap();
    // Less is always possible.
    vol.promise_quota(2000);
    vol.remove_file(root, b"a").unwrap();
}

#[test]
fn another_process_is_kept_out() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let second = Partition::open(dir.path(), &options());
    assert!(matches!(second, Err(StoreError::Locked { .. })));
    drop(partition);
    open(dir.path());
}

#[test]
fn a_partition_without_its_database_is_not_opened() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    file(&volume, "f", &noise(100_000, 1));
    drop((volume, partition));
    let segment = dir.path().join("seg/00000001.seg");
    let before = fs::metadata(&segment).unwrap().len();
    fs::remove_file(dir.path().join("meta/data.mdb")).unwrap();
    let opened = Partition::open(dir.path(), &options());
    assert!(matches!(opened, Err(StoreError::NotPartition { .. })));
    assert_eq!(fs::metadata(&segment).unwrap().len(), before);
}

#[test]
fn a_clone_made_read_write_gives_no_number_twice() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let new = NewClone::new(VolumeId(2), "vol.1.readonly", VolumeType::ReadOnly);
    let clone = volume.make_clone(&new).unwrap();
    // Numbers the clone knows nothing of become free, and it comes to them again.
    for name in ["a", "b", "c"] {
        file(&volume, name, name.as_bytes());
    }
    volume.remove_file(volume.root(), b"c").unwrap();
    partition.remove_volume(VolumeId(1)).unwrap();
    let volume = clone.convert_to_read_write(VolumeId(1), "vol.1").unwrap();
    let mut vnodes: Vec<u32> = (0..4)
        .map(|name| {
            file(&volume, &name.to_string(), name.to_string().as_bytes())
                .vnode
                .0
        })
        .collect();
    vnodes.sort_unstable();
    vnodes.dedup();
    assert_eq!(vnodes.len(), 4);
    assert_eq!(
        read(&volume, volume.lookup(volume.root(), b"0").unwrap()),
        b"0"
    );
}

#[test]
fn little_data_is_durable_with_the_log_alone() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let mut seed = 0;
    let mut synced_for = |len: usize| {
        seed += 1;
        let before = partition.segment_stats().syncs;
        file(&volume, &format!("file{seed}"), &noise(len, seed));
        partition.segment_stats().syncs > before
    };
    // A checkpoint may come in between, which syncs what the log had.
    assert!((0..3).any(|_| !synced_for(100_000)));
    assert!((0..3).all(|_| synced_for(1_000_000)));
}

#[test]
fn data_stored_in_pieces_is_written_once() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 536_870_912);
    let data = noise(1_000_000, 1);
    for piece in [64 << 10, 128 << 10, 256 << 10] {
        let before = partition.segment_stats().bytes_appended_plain;
        let mut pieces = data.chunks(piece).enumerate();
        let (_, first) = pieces.next().unwrap();
        let fid = file(&volume, &format!("by {piece}"), first);
        for (number, part) in pieces {
            let offset = (number * piece) as u64;
            let options = StoreOptions::default();
            volume.write(fid, offset, part, &options).unwrap();
        }
        assert!(read(&volume, fid) == data);
        let written = partition.segment_stats().bytes_appended_plain - before;
        assert_eq!(written, data.len() as u64, "by {piece}");
    }
}

#[test]
fn equal_records_are_stored_once_where_that_is_wanted() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    partition.set_dedup(true).unwrap();
    let volume = volume(&partition, 1);
    let data = noise(1_000_000, 1);
    let first = file(&volume, "first", &data);
    let (_, one) = partition.disk_usage().unwrap();
    let others: Vec<Fid> = (0..10)
        .map(|i| file(&volume, &format!("copy{i}"), &data))
        .collect();
    let (_, eleven) = partition.disk_usage().unwrap();
    assert!(eleven < one + 300_000, "{one} bytes became {eleven}");
    volume.remove_file(volume.root(), b"first").unwrap();
    partition.wait_reaped().unwrap();
    assert!(matches!(volume.status(first), Err(StoreError::NoVnode(_))));
    for copy in &others {
        assert!(read(&volume, *copy) == data);
    }
    drop((volume, partition));
    let partition = open(dir.path());
    assert!(partition.dedup());
    let volume = partition.volume(VolumeId(1)).unwrap();
    for copy in &others {
        assert!(read(&volume, *copy) == data);
    }
    for i in 0..10 {
        volume
            .remove_file(volume.root(), format!("copy{i}").as_bytes())
            .unwrap();
    }
    partition.wait_reaped().unwrap();
    // What was given back is not taken for what there is.
    let again = file(&volume, "again", &data);
    assert!(read(&volume, again) == data);
}

#[test]
fn a_target_stays_one_however_it_is_stored() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let new = NewVnode::new(PtsId(7), 0o755);
    let link = volume
        .symlink(volume.root(), b"link", b"target", &new)
        .unwrap()
        .vnode
        .fid;
    let stored = StoreOptions::default();
    volume.write(link, 2, &[b'x'; 1022], &stored).unwrap();
    let long = volume.write(link, 0, &[b'x'; 1025], &stored);
    assert!(matches!(long, Err(StoreError::OutOfRange { .. })));
    let empty = volume.truncate(link, 0, &stored);
    assert!(matches!(empty, Err(StoreError::OutOfRange { .. })));
    assert_eq!(volume.status(link).unwrap().length, 1024);
    assert!(read(&volume, link).starts_with(b"taxx"));
}
