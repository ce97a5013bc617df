//! Bytes of abandoned writes come back.

use std::time::{Duration, Instant};

use super::*;
use crate::ScrubOptions;
use crate::meta::{Item, Rows, Table, dead_key};

fn reclaim(partition: &Partition) -> CheckReport {
    let options = CheckOptions {
        reclaim: true,
        ..CheckOptions::default()
    };
    partition.check(&options, &mut |_| {}).unwrap()
}

/// A partition with some megabytes in several segments, of which 900,000 bytes in the first are
/// known to nobody.
fn with_lost() -> (TempDir, Arc<Partition>, Volume) {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let lost = file(&volume, volume.root(), "lost", &noise(900_000, 1));
    file(&volume, volume.root(), "kept", &noise(4_000_000, 2));
    let records = volume.stored_records(lost, 0, 100).unwrap();
    let extents: Vec<_> = records
        .iter()
        .filter_map(|record| record.extent().copied())
        .collect();
    drop(records);
    let at = partition.reader().unwrap().volume(1).unwrap().unwrap().at();
    partition
        .commit(move |change| {
            for (index, extent) in (0..).zip(extents) {
                change.delete_row(at, Item::record(lost.vnode.0, index))?;
                change.delete(Table::Dead, &dead_key(extent.segment, extent.offset))?;
            }
            Ok(())
        })
        .unwrap();
    (dir, partition, volume)
}

#[test]
fn lost_octets_are_given_back() {
    let (_dir, partition, volume) = with_lost();
    let before = assert_clean(&partition);
    assert!(before.lost_octets >= 900_000, "{before:?}");
    assert_eq!(before.reclaimed_octets, 0);
    partition.wait_reaped().unwrap();
    let (_, allocated) = partition.disk_usage().unwrap();

    let report = reclaim(&partition);
    assert!(report.is_clean());
    assert!(report.reclaimed_octets >= 900_000, "{report:?}");
    partition.wait_reaped().unwrap();
    let (_, now) = partition.disk_usage().unwrap();
    assert!(
        now + 800_000 < allocated,
        "{allocated} bytes before, {now} now"
    );
    let after = assert_clean(&partition);
    assert!(after.lost_octets < 100_000, "{after:?}");
    assert_eq!(reclaim(&partition).reclaimed_octets, 0);
    let kept = volume.lookup(volume.root(), b"kept").unwrap();
    assert!(volume.read_all(kept, 8 << 20).unwrap() == noise(4_000_000, 2));
}

#[test]
fn two_at_a_time_give_nothing_back_twice() {
    let (_dir, partition, _) = with_lost();
    std::thread::scope(|scope| {
        let checks: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| reclaim(&partition)))
            .collect();
        let given: u64 = checks
            .into_iter()
            .map(|check| check.join().unwrap().reclaimed_octets)
            .sum();
        assert!((900_000..1_000_000).contains(&given), "{given}");
    });
    partition.wait_reaped().unwrap();
    assert_clean(&partition);
}

#[test]
fn what_is_being_written_is_not_reclaimed() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    let made = volume
        .create_file(volume.root(), b"slow", &vnode())
        .unwrap()
        .vnode
        .fid;
    let data = noise(5_000_000, 4);
    let mut writer = volume.writer(made, 0, data.len() as u64).unwrap();
    writer.write(&data[..4_000_000]).unwrap();
    // Its bytes count as written once something behind them is committed.
    file(&volume, volume.root(), "other", &noise(3_000_000, 5));
    assert_eq!(reclaim(&partition).reclaimed_octets, 0);
    writer.write(&data[4_000_000..]).unwrap();
    writer.finish(&StoreOptions::default()).unwrap();
    assert!(volume.read_all(made, 8 << 20).unwrap() == data);
    assert_clean(&partition);

    // One that is given up is reaped as any other.
    let mut writer = volume.writer(made, 0, 3_000_000).unwrap();
    writer.write(&noise(3_000_000, 6)).unwrap();
    drop(writer);
    partition.wait_reaped().unwrap();
    assert_clean(&partition);
}

#[test]
fn a_scrub_keeps_to_its_rate_and_stops_when_told() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    let volume = volume(&partition, 1);
    file(&volume, volume.root(), "a", &noise(3_000_000, 1));
    let slow = ScrubOptions {
        octets_per_second: Some(4_000_000),
        ..ScrubOptions::default()
    };
    let since = Instant::now();
    let report = partition
        .scrub(&slow, &mut |_| std::ops::ControlFlow::Continue(()))
        .unwrap();
    // The first and the last record cost no waiting, and a tenth of a second is given.
    assert!(
        since.elapsed() > Duration::from_millis(500),
        "{:?}",
        since.elapsed()
    );
    assert!(report.is_clean() && report.octets >= 3_000_000 && report.records >= 23);

    let crawl = ScrubOptions {
        octets_per_second: Some(1_000),
        ..ScrubOptions::default()
    };
    let since = Instant::now();
    let mut asked = 0;
    let report = partition
        .scrub(&crawl, &mut |progress| {
            asked += u32::from(progress.stage == crate::Stage::Data);
            if asked < 3 {
                std::ops::ControlFlow::Continue(())
            } else {
                std::ops::ControlFlow::Break(())
            }
        })
        .unwrap();
    assert!(report.cancelled && report.octets < 1_000_000, "{report:?}");
    assert!(since.elapsed() < Duration::from_secs(10));
}

#[test]
fn checks_and_scrubs_go_on_beside_changes() {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    partition.set_dedup(true).unwrap();
    let volume = volume(&partition, 1);
    backup(&volume, 2);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(9);
            for step in 0..150_u64 {
                let name = format!("{}", step % 20);
                if step >= 20 {
                    volume.remove_file(volume.root(), name.as_bytes()).unwrap();
                }
                file(
                    &volume,
                    volume.root(),
                    &name,
                    &noise(200_000, random.u64(..8)),
                );
                if step % 10 == 9 {
                    volume.reclone(VolumeId(2)).unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut rounds = 0;
        while !done.load(std::sync::atomic::Ordering::SeqCst) || rounds == 0 {
            let report = reclaim(&partition);
            assert!(report.is_clean(), "{:#?}", report.problems);
            let scrub = partition
                .scrub(&ScrubOptions::default(), &mut |_| {
                    std::ops::ControlFlow::Continue(())
                })
                .unwrap();
            assert!(scrub.is_clean(), "{scrub:#?}");
            rounds += 1;
        }
    });
    partition.wait_reaped().unwrap();
    let report = assert_clean(&partition);
    let shared = partition.reader().unwrap().count(Table::Shared).unwrap();
    assert!(shared > 0, "{report:?}");
}
