//! `afar store init`.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use afar_store::{Partition, PartitionOptions};
use serde::Serialize;

use crate::output::Output;

/// Options of `afar store init`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Create a partition in an empty directory",
    long_about = "Create a partition in an empty directory, which is created if missing. \
    A file system of its own, such as /vicepa, is usual, but any directory will do; lost+found in \
    it is left alone.",
    after_help = "Example:\n  afar store init /vicepa"
)]
pub(crate) struct InitArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Store identical records once
    #[arg(long)]
    dedup: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    path: PathBuf,
    format_version: u32,
    dedup: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            format_version,
            dedup,
        } = self;
        let dedup = if *dedup {
            ", equal records stored once"
        } else {
            ""
        };
        write!(
            f,
            "{}: a partition of format version {format_version}{dedup}",
            path.display()
        )
    }
}

pub(super) fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let partition = Partition::init(&args.dir, &PartitionOptions::default())?;
    if args.dedup {
        partition.set_dedup(true)?;
    }
    Output::new(args.json, None)?.report(&Report {
        path: args.dir.clone(),
        format_version: partition.format_version(),
        dedup: partition.dedup(),
    })?;
    Ok(ExitCode::SUCCESS)
}
