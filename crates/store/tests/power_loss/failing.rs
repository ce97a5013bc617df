//! The store on a disk that is full, bad, or has become read-only.

use fastrand::Rng;

use crate::clients::Clients;
use crate::crash::{CLIENTS, MADE, acknowledged, examine, mark_of};
use crate::fault::{Call, Failure, Fault};
use crate::power_cut::PowerCut;
use crate::recorder::{Recorder, scratch};
use crate::{setting, subject};

/// Operations of each client before the disk fails.
const BEFORE: u32 = 15;

/// What can go wrong with a disk.
fn draw_fault(rng: &mut Rng) -> Fault {
    let (calls, failure) = match rng.u8(0..6) {
        0 | 1 => (vec![Call::Write, Call::Size, Call::Name], Failure::Error(libc::ENOSPC)),
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
    Fault { calls, suffix, after: rng.u64(0..80), times, failure }
}

/// Has clients work on a disk that fails, then on the same disk mended.
fn fail(seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    let partition = subject::init(dir.path()).map_err(|error| error.to_string())?;
    recorder.mark(MADE);
    let acknowledge = |client, done| recorder.mark(mark_of(client, done));
    let mut clients = Clients::new(seed, CLIENTS);
    clients.run(&partition, BEFORE, acknowledge)?;
    let fault = draw_fault(&mut rng);
    recorder.inject(fault.clone());
    let result = clients.run(&partition, BEFORE + 40, acknowledge);
    recorder.heal();
    let told = |what: &str, error| format!("{what}, after {fault:?} and {result:?}: {error}");
    drop(partition);
    let partition = subject::open(dir.path()).map_err(|e| told("opening", e.to_string()))?;
    clients.compare(&partition, true).map_err(|e| told("opened", e))?;
    let further = clients.done().iter().max().copied().unwrap_or(0) + 5;
    clients.run(&partition, further, acknowledge).map_err(|e| told("working on", e))?;
    clients.compare(&partition, false).map_err(|e| told("after working on", e))?;
    drop(partition);
    let log = recorder.stop()?;
    let mut power_cut = PowerCut::new(&log);
    let mut clients = Clients::new(seed, CLIENTS);
    let mut points = [rng.usize(0..=log.len()), rng.usize(0..=log.len()), log.len()];
    points.sort_unstable();
    for point in points {
        let (made, done) = acknowledged(&log, point);
        clients.advance(&done);
        let image = scratch();
        power_cut.image(point, rng.u64(..), image.path()).map_err(|e| e.to_string())?;
        examine(image.path(), made, &clients, 1)
            .map_err(|e| told(&format!("power lost at {point} of {}", log.len()), e))?;
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_fails() {
    let faults = setting("AFAR_TEST_FAULTS", 40);
    let first = setting("AFAR_TEST_SEED", 1);
    for seed in first..first + faults {
        if let Err(error) = fail(seed) {
            panic!(
                "{error}\nAgain: AFAR_TEST_SEED={seed} AFAR_TEST_FAULTS=1 \
                 cargo test -p afar-store --test power_loss failing::"
            );
        }
    }
}
