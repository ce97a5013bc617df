//! Making, linking, removing and renaming, with the effects AFS clients count on: they edit their
//! cached directory themselves if its data version grew by exactly one.

use afar_dir::EntryId;
use afar_types::{Fid, PtsId, UnixTime, VnodeId};

use super::edit::Edit;
use super::packing::pack_page;
use super::write::{RECORD_SHIFT, record_of};
use super::{VnodeStatus, check_target};
use crate::error::{Result, StoreError};
use crate::meta::{Item, VnodeRow};
use crate::volume::Volume;

/// Attributes of a vnode to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewVnode {
    /// Its owner and author.
    pub owner: PtsId,
    /// Its group; by default the directory's.
    pub group: Option<PtsId>,
    /// The twelve permission bits.
    pub mode: u16,
    /// Its modification time; by default now.
    pub modify_time: Option<UnixTime>,
    /// The fid it is to have, of those that [`Volume::reserve`] has set aside; by default the volume chooses.
    pub fid: Option<Fid>,
}

impl NewVnode {
    /// Of this owner, with these permission bits.
    #[must_use]
    pub fn new(owner: PtsId, mode: u16) -> Self {
        Self {
            owner,
            group: None,
            mode,
            modify_time: None,
            fid: None,
        }
    }
}

/// What making a vnode did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The new vnode.
    pub vnode: VnodeStatus,
    /// The directory it is in.
    pub directory: VnodeStatus,
}

/// What linking did.
pub type Linked = Created;

/// What removing an entry did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// What the entry named.
    pub fid: Fid,
    /// Its attributes if it has other names; `None` if it is gone.
    pub vnode: Option<VnodeStatus>,
    /// The directory it was in.
    pub directory: VnodeStatus,
}

/// What renaming did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// What was renamed.
    pub vnode: VnodeStatus,
    /// The directory it was in.
    pub from: VnodeStatus,
    /// The directory it is in.
    pub to: VnodeStatus,
    /// What had the new name before.
    pub replaced: Option<(Fid, Option<VnodeStatus>)>,
}

impl Volume {
    /// Makes an empty file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`], [`StoreError::OverQuota`], or if the name or the directory is bad.
    pub fn create_file(&self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created> {
        self.make(directory, name, new, Content::File)
    }

    /// Makes an empty directory, with the ACL of the one it is in.
    ///
    /// # Errors
    ///
    /// As [`Volume::create_file`].
    pub fn make_directory(&self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created> {
        self.make(directory, name, new, Content::Directory)
    }

    /// Makes a symlink or, without x bits, a mount point.
    ///
    /// # Errors
    ///
    /// As [`Volume::create_file`], and if the target is empty or too long.
    pub fn symlink(
        &self,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        new: &NewVnode,
    ) -> Result<Created> {
        check_target(target.len() as u64)?;
        self.make(directory, name, new, Content::Symlink(target.to_vec()))
    }

    fn make(
        &self,
        directory: Fid,
        name: &[u8],
        new: &NewVnode,
        content: Content,
    ) -> Result<Created> {
        let (id, directory) = (self.id, self.own(directory)?);
        let (name, new) = (name.to_vec(), *new);
        self.partition.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let made = edit.make(directory, &name, &new, &content)?;
            edit.finish()?;
            Ok(made)
        })
    }

    /// Gives a file another name in its directory.
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherDirectory`] in another one, [`StoreError::IsDirectory`],
    /// [`StoreError::Exists`].
    pub fn link(&self, directory: Fid, name: &[u8], file: Fid) -> Result<Linked> {
        let (id, directory, file) = (self.id, self.own(directory)?, self.own(file)?);
        let name = name.to_vec();
        self.partition.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let linked = edit.link(directory, &name, file)?;
            edit.finish()?;
            Ok(linked)
        })
    }

    /// Removes a name of a file or symlink, and with its last name the vnode.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::IsDirectory`].
    pub fn remove_file(&self, directory: Fid, name: &[u8]) -> Result<Removed> {
        self.remove(directory, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::NotDirectory`], [`StoreError::NotEmpty`].
    pub fn remove_directory(&self, directory: Fid, name: &[u8]) -> Result<Removed> {
        self.remove(directory, name, true)
    }

    fn remove(&self, directory: Fid, name: &[u8], is_directory: bool) -> Result<Removed> {
        let (id, directory) = (self.id, self.own(directory)?);
        let name = name.to_vec();
        self.partition.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let removed = edit.unlink(directory, &name, is_directory)?;
            edit.finish()?;
            Ok(removed)
        })
    }

    /// Renames, also into another directory of the volume, and over an entry of the same sort.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::NotEmpty`], [`StoreError::Loop`],
    /// [`StoreError::OtherDirectory`] for a file with several names, and if what has the new name
    /// is a directory and what is renamed is not, or the other way round.
    pub fn rename(&self, from: Fid, name: &[u8], to: Fid, new_name: &[u8]) -> Result<Renamed> {
        let (id, from, to) = (self.id, self.own(from)?, self.own(to)?);
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.partition.commit(move |change| {
            let mut edit = Edit::begin(change, id)?;
            let renamed = edit.rename(from, &name, to, &new_name)?;
            edit.finish()?;
            Ok(renamed)
        })
    }
}

/// What a new vnode is.
pub(super) enum Content {
    File,
    Directory,
    Symlink(Vec<u8>),
}

impl Edit<'_, '_> {
    pub(super) fn make(
        &mut self,
        directory: Fid,
        name: &[u8],
        new: &NewVnode,
        content: &Content,
    ) -> Result<Created> {
        let mut parent = self.directory(directory)?;
        let own = directory.vnode.0;
        let is_directory = matches!(content, Content::Directory);
        let (vnode, uniquifier) = match new.fid {
            Some(fid) => self.reserved(fid, is_directory)?,
            None => self.allocate(is_directory)?,
        };
        let id = EntryId::new(vnode, uniquifier);
        self.entries(own, &mut parent, |editor| editor.insert(name, id), name)?;
        let now = self.now();
        let mut row = VnodeRow {
            kind: VnodeRow::FILE,
            record_shift: RECORD_SHIFT,
            mode: new.mode & 0o7777,
            link_count: 1,
            uniquifier,
            data_version: 0,
            length: 0,
            modify_time: new.modify_time.map_or(now, |time| time.0),
            server_modify_time: now,
            author: new.owner.0,
            owner: new.owner.0,
            group: new.group.map_or(parent.group, |group| group.0),
            parent: own,
            acl: Vec::new(),
        };
        let at = self.at();
        match content {
            Content::File => {}
            Content::Directory => {
                row.kind = VnodeRow::DIRECTORY;
                row.link_count = 2;
                row.length = afar_dir::PAGE_SIZE as u64;
                row.acl.clone_from(&parent.acl);
                parent.link_count = parent.link_count.saturating_add(1);
                let above = EntryId::new(own, directory.uniquifier.0);
                let page = pack_page(&afar_dir::make(id, above));
                self.change.put_row(at, Item::page(vnode, 0), page)?;
            }
            Content::Symlink(target) => {
                row.kind = VnodeRow::SYMLINK;
                row.length = target.len() as u64;
                let record = record_of(target).into();
                self.change.put_record(at, vnode, 0, &record)?;
            }
        }
        self.add(vnode, &row);
        self.touch(own, &mut parent, new.owner.0)?;
        Ok(Created {
            vnode: self.status(self.fid(vnode, uniquifier), &row)?,
            directory: self.status(directory, &parent)?,
        })
    }

    pub(super) fn link(&mut self, directory: Fid, name: &[u8], file: Fid) -> Result<Linked> {
        let mut parent = self.directory(directory)?;
        let mut row = self.node(file)?;
        if row.is_directory() {
            return Err(StoreError::IsDirectory(file.vnode));
        }
        let own = directory.vnode.0;
        if row.parent != own {
            return Err(StoreError::OtherDirectory(file.vnode));
        }
        let id = EntryId::new(file.vnode.0, file.uniquifier.0);
        self.entries(own, &mut parent, |editor| editor.insert(name, id), name)?;
        row.link_count = row.link_count.saturating_add(1);
        row.server_modify_time = self.now();
        self.put(file.vnode.0, &row)?;
        let author = parent.author;
        self.touch(own, &mut parent, author)?;
        Ok(Created {
            vnode: self.status(file, &row)?,
            directory: self.status(directory, &parent)?,
        })
    }

    pub(super) fn unlink(
        &mut self,
        directory: Fid,
        name: &[u8],
        is_directory: bool,
    ) -> Result<Removed> {
        let mut parent = self.directory(directory)?;
        let own = directory.vnode.0;
        let id = self.entries(own, &mut parent, |editor| editor.remove(name), name)?;
        let fid = self.fid(id.vnode.0, id.uniquifier.0);
        let row = self.node(fid)?;
        match (is_directory, row.is_directory()) {
            (true, false) => return Err(StoreError::NotDirectory(fid.vnode)),
            (false, true) => return Err(StoreError::IsDirectory(fid.vnode)),
            _ => {}
        }
        let left = self.drop_name(fid, row, &mut parent)?;
        let author = parent.author;
        self.touch(own, &mut parent, author)?;
        Ok(Removed {
            fid,
            vnode: left,
            directory: self.status(directory, &parent)?,
        })
    }

    /// Takes one name from a vnode, whose entry is gone already.
    fn drop_name(
        &mut self,
        fid: Fid,
        mut row: VnodeRow,
        parent: &mut VnodeRow,
    ) -> Result<Option<VnodeStatus>> {
        if row.is_directory() {
            let empty = self.entries(fid.vnode.0, &mut row, |editor| editor.is_empty(), b"")?;
            if !empty {
                return Err(StoreError::NotEmpty(fid.vnode));
            }
            parent.link_count = parent.link_count.saturating_sub(1);
        } else if row.link_count > 1 {
            row.link_count -= 1;
            row.server_modify_time = self.now();
            self.put(fid.vnode.0, &row)?;
            return self.status(fid, &row).map(Some);
        }
        Edit::remove(self, fid.vnode.0, &row)?;
        Ok(None)
    }

    pub(super) fn rename(
        &mut self,
        from: Fid,
        name: &[u8],
        to: Fid,
        new_name: &[u8],
    ) -> Result<Renamed> {
        let same = from == to;
        let mut old_parent = self.directory(from)?;
        let found = self.lookup(from.vnode.0, &mut old_parent, name)?;
        let id = found.ok_or_else(|| StoreError::name_not_found(name))?;
        let fid = self.fid(id.vnode.0, id.uniquifier.0);
        if matches!(name, b"." | b"..") {
            return Err(StoreError::Loop(fid.vnode));
        }
        let mut row = self.node(fid)?;
        let mut new_parent = self.directory(to)?;
        if !same {
            self.check_move(fid, &row, to)?;
        }
        let target = self.lookup(to.vnode.0, &mut new_parent, new_name)?;
        if target == Some(id) {
            return self.rename_to_itself(from, name, to, new_name, fid);
        }
        let mut replaced = None;
        // spec: volumes#copies-of-directories
        // The new entry comes before the old one goes, as from OpenAFS's server, so that clients
        // that edit their copy end up with the same pages.
        if let Some(target) = target {
            let target = self.fid(target.vnode.0, target.uniquifier.0);
            let old = self.node(target)?;
            match (row.is_directory(), old.is_directory()) {
                (true, false) => return Err(StoreError::NotDirectory(target.vnode)),
                (false, true) => return Err(StoreError::IsDirectory(target.vnode)),
                _ => {}
            }
            self.entries(
                to.vnode.0,
                &mut new_parent,
                |e| e.replace(new_name, id),
                new_name,
            )?;
            let left = self.drop_name(target, old, &mut new_parent)?;
            replaced = Some((target, left));
        } else {
            self.entries(
                to.vnode.0,
                &mut new_parent,
                |e| e.insert(new_name, id),
                new_name,
            )?;
        }
        if same {
            old_parent = new_parent;
            self.entries(from.vnode.0, &mut old_parent, |e| e.remove(name), name)?;
            new_parent = old_parent.clone();
        } else {
            self.entries(from.vnode.0, &mut old_parent, |e| e.remove(name), name)?;
        }
        if !same {
            self.move_below(fid, &mut row, to, &mut old_parent, &mut new_parent)?;
            let author = old_parent.author;
            self.touch(from.vnode.0, &mut old_parent, author)?;
        }
        let author = new_parent.author;
        self.touch(to.vnode.0, &mut new_parent, author)?;
        if same {
            old_parent = new_parent.clone();
        }
        Ok(Renamed {
            vnode: self.status(fid, &row)?,
            from: self.status(from, &old_parent)?,
            to: self.status(to, &new_parent)?,
            replaced,
        })
    }

    /// Both names are of the same file: as POSIX has it, nothing happens.
    fn rename_to_itself(
        &mut self,
        from: Fid,
        name: &[u8],
        to: Fid,
        new_name: &[u8],
        fid: Fid,
    ) -> Result<Renamed> {
        let directory = self.directory(from)?;
        let row = self.node(fid)?;
        tracing::trace!(?name, ?new_name, %fid, "renamed to itself");
        let from_status = self.status(from, &directory)?;
        let to_row = self.directory(to)?;
        Ok(Renamed {
            vnode: self.status(fid, &row)?,
            from: from_status,
            to: self.status(to, &to_row)?,
            replaced: None,
        })
    }

    /// Whether a vnode may move to another directory.
    fn check_move(&mut self, fid: Fid, row: &VnodeRow, to: Fid) -> Result<()> {
        if !row.is_directory() {
            return if row.link_count == 1 {
                Ok(())
            } else {
                Err(StoreError::OtherDirectory(fid.vnode))
            };
        }
        let mut above = to.vnode.0;
        // A tree is never deeper than it has vnodes.
        for _ in 0..=self.volume.file_count {
            if above == fid.vnode.0 {
                return Err(StoreError::Loop(fid.vnode));
            }
            match self.vnode(above)? {
                Some(row) if row.parent != 0 => above = row.parent,
                _ => return Ok(()),
            }
        }
        Err(StoreError::Loop(VnodeId(above)))
    }

    /// Makes `to` the directory a vnode is in.
    fn move_below(
        &mut self,
        fid: Fid,
        row: &mut VnodeRow,
        to: Fid,
        old_parent: &mut VnodeRow,
        new_parent: &mut VnodeRow,
    ) -> Result<()> {
        row.parent = to.vnode.0;
        row.server_modify_time = self.now();
        if row.is_directory() {
            let above = EntryId::new(to.vnode.0, to.uniquifier.0);
            self.entries(fid.vnode.0, row, |e| e.set_parent(above), b"..")?;
            row.data_version += 1;
            old_parent.link_count = old_parent.link_count.saturating_sub(1);
            new_parent.link_count = new_parent.link_count.saturating_add(1);
        }
        self.put(fid.vnode.0, row)
    }
}
