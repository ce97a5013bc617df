//! How much of everything is measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use crate::units::{parse_bytes, parse_seconds};

/// Sizes as they are given.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sizes, in full and (with --quick)")]
pub(super) struct SizeArgs {
    /// attach: maximum number of volumes [default: 1500000 (3000)]
    #[arg(long, value_name = "N")]
    volumes: Option<u32>,
    /// attach: number of partitions [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=26))]
    partitions: Option<u32>,
    /// remove: other volumes in the partition [default: 500000 (1000)]
    #[arg(long, value_name = "N")]
    siblings: Option<u32>,
    /// remove: files of the removed volume [default: 20000 (500)]
    #[arg(long, value_name = "N")]
    files: Option<u32>,
    /// clone: files of the cloned volume [default: 200000 (1000)]
    #[arg(long, value_name = "N")]
    clone_files: Option<u32>,
    /// compress: directories to take data from [default: /usr/lib, /usr/share/doc, and sources that
    /// cargo has unpacked, if there are any]
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    sources: Vec<PathBuf>,
    /// compress: maximum bytes of each [default: 512Mi (4Mi)]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    data: Option<u64>,
    /// compress: bytes per second of the slow medium [default: 200M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    medium: Option<u64>,
    /// create, remove: time of each slice [default: 0.5 (0.1)]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    slice: Option<Duration>,
    /// create: writers [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    writers: Option<u32>,
}

/// Sizes to be measured.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) volumes: u32,
    pub(super) partitions: u32,
    pub(super) siblings: u32,
    pub(super) files: u32,
    /// Files of 1 MiB that are read while others are removed.
    pub(super) other: u32,
    pub(super) clone_files: u32,
    pub(super) sources: Vec<PathBuf>,
    pub(super) data: u64,
    pub(super) medium: u64,
    pub(super) slice: Duration,
    pub(super) writers: u32,
}

impl SizeArgs {
    /// What is not given is as usual, or small.
    ///
    /// # Errors
    /// A size out of its range.
    pub(super) fn resolve(&self, quick: bool) -> anyhow::Result<Sizes> {
        let size = |option: &str, given: Option<u32>, full, small, least| {
            let size = given.unwrap_or(if quick { small } else { full });
            if !(least..=4_000_000).contains(&size) {
                bail!("--{option} {size} is out of range: {least} to 4000000");
            }
            Ok(size)
        };
        let sources = if self.sources.is_empty() {
            usual_sources()
        } else {
            self.sources.clone()
        };
        Ok(Sizes {
            volumes: size("volumes", self.volumes, 1_500_000, 3_000, 10)?,
            partitions: self.partitions.unwrap_or(3),
            siblings: size("siblings", self.siblings, 500_000, 1_000, 500)?,
            files: size("files", self.files, 20_000, 500, 100)?,
            other: if quick { 4 } else { 64 },
            clone_files: size("clone-files", self.clone_files, 200_000, 1_000, 100)?,
            sources,
            data: self.data.unwrap_or(if quick { 4 << 20 } else { 512 << 20 }),
            medium: self.medium.unwrap_or(200_000_000),
            slice: self
                .slice
                .unwrap_or_else(|| Duration::from_millis(if quick { 100 } else { 500 })),
            writers: self.writers.unwrap_or(8),
        })
    }
}

fn usual_sources() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(PathBuf::from(home).join(".cargo"))
        });
    let mut sources = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/share/doc")];
    sources.extend(cargo.map(|cargo| cargo.join("registry/src")));
    sources.retain(|source| source.is_dir());
    sources
}
