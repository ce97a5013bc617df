//! What a fresh process measures for the bench that started it.

use std::fmt;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use afar_store::Volume;
use afar_types::VolumeId;
use serde::{Deserialize, Serialize};

use super::data::{self, files_of, random_below, read_plain, read_volume, walk_names};
use super::process::{memory, processor_time};
use super::report::permille;
use crate::output::Output;

/// What a probe is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Open partitions and serve a volume of the last.
    Attach {
        partitions: Vec<PathBuf>,
        volume: u32,
    },
    /// Read all files below a directory.
    ReadPlain { dir: PathBuf },
    /// Read all files of a volume, after having done so `before` times.
    ReadVolume {
        partition: PathBuf,
        volume: u32,
        before: u32,
    },
    /// Read 4 KiB in so many records of a volume, then the same again.
    ReadRandom {
        partition: PathBuf,
        volume: u32,
        reads: usize,
    },
}

/// What a probe found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// From the word to begin to the end.
    pub(super) seconds: f64,
    /// Of that, after all was opened and found.
    pub(super) reading: f64,
    /// Processor time of the process for that, in seconds: what other processes do shows less in
    /// it.
    pub(super) processor: f64,
    /// Bytes of file data read.
    pub(super) bytes: u64,
    /// Resident memory at the end, in bytes.
    pub(super) resident: u64,
    /// Of that, what is not a file's.
    pub(super) anonymous: u64,
    /// Of reads at random places, for the first time and again: microseconds within which one half,
    /// and 99 of 100, were done.
    pub(super) random: [[f64; 2]; 2],
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s, {} bytes", self.seconds, self.bytes)
    }
}

pub(super) fn run(wanted: &str, output: &mut Output) -> anyhow::Result<ExitCode> {
    let task: Task = serde_json::from_str(wanted)?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let start = Instant::now();
    let (mut bytes, mut random) = (0, [[0.0; 2]; 2]);
    let (mut found, mut used) = (start, processor_time());
    // Partitions stay open until the memory was looked at.
    let mut open = Vec::new();
    match task {
        Task::Attach { partitions, volume } => {
            for path in &partitions {
                open.push(data::open(path)?);
            }
            if let Some(last) = open.last() {
                let volume = last.volume(VolumeId(volume))?;
                volume.status(volume.root())?;
            }
        }
        Task::ReadPlain { dir } => {
            let mut files = Vec::new();
            walk_names(&dir, &mut files)?;
            (found, used) = (Instant::now(), processor_time());
            bytes = read_plain(&files)?;
        }
        Task::ReadVolume {
            partition,
            volume,
            before,
        } => {
            let partition = data::open(&partition)?;
            let volume = partition.volume(VolumeId(volume))?;
            let files = files_of(&volume)?;
            for _ in 0..before {
                read_volume(&volume, &files)?;
            }
            (found, used) = (Instant::now(), processor_time());
            bytes = read_volume(&volume, &files)?;
            open.push(partition);
        }
        Task::ReadRandom {
            partition,
            volume,
            reads,
        } => {
            let partition = data::open(&partition)?;
            random = read_random(&partition.volume(VolumeId(volume))?, reads)?;
            open.push(partition);
        }
    }
    output.report(&Found {
        seconds: start.elapsed().as_secs_f64(),
        reading: found.elapsed().as_secs_f64(),
        processor: processor_time() - used,
        bytes,
        resident: memory("VmRSS"),
        anonymous: memory("RssAnon"),
        random,
    })?;
    drop(open);
    Ok(ExitCode::SUCCESS)
}

/// Reads 4 KiB somewhere in each of so many records, in an order without order; then the same
/// again.
fn read_random(volume: &Volume, reads: usize) -> anyhow::Result<[[f64; 2]; 2]> {
    let mut places = Vec::new();
    for fid in files_of(volume)? {
        for record in volume.stored_records(fid, 0, usize::MAX)? {
            places.push((fid, record.offset(), u64::from(record.plain_len())));
        }
    }
    let mut state = 11;
    for last in (1..places.len()).rev() {
        let other = usize::try_from(random_below(&mut state, last as u64 + 1))?;
        places.swap(last, other);
    }
    places.truncate(reads);
    let mut found = [[0.0; 2]; 2];
    let mut buffer = vec![0; 4096];
    for round in &mut found {
        let mut times = Vec::new();
        for (fid, start, len) in &places {
            let within = random_below(&mut state, *len) & !4095;
            let start_of_read = Instant::now();
            volume.read(*fid, start + within, &mut buffer)?;
            times.push(start_of_read.elapsed().as_secs_f64() * 1e6);
        }
        *round = [permille(&times, 500), permille(&times, 990)];
    }
    Ok(found)
}
