//! The store where it was told to promise less: what it may lose with the power, and what not.

use std::time::Duration;

use afar_store::{Durability, ProblemKind};
use fastrand::Rng;

use crate::clients::History;
use crate::crash::{CLIENTS, Run, draw_points, run_marked};
use crate::recorder::scratch;
use crate::{setting, subject};

const STEPS: u32 = 100;
/// Of each client after each operation, so that there is time for checkpoints.
const PAUSE: Duration = Duration::from_millis(40);

/// Loses power at points of a workload. With `Metadata` all names and attributes that were
/// acknowledged are there, with `Async` those of some moment before; in both, data is right or
/// cannot be read, and nothing else is damaged. Says how often operations and data were lost.
fn lose_power(seed: u64, durability: Durability, points: usize) -> Result<(usize, usize), String> {
    let mut rng = Rng::with_seed(seed);
    let dir = scratch();
    let run = Run::record(
        dir.path(),
        seed,
        durability,
        |recorder, partition, clients| run_marked(recorder, &partition, clients, STEPS, PAUSE),
    )?;
    let history = History::new(seed, CLIENTS, STEPS);
    let (mut earlier, mut damaged) = (0, 0);
    let places = draw_points(&run.log, points, &mut rng);
    run.lose_power(&places, &mut rng, |image, made, clients, _| {
        let partition = match subject::open(image) {
            Ok(partition) => partition,
            Err(_) if !made => return Ok(()),
            Err(error) => return Err(format!("cannot be opened: {error}")),
        };
        let problems = subject::problems(&partition).map_err(|error| error.to_string())?;
        let data = [ProblemKind::Data, ProblemKind::Segment];
        if let Some(problem) = problems
            .iter()
            .find(|problem| !data.contains(&problem.kind))
        {
            return Err(problem.to_string());
        }
        damaged += usize::from(!problems.is_empty());
        let most: Vec<u32> = clients.done().iter().map(|done| done + 1).collect();
        let found = history.find(subject::contents(&partition)?, &most)?;
        let lost = found
            .iter()
            .zip(clients.done())
            .any(|(found, done)| found < done);
        if lost && durability == Durability::Metadata {
            return Err(format!(
                "of {:?} operations {found:?} are there",
                clients.done()
            ));
        }
        earlier += usize::from(lost);
        Ok(())
    })?;
    Ok((earlier, damaged))
}

fn lose_power_often(durability: Durability) -> (usize, usize) {
    let seed = setting("AFAR_TEST_SEED", 1);
    let points = setting("AFAR_TEST_CRASH_POINTS", 120) / 3;
    lose_power(seed, durability, points).unwrap_or_else(|error| {
        panic!(
            "{error}\nAgain: AFAR_TEST_SEED={seed} AFAR_TEST_CRASH_POINTS={} \
             cargo test -p afar-store --test power_loss relaxed::",
            points * 3
        )
    })
}

#[test]
fn names_survive_where_metadata_is_durable() {
    let (_, damaged) = lose_power_often(Durability::Metadata);
    assert!(
        damaged > 0,
        "data was lost in no image: the disk is not what it should be"
    );
}

#[test]
fn an_earlier_state_survives_where_nothing_is_durable() {
    let (earlier, _) = lose_power_often(Durability::Async);
    assert!(
        earlier > 0,
        "operations were lost in no image: the disk is not what it should be"
    );
}
