//! `afar store stat`.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use afar_store::{Packed, Partition, Space, Survey};
use serde::Serialize;

use super::progress::Progress;
use crate::output::Output;
use crate::units::grouped;

/// Options of `afar store stat`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Show the contents of partitions and the space they take",
    long_about = "Show the contents of partitions and the space they take. Without --full, read only \
    the rows of volumes and segments, which takes a fraction of a second for a million volumes; \
    with it, the rows of all vnodes and records, about a million a second."
)]
pub(crate) struct StatArgs {
    /// Partitions
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also count records, and show how well they compress
    #[arg(long)]
    full: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    path: PathBuf,
    format_version: u32,
    /// Records of the same bytes are stored once.
    dedup: bool,
    volumes: Volumes,
    vnodes: u64,
    used_kib: u64,
    octets: Octets,
    segments: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    full: Option<Full>,
}

#[derive(Serialize)]
struct Volumes {
    total: u64,
    read_write: u64,
    read_only: u64,
    backup: u64,
    offline: u64,
}

#[derive(Serialize)]
struct Octets {
    /// The database's file.
    database: u64,
    /// Allocated to segment files.
    segments: u64,
    /// Of those, bytes of records.
    live: u64,
    /// Of those, bytes of none.
    dead: u64,
}

/// What only `--full` tells: everything once, however many clones share it.
#[derive(Serialize)]
struct Full {
    rows: u64,
    directories: u64,
    files: u64,
    directory_pages: u64,
    raw: Records,
    lz4: Records,
    zstd: Records,
    inline: Records,
    all: Records,
}

#[derive(Serialize)]
struct Records {
    records: u64,
    plain: u64,
    stored: u64,
    /// Plain bytes for each stored one.
    ratio: Option<f64>,
}

impl From<Packed> for Records {
    fn from(packed: Packed) -> Self {
        let Packed {
            records,
            plain,
            stored,
            ..
        } = packed;
        Self {
            records,
            plain,
            stored,
            ratio: (stored > 0).then(|| plain as f64 / stored as f64),
        }
    }
}

impl From<Survey> for Full {
    fn from(survey: Survey) -> Self {
        Self {
            rows: survey.rows,
            directories: survey.directories,
            files: survey.files,
            directory_pages: survey.pages,
            raw: survey.raw.into(),
            lz4: survey.lz4.into(),
            zstd: survey.zstd.into(),
            inline: survey.inline.into(),
            all: survey.data().into(),
        }
    }
}

impl Report {
    fn new(partition: &Partition, space: &Space, full: Option<Survey>) -> Self {
        Self {
            path: partition.path().to_owned(),
            format_version: partition.format_version(),
            dedup: partition.dedup(),
            volumes: Volumes {
                total: space.volumes(),
                read_write: space.read_write,
                read_only: space.read_only,
                backup: space.backup,
                offline: space.offline,
            },
            vnodes: space.vnodes,
            used_kib: space.used_kib,
            octets: Octets {
                database: space.database,
                segments: space.allocated,
                live: space.live,
                dead: space.dead(),
            },
            segments: space.segments,
            full: full.map(Full::from),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Volumes {
            total,
            read_write,
            read_only,
            backup,
            offline,
        } = self.volumes;
        let n = grouped;
        write!(
            f,
            "{}\n  format     version {}, dedup {}\n  volumes    {}: {} RW, {} RO, {} BK; {} \
             Off-line\n  vnodes     {} using {} K, as volumes count them\n  database   {} bytes\n \
              segments   {}: {} bytes allocated, {} live, {} dead",
            self.path.display(),
            self.format_version,
            if self.dedup { "on" } else { "off" },
            n(total),
            n(read_write),
            n(read_only),
            n(backup),
            n(offline),
            n(self.vnodes),
            n(self.used_kib),
            n(self.octets.database),
            n(self.segments),
            n(self.octets.segments),
            n(self.octets.live),
            n(self.octets.dead),
        )?;
        match &self.full {
            None => Ok(()),
            Some(full) => write!(f, "\n{full}"),
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = grouped;
        write!(
            f,
            "  rows       {}: {} directories with {} pages, {} files and symlinks, {} records",
            n(self.rows),
            n(self.directories),
            n(self.directory_pages),
            n(self.files),
            n(self.all.records),
        )?;
        for (name, kind) in [
            ("raw", &self.raw),
            ("lz4", &self.lz4),
            ("zstd", &self.zstd),
            ("inline", &self.inline),
            ("all data", &self.all),
        ] {
            if kind.records == 0 {
                continue;
            }
            let ratio = kind.ratio.unwrap_or(1.0);
            write!(
                f,
                "\n  {name:10} {} records, {} bytes stored as {}: {ratio:.2} to 1",
                n(kind.records),
                n(kind.plain),
                n(kind.stored),
            )?;
        }
        Ok(())
    }
}

pub(super) fn run(args: &StatArgs) -> anyhow::Result<ExitCode> {
    let mut output = Output::new(args.json, None)?;
    let failed = super::each(&args.dirs, |partition| {
        let space = partition.space()?;
        let full = if args.full {
            let progress = Progress::of_things(partition.row_count()?);
            progress.tell("rows");
            Some(partition.survey(|rows| progress.set(rows))?)
        } else {
            None
        };
        output.report(&Report::new(partition, &space, full))
    });
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
