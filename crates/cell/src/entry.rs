//! A place in a directory: where something is, or is to be made.

use std::sync::Arc;

use afar_types::{Fid, FileType};

use crate::client::Client;
use crate::error::{PathCause, PathError};
use crate::files::DirEntry;
use crate::path::{LastLink, Walked};
use crate::sysname;
use crate::volume::Volume;

/// A name in a directory, and what has it. Neither symlinks nor mount points are followed.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The volume the directory is in.
    pub volume: Arc<Volume>,
    /// The directory.
    pub directory: Fid,
    /// The name.
    pub name: Vec<u8>,
    /// What has the name, if anything has.
    pub fid: Option<Fid>,
}

impl Slot {
    /// The entry, if there is one.
    #[must_use]
    pub fn entry(&self) -> Option<DirEntry> {
        self.fid.map(|fid| DirEntry {
            name: self.name.clone(),
            fid,
        })
    }
}

impl Client {
    /// The place that a path names: its directory is followed to, its last part is not. Slashes at
    /// the end mean nothing.
    ///
    /// # Errors
    /// When the path ends in no name, or its directory cannot be followed to.
    pub async fn slot(&self, path: &[u8]) -> Result<Slot, PathError> {
        let fail = |cause| PathError::new(path, cause);
        let trimmed = trim_slashes(path);
        let cut = trimmed.iter().rposition(|&byte| byte == b'/');
        let cut = cut.ok_or_else(|| fail(PathCause::NotAfs))?;
        let (parent, name) = (&trimmed[..cut], &trimmed[cut + 1..]);
        if matches!(name, b"" | b"." | b"..") {
            return Err(fail(PathCause::NoName));
        }
        // The directory of `/afs` is no part of AFS.
        if parent.iter().all(|&byte| byte == b'/') {
            let cause = if name == b"afs" {
                PathCause::CellRoot
            } else {
                PathCause::NotAfs
            };
            return Err(fail(cause));
        }
        let node = match self.walk(parent, LastLink::Follow).await? {
            Walked::Afs => return Err(fail(PathCause::CellRoot)),
            Walked::Node(node) => node,
        };
        if node.status.file_type != FileType::Directory {
            return Err(fail(PathCause::NotDirectory));
        }
        let mut slot = Slot {
            volume: node.volume,
            directory: node.fid,
            name: name.to_vec(),
            fid: None,
        };
        for name in sysname::expand(name, &self.config().sysnames) {
            let found = self.lookup(&slot.volume, slot.directory, &name).await;
            if let Some(fid) = found.map_err(|error| fail(error.into()))? {
                slot.name = name;
                slot.fid = Some(fid);
                break;
            }
        }
        Ok(slot)
    }
}

/// A path without the slashes at its end.
fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/');
    &path[..end.map_or(0, |end| end + 1)]
}
