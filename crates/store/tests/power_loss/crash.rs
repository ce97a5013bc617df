//! The store after power was lost at any moment.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use afar_store::{Durability, Partition};
use fastrand::Rng;

use crate::clients::Clients;
use crate::event::Event;
use crate::power_cut::PowerCut;
use crate::recorder::{Log, Recorder, scratch};
use crate::{setting, subject};

/// Clients at work at a time.
pub(crate) const CLIENTS: u32 = 3;
/// Operations of each client.
const STEPS: u32 = 160;
/// Of each client after each operation, so that there is time for checkpoints.
const PAUSE: Duration = Duration::from_millis(25);
/// Says that the partition was made.
const MADE: u64 = u64::MAX;

/// What clients did while it was recorded.
pub(crate) struct Run {
    pub(crate) log: Log,
    /// As they were at the beginning.
    clients: Clients,
    /// The partition was there already.
    made: bool,
}

impl Run {
    /// Records clients at work, from the making of the partition on. It stores equal records once
    /// for every other seed.
    pub(crate) fn record(
        dir: &Path,
        seed: u64,
        durability: Durability,
        work: impl FnOnce(&Recorder, Arc<Partition>, &mut Clients) -> Result<(), String>,
    ) -> Result<Self, String> {
        let clients = Clients::new(seed, CLIENTS);
        let recorder = Recorder::start(dir);
        let partition =
            subject::init(dir, seed % 2 == 1, durability).map_err(|error| error.to_string())?;
        recorder.mark(MADE);
        work(&recorder, partition, &mut clients.clone())?;
        Ok(Self {
            log: recorder.stop()?,
            clients,
            made: false,
        })
    }

    /// Records clients that go on on a partition that was closed.
    pub(crate) fn record_further(
        dir: &Path,
        clients: &Clients,
        steps: u32,
    ) -> Result<Self, String> {
        let recorder = Recorder::start(dir);
        let partition = subject::open(dir).map_err(|error| error.to_string())?;
        run_marked(
            &recorder,
            &partition,
            &mut clients.clone(),
            steps,
            Duration::ZERO,
        )?;
        drop(partition);
        Ok(Self {
            log: recorder.stop()?,
            clients: clients.clone(),
            made: true,
        })
    }

    /// Before a point, whether the partition was made, and what clients had done.
    fn acknowledged(&self, point: usize) -> (bool, Vec<u32>) {
        let mut made = self.made;
        let mut done = self.clients.done().to_vec();
        for mark in self.log.marks(point) {
            if mark == MADE {
                made = true;
            } else {
                let number = u32::try_from(mark & u64::from(u32::MAX));
                done[(mark >> 32) as usize] = number.expect("32 bits");
            }
        }
        (made, done)
    }

    /// Loses power at points, which are in order, and hands each image with what was acknowledged
    /// to a test.
    ///
    /// # Errors
    ///
    /// What the test says, and where; the image is kept then.
    pub(crate) fn lose_power(
        &self,
        points: &[usize],
        rng: &mut Rng,
        mut test: impl FnMut(&Path, bool, &mut Clients, u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut power_cut = PowerCut::new(&self.log);
        let mut clients = self.clients.clone();
        for &point in points {
            let choice = rng.u64(..);
            let (made, done) = self.acknowledged(point);
            clients.advance(&done);
            let image = scratch();
            let saved = power_cut.image(point, choice, image.path());
            saved.map_err(|error| format!("an image cannot be written: {error}"))?;
            if let Err(error) = test(image.path(), made, &mut clients.clone(), choice) {
                let len = self.log.len();
                let kept = image.keep();
                return Err(format!(
                    "power lost at event {point} of {len}, choice {choice}, see {}: {error}",
                    kept.display()
                ));
            }
        }
        Ok(())
    }
}

/// The remark that a client has done so many operations.
fn mark_of(client: usize, done: u32) -> u64 {
    (client as u64) << 32 | u64::from(done)
}

/// Marks in the log what was found done, acknowledged or not.
pub(crate) fn mark_found(recorder: &Recorder, clients: &Clients) {
    for (client, done) in clients.done().iter().enumerate() {
        recorder.mark(mark_of(client, *done));
    }
}

/// Has clients work, and marks in the log what was acknowledged. Each client pauses after each
/// operation.
pub(crate) fn run_marked(
    recorder: &Recorder,
    partition: &Arc<Partition>,
    clients: &mut Clients,
    steps: u32,
    pause: Duration,
) -> Result<(), String> {
    let acknowledge = |client: usize, done: u32| {
        recorder.mark(mark_of(client, done));
        thread::sleep(pause);
    };
    clients
        .run(partition, steps, acknowledge)
        .map_err(|error| error.to_string())
}

/// Points of a log, in order. A fifth of them is around checkpoints, which take few events.
pub(crate) fn draw_points(log: &Log, count: usize, rng: &mut Rng) -> Vec<usize> {
    let checkpoints = log.writes_to("base.");
    let mut points: Vec<usize> = (0..count)
        .map(|_| match rng.choice(&checkpoints) {
            Some(write) if rng.u8(0..5) == 0 => (write + rng.usize(0..10)).saturating_sub(5),
            _ => rng.usize(0..=log.len()),
        })
        .map(|point| point.min(log.len()))
        .collect();
    points.sort_unstable();
    points
}

/// Opens what power loss left and compares it with the model, which takes what it finds. Says
/// whether there is a partition.
pub(crate) fn compare(image: &Path, made: bool, clients: &mut Clients) -> Result<bool, String> {
    let partition = match subject::open(image) {
        Ok(partition) => partition,
        // Before the partition was made there may be none.
        Err(_) if !made => return Ok(false),
        Err(error) => return Err(format!("cannot be opened: {error}")),
    };
    clients.compare(&partition, true)?;
    Ok(true)
}

/// Goes on working where power was lost.
fn work_on(image: &Path, clients: &mut Clients) -> Result<(), String> {
    let steps = clients.done().iter().max().copied().unwrap_or(0) + 10;
    let partition = subject::open(image).map_err(|error| error.to_string())?;
    clients
        .run(&partition, steps, |_, _| {})
        .map_err(|error| error.to_string())?;
    partition.wait_reaped().map_err(|error| error.to_string())?;
    clients.compare(&partition, false)?;
    drop(partition);
    let partition = subject::open(image).map_err(|error| format!("opening again: {error}"))?;
    clients
        .compare(&partition, false)
        .map_err(|error| format!("opened again: {error}"))
}

/// Goes on working where power was lost, and loses it again.
fn lose_power_again(image: &Path, clients: &Clients, rng: &mut Rng) -> Result<(), String> {
    let steps = clients.done().iter().max().copied().unwrap_or(0) + 3;
    let run = Run::record_further(image, clients, steps)?;
    let points = draw_points(&run.log, 3, rng);
    run.lose_power(&points, rng, |image, made, clients, _| {
        compare(image, made, clients).map(drop)
    })
}

/// Loses power at so many points of a workload.
fn lose_power(seed: u64, points: usize) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let dir = scratch();
    let work = |recorder: &Recorder, partition: Arc<Partition>, clients: &mut Clients| {
        run_marked(recorder, &partition, clients, STEPS / 2, PAUSE)?;
        drop(partition);
        let partition = subject::open(dir.path()).map_err(|error| error.to_string())?;
        run_marked(recorder, &partition, clients, STEPS, PAUSE)
    };
    let run = Run::record(dir.path(), seed, Durability::Full, work)?;
    let holes = run.log.count(|event| matches!(event, Event::Zero { .. }));
    let removed = run.log.count(|event| matches!(event, Event::Unlink { .. }));
    // Opening and closing twice make two each.
    let checkpoints = run.log.writes_to("base.").len().saturating_sub(4);
    if holes < 10 || removed == 0 || checkpoints == 0 {
        return Err(format!(
            "only {holes} holes, {removed} segments removed, {checkpoints} checkpoints"
        ));
    }
    let places = draw_points(&run.log, points, &mut rng);
    let mut further = rng.fork();
    run.lose_power(&places, &mut rng, |image, made, clients, choice| {
        if !compare(image, made, clients)? {
            return Ok(());
        }
        match choice % 16 {
            0 | 1 => work_on(image, clients).map_err(|error| format!("working on: {error}")),
            2 => lose_power_again(image, clients, &mut further)
                .map_err(|error| format!("working on, and once more: {error}")),
            _ => Ok(()),
        }
    })
}

/// Many points are spread over several workloads.
fn lose_power_often(points: usize) {
    let first = setting("AFAR_TEST_SEED", 1);
    let workloads = points.div_ceil(500);
    for seed in first..first + workloads as u64 {
        let points = points / workloads;
        if let Err(error) = lose_power(seed, points) {
            panic!(
                "{error}\nAgain: AFAR_TEST_SEED={seed} AFAR_TEST_CRASH_POINTS={points} \
                 cargo test -p afar-store --test power_loss crash::"
            );
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power() {
    lose_power_often(setting("AFAR_TEST_CRASH_POINTS", 120));
}
