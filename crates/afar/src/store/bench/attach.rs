//! Opening partitions with few and with very many volumes.

use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use afar_store::{NewVolume, Partition, PartitionOptions};
use afar_types::VolumeId;
use anyhow::{anyhow, bail};

use super::probe::{Found, Task};
use super::process::{Probe, afar, make_cold};
use super::report::{Figure, Row};
use super::{Bench, progress};
use crate::store::progress::Progress;
use crate::units::grouped;

/// Volumes made in one step.
const STEP: u32 = 1_000;
/// How many volumes there are on the way to the most.
const CURVE: [u32; 3] = [10, 1_000, 100_000];

pub(super) fn run(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let place = bench.place("attach")?;
    let names = (0..bench.sizes.partitions).map(|number| place.join(format!("p{number}")));
    let paths: Vec<PathBuf> = names.collect();
    for path in &paths {
        Partition::init(path, &PartitionOptions::default())?;
    }
    let most = bench.sizes.volumes;
    let mut curve: Vec<u32> = CURVE
        .into_iter()
        .filter(|volumes| *volumes < most)
        .collect();
    curve.push(most);
    let mut rows = Vec::new();
    let mut there = 0;
    for volumes in curve {
        let start = Instant::now();
        make(&paths, there, volumes)?;
        let rate = f64::from(volumes - there) / start.elapsed().as_secs_f64();
        there = volumes;
        rows.push(measure(bench, &paths, volumes, rate)?);
    }
    Ok(rows)
}

/// The number of a partition's volume.
fn id(partition: usize, number: u32) -> VolumeId {
    let partition = u32::try_from(partition).unwrap_or(0);
    VolumeId(536_870_912 + partition * 100_000_000 + number)
}

/// How many of so many volumes are in one of the partitions.
fn share(volumes: u32, partition: usize, partitions: usize) -> u32 {
    let partition = u32::try_from(partition).unwrap_or(0);
    let partitions = u32::try_from(partitions).unwrap_or(1);
    volumes / partitions + u32::from(partition < volumes % partitions)
}

/// Makes volumes until there are so many, in all partitions at once.
fn make(paths: &[PathBuf], there: u32, volumes: u32) -> anyhow::Result<()> {
    let bar = progress("volumes", (volumes - there).into());
    thread::scope(|scope| {
        let makers: Vec<_> = paths
            .iter()
            .enumerate()
            .map(|(partition, path)| {
                let from = share(there, partition, paths.len());
                let to = share(volumes, partition, paths.len());
                let bar = &bar;
                scope.spawn(move || fill(path, from..to, |n| id(partition, n), bar))
            })
            .collect();
        for maker in makers {
            maker.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(())
    })
}

/// Makes empty volumes.
pub(super) fn fill(
    path: &std::path::Path,
    numbers: std::ops::Range<u32>,
    id: impl Fn(u32) -> VolumeId,
    bar: &Progress,
) -> anyhow::Result<()> {
    let partition = Partition::open(path, &PartitionOptions::default())?;
    let mut next = numbers.start;
    while next < numbers.end {
        let end = numbers.end.min(next + STEP);
        let new: Vec<NewVolume> = (next..end)
            .map(|number| NewVolume::new(id(number), format!("user.u{number}")))
            .collect();
        partition.create_volumes(&new)?;
        bar.advance((end - next).into());
        next = end;
    }
    Ok(())
}

fn measure(bench: &Bench, paths: &[PathBuf], volumes: u32, rate: f64) -> anyhow::Result<Row> {
    // The last partition's last volume: nobody looked at it since it was made.
    let holders = paths
        .len()
        .min(usize::try_from(volumes).unwrap_or(usize::MAX));
    let last = holders - 1;
    let volume = id(last, share(volumes, last, paths.len()) - 1);
    let (mut served, mut opened, mut resident, mut anonymous, mut listed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.runs {
        cold(paths)?;
        let start = Instant::now();
        let probe = Probe::start(&Task::Attach {
            partitions: paths[..holders].to_vec(),
            volume: volume.0,
        })?;
        let found: Found = probe.finish()?;
        served.push(start.elapsed().as_secs_f64() * 1e3);
        opened.push(found.seconds * 1e3);
        resident.push(found.resident as f64 / 1e6);
        anonymous.push(found.anonymous as f64 / 1e6);
        cold(paths)?;
        let start = Instant::now();
        let status = afar()?
            .arg("list")
            .args(paths)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("`afar store list`: {status}");
        }
        listed.push(start.elapsed().as_secs_f64());
    }
    let title = format!(
        "{} volumes in {} partitions",
        grouped(volumes.into()),
        paths.len()
    );
    Ok(Row::new(format!("attach-{volumes}"), title)
        .with(Figure::new("process started to first volume served", "ms", served).at_most(1e3))
        .with(Figure::new(
            "partitions opened to first volume served",
            "ms",
            opened,
        ))
        .with(Figure::new("resident memory then", "MB", resident).at_most(200.0))
        .with(Figure::new("of that, not files", "MB", anonymous))
        .with(Figure::new("all listed", "s", listed).at_most(10.0))
        .with(Figure::new("volumes made", "1/s", vec![rate])))
}

fn cold(paths: &[PathBuf]) -> anyhow::Result<()> {
    paths.iter().try_for_each(|path| make_cold(path))
}
