//! The store on a disk that is full, bad, or has become read-only.

use std::time::Duration;

use afar_store::{Durability, StoreError};
use fastrand::Rng;

use crate::clients::{Clients, Failed};
use crate::crash::{CLIENTS, Run, compare, draw_points, mark_found, run_marked};
use crate::fault::{Call, Failure, Fault};
use crate::recorder::{Recorder, scratch};
use crate::{setting, subject};

/// Operations of each client before the disk fails.
const BEFORE: u32 = 15;

/// What can go wrong with a disk.
fn draw_fault(rng: &mut Rng) -> Fault {
    let (calls, failure) = match rng.u8(0..6) {
        0 | 1 => (
            vec![Call::Write, Call::Size, Call::Name],
            Failure::Error(libc::ENOSPC),
        ),
        2 => (vec![Call::Write], Failure::Error(libc::EIO)),
        3 => (vec![Call::Sync], Failure::Error(libc::EIO)),
        4 => (vec![Call::Write], Failure::Short),
        _ => (Vec::new(), Failure::Error(libc::EROFS)),
    };
    let suffix = match failure {
        Failure::Error(libc::EROFS) => "",
        _ => *rng.choice(&["", ".seg", "data.mdb"]).unwrap_or(&""),
    };
    let times = if rng.bool() { rng.u64(1..3) } else { u64::MAX };
    Fault {
        calls,
        suffix,
        after: rng.u64(0..80),
        times,
        failure,
    }
}

/// Has clients work on a disk that fails, then on the same disk mended, and loses power in the end.
/// Says whether an operation failed.
fn fail(seed: u64) -> Result<bool, String> {
    let mut rng = Rng::with_seed(seed);
    let fault = draw_fault(&mut rng);
    // Long enough in one round of eight for a checkpoint.
    let pause = Duration::from_millis(if rng.u8(0..8) == 0 { 70 } else { 0 });
    let mut failed = None;
    let dir = scratch();
    let run = Run::record(
        dir.path(),
        seed,
        Durability::Full,
        |recorder, partition, clients| {
            run_marked(recorder, &partition, clients, BEFORE, Duration::ZERO)?;
            recorder.inject(fault.clone());
            failed = run_marked(recorder, &partition, clients, BEFORE + 40, pause).err();
            recorder.heal();
            // LMDB gives nothing away any more after a failed write of its first pages. What could
            // not be made durable can be seen until the partition is opened again.
            if partition.volume_count().is_ok() {
                let seen = clients.clone().compare_contents(&partition, true);
                seen.map_err(|e| format!("still open: {e}"))?;
            }
            drop(partition);
            let partition = subject::open(dir.path()).map_err(|e| format!("opening again: {e}"))?;
            clients
                .compare(&partition, true)
                .map_err(|e| format!("opened again: {e}"))?;
            mark_found(recorder, clients);
            let further = clients.done().iter().max().copied().unwrap_or(0) + 5;
            run_marked(recorder, &partition, clients, further, Duration::ZERO)
                .map_err(|e| format!("mended: {e}"))?;
            clients
                .compare(&partition, false)
                .map_err(|e| format!("mended: {e}"))
        },
    );
    let told = |error| format!("{fault:?}, {failed:?}: {error}");
    let run = run.map_err(told)?;
    let mut points = draw_points(&run.log, 3, &mut rng);
    points.push(run.log.len());
    let lost = run.lose_power(&points, &mut rng, |image, made, clients, _| {
        compare(image, made, clients).map(drop)
    });
    lost.map_err(told)?;
    Ok(failed.is_some())
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_fails() {
    let faults = setting("AFAR_TEST_FAULTS", 24);
    let first = setting("AFAR_TEST_SEED", 1);
    let mut failed = 0;
    for seed in first..first + faults {
        match fail(seed) {
            Ok(did) => failed += u64::from(did),
            Err(error) => panic!(
                "{error}\nAgain: AFAR_TEST_SEED={seed} AFAR_TEST_FAULTS=1 \
                 cargo test -p afar-store --test power_loss failing::"
            ),
        }
    }
    assert!(
        faults == 1 || failed >= faults / 4,
        "only {failed} of {faults} faults were felt"
    );
}

/// A disk that was full for a while needs no restart.
#[test]
fn a_disk_with_room_again_is_written_to_again() {
    let first = setting("AFAR_TEST_SEED", 1);
    let mut full = 0;
    for seed in first..first + 10 {
        let mut rng = Rng::with_seed(seed);
        let dir = scratch();
        let recorder = Recorder::start(dir.path());
        let partition = subject::init(dir.path(), seed % 2 == 1, Durability::Full).unwrap();
        let mut clients = Clients::new(seed, CLIENTS);
        for round in 1..6 {
            recorder.inject(Fault {
                calls: vec![Call::Write, Call::Size, Call::Name],
                suffix: ".seg",
                after: rng.u64(0..10),
                times: rng.u64(1..4),
                failure: Failure::Error(libc::ENOSPC),
            });
            match clients.run(&partition, round * 20, |_, _| {}) {
                Ok(()) => {}
                Err(Failed {
                    error: StoreError::NoSpace(_),
                    ..
                }) => full += 1,
                Err(failed) => panic!("seed {seed}: {failed}"),
            }
            recorder.heal();
            clients.compare(&partition, false).unwrap();
        }
        clients.run(&partition, 120, |_, _| {}).unwrap();
        clients.compare(&partition, false).unwrap();
        drop(partition);
        recorder.stop().unwrap();
    }
    assert!(full > 10, "the disk was full {full} times only");
}
