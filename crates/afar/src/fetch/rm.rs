//! `afar rm` and `afar rmdir`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::{Client, DirEntry, PathCause, Slot, Volume};
use afar_types::Fid;
use anyhow::{Context, bail};
use tokio::task::JoinSet;

use super::{Failures, Reach, bytes, shown};

/// Names removed at a time: the server takes those of one directory one after the other, but need
/// not wait for us in between.
const AT_A_TIME: usize = 16;

/// Options of `afar rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// Paths to remove, under /afs
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Remove directories recursively; mount points are neither removed nor entered
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Ignore paths that do not exist
    #[arg(short = 'f', long)]
    force: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// Options of `afar rmdir`.
#[derive(Debug, clap::Args)]
pub(crate) struct RmdirArgs {
    /// Empty directories to remove, under /afs
    #[arg(required = true, value_name = "DIRECTORY")]
    pub(super) directories: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &RmArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut failures = Failures::new(&args.reach);
    for path in &args.paths {
        let slot = match client.slot(bytes(path)).await {
            Ok(slot) => slot,
            Err(error) if args.force && matches!(error.cause, PathCause::NotFound) => continue,
            Err(error) => {
                failures.note(error);
                continue;
            }
        };
        match slot.entry() {
            Some(entry) => {
                let shown = shown(path);
                let removed = remove(args, client, &slot, entry, &shown, &mut failures).await;
                if let Err(error) = removed {
                    failures.note(error.context(shown));
                }
            }
            None if args.force => {}
            None => failures.note(not_found(path)),
        }
    }
    Ok(failures.exit_code())
}

async fn remove(
    args: &RmArgs,
    client: &Client,
    slot: &Slot,
    entry: DirEntry,
    path: &str,
    failures: &mut Failures,
) -> anyhow::Result<()> {
    if !entry.fid.vnode.is_directory() {
        let status = client.status(&slot.volume, entry.fid).await?;
        if status.is_mount_point() {
            bail!("is a mount point; remove it with afar fs rmmount");
        }
        client
            .remove_file(&slot.volume, slot.directory, &entry)
            .await?;
        return Ok(());
    }
    if !args.recursive {
        bail!("is a directory; add -r to remove it recursively");
    }
    let mut tree = Tree {
        client,
        volume: &slot.volume,
        stays: &|_, _| false,
        pretend: false,
        removed: 0,
        note: &mut |error| failures.note(error),
    };
    tree.remove(slot.directory, entry, path.as_bytes().to_vec())
        .await;
    Ok(())
}

/// Removes trees of one volume.
pub(super) struct Tree<'a> {
    pub(super) client: &'a Client,
    pub(super) volume: &'a Arc<Volume>,
    /// What stays, by its path.
    pub(super) stays: &'a (dyn Fn(&[u8], Fid) -> bool + Sync),
    /// Nothing is removed; it is counted only.
    pub(super) pretend: bool,
    /// Names removed so far.
    pub(super) removed: u64,
    /// Told why something could not be removed.
    pub(super) note: &'a mut (dyn FnMut(anyhow::Error) + Send),
}

impl Tree<'_> {
    /// Removes a directory with all below it; returns whether it is gone.
    pub(super) async fn remove(&mut self, parent: Fid, entry: DirEntry, path: Vec<u8>) -> bool {
        let list = match self.client.list(self.volume, entry.fid).await {
            Ok(list) => list,
            Err(error) => {
                self.failed(error, &path);
                return false;
            }
        };
        let all = list.len();
        let path_of = |name: &[u8]| [&path, b"/".as_slice(), name].concat();
        let list = list
            .into_iter()
            .filter(|entry| !(self.stays)(&path_of(&entry.name), entry.fid));
        let (directories, others): (Vec<_>, Vec<_>) =
            list.partition(|entry| entry.fid.vnode.is_directory());
        let mut empty = directories.len() + others.len() == all;
        empty &= self.remove_files(entry.fid, others, &path).await;
        for below in directories {
            let below_path = path_of(&below.name);
            empty &= Box::pin(self.remove(entry.fid, below, below_path)).await;
        }
        if !empty {
            // That something could not be removed was said.
            return false;
        }
        if !self.pretend {
            let removed = self.client.remove_dir(self.volume, parent, &entry).await;
            if let Err(error) = removed {
                self.failed(error, &path);
                return false;
            }
        }
        self.removed += 1;
        true
    }

    fn failed(&mut self, error: afar_cell::Error, path: &[u8]) {
        let path = String::from_utf8_lossy(path).into_owned();
        (self.note)(anyhow::Error::from(error).context(path));
    }

    /// Removes entries of a directory that are no directories; returns whether all are gone.
    async fn remove_files(&mut self, directory: Fid, entries: Vec<DirEntry>, path: &[u8]) -> bool {
        let fids: Vec<_> = entries.iter().map(|entry| entry.fid).collect();
        let statuses = self.client.statuses(self.volume, &fids).await;
        let path = String::from_utf8_lossy(path);
        let mut waiting = entries.into_iter().zip(statuses);
        let (mut running, mut all_gone) = (JoinSet::new(), true);
        loop {
            while running.len() < AT_A_TIME
                && let Some((entry, status)) = waiting.next()
            {
                let (client, volume) = (self.client.clone(), Arc::clone(self.volume));
                let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                let pretend = self.pretend;
                running.spawn(async move {
                    if status.is_ok_and(|status| status.is_mount_point()) {
                        bail!("{path}: is a mount point; remove it with afar fs rmmount");
                    }
                    if pretend {
                        return Ok(());
                    }
                    let removed = client.remove_file(&volume, directory, &entry).await;
                    removed.map(drop).with_context(|| path)
                });
            }
            match running.join_next().await {
                None => return all_gone,
                Some(Ok(Ok(()))) => self.removed += 1,
                Some(Ok(Err(error))) => {
                    all_gone = false;
                    (self.note)(error);
                }
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }
}

pub(super) async fn run_rmdir(args: &RmdirArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut failures = Failures::new(&args.reach);
    for path in &args.directories {
        if let Err(error) = remove_empty(client, path).await {
            failures.note(error.context(shown(path)));
        }
    }
    Ok(failures.exit_code())
}

async fn remove_empty(client: &Client, path: &std::path::Path) -> anyhow::Result<()> {
    let slot = client
        .slot(bytes(path))
        .await
        .map_err(|error| error.cause)?;
    let entry = slot.entry().ok_or(PathCause::NotFound)?;
    if !entry.fid.vnode.is_directory() {
        bail!("not a directory");
    }
    let list = client.list(&slot.volume, entry.fid).await?;
    if !list.is_empty() {
        bail!("it is not empty; use afar rm -r to remove it recursively");
    }
    client
        .remove_dir(&slot.volume, slot.directory, &entry)
        .await?;
    Ok(())
}

fn not_found(path: &std::path::Path) -> anyhow::Error {
    anyhow::Error::new(PathCause::NotFound).context(shown(path))
}
