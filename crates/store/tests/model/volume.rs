//! A volume of the model, and what each operation does to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use afar_store::{NewVnode, SetAttributes, VnodeStatus, VolumeState};
use afar_types::{AclRecord, Fid, PtsId, UnixTime, VolumeType};

use crate::data::{Data, Pattern};
use crate::failure::{Failure, Outcome};
use crate::tree::{Content, Directory, Id, Node, Tree, fid};

/// The most bytes a file can have.
pub(crate) const MAX_LENGTH: u64 = i64::MAX as u64;

#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) id: u32,
    /// What the store tells of it. Usage and counts are kept in step.
    pub(crate) state: VolumeState,
    pub(crate) offline: bool,
    pub(crate) tree: Tree,
    /// Members of one group that descend from the same volume, and in which order they were made.
    pub(crate) line: u64,
    pub(crate) age: u64,
}

/// What making a vnode needs to know from the store: number, uniquifier and the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) id: Id,
    pub(crate) now: u32,
}

pub(crate) enum Made {
    File,
    Directory,
    Symlink(u64, Pattern),
}

/// Statuses of a vnode and of the directory it is in.
pub(crate) type Pair = (VnodeStatus, VnodeStatus);

/// What renaming does: statuses of the vnode and both directories, and of what was replaced.
pub(crate) type Moved = (
    VnodeStatus,
    VnodeStatus,
    VnodeStatus,
    Option<(Fid, Option<VnodeStatus>)>,
);

impl Volume {
    pub(crate) fn online(&self) -> Outcome<()> {
        if self.state.online {
            Ok(())
        } else {
            Err(Failure::Offline)
        }
    }

    pub(crate) fn flag(&mut self) {
        let state = &mut self.state;
        state.online = state.in_service && state.blessed && !self.offline && !state.destroy_me;
    }

    /// Runs a change: all of it happens, or nothing.
    fn change<T>(
        &mut self,
        now: u32,
        change: impl FnOnce(&mut Edit<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        self.online()?;
        if self.state.kind != VolumeType::ReadWrite {
            return Err(Failure::ReadOnly);
        }
        let mut edit = self.edit(now);
        let result = change(&mut edit)?;
        let (mut used, mut count) = (self.state.disk_used, self.state.file_count);
        let nodes = edit.nodes;
        for (vnode, node) in &nodes {
            let old = self.tree.nodes.get(vnode);
            used -= old.map_or(0, |old| old.blocks());
            used += node.as_ref().map_or(0, |node| node.blocks());
            count -= u32::from(old.is_some());
            count += u32::from(node.is_some());
        }
        let quota = self.state.max_quota;
        if used > self.state.disk_used && quota != 0 && used > quota {
            return Err(Failure::OverQuota);
        }
        self.state.disk_used = used;
        self.state.file_count = count;
        self.state.update_date = UnixTime(now);
        for (vnode, node) in nodes {
            match node {
                Some(node) => drop(self.tree.nodes.insert(vnode, Arc::new(node))),
                None => drop(self.tree.nodes.remove(&vnode)),
            }
        }
        Ok(result)
    }

    fn statuses(&self, ids: [u32; 2]) -> Pair {
        let [vnode, directory] = ids;
        (
            self.tree.status(self.id, vnode),
            self.tree.status(self.id, directory),
        )
    }

    pub(crate) fn make(
        &mut self,
        directory: Fid,
        name: &[u8],
        new: &NewVnode,
        made: &Made,
        given: Given,
    ) -> Outcome<Pair> {
        self.change(given.now, |edit| {
            edit.make(directory, name, new, made, given.id)
        })?;
        self.state.uniquifier = self.state.uniquifier.max(given.id.1);
        Ok(self.statuses([given.id.0, directory.vnode.0]))
    }

    pub(crate) fn link(
        &mut self,
        directory: Fid,
        name: &[u8],
        file: Fid,
        now: u32,
    ) -> Outcome<Pair> {
        self.change(now, |edit| edit.link(directory, name, file))?;
        Ok(self.statuses([file.vnode.0, directory.vnode.0]))
    }

    /// The fid, its status if it is left, and the directory's.
    pub(crate) fn unlink(
        &mut self,
        directory: Fid,
        name: &[u8],
        is_directory: bool,
        now: u32,
    ) -> Outcome<(Fid, Option<VnodeStatus>, VnodeStatus)> {
        let gone = self.change(now, |edit| edit.unlink(directory, name, is_directory))?;
        Ok((
            gone,
            self.left(gone),
            self.tree.status(self.id, directory.vnode.0),
        ))
    }

    fn left(&self, gone: Fid) -> Option<VnodeStatus> {
        let node = self.tree.node(gone).ok();
        node.map(|_| self.tree.status(self.id, gone.vnode.0))
    }

    pub(crate) fn rename(
        &mut self,
        from: Fid,
        name: &[u8],
        to: Fid,
        new_name: &[u8],
        now: u32,
    ) -> Outcome<Moved> {
        let (moved, replaced) = self.change(now, |edit| edit.rename(from, name, to, new_name))?;
        let status = |fid: Fid| self.tree.status(self.id, fid.vnode.0);
        let replaced = replaced.map(|gone| (gone, self.left(gone)));
        Ok((status(moved), status(from), status(to), replaced))
    }

    pub(crate) fn store(&mut self, wanted: &Write, now: u32) -> Outcome<VnodeStatus> {
        self.online()?;
        if self.state.kind != VolumeType::ReadWrite {
            return Err(Failure::ReadOnly);
        }
        let node = self.tree.node(wanted.fid)?;
        let Some(data) = node.data() else {
            return Err(Failure::IsDirectory);
        };
        let end = wanted.offset.saturating_add(wanted.len);
        let length = match wanted.file_length {
            Some(cut) if wanted.len > 0 => end.max(cut.min(data.length())),
            Some(cut) => cut,
            None if wanted.len > 0 => end.max(data.length()),
            None => data.length(),
        };
        if end > MAX_LENGTH || length > MAX_LENGTH {
            return Err(Failure::TooBig);
        }
        if matches!(node.content, Content::Symlink(_)) && !(1..=1024).contains(&length) {
            return Err(Failure::OutOfRange);
        }
        self.change(now, |edit| {
            let node = edit.node(wanted.fid)?;
            let (Content::File(data) | Content::Symlink(data)) = &mut node.content else {
                return Err(Failure::IsDirectory);
            };
            data.write(wanted.offset, wanted.len, wanted.pattern);
            data.truncate(length);
            node.data_version += 1;
            node.author = wanted.author;
            node.modify_time = wanted.modify_time.unwrap_or(now);
            node.server_modify_time = now;
            Ok(())
        })?;
        Ok(self.tree.status(self.id, wanted.fid.vnode.0))
    }

    pub(crate) fn set_attributes(
        &mut self,
        fid: Fid,
        wanted: &SetAttributes,
        now: u32,
    ) -> Outcome<VnodeStatus> {
        self.change(now, |edit| {
            let node = edit.node(fid)?;
            node.mode = wanted.mode.map_or(node.mode, |mode| mode & 0o7777);
            node.owner = wanted.owner.map_or(node.owner, |PtsId(id)| id);
            node.group = wanted.group.map_or(node.group, |PtsId(id)| id);
            node.modify_time = wanted.modify_time.map_or(node.modify_time, |time| time.0);
            node.server_modify_time = now;
            Ok(())
        })?;
        Ok(self.tree.status(self.id, fid.vnode.0))
    }

    pub(crate) fn set_acl(&mut self, fid: Fid, acl: &AclRecord, now: u32) -> Outcome<VnodeStatus> {
        self.change(now, |edit| {
            let node = edit.directory(fid)?;
            node.directory_mut().acl = acl.clone();
            node.server_modify_time = now;
            Ok(())
        })?;
        Ok(self.tree.status(self.id, fid.vnode.0))
    }

    pub(crate) fn lookup(&self, directory: Fid, name: &[u8]) -> Outcome<Fid> {
        self.online()?;
        let mut edit = self.edit(0);
        let found = edit.lookup(directory, name)?.ok_or(Failure::NotFound)?;
        Ok(fid(self.id, found))
    }

    fn edit(&self, now: u32) -> Edit<'_> {
        Edit {
            base: &self.tree,
            nodes: BTreeMap::new(),
            volume: self.id,
            now,
        }
    }
}

/// Data to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) fid: Fid,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) pattern: Pattern,
    pub(crate) file_length: Option<u64>,
    pub(crate) author: i32,
    pub(crate) modify_time: Option<u32>,
}

/// A change of a tree in progress.
struct Edit<'t> {
    base: &'t Tree,
    /// Vnodes as they are to be; `None` is gone.
    nodes: BTreeMap<u32, Option<Node>>,
    volume: u32,
    now: u32,
}

impl Edit<'_> {
    fn by_number(&mut self, vnode: u32) -> Option<&mut Node> {
        let base = self.base;
        let node = self
            .nodes
            .entry(vnode)
            .or_insert_with(|| base.nodes.get(&vnode).map(|node| Node::clone(node)));
        node.as_mut()
    }

    fn node(&mut self, fid: Fid) -> Outcome<&mut Node> {
        match self.by_number(fid.vnode.0) {
            Some(node) if node.uniquifier == fid.uniquifier.0 => Ok(node),
            _ => Err(Failure::NoVnode),
        }
    }

    fn directory(&mut self, fid: Fid) -> Outcome<&mut Node> {
        let node = self.node(fid)?;
        if node.is_directory() {
            Ok(node)
        } else {
            Err(Failure::NotDirectory)
        }
    }

    fn touch(&mut self, vnode: u32, author: Option<i32>) {
        let now = self.now;
        let node = self.by_number(vnode).expect("a directory that was found");
        node.data_version += 1;
        node.modify_time = now;
        node.server_modify_time = now;
        node.author = author.unwrap_or(node.author);
    }

    fn lookup(&mut self, directory: Fid, name: &[u8]) -> Outcome<Option<Id>> {
        let node = self.directory(directory)?;
        match name {
            b"." => Ok(Some((directory.vnode.0, directory.uniquifier.0))),
            b".." => {
                let parent = if node.parent == 0 {
                    directory.vnode.0
                } else {
                    node.parent
                };
                Ok(Some((parent, self.base.uniquifier(parent))))
            }
            _ => Ok(node.directory_mut().entries.get(name).copied()),
        }
    }

    fn make(
        &mut self,
        directory: Fid,
        name: &[u8],
        new: &NewVnode,
        made: &Made,
        id: Id,
    ) -> Outcome<()> {
        let now = self.now;
        let parent = self.directory(directory)?;
        parent.directory_mut().insert(name, id)?;
        let content = match made {
            Made::File => Content::File(Data::default()),
            Made::Directory => {
                parent.link_count += 1;
                let above = (directory.vnode.0, directory.uniquifier.0);
                let acl = parent.directory_mut().acl.clone();
                Content::Directory(Directory::new(id, above, acl))
            }
            Made::Symlink(len, pattern) => {
                let mut target = Data::default();
                target.write(0, *len, *pattern);
                Content::Symlink(target)
            }
        };
        let node = Node {
            uniquifier: id.1,
            data_version: 0,
            link_count: if matches!(made, Made::Directory) {
                2
            } else {
                1
            },
            mode: new.mode & 0o7777,
            owner: new.owner.0,
            group: new.group.map_or(parent.group, |PtsId(id)| id),
            author: new.owner.0,
            modify_time: new.modify_time.map_or(now, |time| time.0),
            server_modify_time: now,
            parent: directory.vnode.0,
            content,
        };
        self.nodes.insert(id.0, Some(node));
        self.touch(directory.vnode.0, Some(new.owner.0));
        Ok(())
    }

    fn link(&mut self, directory: Fid, name: &[u8], file: Fid) -> Outcome<()> {
        let now = self.now;
        self.directory(directory)?;
        let node = self.node(file)?;
        if node.is_directory() {
            return Err(Failure::IsDirectory);
        }
        if node.parent != directory.vnode.0 {
            return Err(Failure::OtherDirectory);
        }
        node.link_count += 1;
        node.server_modify_time = now;
        let id = (file.vnode.0, file.uniquifier.0);
        self.directory(directory)?
            .directory_mut()
            .insert(name, id)?;
        self.touch(directory.vnode.0, None);
        Ok(())
    }

    fn unlink(&mut self, directory: Fid, name: &[u8], is_directory: bool) -> Outcome<Fid> {
        let id = self.directory(directory)?.directory_mut().remove(name)?;
        let gone = fid(self.volume, id);
        match (is_directory, self.node(gone)?.is_directory()) {
            (true, false) => return Err(Failure::NotDirectory),
            (false, true) => return Err(Failure::IsDirectory),
            _ => {}
        }
        self.drop_name(gone, directory)?;
        self.touch(directory.vnode.0, None);
        Ok(gone)
    }

    fn drop_name(&mut self, gone: Fid, directory: Fid) -> Outcome<()> {
        let now = self.now;
        let node = self.node(gone)?;
        if let Some(pages) = node.directory() {
            if !pages.entries.is_empty() {
                return Err(Failure::NotEmpty);
            }
            self.nodes.insert(gone.vnode.0, None);
            self.directory(directory)?.link_count -= 1;
        } else if node.link_count > 1 {
            node.link_count -= 1;
            node.server_modify_time = now;
        } else {
            self.nodes.insert(gone.vnode.0, None);
        }
        Ok(())
    }

    fn rename(
        &mut self,
        from: Fid,
        name: &[u8],
        to: Fid,
        new_name: &[u8],
    ) -> Outcome<(Fid, Option<Fid>)> {
        let now = self.now;
        let id = self.lookup(from, name)?.ok_or(Failure::NotFound)?;
        if matches!(name, b"." | b"..") {
            return Err(Failure::Loop);
        }
        let moved = fid(self.volume, id);
        let is_directory = self.node(moved)?.is_directory();
        self.directory(to)?;
        if from != to {
            self.may_move(moved, to)?;
        }
        let target = self.lookup(to, new_name)?;
        if target == Some(id) {
            self.nodes.clear();
            return Ok((moved, None));
        }
        let target = target.map(|target| fid(self.volume, target));
        if let Some(target) = target {
            let outside = self.base.outside == Some((target.vnode.0, target.uniquifier.0));
            match (is_directory, outside || self.node(target)?.is_directory()) {
                (true, false) => return Err(Failure::NotDirectory),
                (false, true) => return Err(Failure::IsDirectory),
                _ => {}
            }
            self.directory(to)?.directory_mut().replace(new_name, id)?;
            self.drop_name(target, to)?;
        } else {
            self.directory(to)?.directory_mut().insert(new_name, id)?;
        }
        self.directory(from)?.directory_mut().remove(name)?;
        if from != to {
            let node = self.node(moved)?;
            node.parent = to.vnode.0;
            node.server_modify_time = now;
            if is_directory {
                node.data_version += 1;
                node.directory_mut()
                    .set_parent((to.vnode.0, to.uniquifier.0));
                self.directory(from)?.link_count -= 1;
                self.directory(to)?.link_count += 1;
            }
            self.touch(from.vnode.0, None);
        }
        self.touch(to.vnode.0, None);
        Ok((moved, target))
    }

    fn may_move(&mut self, moved: Fid, to: Fid) -> Outcome<()> {
        let node = self.node(moved)?;
        if !node.is_directory() {
            return if node.link_count == 1 {
                Ok(())
            } else {
                Err(Failure::OtherDirectory)
            };
        }
        let mut above = to.vnode.0;
        while above != 0 {
            if above == moved.vnode.0 {
                return Err(Failure::Loop);
            }
            above = self.base.nodes.get(&above).map_or(0, |node| node.parent);
        }
        Ok(())
    }
}
