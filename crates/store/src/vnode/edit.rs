//! What all changes of a volume's vnodes share: the volume's row, its counts, vnode numbers.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afar_dir::{DirError, EditError, Editor, EntryId};
use afar_types::{Fid, Uniquifier, VnodeId, VolumeId};

use super::changes;
use super::packing::pack_page;
use super::pages::{ChangePages, page_count};
use super::{VnodeStatus, directory_of, named, status_of};
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Image, Item, Kind, PageImage, Rows, VnodeRow, VolumeRow};
use crate::volume::is_writable;

/// A change of a read-write volume.
pub(super) struct Edit<'r, 'c> {
    pub(super) change: &'r mut Change<'c>,
    pub(super) id: VolumeId,
    pub(super) volume: VolumeRow,
    used_before: u64,
    /// The vnodes that were looked at or changed.
    vnodes: BTreeMap<u32, Known>,
    /// The directories that were looked at.
    images: BTreeMap<u32, Image>,
    /// Pages that were changed: directory and number. Like vnodes they are written at the end, as
    /// a rename changes the same one up to four times.
    changed_pages: BTreeSet<(u32, usize)>,
    /// The time that is noted of it, if not that of the commit.
    pub(super) made: Option<u32>,
}

/// A vnode as it is now.
struct Known {
    row: VnodeRow,
    /// Whether the database has it otherwise.
    changed: bool,
}

impl<'r, 'c> Edit<'r, 'c> {
    /// Begins, if the volume is online and takes changes.
    pub(super) fn begin(change: &'r mut Change<'c>, id: VolumeId) -> Result<Self> {
        let volume = change.volume(id.0)?.ok_or(StoreError::NoVolume(id))?;
        if !volume.is_online() {
            return Err(StoreError::Offline(id));
        }
        if !is_writable(volume.kind) {
            return Err(StoreError::ReadOnly(id));
        }
        Ok(Self {
            change,
            id,
            volume,
            used_before: volume.disk_used,
            vnodes: BTreeMap::new(),
            images: BTreeMap::new(),
            changed_pages: BTreeSet::new(),
            made: None,
        })
    }

    pub(super) fn at(&self) -> At {
        self.volume.at()
    }

    pub(super) fn now(&self) -> u32 {
        self.made.unwrap_or_else(|| self.change.now())
    }

    pub(super) fn fid(&self, vnode: u32, uniquifier: u32) -> Fid {
        Fid {
            volume: self.id,
            vnode: VnodeId(vnode),
            uniquifier: Uniquifier(uniquifier),
        }
    }

    /// A vnode, if there is one of that number.
    pub(super) fn vnode(&mut self, vnode: u32) -> Result<Option<&VnodeRow>> {
        let known = match self.vnodes.entry(vnode) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match self.change.vnode(self.volume.at(), vnode)? {
                None => return Ok(None),
                Some(row) => place.insert(Known {
                    row,
                    changed: false,
                }),
            },
        };
        Ok(Some(&known.row))
    }

    /// The vnode a fid names.
    pub(super) fn node(&mut self, fid: Fid) -> Result<VnodeRow> {
        named(self.vnode(fid.vnode.0)?.cloned(), fid)
    }

    /// The directory a fid names.
    pub(super) fn directory(&mut self, fid: Fid) -> Result<VnodeRow> {
        directory_of(self.node(fid)?, fid)
    }

    pub(super) fn status(&mut self, fid: Fid, row: &VnodeRow) -> Result<VnodeStatus> {
        let parent = match row.parent {
            0 => None,
            parent => self.vnode(parent)?.map(|parent| parent.uniquifier),
        };
        Ok(status_of(fid, row, parent))
    }

    /// Changes a vnode that was there, and counts what it grew.
    pub(super) fn put(&mut self, vnode: u32, row: &VnodeRow) -> Result<()> {
        if let Some(image) = self.images.get_mut(&vnode) {
            image.version = row.data_version;
        }
        let old = self.vnode(vnode)?.map_or(0, VnodeRow::blocks);
        self.charge(old, row.blocks());
        self.set(vnode, row);
        Ok(())
    }

    /// Adds a vnode.
    pub(super) fn add(&mut self, vnode: u32, row: &VnodeRow) {
        self.charge(0, row.blocks());
        self.volume.file_count = self.volume.file_count.saturating_add(1);
        self.set(vnode, row);
    }

    fn set(&mut self, vnode: u32, row: &VnodeRow) {
        let known = Known {
            row: row.clone(),
            changed: true,
        };
        self.vnodes.insert(vnode, known);
    }

    fn charge(&mut self, old: u64, new: u64) {
        self.volume.disk_used = self
            .volume
            .disk_used
            .saturating_sub(old)
            .saturating_add(new);
    }

    /// Takes a vnode with all its data away; its number may be used again.
    pub(super) fn remove(&mut self, vnode: u32, row: &VnodeRow) -> Result<()> {
        let at = self.at();
        // An empty one has no parts.
        if row.length > 0 {
            for &kind in Kind::parts(row.is_directory()) {
                for index in self.indexes(kind, vnode, 0)? {
                    self.change.remove_row(at, Item { kind, vnode, index })?;
                }
            }
        }
        self.vnodes.remove(&vnode);
        self.images.remove(&vnode);
        self.changed_pages
            .retain(|(directory, _)| *directory != vnode);
        self.change.remove_row(at, Item::vnode(vnode))?;
        self.charge(row.blocks(), 0);
        self.volume.file_count = self.volume.file_count.saturating_sub(1);
        self.change.put_slot(at.tree, row.is_directory(), vnode);
        Ok(())
    }

    /// The pages or records a vnode has from one on.
    pub(super) fn indexes(&self, kind: Kind, vnode: u32, from: u64) -> Result<Vec<u64>> {
        let mut indexes = Vec::new();
        let first = Item {
            kind,
            vnode,
            index: from,
        };
        for found in self.change.parts(self.at(), first)? {
            let (item, _) = found?;
            indexes.push(item.index);
        }
        Ok(indexes)
    }

    /// A free vnode number of the right parity, and a fresh uniquifier.
    pub(super) fn allocate(&mut self, directory: bool) -> Result<(u32, u32)> {
        let uniquifier = self
            .volume
            .uniquifier
            .checked_add(1)
            .ok_or(StoreError::VnodesExhausted(self.id))?;
        let vnode = match self.free_slot(directory)? {
            Some(vnode) => vnode,
            None => self.next_vnode(directory)?,
        };
        self.volume.uniquifier = uniquifier;
        Ok((vnode, uniquifier))
    }

    /// A fid that was set aside, unless its number is in use.
    pub(super) fn reserved(&mut self, fid: Fid, directory: bool) -> Result<(u32, u32)> {
        let (vnode, uniquifier) = (fid.vnode.0, fid.uniquifier.0);
        let last = if directory {
            self.volume.last_directory
        } else {
            self.volume.last_file
        };
        let is_set_aside = fid.volume == self.id
            && (1..=last).contains(&vnode)
            && (1..=self.volume.uniquifier).contains(&uniquifier)
            && fid.vnode.is_directory() == directory;
        if !is_set_aside || self.vnode(vnode)?.is_some() {
            return Err(StoreError::NotReserved(fid));
        }
        Ok((vnode, uniquifier))
    }

    /// Sets so many vnode numbers aside, and as many uniquifiers: the first of each.
    pub(super) fn set_aside(&mut self, count: u32) -> Result<(u32, u32)> {
        let exhausted = StoreError::VnodesExhausted(self.id);
        let row = &mut self.volume;
        let last = row.last_directory.max(row.last_file);
        let (Some(end), Some(uniquifier)) = (
            last.checked_add(count).filter(|end| *end < u32::MAX),
            row.uniquifier.checked_add(count),
        ) else {
            return Err(exhausted);
        };
        let first = (last + 1, row.uniquifier + 1);
        // Directories are odd.
        row.last_directory = row
            .last_directory
            .max(end - u32::from(end.is_multiple_of(2)));
        row.last_file = row.last_file.max(end - u32::from(!end.is_multiple_of(2)));
        row.uniquifier = uniquifier;
        Ok(first)
    }

    fn next_vnode(&mut self, directory: bool) -> Result<u32> {
        let last = if directory {
            &mut self.volume.last_directory
        } else {
            &mut self.volume.last_file
        };
        *last = last
            .checked_add(2)
            .ok_or(StoreError::VnodesExhausted(self.id))?;
        Ok(*last)
    }

    /// The lowest number that was used before and is free now.
    fn free_slot(&mut self, directory: bool) -> Result<Option<u32>> {
        let at = self.at();
        while let Some(vnode) = self.change.take_slot(at.tree, directory)? {
            let last = if directory {
                self.volume.last_directory
            } else {
                self.volume.last_file
            };
            // The list is of the tree. A clone made read-write can have the vnode in use, or not
            // know the number yet: it comes to it in its own time.
            if vnode <= last && self.change.vnode(at, vnode)?.is_none() {
                return Ok(Some(vnode));
            }
        }
        Ok(None)
    }

    /// Changes a directory's entries. Its row has the new length afterwards.
    pub(super) fn entries<T>(
        &mut self,
        vnode: u32,
        row: &mut VnodeRow,
        edit: impl FnOnce(&mut Editor<ChangePages<'_, Change<'c>>>) -> Result<T, EditError<StoreError>>,
        name: &[u8],
    ) -> Result<T> {
        let at = self.at();
        let mut image = self.image(vnode, row);
        let pages = ChangePages {
            rows: self.change,
            image: &mut image,
            changed: &mut self.changed_pages,
            at,
            vnode,
            count: page_count(row.length),
        };
        let room = std::mem::take(&mut pages.image.room);
        let chains = std::mem::take(&mut pages.image.chains);
        let mut editor = Editor::open(pages)
            .map_err(|e| edit_error(e, vnode, name))?
            .knowing(room, chains);
        let result = edit(&mut editor).map_err(|e| edit_error(e, vnode, name))?;
        row.length = (editor.page_count() * afar_dir::PAGE_SIZE) as u64;
        (image.room, image.chains) = editor.known();
        self.images.insert(vnode, image);
        Ok(result)
    }

    /// What is known of a directory's pages.
    fn image(&mut self, vnode: u32, row: &VnodeRow) -> Image {
        if let Some(image) = self.images.remove(&vnode) {
            return image;
        }
        let known = self
            .change
            .env()
            .images()
            .lock()
            .remove(&(self.at(), vnode));
        match known {
            Some((_, image))
                if image.uniquifier == row.uniquifier && image.version == row.data_version =>
            {
                image
            }
            _ => Image {
                uniquifier: row.uniquifier,
                version: row.data_version,
                ..Image::default()
            },
        }
    }

    /// The entry of a name.
    pub(super) fn lookup(
        &mut self,
        vnode: u32,
        row: &mut VnodeRow,
        name: &[u8],
    ) -> Result<Option<EntryId>> {
        self.entries(vnode, row, |editor| editor.lookup(name), name)
    }

    /// Notes that a directory's entries changed.
    pub(super) fn touch(&mut self, vnode: u32, row: &mut VnodeRow, author: i32) -> Result<()> {
        row.data_version += 1;
        row.modify_time = self.now();
        row.server_modify_time = self.now();
        row.author = author;
        self.put(vnode, row)
    }

    /// Writes what changed, if the quota allows.
    pub(super) fn finish(mut self) -> Result<()> {
        let grew = self.volume.disk_used > self.used_before;
        let quota = self.volume.max_quota;
        let promised = self.change.env().promised(self.id.0);
        let used = self.volume.disk_used.saturating_add(promised);
        if grew && quota != 0 && used > quota {
            return Err(StoreError::OverQuota(self.id, quota));
        }
        let at = self.at();
        for (vnode, known) in &self.vnodes {
            if known.changed {
                self.change.put_vnode(at, *vnode, &known.row)?;
            }
        }
        for &(vnode, number) in &self.changed_pages {
            let page = self.images.get_mut(&vnode);
            let page = page.and_then(|image| image.pages.get_mut(number)?.as_mut());
            if let Some(page) = page {
                write_page(self.change, at, vnode, number as u64, page)?;
            }
        }
        self.volume.update_date = self.change.now();
        self.change.update_volume(self.id.0, &self.volume);
        for (vnode, image) in self.images {
            self.change.env().images().lock().insert((at, vnode), image);
        }
        Ok(())
    }
}

/// Writes a page that changed: how it differs from its row, or the row.
fn write_page(
    change: &mut Change<'_>,
    at: At,
    vnode: u32,
    number: u64,
    page: &mut PageImage,
) -> Result<()> {
    let changes = page.base.as_ref();
    match changes.and_then(|base| changes::difference(base, &page.page)) {
        Some(changes) if changes.is_empty() => {
            change.delete_row(at, Item::page_change(vnode, number))
        }
        Some(changes) => change.put_row(at, Item::page_change(vnode, number), changes),
        None => {
            change.put_page(at, vnode, number, pack_page(&page.page))?;
            page.base = Some(Arc::clone(&page.page));
            Ok(())
        }
    }
}

/// What a failed edit of a directory means.
pub(super) fn edit_error(error: EditError<StoreError>, vnode: u32, name: &[u8]) -> StoreError {
    let bad = |why| StoreError::BadName {
        name: String::from_utf8_lossy(name).into_owned(),
        why,
    };
    let damaged = |source: DirError| StoreError::Directory {
        vnode: VnodeId(vnode),
        source,
    };
    match error {
        EditError::Exists => StoreError::name_exists(name),
        EditError::NotFound => StoreError::name_not_found(name),
        EditError::Name => bad("a name is not empty, \".\" or \"..\", and has no \"/\" or NUL"),
        EditError::NameTooLong => bad("a name has at most 255 bytes"),
        EditError::Full => StoreError::DirectoryFull(VnodeId(vnode)),
        EditError::Damaged(source) => damaged(source),
        EditError::Pages(error) => error,
        _ => damaged(DirError::Length(0)),
    }
}
