//! Reading real data from a slow medium.

use std::fs;

use afar_store::segment::Compression;
use afar_store::{Partition, PartitionOptions};
use anyhow::{anyhow, bail};

use super::mixed;
use crate::store::bench::Bench;
use crate::store::bench::data::{open_to_fill, volume_of};
use crate::store::bench::medium::Medium;
use crate::store::bench::probe::{Found, Task};
use crate::store::bench::process::{Probe, make_cold};
use crate::store::bench::report::{Figure, Row};

pub(in crate::store::bench) fn run(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let rate = bench.sizes.medium;
    let title = format!(
        "files of all sources, from a medium held to {} MB/s",
        rate / 1_000_000
    );
    let row = Row::new("compress-medium", title);
    let place = bench.place("compress-medium")?;
    let medium = match Medium::make(&place, rate) {
        Ok(medium) => medium,
        Err(why) => return Ok(vec![row.skipped(why)]),
    };
    let files = mixed(bench)?;
    if files.is_empty() {
        return Ok(vec![row.skipped("no --sources to take them from")]);
    }
    let (plain, partition) = (place.join("plain"), place.join("partition"));
    fs::create_dir(&plain)?;
    for (number, file) in files.iter().enumerate() {
        fs::copy(file, plain.join(format!("f{number:08}")))?;
    }
    Partition::init(&partition, &PartitionOptions::default())?;
    volume_of(
        &open_to_fill(&partition)?,
        1,
        &files,
        Compression::default(),
    )?;
    let held = |task: &Task| -> anyhow::Result<Found> {
        make_cold(&place)?;
        let probe = Probe::start(task)?;
        medium.hold(probe.pid()).map_err(|why| anyhow!(why))?;
        probe.finish()
    };
    let (mut plain_rates, mut rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        let theirs = held(&Task::ReadPlain { dir: plain.clone() })?;
        let ours = held(&Task::ReadVolume {
            partition: partition.clone(),
            volume: 1,
            before: 0,
        })?;
        if ours.bytes != theirs.bytes {
            bail!("afar read {} of {} bytes", ours.bytes, theirs.bytes);
        }
        plain_rates.push(theirs.bytes as f64 / 1e6 / theirs.seconds);
        rates.push(ours.bytes as f64 / 1e6 / ours.seconds);
        ratios.push(theirs.seconds / ours.seconds);
    }
    Ok(vec![
        row.with(Figure::new("plain files", "MB/s", plain_rates))
            .with(Figure::new(
                Compression::default().to_string(),
                "MB/s",
                rates,
            ))
            .with(Figure::new("ratio", "×", ratios).at_least(1.5)),
    ])
}
