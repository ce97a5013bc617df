//! `afar cp`: from AFS to the local disk, and into AFS.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::Client;
use afar_transfer::{CopyOptions, Destination, Progress, is_afs};
use anyhow::bail;

use super::progress::Bar;
use super::report::Report;
use super::{Failures, Reach, plain, shown};

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
    let (sources, destination) = args.split()?;
    let bar = Arc::new(Bar::new(!args.json && !args.no_progress));
    let progress: Arc<dyn Progress> = Arc::clone(&bar) as _;
    let mut failures = Failures::new(&args.reach);
    let mut failed = |error| bar.suspend(|| failures.note(plain(error)));
    let options = args.options();
    let copied = afar_transfer::copy(
        client,
        sources,
        &destination,
        options,
        &progress,
        &mut failed,
    );
    let totals = copied.await;
    bar.finish();
    let totals = totals.map_err(plain)?;
    if args.json {
        let report = Report::new(client, &totals, &failures).await;
        let mut lines = super::format::Lines::new();
        lines.json(&report)?;
        lines.flush()?;
    }
    Ok(failures.exit_code())
}

impl CpArgs {
    fn options(&self) -> CopyOptions {
        CopyOptions {
            recursive: self.recursive || self.archive,
            preserve: self.preserve || self.archive,
            dereference: self.dereference,
            no_clobber: self.no_clobber,
            fsync: self.fsync,
            calls: self.calls,
        }
    }

    /// Splits the paths into sources and destination.
    ///
    /// # Errors
    /// When one of both is missing, or there are too many.
    fn split(&self) -> anyhow::Result<(&[PathBuf], Destination)> {
        if let Some(directory) = &self.target_directory {
            return Ok((&self.paths, Destination::Into(directory.clone())));
        }
        let Some((last, sources)) = self.paths.split_last() else {
            bail!("nothing to copy; give SOURCE and DEST");
        };
        if sources.is_empty() {
            if is_afs(last) {
                bail!("{}: missing source; give SOURCE and DEST", shown(last));
            }
            bail!(
                "{}: missing destination; give one, or . for the current directory",
                shown(last)
            );
        }
        if !self.no_target_directory {
            return Ok((sources, Destination::Usual(last.clone())));
        }
        if sources.len() > 1 {
            bail!("-T takes one source; {} were given", sources.len());
        }
        Ok((sources, Destination::Exactly(last.clone())))
    }
}
