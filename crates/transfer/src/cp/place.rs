//! Where copies go in AFS, by the rules of cp.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_cell::{self as cell, Client, LastLink, Node, PathCause, Volume};
use afar_types::{Fid, FileType};

use super::options::Destination;
use crate::error::{Result, bail};
use crate::path::{bytes, shown};

/// Where copies go.
#[derive(Debug)]
pub(super) enum AfsDestination {
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

impl AfsDestination {
    /// Looks at the destination of so many sources.
    ///
    /// # Errors
    /// When it is no directory and must be one, or leads nowhere.
    pub(super) async fn new(
        client: &Client,
        destination: &Destination,
        sources: usize,
    ) -> Result<Self> {
        let path = match destination {
            Destination::Into(directory) => {
                return match client.walk(bytes(directory), LastLink::Follow).await? {
                    cell::Walked::Node(node) if node.status.file_type == FileType::Directory => {
                        Ok(Self::Into(node, directory.clone()))
                    }
                    cell::Walked::Node(_) => bail!("{}: not a directory", shown(directory)),
                    cell::Walked::Afs => {
                        bail!(IntoCell => "/afs: holds only cells")
                    }
                };
            }
            Destination::Exactly(path) => return Ok(Self::Exactly(target(client, path).await?)),
            Destination::Usual(path) => path,
        };
        match client.walk(bytes(path), LastLink::Follow).await {
            Ok(cell::Walked::Node(node)) if node.status.file_type == FileType::Directory => {
                return Ok(Self::Into(node, path.clone()));
            }
            Ok(cell::Walked::Afs) => {
                bail!(IntoCell => "/afs: holds only cells")
            }
            Ok(cell::Walked::Node(_)) => {}
            Err(error) if matches!(error.cause, PathCause::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        if sources > 1 {
            bail!(
                CreateDirectory => "{}: not a directory, which several sources need",
                shown(path)
            );
        }
        Ok(Self::Exactly(target(client, path).await?))
    }

    /// Where the copy of this source goes.
    ///
    /// # Errors
    /// When the source has no name to give to it, as `..`, or the directory cannot be read.
    pub(super) async fn of(&self, client: &Client, source: &Path) -> Result<Target> {
        let (node, path) = match self {
            Self::Exactly(target) => return Ok(target.clone()),
            Self::Into(node, path) => (node, path),
        };
        let Some(name) = source.file_name() else {
            bail!(
                NameCopy => "{}: has no name of its own",
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

async fn target(client: &Client, path: &Path) -> Result<Target> {
    let slot = client.slot(bytes(path)).await?;
    Ok(Target {
        volume: slot.volume,
        directory: slot.directory,
        name: slot.name,
        existing: slot.fid,
        path: path.to_owned(),
    })
}
