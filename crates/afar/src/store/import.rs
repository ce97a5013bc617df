//! `afar store import`.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use afar_store::segment::Compression;
use afar_store::{RestoreMode, RestoreOptions, RestoreSummary};
use afar_types::VolumeId;
use anyhow::{Context, bail};
use serde::Serialize;

use super::progress::Progress;
use crate::output::Output;
use crate::units::grouped;

/// Options of `afar store import`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Create a volume from a dump",
    long_about = "Create a volume from a dump, as `vos dump`, `afar store export` or backup programs \
    write it. The volume appears only when the whole dump has been read and verified.",
    after_help = "Examples:\n  afar store import /vicepa user.alice.dump --id 536870999 --name user.alice\n  \
    ssh fs1 vos dump user.alice -localauth | afar store import /vicepa - --id 536870999\n  \
    afar store import /vicepa monday.dump --id 536870999 --incremental"
)]
pub(crate) struct ImportArgs {
    /// The partition
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The dump; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The volume's number
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    id: u32,
    /// The volume's name [default: the one in the dump]
    #[arg(long)]
    name: Option<String>,
    /// Replace the contents of an existing volume of that number
    #[arg(long)]
    overwrite: bool,
    /// Apply an incremental dump to the volume
    #[arg(long, conflicts_with = "overwrite")]
    incremental: bool,
    /// Compression of its data: none, lz4, zstd or zstd:LEVEL
    #[arg(long, value_name = "CODEC")]
    compression: Option<Compression>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    volume: u32,
    name: String,
    vnodes: u64,
    /// Vnodes the dump gives with their content.
    given: u64,
    /// Bytes of the dump.
    octets: u64,
    /// Bytes of file data and directories in it.
    data: u64,
    removed: u64,
    orphans: u64,
    link_counts: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "volume {} ({}): {} vnodes from a dump of {} bytes",
            self.volume,
            self.name,
            grouped(self.vnodes),
            grouped(self.octets)
        )?;
        if self.removed > 0 {
            write!(f, "; {} removed", grouped(self.removed))?;
        }
        if self.orphans > 0 {
            write!(f, "; {} in no directory skipped", grouped(self.orphans))?;
        }
        if self.link_counts > 0 {
            write!(f, "; {} link counts corrected", grouped(self.link_counts))?;
        }
        Ok(())
    }
}

pub(super) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let (input, len): (Box<dyn Read>, Option<u64>) = if args.file.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            bail!("cannot read a dump from a terminal: name a file, or use a pipe");
        }
        (Box::new(io::stdin().lock()), None)
    } else {
        let file = File::open(&args.file);
        let file = file.with_context(|| format!("reading {}", args.file.display()))?;
        let len = file.metadata().ok().filter(std::fs::Metadata::is_file);
        (Box::new(file), len.map(|metadata| metadata.len()))
    };
    let partition = super::open(&args.dir)?;
    let mut options = RestoreOptions::new(VolumeId(args.id));
    options.name.clone_from(&args.name);
    options.compression = args.compression;
    options.mode = if args.incremental {
        RestoreMode::Incremental
    } else {
        RestoreMode::Full {
            overwrite: args.overwrite,
        }
    };
    let progress = len.map_or_else(Progress::of_unknown, Progress::of_octets);
    progress.tell("import");
    let restored = partition.restore_with_progress(input, &options, |at| progress.set(at.bytes));
    drop(progress);
    let RestoreSummary {
        vnodes,
        given,
        bytes,
        data,
        removed,
        orphans,
        link_counts,
    } = restored.with_context(|| args.file.display().to_string())?;
    let name = partition.volume(VolumeId(args.id))?.state()?.name;
    Output::new(args.json, None)?.report(&Report {
        volume: args.id,
        name,
        vnodes,
        given,
        octets: bytes,
        data,
        removed,
        orphans,
        link_counts,
    })?;
    Ok(ExitCode::SUCCESS)
}
