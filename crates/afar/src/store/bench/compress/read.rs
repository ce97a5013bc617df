//! Reading real data from the page cache.

use std::fs;

use afar_store::segment::Compression;
use afar_store::{Partition, PartitionOptions};
use anyhow::bail;

use super::mixed;
use crate::store::bench::data::{open_to_fill, volume_of};
use crate::store::bench::probe::{Found, Task};
use crate::store::bench::process::Probe;
use crate::store::bench::report::{Figure, Row};
use crate::store::bench::{Bench, progress};

/// Rounds in a run: neighbours are compared.
const ROUNDS: u32 = 3;
/// Reads at random places in a run.
const RANDOM: usize = 10_000;

/// Volumes that hold the same files, differently compressed, and how fast they are to be read.
const VOLUMES: [(u32, Option<Compression>, Option<f64>); 3] = [
    (1, Some(Compression::None), Some(0.8)),
    (2, Some(Compression::Lz4), None),
    // As usual.
    (3, None, Some(0.5)),
];

pub(in crate::store::bench) fn run(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let files = mixed(bench)?;
    let row = Row::new(
        "compress-read",
        "files of all sources, from the page cache, one reader",
    );
    if files.is_empty() {
        return Ok(vec![row.skipped("no --sources to take them from")]);
    }
    let place = bench.place("compress-read")?;
    let (plain, partition) = (place.join("plain"), place.join("partition"));
    fs::create_dir(&plain)?;
    for (number, file) in files.iter().enumerate() {
        fs::copy(file, plain.join(format!("f{number:08}")))?;
    }
    Partition::init(&partition, &PartitionOptions::default())?;
    {
        let partition = open_to_fill(&partition)?;
        for (id, compression, _) in VOLUMES {
            volume_of(&partition, id, &files, compression.unwrap_or_default())?;
        }
    }
    // A fresh process each time: it has decompressed nothing yet.
    let probe = |task: &Task| Probe::start(task)?.finish::<Found>();
    let bytes = probe(&Task::ReadPlain { dir: plain.clone() })?.bytes;
    let mut plain_rates = Vec::new();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); VOLUMES.len()];
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); VOLUMES.len()];
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); VOLUMES.len()];
    let mut repeats: Vec<Vec<f64>> = vec![Vec::new(); VOLUMES.len()];
    let rounds = bench.runs * ROUNDS;
    let bar = progress("rounds", u64::from(rounds) + 1);
    for round in 0..=rounds {
        for (index, (volume, ..)) in VOLUMES.into_iter().enumerate() {
            let theirs = probe(&Task::ReadPlain { dir: plain.clone() })?;
            let partition = partition.clone();
            let before = 0;
            let ours = probe(&Task::ReadVolume {
                partition: partition.clone(),
                volume,
                before,
            })?;
            // What was read is kept decompressed.
            let before = 1;
            let again = probe(&Task::ReadVolume {
                partition,
                volume,
                before,
            })?;
            if (ours.bytes, theirs.bytes) != (bytes, bytes) {
                bail!("afar read {} of {bytes} bytes", ours.bytes);
            }
            // The first round is to warm up.
            if round > 0 {
                plain_rates.push(bytes as f64 / 1e6 / theirs.reading);
                rates[index].push(bytes as f64 / 1e6 / ours.reading);
                ratios[index].push(theirs.reading / ours.reading);
                costs[index].push(theirs.processor / ours.processor);
                repeats[index].push(theirs.reading / again.reading);
            }
        }
        bar.advance(1);
    }
    drop(bar);
    let mut row = row
        .with(Figure::new("files", "", vec![files.len() as f64]))
        .with(Figure::new("bytes", "MB", vec![bytes as f64 / 1e6]))
        .with(Figure::new("plain files", "MB/s", plain_rates));
    for (index, (_, compression, goal)) in VOLUMES.into_iter().enumerate() {
        let name = name_of(compression);
        let take = |from: &mut Vec<Vec<f64>>| std::mem::take(&mut from[index]);
        let ratio = Figure::new(format!("{name} to plain"), "×", take(&mut ratios));
        let cost = format!("{name} to plain, by processor time");
        let again = format!("{name}, the second time, to plain");
        let again = Figure::new(again, "×", take(&mut repeats));
        row = row
            .with(Figure::new(&name, "MB/s", take(&mut rates)))
            .with(match goal {
                Some(goal) => ratio.at_least(goal),
                None => ratio,
            })
            .with(Figure::new(cost, "×", take(&mut costs)))
            .with(match goal {
                Some(goal) => again.at_least(goal),
                None => again,
            });
    }
    let mut random = Row::new(
        "compress-random",
        "4 KiB at random places of the same files, from the page cache",
    );
    for (volume, compression, _) in VOLUMES {
        let name = name_of(compression);
        let mut found = Vec::new();
        for _ in 0..bench.runs {
            let partition = partition.clone();
            let reads = RANDOM;
            found.push(
                probe(&Task::ReadRandom {
                    partition,
                    volume,
                    reads,
                })?
                .random,
            );
        }
        let each = |round: usize, which: usize| found.iter().map(|f| f[round][which]).collect();
        random = random
            .with(Figure::new(format!("{name}, median"), "us", each(0, 0)))
            .with(
                Figure::new(format!("{name}, 99 of 100 within"), "us", each(0, 1)).at_most(1_000.0),
            )
            .with(Figure::new(
                format!("{name}, again, median"),
                "us",
                each(1, 0),
            ))
            .with(Figure::new(
                format!("{name}, again, 99 of 100 within"),
                "us",
                each(1, 1),
            ));
    }
    Ok(vec![row, random])
}

fn name_of(compression: Option<Compression>) -> String {
    match compression.unwrap_or_default() {
        Compression::None => "raw".to_owned(),
        other => other.to_string(),
    }
}
