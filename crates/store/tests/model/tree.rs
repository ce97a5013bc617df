//! What a volume holds: vnodes by number. Clones share the nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use afar_dir::{EditError, Editor, EntryId};
use afar_store::VnodeStatus;
use afar_types::{
    AclRecord, DataVersion, Fid, FileType, PtsId, Uniquifier, UnixTime, VnodeId, VolumeId,
};

use crate::data::Data;
use crate::failure::{Failure, Outcome};

/// A vnode's number and uniquifier.
pub(crate) type Id = (u32, u32);

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) uniquifier: u32,
    pub(crate) data_version: u64,
    pub(crate) link_count: u32,
    pub(crate) mode: u16,
    pub(crate) owner: i32,
    pub(crate) group: i32,
    pub(crate) author: i32,
    pub(crate) modify_time: u32,
    pub(crate) server_modify_time: u32,
    /// 0 of the root.
    pub(crate) parent: u32,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    File(Data),
    Symlink(Data),
    Directory(Directory),
}

/// A directory twice: as a map, and as the pages a client would make of the same changes.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub(crate) entries: BTreeMap<Vec<u8>, Id>,
    pub(crate) pages: Vec<u8>,
    pub(crate) acl: AclRecord,
}

impl Directory {
    pub(crate) fn new(own: Id, parent: Id, acl: AclRecord) -> Self {
        Self {
            entries: BTreeMap::new(),
            pages: afar_dir::make(entry(own), entry(parent)).to_vec(),
            acl,
        }
    }

    fn edit<T>(
        &mut self,
        edit: impl FnOnce(&mut Editor<&mut Vec<u8>>) -> Result<T, EditError<std::convert::Infallible>>,
    ) -> Outcome<T> {
        let mut editor = Editor::open(&mut self.pages).expect("the model's pages are sound");
        edit(&mut editor).map_err(|error| match error {
            EditError::Exists => Failure::Exists,
            EditError::NotFound => Failure::NotFound,
            EditError::Name | EditError::NameTooLong => Failure::BadName,
            EditError::Full => Failure::DirectoryFull,
            other => panic!("the model's directory fails: {other}"),
        })
    }

    pub(crate) fn insert(&mut self, name: &[u8], id: Id) -> Outcome<()> {
        self.edit(|editor| editor.insert(name, entry(id)))?;
        let before = self.entries.insert(name.to_vec(), id);
        assert_eq!(before, None);
        Ok(())
    }

    pub(crate) fn replace(&mut self, name: &[u8], id: Id) -> Outcome<()> {
        self.edit(|editor| editor.replace(name, entry(id)))?;
        assert!(self.entries.insert(name.to_vec(), id).is_some());
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Outcome<Id> {
        self.edit(|editor| editor.remove(name))?;
        Ok(self
            .entries
            .remove(name)
            .expect("the map has what the pages have"))
    }

    pub(crate) fn set_parent(&mut self, parent: Id) {
        self.edit(|editor| editor.set_parent(entry(parent)))
            .expect("there is always a parent");
    }
}

fn entry((vnode, uniquifier): Id) -> EntryId {
    EntryId::new(vnode, uniquifier)
}

impl Node {
    pub(crate) fn length(&self) -> u64 {
        match &self.content {
            Content::File(data) | Content::Symlink(data) => data.length(),
            Content::Directory(directory) => directory.pages.len() as u64,
        }
    }

    /// KiB it counts for.
    pub(crate) fn blocks(&self) -> u64 {
        self.length().div_ceil(1024).max(1)
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        match &self.content {
            Content::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn directory_mut(&mut self) -> &mut Directory {
        match &mut self.content {
            Content::Directory(directory) => directory,
            _ => panic!("the model takes a file for a directory"),
        }
    }

    pub(crate) fn data(&self) -> Option<&Data> {
        match &self.content {
            Content::File(data) | Content::Symlink(data) => Some(data),
            Content::Directory(_) => None,
        }
    }

    /// A part of what a read returns.
    pub(crate) fn read(&self, from: u64, len: usize) -> Vec<u8> {
        match &self.content {
            Content::File(data) | Content::Symlink(data) => data.read(from, len),
            Content::Directory(directory) => {
                let from = usize::try_from(from)
                    .unwrap_or(usize::MAX)
                    .min(directory.pages.len());
                let to = from.saturating_add(len).min(directory.pages.len());
                directory.pages[from..to].to_vec()
            }
        }
    }

    fn file_type(&self) -> FileType {
        match self.content {
            Content::File(_) => FileType::File,
            Content::Symlink(_) => FileType::Symlink,
            Content::Directory(_) => FileType::Directory,
        }
    }
}

/// All vnodes of a volume.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<u32, Arc<Node>>,
    /// If it is a part of a volume only, the directory that part is in.
    pub(crate) outside: Option<Id>,
}

impl Tree {
    pub(crate) fn node(&self, fid: Fid) -> Outcome<&Node> {
        match self.nodes.get(&fid.vnode.0) {
            Some(node) if node.uniquifier == fid.uniquifier.0 => Ok(node),
            _ => Err(Failure::NoVnode),
        }
    }

    pub(crate) fn directory(&self, fid: Fid) -> Outcome<&Directory> {
        self.node(fid)?.directory().ok_or(Failure::NotDirectory)
    }

    pub(crate) fn status(&self, volume: u32, vnode: u32) -> VnodeStatus {
        let node = &self.nodes[&vnode];
        let parent = if node.parent == 0 { vnode } else { node.parent };
        VnodeStatus {
            fid: fid(volume, (vnode, node.uniquifier)),
            file_type: node.file_type(),
            link_count: node.link_count,
            length: node.length(),
            data_version: DataVersion(node.data_version),
            author: PtsId(node.author),
            owner: PtsId(node.owner),
            group: PtsId(node.group),
            mode: node.mode,
            parent: VnodeId(parent),
            parent_uniquifier: Uniquifier(self.uniquifier(parent)),
            modify_time: UnixTime(node.modify_time),
            server_modify_time: UnixTime(node.server_modify_time),
        }
    }

    pub(crate) fn uniquifier(&self, vnode: u32) -> u32 {
        match self.outside {
            Some((outside, uniquifier)) if outside == vnode => uniquifier,
            _ => self.nodes[&vnode].uniquifier,
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.nodes.values().map(|node| node.blocks()).sum()
    }
}

pub(crate) fn fid(volume: u32, (vnode, uniquifier): Id) -> Fid {
    Fid {
        volume: VolumeId(volume),
        vnode: VnodeId(vnode),
        uniquifier: Uniquifier(uniquifier),
    }
}
