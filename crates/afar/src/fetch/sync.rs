//! `afar sync`: a directory or file made the same as another, one or both of them in AFS.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::Client;
use afar_transfer::{Error, Progress, SyncOptions, SyncPlan};
use anyhow::anyhow;

use super::changes::Changes;
use super::format::Lines;
use super::progress::Bar;
use super::sync_report::{Report, summary};
use super::{Failures, Reach, plain};
use crate::advice;

const ABOUT: &str = "\
Make the directory DEST the same as the directory SOURCE. One or both of them are under /afs; no \
mount is needed. The contents of SOURCE go into DEST itself, whether or not the paths end with a \
slash. If SOURCE is a file, it is copied to DEST, or into DEST if that is a directory.

Only differences are copied. Files are the same if they have the same length and the same \
modification time, in whole seconds, as AFS has them; symlinks, if they have the same target. Modes \
and times are kept, so that a second run finds nothing to do. Mount points in SOURCE are followed, \
and become directories.

Nothing is deleted in DEST without --delete. A directory where SOURCE has a file or symlink is then \
an error, and left as it is; a file or symlink where SOURCE has a directory is replaced. Mount points \
in DEST are never deleted.

Each file is copied under a name .afar-part.* beside its own, and renamed when it is complete, so \
that no program sees half a file. After an interruption (Ctrl-C, a server that does not answer; with \
--fsync, a power failure) run the same command again. It does not copy complete files again, and \
resumes large files, if SOURCE still has the same version: on the local disk after the last recorded \
position, in AFS after the last segment, which takes some 20 seconds. Files named .afar-part.* are \
never copied; --delete also deletes those of files that SOURCE no longer has.

An error with one name does not stop the others. In AFS the rights l, i, d and w are needed in \
DEST, and l and r in SOURCE. Access lists and owners are not copied; hard links become separate \
files.";

const EXAMPLES: &str = "\
Patterns of --exclude are those of .gitignore: NAME matches at any depth, a pattern with a \
slash in it or before it matches from the top; * and ? match within a name, ** across slashes; a \
slash at the end matches directories only. With --delete, excluded names stay in DEST.

Changes, as -n and -v print them, are copy, link (a symlink), make (a directory), set (mode or \
time) and delete, each with a path below DEST.

Examples:
  afar sync ~/thesis /afs/example.org/home/alice/thesis
  afar sync -n --delete /afs/example.org/data /srv/data
  afar sync debian.iso /afs/example.org/pub/
  afar sync --delete --exclude '*.o' --exclude /target/ src /afs/example.org/src

Exit status: 0 both are the same now, 1 something failed (one line each on standard error), 2 \
wrong usage, 130 interrupted.";

/// Options of `afar sync`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Mirror a directory or file, from or to AFS or within it, without a mount",
    long_about = ABOUT,
    after_long_help = EXAMPLES
)]
pub(crate) struct SyncArgs {
    /// The directory or file to copy from
    #[arg(value_name = "SOURCE")]
    pub(super) source: PathBuf,
    /// The directory or file to update; created if missing
    #[arg(value_name = "DEST")]
    pub(super) dest: PathBuf,
    /// Change nothing; print what would change
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print each change as it is made
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Delete names in DEST that SOURCE does not have
    #[arg(long)]
    delete: bool,
    /// Compare the contents of files of the same length, whatever their times; reads both
    #[arg(short = 'c', long)]
    checksum: bool,
    /// Skip matching names on both sides; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Flush each file to stable storage before renaming it into place
    #[arg(long)]
    fsync: bool,
    /// Print one JSON object about the whole run; with -n or -v one for each change before it
    #[arg(long)]
    json: bool,
    /// Show no progress bar, even on a terminal
    #[arg(long)]
    no_progress: bool,
    /// Number of parallel calls from AFS, or of parallel files into AFS [default: as many as fill
    /// the link]
    #[arg(short = 'j', long = "calls", value_name = "N")]
    pub(super) calls: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &SyncArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let options = SyncOptions {
        dry_run: args.dry_run,
        delete: args.delete,
        checksum: args.checksum,
        exclude: args.exclude.clone(),
        fsync: args.fsync,
        calls: args.calls,
    };
    let plan = SyncPlan::new(client, &args.source, &args.dest, options).await;
    let plan = plan.map_err(|error| match error {
        Error::Pattern { .. } => anyhow!("--exclude {}", advice::told_of(&error)),
        other => plain(other),
    })?;
    let bar = Bar::new(!args.json && !args.no_progress && !args.dry_run);
    let changes = (args.dry_run || args.verbose).then(|| Changes::new(args.json));
    let bar = Arc::new(bar.with_changes(changes));
    let progress: Arc<dyn Progress> = Arc::clone(&bar) as _;
    let mut failures = Failures::new(&args.reach);
    let mut failed = |error| bar.suspend(|| failures.note(plain(error)));
    let totals = plan.run(&progress, &mut failed).await;
    bar.finish();
    let mut lines = Lines::new();
    if args.json {
        let report = Report::new(args.dry_run, client, &totals, &failures).await;
        lines.json(&report)?;
    } else {
        let text = summary(args.dry_run, &totals, failures.count);
        lines.line(&[text.as_bytes()])?;
    }
    lines.flush()?;
    Ok(failures.exit_code())
}
