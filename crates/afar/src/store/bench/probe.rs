//! What a fresh process measures for the bench that started it.

use std::fmt;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use afar_store::{Partition, PartitionOptions};
use afar_types::VolumeId;
use serde::{Deserialize, Serialize};

use super::data::{read_plain, read_volume};
use super::process::memory;
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
    /// Read all files of a volume.
    ReadVolume { partition: PathBuf, volume: u32 },
}

/// What a probe found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// From the word to begin to the end.
    pub(super) seconds: f64,
    /// Octets of file data read.
    pub(super) octets: u64,
    /// Resident memory at the end, in octets.
    pub(super) resident: u64,
    /// Of that, what is not a file's.
    pub(super) anonymous: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seconds,
            octets,
            resident,
            anonymous,
        } = self;
        write!(
            f,
            "{seconds} s, {octets} octets, resident {resident}, anonymous {anonymous}"
        )
    }
}

pub(super) fn run(wanted: &str, output: &mut Output) -> anyhow::Result<ExitCode> {
    let task: Task = serde_json::from_str(wanted)?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let start = Instant::now();
    let mut octets = 0;
    // Partitions stay open until the memory was looked at.
    let mut open = Vec::new();
    match task {
        Task::Attach { partitions, volume } => {
            for path in &partitions {
                open.push(Arc::new(Partition::open(
                    path,
                    &PartitionOptions::default(),
                )?));
            }
            if let Some(last) = open.last() {
                let volume = last.volume(VolumeId(volume))?;
                volume.status(volume.root())?;
            }
        }
        Task::ReadPlain { dir } => octets = read_plain(&dir)?,
        Task::ReadVolume { partition, volume } => {
            let partition = Arc::new(Partition::open(&partition, &PartitionOptions::default())?);
            octets = read_volume(&partition.volume(VolumeId(volume))?)?;
            open.push(partition);
        }
    }
    output.report(&Found {
        seconds: start.elapsed().as_secs_f64(),
        octets,
        resident: memory("VmRSS"),
        anonymous: memory("RssAnon"),
    })?;
    drop(open);
    Ok(ExitCode::SUCCESS)
}
