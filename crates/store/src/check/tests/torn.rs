//! A database or segment that was cut off or overwritten is told from a good one, and nothing
//! panics, crashes or reads wrong bytes.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use super::*;
use crate::check::ProblemKind;
use crate::{ScrubOptions, StoreError};

/// A closed partition with some volumes, and what is in their files.
fn closed() -> (TempDir, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let data = noise(600_000, 3);
    for id in 1..40 {
        let volume = volume(&partition, id);
        file(&volume, volume.root(), "a", &data);
        for name in 0..40 {
            let directory = volume.root();
            volume
                .create_file(directory, format!("file {name}").as_bytes(), &vnode())
                .unwrap();
        }
    }
    drop(partition);
    (dir, data)
}

fn database(dir: &TempDir) -> File {
    File::options()
        .read(true)
        .write(true)
        .open(dir.path().join("meta/data.mdb"))
        .unwrap()
}

fn open(dir: &TempDir) -> Result<Arc<Partition>, StoreError> {
    Partition::open(dir.path(), &options()).map(Arc::new)
}

#[test]
fn a_database_that_was_cut_off_is_refused() {
    let (dir, _) = closed();
    let whole = std::fs::read(dir.path().join("meta/data.mdb")).unwrap();
    let len = whole.len() as u64;
    assert!(len > 200_000);
    for cut in [
        0,
        1,
        4095,
        4096,
        8191,
        8192,
        12_288,
        len / 3,
        len / 2,
        len * 9 / 10,
    ] {
        database(&dir).set_len(cut).unwrap();
        let error = open(&dir)
            .err()
            .unwrap_or_else(|| panic!("opened with {cut} of {len}"));
        let text = error.to_string();
        assert!(
            matches!(
                error,
                StoreError::Corrupt { .. }
                    | StoreError::Damaged { .. }
                    | StoreError::Database { .. }
                    | StoreError::NotPartition { .. }
            ),
            "{cut}: {text}"
        );
        let file = database(&dir);
        file.set_len(0).unwrap();
        file.write_all_at(&whole, 0).unwrap();
    }
    assert_clean(&open(&dir).unwrap());
}

#[test]
fn a_check_finds_pages_that_are_none() {
    let (dir, _) = closed();
    let whole = std::fs::read(dir.path().join("meta/data.mdb")).unwrap();
    let pages = whole.len() / 4096;
    let mut random = fastrand::Rng::with_seed(1);
    let mut damaged = 0;
    let partition = open(&dir).unwrap();
    assert_clean(&partition);
    // Many pages are of earlier commits, and do not matter.
    for _ in 0..3_000 {
        if damaged == 3 {
            return;
        }
        // Under the open partition, whose tables LMDB knows already.
        let page = random.usize(2..pages);
        let file = database(&dir);
        let mut old = [0; 4096];
        file.read_exact_at(&mut old, page as u64 * 4096).unwrap();
        match random.u8(..3) {
            0 => file.write_all_at(&[0; 4096], page as u64 * 4096).unwrap(),
            1 => file
                .write_all_at(&noise(4096, page as u64), page as u64 * 4096)
                .unwrap(),
            _ => file
                .write_all_at(&noise(2048, page as u64), page as u64 * 4096 + 2048)
                .unwrap(),
        }
        let report = check(&partition);
        damaged += usize::from(!report.is_clean());
        file.write_all_at(&old, page as u64 * 4096).unwrap();
        assert!(check(&partition).is_clean());
    }
    panic!("only {damaged} found");
}

#[test]
fn bad_records_are_named_with_their_files() {
    let (dir, data) = closed();
    let partition = open(&dir).unwrap();
    let reader = partition.volume(VolumeId(5)).unwrap();
    let sub = reader
        .make_directory(reader.root(), b"sub", &vnode())
        .unwrap()
        .vnode
        .fid;
    let fid = file(&reader, sub, "bad", &noise(131_072, 77));
    backup(&reader, 500);
    let extent = *reader.stored_records(fid, 0, 1).unwrap()[0]
        .extent()
        .unwrap();
    let path = dir.path().join(format!("seg/{:08}.seg", extent.segment));
    let segment = File::options().write(true).open(path).unwrap();
    segment
        .write_all_at(&[0xaa; 10], u64::from(extent.offset) + 100)
        .unwrap();

    let mut stages = Vec::new();
    let report = partition
        .scrub(&ScrubOptions::default(), &mut |progress| {
            stages.push(progress.stage);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(
        (report.bad_record_count, report.problem_count),
        (1, 0),
        "{report:?}"
    );
    assert!(!report.is_clean() && !report.cancelled && report.records > 100);
    assert!(
        stages.contains(&super::super::Stage::Rows) && stages.contains(&super::super::Stage::Data)
    );
    let bad = &report.bad_records[0];
    assert_eq!(
        (bad.segment, bad.offset, bad.length),
        (extent.segment, extent.offset, extent.stored)
    );
    let owners: Vec<_> = bad
        .owners
        .iter()
        .map(|owner| (owner.volume.0, owner.path.as_deref()))
        .collect();
    assert_eq!(owners, [(5, Some("/sub/bad")), (500, Some("/sub/bad"))]);
    assert!(bad.to_string().contains("volume 5: vnode"), "{bad}");

    let all = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let found = partition.check(&all, &mut |_| {}).unwrap();
    assert_eq!(
        (found.problem_count, found.problems[0].kind),
        (1, ProblemKind::Data)
    );
    assert!(check(&partition).is_clean());
    assert!(matches!(
        reader.read_all(fid, 1 << 20),
        Err(StoreError::Read(_))
    ));
    let other = reader.lookup(reader.root(), b"a").unwrap();
    assert!(reader.read_all(other, 1 << 20).unwrap() == data);

    // What is gone is not bad.
    partition.remove_volume(VolumeId(500)).unwrap();
    reader.remove_file(sub, b"bad").unwrap();
    assert_clean(&partition);
}
