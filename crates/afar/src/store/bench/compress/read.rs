//! Reading real data from the page cache.

use std::fs;
use std::time::Instant;

use afar_store::segment::Compression;
use afar_store::{Partition, PartitionOptions, Volume};
use afar_types::Fid;
use anyhow::bail;

use super::mixed;
use crate::rxperf::units::grouped;
use crate::store::bench::data::{
    open, open_to_fill, random_below, read_file, read_vnode, volume_of,
};
use crate::store::bench::report::{Figure, Row, permille};
use crate::store::bench::{Bench, progress};

/// Rounds in a run: neighbours are compared.
const ROUNDS: u32 = 3;
/// Reads at random places in a run.
const RANDOM: u32 = 10_000;

/// Volumes that hold the same files, differently compressed.
const VOLUMES: [(u32, Compression, &str, Option<f64>); 3] = [
    (1, Compression::None, "raw", Some(0.8)),
    (2, Compression::Lz4, "lz4", None),
    (3, Compression::Zstd(3), "zstd:3", Some(0.5)),
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
    let (plain_dir, path) = (place.join("plain"), place.join("partition"));
    fs::create_dir(&plain_dir)?;
    let mut plain = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let copy = plain_dir.join(format!("f{number:08}"));
        fs::copy(file, &copy)?;
        plain.push(copy);
    }
    Partition::init(&path, &PartitionOptions::default())?;
    {
        let partition = open_to_fill(&path)?;
        for (id, compression, ..) in VOLUMES {
            volume_of(&partition, id, &plain, compression)?;
        }
    }
    let partition = open(&path)?;
    let mut volumes = Vec::new();
    for (id, ..) in VOLUMES {
        let volume = partition.volume(afar_types::VolumeId(id))?;
        let fids = crate::store::bench::data::files_of(&volume)?;
        volumes.push((volume, fids));
    }
    let mut buffer = vec![0; 1 << 20];
    let mut read_all_plain = || {
        plain.iter().try_fold(0, |sum, path| {
            anyhow::Ok(sum + read_file(path, &mut buffer)?)
        })
    };
    let octets = read_all_plain()?;
    let mut plain_rates = Vec::new();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); VOLUMES.len()];
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); VOLUMES.len()];
    let rounds = bench.runs * ROUNDS;
    let bar = progress("rounds", u64::from(rounds));
    for round in 0..=rounds {
        for (index, (volume, fids)) in volumes.iter().enumerate() {
            let start = Instant::now();
            read_all_plain()?;
            let plain = start.elapsed().as_secs_f64();
            let start = Instant::now();
            let read = read_all(volume, fids)?;
            let ours = start.elapsed().as_secs_f64();
            if read != octets {
                bail!("{read} octets of {octets} were read");
            }
            // The first round is to warm up.
            if round > 0 {
                plain_rates.push(octets as f64 / 1e6 / plain);
                rates[index].push(octets as f64 / 1e6 / ours);
                ratios[index].push(plain / ours);
            }
        }
        bar.advance(u64::from(round > 0));
    }
    drop(bar);
    let mut row = row
        .with(Figure::new("files", "", vec![plain.len() as f64]))
        .with(Figure::new("octets", "MB", vec![octets as f64 / 1e6]))
        .with(Figure::new("plain files", "MB/s", plain_rates));
    for ((rates, ratios), (.., name, goal)) in rates.into_iter().zip(ratios).zip(VOLUMES) {
        let ratio = Figure::new(format!("{name} to plain"), "×", ratios);
        row = row.with(Figure::new(name, "MB/s", rates)).with(match goal {
            Some(goal) => ratio.at_least(goal),
            None => ratio,
        });
    }
    let mut random = Row::new(
        "compress-random",
        format!(
            "4 KiB at random places of {} octets, from the page cache",
            grouped(octets)
        ),
    );
    for ((volume, fids), (.., name, _)) in volumes.iter().zip(VOLUMES) {
        random = random_reads(bench, volume, fids, name, random)?;
    }
    Ok(vec![row, random])
}

fn read_all(volume: &Volume, fids: &[Fid]) -> anyhow::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    fids.iter().try_fold(0, |sum, fid| {
        Ok(sum + read_vnode(volume, *fid, &mut buffer)?)
    })
}

/// Reads 4 KiB at places that are as likely everywhere in the data.
fn random_reads(
    bench: &Bench,
    volume: &Volume,
    fids: &[Fid],
    name: &str,
    row: Row,
) -> anyhow::Result<Row> {
    let mut ends = Vec::new();
    let mut end = 0;
    for fid in fids {
        end += volume.status(*fid)?.length;
        ends.push(end);
    }
    let (mut middle, mut worst) = (Vec::new(), Vec::new());
    let mut state = 11;
    let mut buffer = vec![0; 4096];
    for _ in 0..bench.runs {
        let mut times = Vec::new();
        for _ in 0..RANDOM {
            let place = random_below(&mut state, end);
            let file = ends.partition_point(|end| *end <= place);
            let begin = if file == 0 { 0 } else { ends[file - 1] };
            let offset = (place - begin) & !4095;
            let start = Instant::now();
            volume.read(fids[file], offset, &mut buffer)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        middle.push(permille(&times, 500));
        worst.push(permille(&times, 990));
    }
    Ok(row
        .with(Figure::new(format!("{name}, median"), "us", middle))
        .with(Figure::new(format!("{name}, 99 of 100 within"), "us", worst).at_most(1_000.0)))
}
