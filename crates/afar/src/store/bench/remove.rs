//! Removing volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use afar_store::{NewVolume, Partition, PartitionOptions, Volume};
use afar_types::{Fid, VolumeId};
use anyhow::{anyhow, bail};

use super::data::{FILLERS, fill_volume, new_volume, noise, open, open_to_fill, random_below};
use super::report::{Figure, Row, median, permille};
use super::{Bench, attach, progress};
use crate::units::grouped;

/// Volumes in the partition of few.
const FEW: u32 = 500;
/// Volumes removed from each in a run.
const REMOVED: u32 = 200;
/// Bytes of each file of the volume that is removed.
const FILE: usize = 16 << 10;
/// For how many slices another volume is read before.
const BEFORE: u32 = 6;
/// How long space may take to come back before the row fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Removes empty volumes, in turns from the partition of many and that of few.
pub(super) fn empty(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let place = bench.place("remove-empty")?;
    let many = bench.sizes.siblings;
    let mut partitions = Vec::new();
    for (name, volumes) in [("many", many), ("few", FEW)] {
        let path = place.join(name);
        Partition::init(&path, &PartitionOptions::default())?;
        let bar = progress("volumes", volumes.into());
        attach::fill(&path, 1..volumes + 1, VolumeId, &bar)?;
        partitions.push((open(&path)?, volumes));
    }
    let (mut of_many, mut of_few) = (Vec::new(), Vec::new());
    let (mut middle, mut worst, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    let mut state = 1;
    for _ in 0..bench.runs {
        of_many.clear();
        of_few.clear();
        for _ in 0..REMOVED {
            for (times, (partition, volumes)) in
                [&mut of_many, &mut of_few].into_iter().zip(&partitions)
            {
                let number = 1 + random_below(&mut state, u64::from(*volumes));
                let id = VolumeId(u32::try_from(number)?);
                let start = Instant::now();
                partition.remove_volume(id)?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
                // As many as before, for the next one.
                partition.create_volume(&NewVolume::new(id, format!("user.u{id}")))?;
            }
        }
        middle.push(median(&of_many));
        worst.push(permille(&of_many, 990));
        ratio.push(median(&of_many) / median(&of_few));
    }
    let title = format!("an empty volume of {}, durable", grouped(many.into()));
    Ok(vec![
        Row::new("remove-empty", title)
            .with(Figure::new("median", "ms", middle))
            .with(Figure::new("99 of 100 within", "ms", worst).at_most(20.0))
            .with(Figure::new(format!("medians, of {many} to of {FEW}"), "×", ratio).at_most(1.5)),
    ])
}

/// Removes a volume of many files, while another is read.
pub(super) fn full(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let place = bench.place("remove-full")?;
    let files = bench.sizes.files;
    Partition::init(&place, &PartitionOptions::default())?;
    let bar = progress("volumes", bench.sizes.siblings.into());
    attach::fill(&place, 100..bench.sizes.siblings + 100, VolumeId, &bar)?;
    drop(bar);
    let other = {
        let partition = open_to_fill(&place)?;
        let volume = partition.create_volume(&new_volume(1, "other"))?;
        let parts = bench.sizes.other;
        fill_volume(&volume, parts, FILLERS, |n| Ok(noise(1 << 20, n.into())))?
    };
    let (mut returned, mut back) = (Vec::new(), Vec::new());
    let (mut before, mut meanwhile, mut rise) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        let base = {
            let partition = open_to_fill(&place)?;
            partition.wait_reaped()?;
            let base = partition.disk_usage()?.1;
            let volume = partition.create_volume(&new_volume(2, "full"))?;
            fill_volume(&volume, files, FILLERS, |n| {
                Ok(noise(FILE, u64::from(n) + 1_000))
            })?;
            base
        };
        let removed = remove_one(&open(&place)?, base, &other, bench.sizes.slice * BEFORE)?;
        returned.push(removed.returned.as_secs_f64() * 1e3);
        back.push(removed.back.as_secs_f64());
        rise.push(removed.meanwhile / removed.before);
        before.push(removed.before);
        meanwhile.push(removed.meanwhile);
    }
    let title = format!("a volume of {} files of 16 KiB", grouped(files.into()));
    Ok(vec![
        Row::new("remove-full", title)
            .with(Figure::new("returned", "ms", returned).at_most(50.0))
            .with(Figure::new("all space back", "s", back).at_most(10.0))
            .with(Figure::new(
                "reads of another before, 99 of 100 within",
                "us",
                before,
            ))
            .with(Figure::new("meanwhile", "us", meanwhile))
            .with(Figure::new("meanwhile to before", "×", rise).at_most(2.0)),
    ])
}

/// What removing a volume did.
struct Removed {
    returned: Duration,
    back: Duration,
    /// Microseconds within which 99 of 100 reads were done.
    before: f64,
    meanwhile: f64,
}

fn remove_one(
    partition: &Arc<Partition>,
    base: u64,
    other: &[Fid],
    before: Duration,
) -> anyhow::Result<Removed> {
    let filled = partition.disk_usage()?.1;
    // Pages at the ends of what is removed can stay with their neighbours.
    let enough = base + (filled - base) / 100;
    let volume = partition.volume(VolumeId(1))?;
    let (removing, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(&volume, other, &removing, &done));
        let removed = (|| {
            thread::sleep(before);
            removing.store(true, Ordering::Relaxed);
            let start = Instant::now();
            partition.remove_volume(VolumeId(2))?;
            let returned = start.elapsed();
            while partition.disk_usage()?.1 > enough {
                if start.elapsed() > PATIENCE {
                    bail!(
                        "{} bytes do not come back",
                        partition.disk_usage()?.1 - enough
                    );
                }
                thread::sleep(Duration::from_millis(5));
            }
            Ok((returned, start.elapsed()))
        })();
        done.store(true, Ordering::Relaxed);
        let (before, meanwhile) = reader.join().map_err(|_| anyhow!("a thread panicked"))??;
        let (returned, back) = removed?;
        Ok(Removed {
            returned,
            back,
            before: permille(&before, 990),
            meanwhile: permille(&meanwhile, 990),
        })
    })
}

/// Reads 4 KiB here and there until told to stop; microseconds of reads before and while a volume
/// is removed.
fn read_on(
    volume: &Volume,
    files: &[Fid],
    removing: &AtomicBool,
    done: &AtomicBool,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut before, mut meanwhile) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 4096];
    let mut state = 7;
    while !done.load(Ordering::Relaxed) {
        let times = if removing.load(Ordering::Relaxed) {
            &mut meanwhile
        } else {
            &mut before
        };
        let file = usize::try_from(random_below(&mut state, files.len() as u64))?;
        let offset = random_below(&mut state, 256) * 4096;
        let start = Instant::now();
        volume.read(files[file], offset, &mut buffer)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok((before, meanwhile))
}
