//! `afar rm` and `afar rmdir`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::{Client, DirEntry, PathCause, Slot, Volume};
use afar_types::{Fid, FileType};
use anyhow::{Context, bail};
use tokio::task::JoinSet;

use super::{Failures, Reach, bytes, shown};

/// Names removed at a time: the server takes those of one directory one after the other, but need
/// not wait for us in between.
const AT_A_TIME: usize = 16;

/// Options of `afar rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// What to remove, under /afs
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Directories with all below them; mount points are neither removed nor gone through
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// What does not exist is no error
    #[arg(short = 'f', long)]
    force: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// Options of `afar rmdir`.
#[derive(Debug, clap::Args)]
pub(crate) struct RmdirArgs {
    /// Empty directories under /afs
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
        bail!("is a directory; add -r to remove it with all below it");
    }
    let mut tree = Tree {
        client,
        volume: &slot.volume,
        failures,
    };
    tree.remove(slot.directory, entry, path.to_owned()).await;
    Ok(())
}

/// Removes trees of one volume.
struct Tree<'a> {
    client: &'a Client,
    volume: &'a Arc<Volume>,
    failures: &'a mut Failures,
}

impl Tree<'_> {
    /// Removes a directory with all below it; returns whether it is gone.
    async fn remove(&mut self, parent: Fid, entry: DirEntry, path: String) -> bool {
        let list = match self.client.list(self.volume, entry.fid).await {
            Ok(list) => list,
            Err(error) => {
                self.failures.note(anyhow::Error::from(error).context(path));
                return false;
            }
        };
        let (directories, others): (Vec<_>, Vec<_>) = list
            .into_iter()
            .partition(|entry| entry.fid.vnode.is_directory());
        let mut empty = self.remove_files(entry.fid, others, &path).await;
        for below in directories {
            let below_path = format!("{path}/{}", String::from_utf8_lossy(&below.name));
            empty &= Box::pin(self.remove(entry.fid, below, below_path)).await;
        }
        if !empty {
            // That something is left in it was said.
            return false;
        }
        match self.client.remove_dir(self.volume, parent, &entry).await {
            Ok(_) => true,
            Err(error) => {
                self.failures.note(anyhow::Error::from(error).context(path));
                false
            }
        }
    }

    /// Removes entries of a directory that are no directories; returns whether all are gone.
    async fn remove_files(&mut self, directory: Fid, entries: Vec<DirEntry>, path: &str) -> bool {
        let fids: Vec<_> = entries.iter().map(|entry| entry.fid).collect();
        let statuses = self.client.statuses(self.volume, &fids).await;
        let mut waiting = entries.into_iter().zip(statuses);
        let (mut running, mut all_gone) = (JoinSet::new(), true);
        loop {
            while running.len() < AT_A_TIME
                && let Some((entry, status)) = waiting.next()
            {
                let (client, volume) = (self.client.clone(), Arc::clone(self.volume));
                let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                running.spawn(async move {
                    if status.is_ok_and(|status| {
                        status.file_type == FileType::Symlink && status.is_mount_point()
                    }) {
                        bail!("{path}: is a mount point; remove it with afar fs rmmount");
                    }
                    let removed = client.remove_file(&volume, directory, &entry).await;
                    removed.map(drop).with_context(|| path)
                });
            }
            match running.join_next().await {
                None => return all_gone,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    all_gone = false;
                    self.failures.note(error);
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
        bail!("it is not empty; use afar rm -r to remove it with all below it");
    }
    client
        .remove_dir(&slot.volume, slot.directory, &entry)
        .await?;
    Ok(())
}

fn not_found(path: &std::path::Path) -> anyhow::Error {
    anyhow::Error::new(PathCause::NotFound).context(shown(path))
}
