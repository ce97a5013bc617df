//! `afar cp`: from AFS to the local disk, and into AFS.

mod destination;
mod job;
mod upload;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::{Client, LastLink, Place};

use super::copy::{self, Limits, Progress, Report, Totals, is_afs};
use super::{Failures, Reach, bytes};
use destination::Destination;
use job::{Copier, Job};

/// Options of `afar cp`.
#[derive(Debug, clap::Args)]
pub(crate) struct CpArgs {
    /// Sources and destination, at least one under /afs: `SOURCE DEST` or `SOURCE… DIRECTORY`
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Copy directories recursively, through mount points; copy symlinks as symlinks
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Keep mode bits and modification times
    #[arg(short = 'p', long)]
    preserve: bool,
    /// Same as -r -p
    #[arg(short = 'a', long)]
    archive: bool,
    /// With -r, follow symlinks
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Do not overwrite existing files
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// Copy into this directory
    #[arg(short = 't', long, value_name = "DIRECTORY")]
    pub(super) target_directory: Option<PathBuf>,
    /// Treat DEST as the copy itself, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Flush each file to stable storage before renaming it into place
    #[arg(long)]
    fsync: bool,
    /// Print one JSON object about the whole copy
    #[arg(long)]
    json: bool,
    /// Show no progress bar, even on a terminal
    #[arg(long)]
    no_progress: bool,
    /// Number of parallel calls [default: as many as fill the link]
    #[arg(short = 'j', long = "calls", value_name = "N")]
    pub(super) calls: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &CpArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let progress = Arc::new(Progress::new(!args.json && !args.no_progress, Some(client)));
    let mut failures = Failures::new(&args.reach);
    let last = args.target_directory.as_ref().or_else(|| args.paths.last());
    let totals = if last.is_some_and(|last| is_afs(last)) {
        upload::run(args, client, &progress, &mut failures).await
    } else {
        download(args, client, &progress, &mut failures).await
    };
    progress.finish();
    let totals = totals?;
    if args.json {
        let report = Report::new(client, &totals, &failures).await;
        let mut lines = super::format::Lines::new();
        lines.json(&report)?;
        lines.flush()?;
    }
    Ok(failures.exit_code())
}

/// Copies from AFS to the local disk.
async fn download(
    args: &CpArgs,
    client: &Client,
    progress: &Arc<Progress>,
    failures: &mut Failures,
) -> anyhow::Result<Totals> {
    let (sources, destination) = Destination::new(args)?;
    let mut jobs = Vec::new();
    let last = if args.recursive() && !args.dereference {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    for source in sources {
        let path = bytes(source);
        match client.walk(path, last).await {
            Ok(Place::Node(node)) => match destination.of(path) {
                Ok(to) => jobs.push(Job::new(path, node, to)),
                Err(error) => failures.note(error),
            },
            Ok(Place::Afs) => failures.note(anyhow::anyhow!(
                "/afs: holds all cells; copy from /afs/CELL"
            )),
            Err(error) => failures.note(error),
        }
    }
    let copier = Copier::new(client.clone(), args, Arc::clone(progress));
    Ok(copy::run(copier, jobs, Limits::local(), failures).await)
}

impl CpArgs {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    fn preserve(&self) -> bool {
        self.preserve || self.archive
    }
}
