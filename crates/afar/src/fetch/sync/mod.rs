//! `afar sync`: a directory or file made the same as another, one or both of them in AFS.

mod compare;
mod contents;
mod directory;
mod download;
mod exclude;
mod remove;
mod report;
mod upload;
mod work;

use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::{Client, LastLink, PathCause, Place};
use anyhow::{Context, bail, ensure};

use super::copy::{self, Facts, Kind, Limits, Origin, Progress, is_afs, make_directory};
use super::format::Lines;
use super::{Failures, Reach, bytes, shown};
use compare::Rules;
use directory::{Directory, make_in_afs};
use exclude::Exclude;
use report::{Changes, Report, summary};
use work::{Item, Job, Root, Syncer};

/// Files stored at a time, if nothing else is said. A server takes a call at a time for each, and of
/// the three that a short file takes, only one brings data.
const FILES: usize = 24;

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
    let (from, to) = (&args.source, &args.dest);
    ensure!(
        is_afs(from) || is_afs(to),
        "neither {} nor {} is under /afs; use rsync for these",
        shown(from),
        shown(to)
    );
    ensure!(
        !(is_afs(from) && is_afs(to)) || !(from.starts_with(to) || to.starts_with(from)),
        "{} and {}: one is in the other, or they are the same; choose another DEST",
        shown(from),
        shown(to)
    );
    let exclude = Exclude::new(&args.exclude)?;
    let rules = Rules {
        delete: args.delete,
        checksum: args.checksum,
    };
    let source = source(client, from).await?;
    let plan = match source.1.kind {
        Kind::Directory => Plan::directory(args, client, source).await?,
        _ => Plan::file(args, client, source, rules).await?,
    };
    let progress = Arc::new(Progress::new(
        !args.json && !args.no_progress && !args.dry_run,
        Some(client),
    ));
    let mut failures = Failures::new(&args.reach);
    let syncer = Syncer {
        client: client.clone(),
        progress: Arc::clone(&progress),
        rules,
        exclude: Arc::new(exclude),
        changes: Changes::new(args.dry_run || args.verbose, args.json),
        dry_run: args.dry_run,
        fsync: args.fsync,
        source: plan.source,
        dest: plan.dest,
    };
    let limits = if is_afs(to) {
        Limits::afs(args.calls.map_or(FILES, NonZeroUsize::get))
    } else {
        Limits::local()
    };
    let is_same = plan.job.is_none();
    let jobs = plan.job.into_iter().collect();
    let mut totals = copy::run(syncer, jobs, limits, &mut failures).await;
    totals.unchanged += u64::from(is_same);
    progress.finish();
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

/// What is to be done.
struct Plan {
    source: Root,
    dest: Root,
    /// `None` if all is the same.
    job: Option<Job>,
}

impl Plan {
    /// A directory is made the same.
    async fn directory(
        args: &SyncArgs,
        client: &Client,
        (source, facts): Item,
    ) -> anyhow::Result<Self> {
        let (at, there) = match existing(client, &args.dest).await? {
            Some((at, there)) => (Some(at), Some(there)),
            None if args.dry_run => (None, None),
            None => {
                let made = make(client, &args.dest, &facts).await;
                let made = made.with_context(|| format!("cannot make {}", shown(&args.dest)))?;
                (Some(made), None)
            }
        };
        let dest = Directory::new(at, args.dest.clone(), facts, there);
        Ok(Self {
            source: Root::new(&args.source, Some(&source)),
            dest: Root::new(&args.dest, dest.at.as_ref()),
            job: Some(Job::root(source, dest)),
        })
    }

    /// A file is: into DEST if that is a directory, else as DEST.
    async fn file(
        args: &SyncArgs,
        client: &Client,
        source: Item,
        rules: Rules,
    ) -> anyhow::Result<Self> {
        let no_name = || format!("{}: names no file", shown(&args.dest));
        let (directory, name, found) = match existing_directory(client, &args.dest).await? {
            Some(found) => {
                let name = args.source.file_name().with_context(no_name)?;
                (args.dest.clone(), name, found)
            }
            None => {
                ensure!(
                    !bytes(&args.dest).ends_with(b"/"),
                    "{}: not a directory; create it first",
                    shown(&args.dest)
                );
                let name = args.dest.file_name().with_context(no_name)?;
                let directory = match args.dest.parent() {
                    Some(parent) if parent != Path::new("") => parent,
                    _ => Path::new("."),
                };
                let found = existing(client, directory).await?;
                let found = found.with_context(|| {
                    format!("{}: no such directory; create it first", shown(directory))
                })?;
                (directory.to_owned(), name, found)
            }
        };
        let (at, facts) = found;
        let root = Root::new(&directory, Some(&at));
        let dest = Directory::new(Some(at), directory, facts, Some(facts));
        let job = Job::single(client, source, dest, name.as_bytes(), rules).await?;
        Ok(Self {
            source: Root::file(&args.source),
            dest: root,
            job,
        })
    }
}

/// SOURCE, a directory or a file.
async fn source(client: &Client, path: &Path) -> anyhow::Result<Item> {
    let (origin, facts) = if is_afs(path) {
        match client.walk(bytes(path), LastLink::Follow).await? {
            Place::Node(node) => {
                let facts = Facts::from(&node.status);
                (Origin::Afs(node), facts)
            }
            Place::Afs => bail!("/afs: holds all cells; copy from /afs/CELL"),
        }
    } else {
        let metadata = fs::metadata(path).with_context(|| shown(path))?;
        (Origin::Local(path.to_owned()), Facts::from(&metadata))
    };
    ensure!(
        matches!(facts.kind, Kind::Directory | Kind::File(_)),
        "{}: neither a directory nor a file; afar cp copies what comes out of a pipe",
        shown(path)
    );
    Ok((origin, facts))
}

/// The directory at this path, if anything is there.
async fn existing(client: &Client, path: &Path) -> anyhow::Result<Option<Item>> {
    let found = there(client, path).await?;
    if let Some((_, facts)) = &found {
        ensure!(facts.is_directory(), "{}: not a directory", shown(path));
    }
    Ok(found)
}

/// The directory at this path, if it is one.
async fn existing_directory(client: &Client, path: &Path) -> anyhow::Result<Option<Item>> {
    let found = there(client, path).await?;
    Ok(found.filter(|(_, facts)| facts.is_directory()))
}

/// What is at a path, if anything is.
async fn there(client: &Client, path: &Path) -> anyhow::Result<Option<Item>> {
    if is_afs(path) {
        return match client.walk(bytes(path), LastLink::Follow).await {
            Ok(Place::Node(node)) => {
                let facts = Facts::from(&node.status);
                Ok(Some((Origin::Afs(node), facts)))
            }
            Ok(Place::Afs) => bail!("/afs: holds only cells; choose a directory below /afs/CELL"),
            Err(error) if matches!(error.cause, PathCause::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some((
            Origin::Local(path.to_owned()),
            Facts::from(&metadata),
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| shown(path)),
    }
}

async fn make(client: &Client, path: &Path, wanted: &Facts) -> anyhow::Result<Origin> {
    if !is_afs(path) {
        make_directory(path, wanted.mode)?;
        return Ok(Origin::Local(path.to_owned()));
    }
    let slot = client.slot(bytes(path)).await?;
    make_in_afs(client, &slot.volume, slot.directory, &slot.name, wanted).await
}
