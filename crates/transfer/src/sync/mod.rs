//! A directory or file made the same as another, one or both of them in AFS.

mod compare;
mod contents;
mod directory;
mod download;
mod exclude;
mod remove;
mod upload;
mod work;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use afar_cell::{Client, LastLink, PathCause, Walked};

use crate::directory::make_directory;
use crate::error::{Context, Error, Result, bail, ensure};
use crate::facts::{Facts, Kind};
use crate::jobs::{self, Limits};
use crate::origin::Origin;
use crate::path::{bytes, is_afs, shown};
use crate::progress::{Meter, Progress};
use crate::totals::Totals;
use compare::Rules;
use directory::{Directory, make_in_afs};
use exclude::Exclude;
use work::{Item, Job, Root, Syncer};

/// Files stored at a time, if nothing else is said. A server takes a call at a time for each, and of
/// the three that a short file takes, only one brings data.
const FILES: usize = 24;

/// What a caller says of a sync.
#[derive(Debug, Clone, Default)]
pub struct SyncOptions {
    /// Nothing is changed; changes are told all the same.
    pub dry_run: bool,
    /// What SOURCE does not have is removed in DEST.
    pub delete: bool,
    /// The contents of files of the same length are compared, whatever their times.
    pub checksum: bool,
    /// Patterns of names that are left alone on both sides, as `.gitignore` has them.
    pub exclude: Vec<OsString>,
    /// Each file is on stable storage before it gets its name.
    pub fsync: bool,
    /// Files stored at a time in AFS; usually as many as fill the path to the server.
    pub calls: Option<NonZeroUsize>,
}

/// A sync whose both sides are found, and which is ready to run.
pub struct SyncPlan {
    client: Client,
    options: SyncOptions,
    exclude: Exclude,
    rules: Rules,
    limits: Limits,
    plan: Plan,
}

impl fmt::Debug for SyncPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncPlan")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl SyncPlan {
    /// Finds both sides. DEST is made, if SOURCE is a directory and there is none.
    ///
    /// # Errors
    /// When one side cannot be found or used, both are the same, neither is in AFS, or a pattern means nothing.
    pub async fn new(
        client: &Client,
        from: &Path,
        to: &Path,
        options: SyncOptions,
    ) -> Result<Self> {
        ensure!(
            is_afs(from) || is_afs(to),
            LocalProgram => "neither {} nor {} is under /afs",
            shown(from),
            shown(to)
        );
        ensure!(
            !(is_afs(from) && is_afs(to)) || !(from.starts_with(to) || to.starts_with(from)),
            OtherDestination => "{} and {}: one is in the other, or they are the same",
            shown(from),
            shown(to)
        );
        let exclude = Exclude::new(&options.exclude)?;
        let rules = Rules {
            delete: options.delete,
            checksum: options.checksum,
        };
        let source = source(client, from).await?;
        let plan = match source.1.kind {
            Kind::Directory => Plan::directory(client, (from, to), source, options.dry_run).await?,
            _ => Plan::file(client, (from, to), source, rules).await?,
        };
        let limits = if is_afs(to) {
            Limits::afs(options.calls.map_or(FILES, NonZeroUsize::get))
        } else {
            Limits::local()
        };
        Ok(Self {
            client: client.clone(),
            options,
            exclude,
            rules,
            limits,
            plan,
        })
    }

    /// Makes DEST the same as SOURCE. Hands over errors of single names as they come; the rest goes on.
    pub async fn run(
        self,
        progress: &Arc<dyn Progress>,
        failed: &mut (dyn FnMut(Error) + Send),
    ) -> Totals {
        let meter = Arc::new(Meter::new(Arc::clone(progress)));
        let syncer = Syncer {
            client: self.client.clone(),
            progress: Arc::clone(&meter),
            rules: self.rules,
            exclude: Arc::new(self.exclude),
            dry_run: self.options.dry_run,
            fsync: self.options.fsync,
            source: self.plan.source,
            dest: self.plan.dest,
        };
        let is_same = self.plan.job.is_none();
        let jobs = self.plan.job.into_iter().collect();
        let syncing = jobs::run(syncer, jobs, self.limits, failed);
        let mut totals = meter.watch(&self.client, syncing).await;
        totals.unchanged += u64::from(is_same);
        totals
    }
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
        client: &Client,
        (from, to): (&Path, &Path),
        (source, facts): Item,
        dry_run: bool,
    ) -> Result<Self> {
        let (at, there) = match existing(client, to).await? {
            Some((at, there)) => (Some(at), Some(there)),
            None if dry_run => (None, None),
            None => {
                let made = make(client, to, &facts).await;
                let made = made.with_context(|| format!("cannot make {}", shown(to)))?;
                (Some(made), None)
            }
        };
        let dest = Directory::new(at, to.to_owned(), facts, there);
        Ok(Self {
            source: Root::new(from, Some(&source)),
            dest: Root::new(to, dest.at.as_ref()),
            job: Some(Job::root(source, dest)),
        })
    }

    /// A file is: into DEST if that is a directory, else as DEST.
    async fn file(
        client: &Client,
        (from, to): (&Path, &Path),
        source: Item,
        rules: Rules,
    ) -> Result<Self> {
        let no_name = || format!("{}: names no file", shown(to));
        let (directory, name, found) = match existing_directory(client, to).await? {
            Some(found) => {
                let name = from.file_name().with_context(no_name)?;
                (to.to_owned(), name, found)
            }
            None => {
                ensure!(
                    !bytes(to).ends_with(b"/"),
                    CreateDirectory => "{}: not a directory",
                    shown(to)
                );
                let name = to.file_name().with_context(no_name)?;
                let directory = match to.parent() {
                    Some(parent) if parent != Path::new("") => parent,
                    _ => Path::new("."),
                };
                let found = existing(client, directory).await?;
                let Some(found) = found else {
                    bail!(CreateDirectory => "{}: no such directory", shown(directory));
                };
                (directory.to_owned(), name, found)
            }
        };
        let (at, facts) = found;
        let root = Root::new(&directory, Some(&at));
        let dest = Directory::new(Some(at), directory, facts, Some(facts));
        let job = Job::single(client, source, dest, name.as_bytes(), rules).await?;
        Ok(Self {
            source: Root::file(from),
            dest: root,
            job,
        })
    }
}

/// SOURCE, a directory or a file.
async fn source(client: &Client, path: &Path) -> Result<Item> {
    let (origin, facts) = if is_afs(path) {
        match client.walk(bytes(path), LastLink::Follow).await? {
            Walked::Node(node) => {
                let facts = Facts::from(&node.status);
                (Origin::Afs(node), facts)
            }
            Walked::Afs => bail!(FromCell => "/afs: holds all cells"),
        }
    } else {
        let metadata = fs::metadata(path).with_context(|| shown(path))?;
        (Origin::Local(path.to_owned()), Facts::from(&metadata))
    };
    ensure!(
        matches!(facts.kind, Kind::Directory | Kind::File(_)),
        Copy => "{}: neither a directory nor a file",
        shown(path)
    );
    Ok((origin, facts))
}

/// The directory at this path, if anything is there.
async fn existing(client: &Client, path: &Path) -> Result<Option<Item>> {
    let found = there(client, path).await?;
    if let Some((_, facts)) = &found {
        ensure!(facts.is_directory(), "{}: not a directory", shown(path));
    }
    Ok(found)
}

/// The directory at this path, if it is one.
async fn existing_directory(client: &Client, path: &Path) -> Result<Option<Item>> {
    let found = there(client, path).await?;
    Ok(found.filter(|(_, facts)| facts.is_directory()))
}

/// What is at a path, if anything is.
async fn there(client: &Client, path: &Path) -> Result<Option<Item>> {
    if is_afs(path) {
        return match client.walk(bytes(path), LastLink::Follow).await {
            Ok(Walked::Node(node)) => {
                let facts = Facts::from(&node.status);
                Ok(Some((Origin::Afs(node), facts)))
            }
            Ok(Walked::Afs) => bail!(IntoCell => "/afs: holds only cells"),
            Err(error) if matches!(error.cause, PathCause::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some((
            Origin::Local(path.to_owned()),
            Facts::from(&metadata),
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| shown(path)),
    }
}

async fn make(client: &Client, path: &Path, wanted: &Facts) -> Result<Origin> {
    if !is_afs(path) {
        make_directory(path, wanted.mode)?;
        return Ok(Origin::Local(path.to_owned()));
    }
    let slot = client.slot(bytes(path)).await?;
    make_in_afs(client, &slot.volume, slot.directory, &slot.name, wanted).await
}
