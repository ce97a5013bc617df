//! The store after power was lost at any moment.

use std::path::Path;

use fastrand::Rng;

use crate::clients::Clients;
use crate::power_cut::PowerCut;
use crate::recorder::{Log, Recorder, scratch};
use crate::{setting, subject};

/// Clients at work at a time.
pub(crate) const CLIENTS: u32 = 3;
/// Says that the partition was made.
pub(crate) const MADE: u64 = u64::MAX;

/// Records clients at work, from the making of the partition on.
fn record(seed: u64, steps: u32) -> Log {
    let dir = scratch();
    let recorder = Recorder::start(dir.path());
    let partition = subject::init(dir.path()).unwrap();
    recorder.mark(MADE);
    let acknowledge = |client, done| recorder.mark(mark_of(client, done));
    Clients::new(seed, CLIENTS).run(&partition, steps, acknowledge).unwrap();
    drop(partition);
    recorder.stop().unwrap()
}

/// The remark that an operation of a client was acknowledged.
pub(crate) fn mark_of(client: usize, done: u32) -> u64 {
    (client as u64) << 32 | u64::from(done)
}

/// What was acknowledged before a point: whether the partition was made, and how many operations
/// of each client.
pub(crate) fn acknowledged(log: &Log, point: usize) -> (bool, Vec<u32>) {
    let mut made = false;
    let mut done = vec![0; CLIENTS as usize];
    for mark in log.marks(point) {
        if mark == MADE {
            made = true;
        } else {
            done[(mark >> 32) as usize] = u32::try_from(mark & u64::from(u32::MAX)).unwrap();
        }
    }
    (made, done)
}

/// Opens what power loss left, compares it with the model, and now and then works on.
pub(crate) fn examine(image: &Path, made: bool, clients: &Clients, seed: u64) -> Result<(), String> {
    let partition = match subject::open(image) {
        Ok(partition) => partition,
        // Before the partition was made there may be none.
        Err(_) if !made => return Ok(()),
        Err(error) => return Err(format!("cannot be opened: {error}")),
    };
    let mut clients = clients.clone();
    clients.compare(&partition, true)?;
    if seed.is_multiple_of(8) {
        let further = clients.done().iter().max().unwrap() + 10;
        clients.run(&partition, further, |_, _| {}).map_err(|error| format!("working on: {error}"))?;
        partition.wait_reaped().map_err(|error| format!("after working on: {error}"))?;
        clients.compare(&partition, false).map_err(|error| format!("after working on: {error}"))?;
        drop(partition);
        let partition = subject::open(image).map_err(|error| format!("opening again: {error}"))?;
        clients.compare(&partition, false).map_err(|error| format!("opened again: {error}"))?;
    }
    Ok(())
}

/// Loses power at so many points of a workload.
fn lose_power(seed: u64, steps: u32, points: usize) {
    let log = record(seed, steps);
    let mut rng = Rng::with_seed(seed);
    let mut places: Vec<usize> = (0..points).map(|_| rng.usize(0..=log.len())).collect();
    places.sort_unstable();
    let mut power_cut = PowerCut::new(&log);
    let mut clients = Clients::new(seed, CLIENTS);
    for point in places {
        let choice = rng.u64(..);
        let (made, done) = acknowledged(&log, point);
        clients.advance(&done);
        let image = scratch();
        power_cut.image(point, choice, image.path()).unwrap();
        if let Err(error) = examine(image.path(), made, &clients, choice) {
            let kept = image.keep();
            panic!(
                "power lost at event {point} of {}, choice {choice}: {error}\n\
                 What was on disk, used since: {}\n\
                 Again: AFAR_TEST_SEED={seed} AFAR_TEST_CRASH_POINTS={points} \
                 cargo test -p afar-store --test power_loss crash::",
                log.len(),
                kept.display(),
            );
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power() {
    let points = setting("AFAR_TEST_CRASH_POINTS", 150_usize);
    let seed = setting("AFAR_TEST_SEED", 1);
    // A workload's log grows with its steps, so many points are spread over several workloads.
    let workloads = points.div_ceil(500);
    for workload in 0..workloads {
        lose_power(seed + workload as u64, 150, points / workloads);
    }
}
