//! Which files a record belongs to.

use std::fmt;

use afar_dir::{Directory, PAGE_SIZE};
use afar_types::{VnodeId, VolumeId};

use super::skip_damaged;
use crate::error::Result;
use crate::meta::{At, Item, MemberState, Rows};
use crate::partition::Reader;
use crate::vnode::read_page;

/// Most owners that are named of one record.
const OWNERS: usize = 100;
/// Deeper than any path is.
const DEPTH: usize = 4_096;

/// A file that a record belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOwner {
    /// The volume or clone it is in.
    pub volume: VolumeId,
    /// The file.
    pub vnode: VnodeId,
    /// One of its names, from the volume's root; `None` if none is found.
    pub path: Option<String>,
}

impl fmt::Display for RecordOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {}: vnode {}", self.volume, self.vnode)?;
        match &self.path {
            Some(path) => write!(f, " ({path})"),
            None => Ok(()),
        }
    }
}

/// The files that have a record, given the value of its row.
pub(super) fn owners(
    reader: &Reader,
    tree: u64,
    item: Item,
    value: &[u8],
) -> Result<Vec<RecordOwner>> {
    let mut owners = Vec::new();
    for (generation, volume, state) in reader.members(tree)? {
        let at = At { tree, generation };
        let sees = skip_damaged(reader.row(at, item))?.flatten() == Some(value);
        if state == MemberState::Live && sees && owners.len() < OWNERS {
            owners.push(RecordOwner {
                volume: VolumeId(volume),
                vnode: VnodeId(item.vnode),
                path: skip_damaged(path(reader, at, item.vnode))?.flatten(),
            });
        }
    }
    Ok(owners)
}

/// The first name of a vnode that is found, from the root on.
fn path(reader: &Reader, at: At, vnode: u32) -> Result<Option<String>> {
    let mut names = Vec::new();
    let mut below = vnode;
    for _ in 0..DEPTH {
        let Some(node) = reader.vnode(at, below)? else {
            return Ok(None);
        };
        if node.parent == 0 {
            names.reverse();
            return Ok(Some(format!("/{}", names.join("/"))));
        }
        let Some(parent) = reader.vnode(at, node.parent)? else {
            return Ok(None);
        };
        let mut data = Vec::new();
        for page in 0..usize::try_from(parent.length).unwrap_or(usize::MAX) / PAGE_SIZE {
            data.extend_from_slice(&*read_page(&**reader, at, node.parent, page)?);
        }
        let Ok(directory) = Directory::new(&data) else {
            return Ok(None);
        };
        let mut entries = directory.entries().flatten();
        let entry = entries.find(|entry| {
            entry.id.vnode.0 == below
                && entry.id.uniquifier.0 == node.uniquifier
                && entry.name != b"."
        });
        let Some(entry) = entry else { return Ok(None) };
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        below = node.parent;
    }
    Ok(None)
}
