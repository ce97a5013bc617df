//! `afar ln`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_cell::{Client, PathCause};
use anyhow::{Context, bail};

use super::{Failures, Reach, bytes, shown};

/// Options of `afar ln`.
#[derive(Debug, clap::Args)]
pub(crate) struct LnArgs {
    /// The link's target: with -s any text, else a file in the same directory
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The link, under /afs
    #[arg(value_name = "LINK")]
    pub(super) link: PathBuf,
    /// Create a symbolic link
    #[arg(short = 's', long)]
    symbolic: bool,
    /// Replace an existing link or file
    #[arg(short = 'f', long)]
    force: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &LnArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut failures = Failures::new(&args.reach);
    if let Err(error) = link(args, client).await {
        failures.note(error.context(shown(&args.link)));
    }
    Ok(failures.exit_code())
}

async fn link(args: &LnArgs, client: &Client) -> anyhow::Result<()> {
    let slot = client
        .slot(bytes(&args.link))
        .await
        .map_err(|error| error.cause)?;
    let existing = match args.symbolic {
        true => None,
        false => Some(existing(client, &args.target).await?),
    };
    if let Some(existing) = &existing {
        let same = existing.volume.id() == slot.volume.id()
            && existing.volume.cell_name() == slot.volume.cell_name()
            && existing.directory == slot.directory;
        if !same {
            bail!("AFS has hard links within one directory only; use -s for a symbolic link");
        }
    }
    if let Some(entry) = slot.entry() {
        if !args.force {
            bail!("this name exists already; add -f to replace it");
        }
        if entry.fid.vnode.is_directory()
            || client
                .status(&slot.volume, entry.fid)
                .await?
                .is_mount_point()
        {
            bail!("is a directory, which a link cannot replace");
        }
        client
            .remove_file(&slot.volume, slot.directory, &entry)
            .await?;
    }
    match existing.and_then(|existing| existing.fid) {
        Some(fid) => {
            client
                .link(&slot.volume, slot.directory, &slot.name, fid)
                .await?;
        }
        None => {
            let target = bytes(&args.target);
            client
                .symlink(&slot.volume, slot.directory, &slot.name, target)
                .await?;
        }
    }
    Ok(())
}

/// The file to link to.
async fn existing(client: &Client, path: &Path) -> anyhow::Result<afar_cell::Slot> {
    let slot = client.slot(bytes(path)).await?;
    let fid = slot.fid.ok_or(PathCause::NotFound);
    let fid = fid.with_context(|| shown(path))?;
    if fid.vnode.is_directory() {
        bail!("{} is a directory; use -s for a symbolic link", shown(path));
    }
    Ok(slot)
}
