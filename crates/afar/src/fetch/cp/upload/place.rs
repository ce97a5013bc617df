//! Where copies go in AFS, by the rules of cp.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_cell::{Client, LastLink, Node, PathCause, Place, Volume};
use afar_types::{Fid, FileType};
use anyhow::bail;

use super::super::CpArgs;
use crate::fetch::{bytes, shown};

/// Where copies go.
#[derive(Debug)]
pub(super) enum Destination {
    /// There, under their own names.
    Into(Node, PathBuf),
    /// The only copy gets this name.
    Exactly(Target),
}

/// A name in a directory that a copy is to have.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) volume: Arc<Volume>,
    pub(super) directory: Fid,
    pub(super) name: Vec<u8>,
    /// What has the name now.
    pub(super) existing: Option<Fid>,
    /// Its path, for messages.
    pub(super) path: PathBuf,
}

impl Destination {
    /// Splits the paths into sources and destination.
    ///
    /// # Errors
    /// When there is no destination, or several sources and it is no directory.
    pub(super) async fn new<'a>(
        args: &'a CpArgs,
        client: &Client,
    ) -> anyhow::Result<(&'a [PathBuf], Self)> {
        if let Some(directory) = &args.target_directory {
            return match client.walk(bytes(directory), LastLink::Follow).await? {
                Place::Node(node) if node.status.file_type == FileType::Directory => {
                    Ok((&args.paths, Self::Into(node, directory.clone())))
                }
                Place::Node(_) => bail!("{}: not a directory", shown(directory)),
                Place::Afs => bail!("/afs: holds only cells; copy to a directory below /afs/CELL"),
            };
        }
        let Some((last, sources)) = args.paths.split_last() else {
            bail!("nothing to copy; give SOURCE and DEST");
        };
        if sources.is_empty() {
            bail!("{}: missing source; give SOURCE and DEST", shown(last));
        }
        if args.no_target_directory {
            if sources.len() > 1 {
                bail!("-T takes one source; {} were given", sources.len());
            }
            return Ok((sources, Self::Exactly(target(client, last).await?)));
        }
        match client.walk(bytes(last), LastLink::Follow).await {
            Ok(Place::Node(node)) if node.status.file_type == FileType::Directory => {
                return Ok((sources, Self::Into(node, last.clone())));
            }
            Ok(Place::Afs) => bail!("/afs: holds only cells; copy to a directory below /afs/CELL"),
            Ok(Place::Node(_)) => {}
            Err(error) if matches!(error.cause, PathCause::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        if sources.len() > 1 {
            bail!(
                "{}: not a directory, which several sources need; make it first",
                shown(last)
            );
        }
        Ok((sources, Self::Exactly(target(client, last).await?)))
    }

    /// Where the copy of this source goes.
    ///
    /// # Errors
    /// When the source has no name to give to it, as `..`, or the directory cannot be read.
    pub(super) async fn of(&self, client: &Client, source: &Path) -> anyhow::Result<Target> {
        let (node, path) = match self {
            Self::Exactly(target) => return Ok(target.clone()),
            Self::Into(node, path) => (node, path),
        };
        let Some(name) = source.file_name() else {
            bail!(
                "{}: has no name of its own; name the copy, with -T",
                shown(source)
            );
        };
        let name = name.as_encoded_bytes();
        let existing = client.lookup(&node.volume, node.fid, name).await?;
        Ok(Target {
            volume: Arc::clone(&node.volume),
            directory: node.fid,
            name: name.to_vec(),
            existing,
            path: path.join(source.file_name().unwrap_or_default()),
        })
    }
}

async fn target(client: &Client, path: &Path) -> anyhow::Result<Target> {
    let slot = client.slot(bytes(path)).await?;
    Ok(Target {
        volume: slot.volume,
        directory: slot.directory,
        name: slot.name,
        existing: slot.fid,
        path: path.to_owned(),
    })
}
