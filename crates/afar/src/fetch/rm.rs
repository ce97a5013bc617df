//! `afar rm` and `afar rmdir`.

use std::path::PathBuf;
use std::process::ExitCode;

use afar_cell::{Client, DirEntry, PathCause, Slot};
use afar_transfer::Tree;
use anyhow::bail;

use super::{Failures, Reach, bytes, plain, shown};

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
        note: &mut |error| failures.note(plain(error)),
    };
    tree.remove(slot.directory, entry, path.as_bytes().to_vec())
        .await;
    Ok(())
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
