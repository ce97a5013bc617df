//! A dump while the volume is used.

use std::io::{self, Write};
use std::sync::Arc;

use afar_store::{DumpOptions, NewClone, Partition, RestoreOptions, StoreOptions, Volume};
use afar_types::{VolumeId, VolumeType};

use super::{assert_same, dump, file, init, new_volume, noise, partition, restore, sample};

/// Does something to the volume in the middle of a dump.
struct Interrupted<F> {
    out: Vec<u8>,
    after: usize,
    act: Option<F>,
}

impl<F: FnOnce()> Write for Interrupted<F> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(buf);
        if self.out.len() > self.after
            && let Some(act) = self.act.take()
        {
            act();
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn dump_while(volume: &Volume, act: impl FnOnce()) -> Vec<u8> {
    let mut out = Interrupted {
        out: Vec::new(),
        after: 300_000,
        act: Some(act),
    };
    volume.dump(&mut out, &DumpOptions::default()).unwrap();
    assert!(out.act.is_none());
    out.out
}

fn spoil(volume: &Volume) {
    let root = volume.root();
    let sub = volume.lookup(root, b"sub").unwrap();
    let deep = volume.lookup(sub, b"deep").unwrap();
    let large = volume.lookup(root, b"large").unwrap();
    volume
        .write(large, 0, &noise(700_000, 77), &StoreOptions::default())
        .unwrap();
    volume.remove_file(root, b"small").unwrap();
    for number in (1..300).filter(|number| number % 3 != 0) {
        volume
            .remove_file(deep, format!("file number {number}").as_bytes())
            .unwrap();
    }
    volume.partition().wait_reaped().unwrap();
    for number in 0..20 {
        file(
            volume,
            root,
            &format!("more {number}"),
            &noise(50_000, number),
        );
    }
}

fn assert_live(partition: &Arc<Partition>, octets: u64) {
    partition.wait_reaped().unwrap();
    assert_eq!(partition.space().unwrap().live, octets);
}

#[test]
fn writers_do_not_show_in_a_dump() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let before = restore(&partition, &dump(&volume), 20);
    let stream = dump_while(&volume, || spoil(&volume));
    let copy = restore(&partition, &stream, 30);
    assert_same(&before, &copy);
}

#[test]
fn a_dump_goes_on_when_the_volume_is_removed() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let before = restore(&partition, &dump(&volume), 20);
    let stream = dump_while(&volume, || {
        partition.remove_volume(VolumeId(10)).unwrap();
        partition.wait_reaped().unwrap();
    });
    assert_same(&before, &restore(&partition, &stream, 30));
    partition.remove_volume(VolumeId(20)).unwrap();
    partition.remove_volume(VolumeId(30)).unwrap();
    assert_live(&partition, 0);
}

#[test]
fn a_dump_goes_on_when_its_clone_is_made_again() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let new = NewClone::new(VolumeId(12), "vol.10.backup", VolumeType::Backup);
    let backup = volume.make_clone(&new).unwrap();
    let before = restore(&partition, &dump(&backup), 20);
    let stream = dump_while(&backup, || {
        spoil(&volume);
        volume.reclone(VolumeId(12)).unwrap();
        partition.wait_reaped().unwrap();
    });
    assert_same(&before, &restore(&partition, &stream, 30));
    assert_same(&volume, &backup);
}

#[test]
fn a_dump_within_a_dump() {
    let (_dir, partition) = partition();
    let volume = sample(&partition, 10);
    let before = restore(&partition, &dump(&volume), 20);
    let mut inner = Vec::new();
    let stream = dump_while(&volume, || {
        spoil(&volume);
        inner = dump(&volume);
    });
    assert_same(&before, &restore(&partition, &stream, 30));
    assert_same(&volume, &restore(&partition, &inner, 40));
}

#[test]
fn what_a_dump_held_is_given_back() {
    let (_dir, partition) = partition();
    let volume = new_volume(&partition, 10);
    let fid = file(&volume, volume.root(), "f", &noise(3_000_000, 1));
    for round in 0..6 {
        dump_while(&volume, || {
            let data = noise(3_000_000, round);
            volume
                .write(fid, 0, &data, &StoreOptions::default())
                .unwrap();
        });
    }
    assert_live(&partition, 3_000_000);
}

#[test]
fn a_dump_that_fails_leaves_nothing() {
    struct Failing(usize);
    impl Write for Failing {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(buf.len())
                .ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let dir = tempfile::TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = sample(&partition, 10);
    for room in [0, 100, 300_000, 700_000] {
        let error = volume
            .dump(Failing(room), &DumpOptions::default())
            .unwrap_err();
        assert!(
            error.to_string().contains("cannot be read or written"),
            "{error}"
        );
    }
    let stream = dump(&volume);
    partition
        .restore(&stream[..], &RestoreOptions::new(VolumeId(20)))
        .unwrap();
}
