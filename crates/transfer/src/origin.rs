//! What is copied, and what is in it.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_cell::{Client, Node, PathCause, PathError};

use crate::error::{Error, Result};
use crate::facts::Facts;

/// Something that can be copied.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Local(PathBuf),
    Afs(Node),
}

/// Names in a directory with what has them, or why that cannot be told.
pub(crate) type Children = Vec<(Vec<u8>, Result<(Origin, Facts)>)>;

/// What is in a directory, which has this path, symlinks as symlinks.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) async fn children(client: &Client, directory: &Origin, path: &[u8]) -> Result<Children> {
    match directory {
        Origin::Local(directory) => {
            let directory = directory.clone();
            let reading = tokio::task::spawn_blocking(move || local_children(&directory));
            Ok(reading.await.map_err(io::Error::other)??)
        }
        Origin::Afs(node) => afs_children(client, node, path).await,
    }
}

fn local_children(directory: &Path) -> io::Result<Children> {
    let mut children = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let child = match entry.metadata() {
            Ok(metadata) => Ok((Origin::Local(path), Facts::from(&metadata))),
            // Removed since the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Err(Error::from(error).context(path.display().to_string())),
        };
        children.push((entry.file_name().into_vec(), child));
    }
    children.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(children)
}

async fn afs_children(client: &Client, node: &Node, path: &[u8]) -> Result<Children> {
    let list = client.list(&node.volume, node.fid).await?;
    let fids: Vec<_> = list.iter().map(|entry| entry.fid).collect();
    let statuses = client.statuses(&node.volume, &fids).await;
    let children = list.into_iter().zip(statuses).map(|(entry, status)| {
        let child = match status {
            Ok(status) => {
                let origin = Origin::Afs(Node {
                    volume: Arc::clone(&node.volume),
                    fid: entry.fid,
                    status,
                    mount: None,
                });
                Ok((origin, Facts::from(&status)))
            }
            Err(error) => {
                let path = [path, b"/", &entry.name].concat();
                Err(Error::from(PathError {
                    path: String::from_utf8_lossy(&path).into_owned(),
                    cause: PathCause::Cell(error),
                }))
            }
        };
        (entry.name, child)
    });
    Ok(children.collect())
}
