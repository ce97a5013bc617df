//! `afar mv`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_cell::{Client, LastLink, PathCause, PathError, Slot, Walked};
use afar_types::FileType;
use anyhow::bail;

use super::{Failures, Reach, bytes, shown};

/// Options of `afar mv`.
#[derive(Debug, clap::Args)]
pub(crate) struct MvArgs {
    /// Sources and destination, within one volume: `SOURCE DEST` or `SOURCE… DIRECTORY`
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Do not overwrite existing files
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// Treat DEST as the new name itself, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &MvArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut failures = Failures::new(&args.reach);
    let Some((last, sources)) = args.paths.split_last() else {
        bail!("give a source and a destination");
    };
    if args.no_target_directory && sources.len() > 1 {
        bail!("-T takes one source; {} were given", sources.len());
    }
    let into = !args.no_target_directory && is_directory(client, last).await?;
    if !into && sources.len() > 1 {
        bail!(
            "{}: not a directory, which several sources need; make it first",
            last.display()
        );
    }
    for source in sources {
        let to = match source.file_name() {
            Some(name) if into => last.join(name),
            _ => last.clone(),
        };
        if let Err(error) = rename(args, client, source, &to).await {
            failures.note(error);
        }
    }
    Ok(failures.exit_code())
}

/// Whether a path leads to a directory.
async fn is_directory(client: &Client, path: &Path) -> Result<bool, PathError> {
    match client.walk(bytes(path), LastLink::Follow).await {
        Ok(Walked::Afs) => Ok(true),
        Ok(Walked::Node(node)) => Ok(node.status.file_type == FileType::Directory),
        Err(error) if matches!(error.cause, PathCause::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn rename(args: &MvArgs, client: &Client, source: &Path, to: &Path) -> anyhow::Result<()> {
    let from: Slot = client.slot(bytes(source)).await?;
    let Some(entry) = from.entry() else {
        return Err(anyhow::Error::new(PathCause::NotFound).context(shown(source)));
    };
    let slot = client.slot(bytes(to)).await?;
    if slot.fid.is_some() && args.no_clobber {
        return Ok(());
    }
    if slot.fid == Some(entry.fid) {
        bail!(
            "{} and {} are the same file",
            source.display(),
            to.display()
        );
    }
    if (from.volume.id(), from.volume.cell_name()) != (slot.volume.id(), slot.volume.cell_name()) {
        bail!(
            "{}: is in volume {} and cannot be moved to volume {}; copy it with afar cp -a and \
             then remove it",
            source.display(),
            from.volume,
            slot.volume
        );
    }
    let moved = client
        .rename(
            &from.volume,
            from.directory,
            &entry,
            slot.directory,
            &slot.name,
        )
        .await;
    moved
        .map(drop)
        .map_err(|error| anyhow::Error::from(error).context(shown(source)))
}
