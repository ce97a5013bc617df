//! Cloning a large volume, and dumping what changed since.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use afar_store::{DumpOptions, NewClone, Partition, PartitionOptions, StoreOptions, Volume};
use afar_types::{Fid, UnixTime, VolumeId, VolumeType};

use super::Bench;
use super::data::{FILLERS, fill_volume, new_volume, noise, open, open_to_fill};
use super::report::{Figure, Row};
use crate::units::grouped;

/// Bytes of each file: too many to be kept in the database.
const FILE: usize = 4 << 10;
/// Clones made in a run.
const CLONES: u32 = 5;

pub(super) fn run(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let place = bench.place("clone")?;
    let files = bench.sizes.clone_files;
    Partition::init(&place, &PartitionOptions::default())?;
    let fids = {
        let partition = open_to_fill(&place)?;
        let volume = partition.create_volume(&new_volume(1, "large"))?;
        fill_volume(&volume, files, FILLERS, |n| Ok(noise(FILE, n.into())))?
    };
    let partition = open(&place)?;
    let volume = partition.volume(VolumeId(1))?;
    let mut clones = Vec::new();
    for number in 0..bench.runs * CLONES {
        let id = VolumeId(2 + number);
        let new = NewClone::new(id, format!("large.{number}"), VolumeType::ReadOnly);
        let start = Instant::now();
        volume.make_clone(&new)?;
        clones.push(start.elapsed().as_secs_f64() * 1e3);
        // The next one freezes something new.
        let data = noise(FILE, u64::from(number) + 1);
        volume.write(fids[0], 0, &data, &StoreOptions::default())?;
    }
    let slowest = clones.iter().copied().fold(0.0, f64::max);
    let whole = dump(&partition, &volume, None)?;
    let (mut share, mut size, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..bench.runs {
        let since = touch(&volume, &fids, run)?;
        let part = dump(&partition, &volume, Some(since))?;
        share.push(100.0 * part.read as f64 / whole.read.max(1) as f64);
        size.push(100.0 * part.written as f64 / whole.written.max(1) as f64);
        seconds.push(part.seconds);
    }
    let title = format!("a volume of {} files", grouped(files.into()));
    Ok(vec![
        Row::new("clone", title)
            .with(Figure::new("clone", "ms", clones).at_most(10.0))
            .with(Figure::new("the slowest clone", "ms", vec![slowest]))
            .with(Figure::new("full dump", "s", vec![whole.seconds]))
            .with(Figure::new(
                "full dump, data read",
                "MB",
                vec![whole.read as f64 / 1e6],
            ))
            .with(
                Figure::new("dump after touching 1 %, share of data read", "%", share).at_most(3.0),
            )
            .with(Figure::new("share of the full dump's length", "%", size))
            .with(Figure::new("dump after touching 1 %", "s", seconds)),
    ])
}

/// Writes to one file of a hundred, spread over the volume. Returns a time before, and after all
/// else.
fn touch(volume: &Volume, files: &[Fid], run: u32) -> anyhow::Result<UnixTime> {
    // Dumps know whole seconds, and what happened in the same one is in them too.
    let second = Duration::from_millis(1_100);
    thread::sleep(second);
    let since = UnixTime::from(SystemTime::now());
    for (number, fid) in files.iter().enumerate().step_by(100) {
        let data = noise(FILE, number as u64 + u64::from(run) * 1_000_003);
        volume.write(*fid, 0, &data, &StoreOptions::default())?;
    }
    Ok(since)
}

struct Dumped {
    /// Bytes read from segments.
    read: u64,
    /// Bytes of the stream.
    written: u64,
    seconds: f64,
}

fn dump(partition: &Partition, volume: &Volume, since: Option<UnixTime>) -> anyhow::Result<Dumped> {
    let before = partition.segment_stats().bytes_read;
    let start = Instant::now();
    let mut counted = Counted(0);
    let options = DumpOptions {
        from: since,
        ..DumpOptions::default()
    };
    volume.dump(&mut counted, &options)?;
    Ok(Dumped {
        read: partition.segment_stats().bytes_read - before,
        written: counted.0,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Counts what is written to it.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0 += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
