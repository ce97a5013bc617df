//! Many changes of a volume in one commit: each sees those before it, what fails is taken back alone, and the rest of
//! the partition is as if they had been made one by one.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::Path;
use std::sync::Arc;

use afar_store::{
    CheckOptions, NewClone, NewVnode, NewVolume, Partition, PartitionOptions, Result, Sequence,
    SetAttributes, StoreError, StoreOptions, Vnodes, Volume, VolumeChange,
};
use afar_types::{Fid, PtsId, UnixTime, VolumeId, VolumeType};
use tempfile::TempDir;

const NOTE: [u8; 16] = *b"what was done it";

fn options() -> PartitionOptions {
    PartitionOptions::default()
        .map_size(1 << 30)
        .and_then(|options| options.segment_size(4 << 20))
        .unwrap()
}

fn init(dir: &Path) -> (Arc<Partition>, Volume) {
    let partition = Arc::new(Partition::init(dir, &options()).unwrap());
    partition.set_dedup(true).unwrap();
    let new = NewVolume::new(VolumeId(1), "vol").max_quota(0);
    let volume = partition.create_volume(&new).unwrap();
    (partition, volume)
}

fn file() -> NewVnode {
    NewVnode::new(PtsId(7), 0o644)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

fn read(volume: &Volume, fid: Fid) -> Vec<u8> {
    volume.read_all(fid, 64 << 20).unwrap()
}

fn run<T: Send + 'static>(
    volume: &Volume,
    work: impl FnOnce(&mut Sequence<'_, '_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    volume.together().unwrap().run(1, work)
}

/// All data is read and what is lost is found.
fn check(partition: &Partition) {
    partition.wait_reaped().unwrap();
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = partition.check(&options, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn data_that_is_replaced_shared_or_not_used_is_counted_right() {
    let dir = TempDir::new().unwrap();
    let (partition, volume) = init(dir.path());
    let root = volume.root();
    let (one, two) = (noise(300_000, 1), noise(200_000, 2));
    let known = volume.create_file(root, b"known", &file()).unwrap();
    let known = known.vnode.fid;
    let plain = StoreOptions::default();
    volume.write(known, 0, &one, &plain).unwrap();

    let mut together = volume.together().unwrap();
    // Of data that is there, that is there twice, that is replaced at once, that goes with its file, that is not used.
    let contents = [&one, &two, &two, &one, &two, &two].map(|data| together.content(data).unwrap());
    let made = together.run(8, move |sequence| {
        let [same, first, second, over, gone, _] = contents;
        let plain = StoreOptions::default();
        let mut make = |name: &str| {
            let made = sequence.create_file(root, name.as_bytes(), &file());
            made.map(|made| made.vnode.fid)
        };
        let (a, b, c) = (make("a")?, make("b")?, make("c")?);
        sequence.store(a, first, &plain)?;
        sequence.store(b, second, &plain)?;
        sequence.store(b, same, &plain)?;
        sequence.store(c, gone, &plain)?;
        sequence.remove_file(root, b"c")?;
        // The last that has it gives it up, and it comes back.
        sequence.remove_file(root, b"known")?;
        sequence.store(a, over, &plain)?;
        assert!(matches!(
            sequence.store(a, over, &plain),
            Err(StoreError::OutOfRange { .. })
        ));
        Ok([a, b])
    });
    let [a, b] = made.unwrap();
    assert!(read(&volume, a) == one && read(&volume, b) == one);
    assert_eq!(volume.state().unwrap().file_count, 3);
    check(&partition);
    drop((volume, partition));
    let partition = Arc::new(Partition::open(dir.path(), &options()).unwrap());
    let volume = partition.volume(VolumeId(1)).unwrap();
    assert!(read(&volume, a) == one && read(&volume, b) == one);
    check(&partition);
}

#[test]
fn what_fails_is_taken_back_alone() {
    let dir = TempDir::new().unwrap();
    let (partition, volume) = init(dir.path());
    let root = volume.root();
    let quota = VolumeChange {
        max_quota: Some(100),
        ..VolumeChange::default()
    };
    volume.change(quota).unwrap();
    let mut together = volume.together().unwrap();
    let (large, small) = (noise(200_000, 1), noise(2_000, 2));
    let large = together.content(&large).unwrap();
    let fits = together.content(&small).unwrap();
    let a = together.run(9, move |sequence| {
        let a = sequence.create_file(root, b"a", &file())?.vnode.fid;
        let plain = StoreOptions::default();
        let stored = sequence.store(a, large, &plain);
        assert!(matches!(stored, Err(StoreError::OverQuota(..))));
        let again = sequence.create_file(root, b"a", &file());
        assert!(matches!(again, Err(StoreError::Exists(_))), "{again:?}");
        let gone = sequence.remove_file(root, b"b");
        assert!(matches!(gone, Err(StoreError::NotFound(_))), "{gone:?}");
        let forged = Fid::new(1, a.vnode.0, a.uniquifier.0 + 1);
        assert!(matches!(
            sequence.status(forged),
            Err(StoreError::NoVnode(_))
        ));
        let other = Fid::new(2, a.vnode.0, a.uniquifier.0);
        assert!(matches!(
            sequence.status(other),
            Err(StoreError::NoVolume(_))
        ));
        let moved = sequence.rename(root, b"a", other, b"a");
        assert!(matches!(moved, Err(StoreError::NoVolume(_))));
        sequence.store(a, fits, &plain)?;
        Ok(a)
    });
    let a = a.unwrap();
    let state = volume.state().unwrap();
    // The root has 2 KiB.
    assert_eq!((state.file_count, state.disk_used), (2, 4));
    assert_eq!(read(&volume, a), small);
    // The number of what was not made is given to the next.
    let next = volume.create_file(root, b"next", &file()).unwrap();
    assert_eq!(next.vnode.fid.uniquifier.0, a.uniquifier.0 + 1);
    check(&partition);
}

#[test]
fn what_fails_as_a_whole_leaves_nothing_of_it_anywhere() {
    let dir = TempDir::new().unwrap();
    let (partition, volume) = init(dir.path());
    let root = volume.root();
    volume.create_file(root, b"before", &file()).unwrap();
    let version = volume.status(root).unwrap().data_version;
    let mut together = volume.together().unwrap();
    let data = together.content(&noise(500_000, 3)).unwrap();
    let failed: Result<()> = together.run(5, move |sequence| {
        for name in [b"x", b"y", b"z"] {
            let made = sequence.create_file(root, name, &file())?;
            if name == b"x" {
                sequence.store(made.vnode.fid, data, &StoreOptions::default())?;
            }
        }
        sequence.remove_file(root, b"before")?;
        sequence.put_note(NOTE, Some(b"done".to_vec()))?;
        sequence.set_owner(PtsId(77))?;
        Err(StoreError::Offline(VolumeId(1)))
    });
    assert!(matches!(failed, Err(StoreError::Offline(_))));
    assert_eq!(volume.status(root).unwrap().data_version, version);
    assert_ne!(volume.summary().unwrap().owner, PtsId(77));
    assert_eq!(run(&volume, |sequence| sequence.note(NOTE)).unwrap(), None);
    // As many changes as were taken back give the directory the version it had then: nothing that is remembered of its
    // pages may be of that.
    for name in [b"p", b"q", b"r", b"s"] {
        volume.create_file(root, name, &file()).unwrap();
    }
    volume.remove_file(root, b"p").unwrap();
    for name in [b"x", b"y", b"z", b"p"] {
        assert!(volume.lookup(root, name).is_err(), "{name:?}");
    }
    for name in [&b"before"[..], b"q", b"r", b"s"] {
        assert!(volume.lookup(root, name).is_ok(), "{name:?}");
    }
    check(&partition);
}

#[test]
fn clones_see_what_they_saw() {
    let dir = TempDir::new().unwrap();
    let (partition, volume) = init(dir.path());
    let root = volume.root();
    let a = volume.create_file(root, b"a", &file()).unwrap().vnode.fid;
    let old = noise(200_000, 4);
    volume.write(a, 0, &old, &StoreOptions::default()).unwrap();
    let new = NewClone::new(VolumeId(2), "vol.readonly", VolumeType::ReadOnly);
    let clone = volume.make_clone(&new).unwrap();
    let mut together = volume.together().unwrap();
    let data = together.content(b"short").unwrap();
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let changed = together.run(4, move |sequence| {
        sequence.store(a, data, &StoreOptions::default())?;
        sequence.set_attributes(a, &mode)?;
        sequence.rename(root, b"a", root, b"b")?;
        sequence.link(root, b"c", a)
    });
    changed.unwrap();
    let seen = clone.fid(a.vnode, a.uniquifier);
    assert!(read(&clone, seen) == old);
    assert_eq!(clone.status(seen).unwrap().mode, 0o644);
    assert_eq!(clone.lookup(clone.root(), b"a").unwrap(), seen);
    assert_eq!(read(&volume, a), b"short");
    let status = volume.status(a).unwrap();
    assert_eq!((status.mode, status.link_count), (0o600, 2));
    // A clone takes no changes.
    let root = clone.root();
    let refused = run(&clone, move |sequence| {
        sequence.create_file(root, b"n", &file()).map(drop)
    });
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))));
    check(&partition);
}

#[test]
fn notes_are_of_one_volume_and_go_with_it() {
    let dir = TempDir::new().unwrap();
    let (partition, volume) = init(dir.path());
    let other = NewVolume::new(VolumeId(2), "other").max_quota(0);
    let other = partition.create_volume(&other).unwrap();
    let put = |volume: &Volume, name: [u8; 16], text: &'static [u8]| {
        run(volume, move |sequence| {
            sequence.put_note(name, Some(text.to_vec()))
        })
        .unwrap();
    };
    let notes = |volume: &Volume| run(volume, |sequence| sequence.notes()).unwrap();
    put(&volume, NOTE, b"one");
    put(&volume, [0xff; 16], b"last");
    put(&volume, NOTE, b"two");
    put(&other, NOTE, b"another's");
    let both = vec![(NOTE, b"two".to_vec()), ([0xff; 16], b"last".to_vec())];
    assert_eq!(notes(&volume), both);
    drop((volume, other, partition));
    let partition = Arc::new(Partition::open(dir.path(), &options()).unwrap());
    let volume = partition.volume(VolumeId(1)).unwrap();
    assert_eq!(notes(&volume), both);
    drop(volume);
    partition.remove_volume(VolumeId(1)).unwrap();
    let new = NewVolume::new(VolumeId(1), "vol").max_quota(0);
    let volume = partition.create_volume(&new).unwrap();
    assert_eq!(notes(&volume), []);
    let other = partition.volume(VolumeId(2)).unwrap();
    assert_eq!(notes(&other), [(NOTE, b"another's".to_vec())]);
    check(&partition);
}

#[test]
fn what_was_made_before_counts_as_made_then_but_not_before_a_clone() {
    let dir = TempDir::new().unwrap();
    let (partition, volume) = init(dir.path());
    let root = volume.root();
    let begun = volume.status(root).unwrap().server_modify_time;
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let made = |name: &'static [u8], time: Option<UnixTime>| {
        let run = run(&volume, move |sequence| {
            sequence.set_made(time);
            sequence.create_file(root, name, &file())
        });
        run.unwrap().vnode.server_modify_time
    };
    let before = UnixTime(begun.0 + 1);
    assert_eq!(made(b"then", Some(before)), before);
    let now = made(b"now", None);
    assert!(now > before);
    assert!(made(b"later", Some(UnixTime(u32::MAX))) >= now);
    // The partition was opened after this.
    assert!(made(b"long ago", Some(UnixTime(1))) >= begun);
    // A dump of what is newer than the clone has what the clone does not have.
    let clone = NewClone::new(VolumeId(2), "vol.backup", VolumeType::Backup);
    volume.make_clone(&clone).unwrap();
    assert!(made(b"behind", Some(before)) >= now);
    check(&partition);
}
