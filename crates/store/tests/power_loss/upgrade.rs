//! Power lost while a partition of an older format is brought up to date.

use std::fs;

use fastrand::Rng;

use crate::clients::Clients;
use crate::crash::{CLIENTS, Run, compare, draw_points};
use crate::recorder::scratch;
use crate::subject;

/// Operations of each client with the older format, and then.
const STEPS: (u32, u32) = (40, 44);
/// Events from the beginning of which each is a point: those of opening.
const OPENING: usize = 60;
/// Points after that.
const POINTS: usize = 40;

/// Opens a partition as a version left it, and loses power at each moment of that and at some of the work after it.
fn lose_power(version: u32) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    let mut rng = Rng::with_seed(version.into());
    let dir = scratch();
    let mut clients = Clients::new(version.into(), CLIENTS);
    let partition = subject::init(dir.path(), false, afar_store::Durability::Full);
    let partition = partition.map_err(|error| error.to_string())?;
    let done = clients.run(&partition, STEPS.0, |_, _| {});
    done.map_err(|error| error.to_string())?;
    drop(partition);
    let current = fs::read_to_string(dir.path().join("format")).map_err(said)?;
    let older = format!("afar-store {version}\n");
    assert_ne!(current, older);
    fs::write(dir.path().join("format"), older).map_err(said)?;

    let run = Run::record_further(dir.path(), &clients, STEPS.1)?;
    let mut points = draw_points(&run.log, POINTS, &mut rng);
    points.extend(0..run.log.len().min(OPENING));
    points.sort_unstable();
    run.lose_power(&points, &mut rng, |image, made, clients, _| {
        compare(image, made, clients)?;
        let format = fs::read_to_string(image.join("format")).map_err(said)?;
        (format == current)
            .then_some(())
            .ok_or_else(|| format!("its format is {format:?}"))
    })
}

#[test]
fn an_older_partition_survives_power_loss_while_it_is_brought_up_to_date() {
    for version in [1, 2] {
        if let Err(error) = lose_power(version) {
            panic!("version {version}: {error}");
        }
    }
}
