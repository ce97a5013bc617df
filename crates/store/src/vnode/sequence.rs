//! Many changes of a volume in one commit, one after the other.
//!
//! The data of files is packed and written before, on the caller's thread ([`Together`]); the changes are made by the
//! committer ([`Sequence`]), nothing comes in between, and each sees what those before it did. One that
//! fails is taken back alone.

use afar_types::{AclRecord, Fid, PtsId, UnixTime, VolumeId};

use super::edit::Edit;
use super::entries::Content as New;
use super::pages::{ReadPages, page_count};
use super::write::shift_by_first;
use super::{
    Created, Linked, NewVnode, Removed, Renamed, SetAttributes, StoreOptions, VnodeStatus,
    check_target, directory, edit, full_acl, node, pack_record, status,
};
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Item, Kind, NewRecord, NoteName, Record, Rows};
use crate::partition::Pending;
use crate::segment::Compression;
use crate::volume::{Volume, VolumeChange};

/// Vnodes of one volume, as they are looked at and changed: each change in a commit of its own, or many in one.
pub trait Vnodes {
    /// The volume.
    fn volume(&self) -> VolumeId;
    /// As [`Volume::status`].
    ///
    /// # Errors
    /// As there.
    fn status(&mut self, fid: Fid) -> Result<VnodeStatus>;
    /// As [`Volume::acl`].
    ///
    /// # Errors
    /// As there.
    fn acl(&mut self, directory: Fid) -> Result<AclRecord>;
    /// As [`Volume::lookup`].
    ///
    /// # Errors
    /// As there.
    fn lookup(&mut self, directory: Fid, name: &[u8]) -> Result<Fid>;
    /// As [`Volume::create_file`].
    ///
    /// # Errors
    /// As there.
    fn create_file(&mut self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created>;
    /// As [`Volume::make_directory`].
    ///
    /// # Errors
    /// As there.
    fn make_directory(&mut self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created>;
    /// As [`Volume::symlink`].
    ///
    /// # Errors
    /// As there.
    fn symlink(
        &mut self,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        new: &NewVnode,
    ) -> Result<Created>;
    /// As [`Volume::link`].
    ///
    /// # Errors
    /// As there.
    fn link(&mut self, directory: Fid, name: &[u8], file: Fid) -> Result<Linked>;
    /// As [`Volume::remove_file`].
    ///
    /// # Errors
    /// As there.
    fn remove_file(&mut self, directory: Fid, name: &[u8]) -> Result<Removed>;
    /// As [`Volume::remove_directory`].
    ///
    /// # Errors
    /// As there.
    fn remove_directory(&mut self, directory: Fid, name: &[u8]) -> Result<Removed>;
    /// As [`Volume::rename`].
    ///
    /// # Errors
    /// As there.
    fn rename(&mut self, from: Fid, name: &[u8], to: Fid, new_name: &[u8]) -> Result<Renamed>;
    /// As [`Volume::set_attributes`].
    ///
    /// # Errors
    /// As there.
    fn set_attributes(&mut self, fid: Fid, wanted: &SetAttributes) -> Result<VnodeStatus>;
    /// As [`Volume::change`] with another owner.
    ///
    /// # Errors
    /// As there.
    fn set_owner(&mut self, owner: PtsId) -> Result<()>;
}

impl Vnodes for Volume {
    fn volume(&self) -> VolumeId {
        self.id
    }

    fn status(&mut self, fid: Fid) -> Result<VnodeStatus> {
        Self::status(self, fid)
    }

    fn acl(&mut self, directory: Fid) -> Result<AclRecord> {
        Self::acl(self, directory)
    }

    fn lookup(&mut self, directory: Fid, name: &[u8]) -> Result<Fid> {
        Self::lookup(self, directory, name)
    }

    fn create_file(&mut self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created> {
        Self::create_file(self, directory, name, new)
    }

    fn make_directory(&mut self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created> {
        Self::make_directory(self, directory, name, new)
    }

    fn symlink(
        &mut self,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        new: &NewVnode,
    ) -> Result<Created> {
        Self::symlink(self, directory, name, target, new)
    }

    fn link(&mut self, directory: Fid, name: &[u8], file: Fid) -> Result<Linked> {
        Self::link(self, directory, name, file)
    }

    fn remove_file(&mut self, directory: Fid, name: &[u8]) -> Result<Removed> {
        Self::remove_file(self, directory, name)
    }

    fn remove_directory(&mut self, directory: Fid, name: &[u8]) -> Result<Removed> {
        Self::remove_directory(self, directory, name)
    }

    fn rename(&mut self, from: Fid, name: &[u8], to: Fid, new_name: &[u8]) -> Result<Renamed> {
        Self::rename(self, from, name, to, new_name)
    }

    fn set_attributes(&mut self, fid: Fid, wanted: &SetAttributes) -> Result<VnodeStatus> {
        Self::set_attributes(self, fid, wanted)
    }

    fn set_owner(&mut self, owner: PtsId) -> Result<()> {
        self.change(owner_change(owner))
    }
}

fn owner_change(owner: PtsId) -> VolumeChange {
    VolumeChange {
        owner: Some(owner),
        ..VolumeChange::default()
    }
}

/// Changes of a volume that are to share a commit, and the data that goes with them.
pub struct Together<'v> {
    volume: &'v Volume,
    compression: Compression,
    pending: Pending<'v>,
    contents: Vec<Option<Content>>,
}

/// All data of a file, packed.
struct Content {
    shift: u8,
    length: u64,
    records: Vec<(u64, Option<NewRecord>)>,
}

impl Volume {
    /// Begins to prepare changes that are to share a commit.
    ///
    /// # Errors
    ///
    /// If the volume is not online.
    pub fn together(&self) -> Result<Together<'_>> {
        let reader = self.partition.reader()?;
        let compression = self.online(&reader)?.compression;
        Ok(Together {
            volume: self,
            compression,
            pending: Pending::new(&self.partition),
            contents: Vec::new(),
        })
    }
}

impl Together<'_> {
    /// Packs all data of a file, which [`Sequence::store`] is to store; returns the number to name it by there.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`].
    pub fn content(&mut self, data: &[u8]) -> Result<usize> {
        let length = data.len() as u64;
        let shift = shift_by_first(length);
        let mut records = Vec::new();
        for (index, plain) in data.chunks(1 << shift).enumerate() {
            let record = pack_record(&mut self.pending, plain, self.compression)?;
            records.push((index as u64, record));
        }
        self.contents.push(Some(Content {
            shift,
            length,
            records,
        }));
        Ok(self.contents.len() - 1)
    }

    /// Has the committer run `work`, which is as much as `weight` single changes, and waits until all it did is
    /// durable. It holds up all changes of the partition.
    ///
    /// # Errors
    ///
    /// That of `work`, with which all it did is taken back; or if the commit fails.
    pub fn run<T: Send + 'static>(
        self,
        weight: usize,
        work: impl FnOnce(&mut Sequence<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (id, contents) = (self.volume.id, self.contents);
        self.pending.commit_weighing(weight, move |change| {
            let mut sequence = Sequence {
                change: &mut *change,
                id,
                contents,
                made: None,
            };
            let done = work(&mut sequence).and_then(|done| {
                sequence.discard_the_rest()?;
                Ok(done)
            });
            if done.is_err() {
                // They are as the changes left them that are taken back now.
                change.env().images().lock().clear();
            }
            done
        })
    }
}

/// A commit while many changes of one volume are made in it. Lives in the committer only.
pub struct Sequence<'s, 'c> {
    change: &'s mut Change<'c>,
    id: VolumeId,
    contents: Vec<Option<Content>>,
    made: Option<u32>,
}

impl<'c> Sequence<'_, 'c> {
    /// The changes that follow were made at this time: vnodes have it as that of their change. It is never later than now,
    /// nor earlier than the last clone or dump, which do not have them. `None` stands for now.
    pub fn set_made(&mut self, time: Option<UnixTime>) {
        self.made = time.map(|time| self.change.made(time.0));
    }

    /// Makes a change, or nothing of it.
    fn edit<T>(&mut self, work: impl FnOnce(&mut Edit<'_, 'c>) -> Result<T>) -> Result<T> {
        let (id, made) = (self.id, self.made);
        self.change.part(|change| {
            let mut edit = Edit::begin(change, id)?;
            edit.made = made;
            let done = work(&mut edit)?;
            edit.finish()?;
            Ok(done)
        })
    }

    fn at(&self) -> Result<At> {
        let row = self.change.volume(self.id.0)?;
        let row = row.ok_or(StoreError::NoVolume(self.id))?;
        if !row.is_online() {
            return Err(StoreError::Offline(self.id));
        }
        Ok(row.at())
    }

    fn own(&self, fid: Fid) -> Result<Fid> {
        if fid.volume == self.id {
            Ok(fid)
        } else {
            Err(StoreError::NoVolume(fid.volume))
        }
    }

    /// Makes what was packed under this number all data of a file.
    ///
    /// # Errors
    ///
    /// [`StoreError::OverQuota`], [`StoreError::IsDirectory`]. The data is lost then.
    pub fn store(
        &mut self,
        fid: Fid,
        content: usize,
        options: &StoreOptions,
    ) -> Result<VnodeStatus> {
        let fid = self.own(fid)?;
        let found = self.contents.get_mut(content).and_then(Option::take);
        let Some(content) = found else {
            return Err(StoreError::OutOfRange {
                option: "number of a file's data",
                value: content.to_string(),
                range: "those that were given, once each",
            });
        };
        let stored = self.edit(|edit| edit.replace(fid, &content, options));
        if stored.is_err() {
            self.discard(&content)?;
        }
        stored
    }

    /// Makes data that was written and is not used dead.
    fn discard(&mut self, content: &Content) -> Result<()> {
        for (_, record) in &content.records {
            if let Some(NewRecord {
                record: Record::Extent(extent),
                shared: false,
                ..
            }) = record
            {
                self.change.discard(extent)?;
            }
        }
        Ok(())
    }

    fn discard_the_rest(&mut self) -> Result<()> {
        for content in std::mem::take(&mut self.contents).into_iter().flatten() {
            self.discard(&content)?;
        }
        Ok(())
    }

    /// A note that was made with earlier changes of the volume.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn note(&self, name: NoteName) -> Result<Option<Vec<u8>>> {
        self.change.note(self.id.0, name)
    }

    /// All notes of the volume.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn notes(&self) -> Result<Vec<(NoteName, Vec<u8>)>> {
        self.change.notes(self.id.0)
    }

    /// Makes a note, or removes it. It is durable with the changes, and goes with the volume.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn put_note(&mut self, name: NoteName, text: Option<Vec<u8>>) -> Result<()> {
        self.change.put_note(self.id.0, name, text)
    }
}

impl Edit<'_, '_> {
    /// Replaces all data of a file.
    fn replace(
        &mut self,
        fid: Fid,
        content: &Content,
        options: &StoreOptions,
    ) -> Result<VnodeStatus> {
        let (at, vnode) = (self.at(), fid.vnode.0);
        let mut row = self.node(fid)?;
        if row.is_directory() {
            return Err(StoreError::IsDirectory(fid.vnode));
        }
        for (index, record) in &content.records {
            match record {
                Some(record) => self.change.put_record(at, vnode, *index, record)?,
                None => self.change.delete_row(at, Item::record(vnode, *index))?,
            }
        }
        if row.length > 0 {
            // Also of a file that was shorter: its records may have been.
            let beyond = content.records.len() as u64;
            for index in self.indexes(Kind::Record, vnode, beyond)? {
                self.change.delete_row(at, Item::record(vnode, index))?;
            }
        }
        row.record_shift = content.shift;
        row.length = content.length;
        row.data_version += 1;
        row.author = options.author.0;
        row.modify_time = options
            .modify_time
            .map_or_else(|| self.now(), |time| time.0);
        row.server_modify_time = self.now();
        self.put(vnode, &row)?;
        self.status(fid, &row)
    }
}

impl Vnodes for Sequence<'_, '_> {
    fn volume(&self) -> VolumeId {
        self.id
    }

    fn status(&mut self, fid: Fid) -> Result<VnodeStatus> {
        let (fid, at) = (self.own(fid)?, self.at()?);
        let row = node(&*self.change, at, fid)?;
        status(&*self.change, at, fid, &row)
    }

    fn acl(&mut self, fid: Fid) -> Result<AclRecord> {
        let (fid, at) = (self.own(fid)?, self.at()?);
        let row = directory(&*self.change, at, fid)?;
        AclRecord::from_bytes(&full_acl(&row.acl)).map_err(|error| {
            let env = self.change.env();
            env.corrupt(format!("the ACL of {fid}: {error}"))
        })
    }

    fn lookup(&mut self, fid: Fid, name: &[u8]) -> Result<Fid> {
        let (fid, at) = (self.own(fid)?, self.at()?);
        let row = directory(&*self.change, at, fid)?;
        let pages = ReadPages {
            rows: &*self.change,
            at,
            vnode: fid.vnode.0,
            count: page_count(row.length),
        };
        let found = afar_dir::Editor::open(pages).and_then(|mut pages| pages.lookup(name));
        let found = found.map_err(|error| edit::edit_error(error, fid.vnode.0, name))?;
        let id = found.ok_or_else(|| StoreError::name_not_found(name))?;
        Ok(Fid {
            volume: self.id,
            vnode: id.vnode,
            uniquifier: id.uniquifier,
        })
    }

    fn create_file(&mut self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created> {
        let directory = self.own(directory)?;
        self.edit(|edit| edit.make(directory, name, new, &New::File))
    }

    fn make_directory(&mut self, directory: Fid, name: &[u8], new: &NewVnode) -> Result<Created> {
        let directory = self.own(directory)?;
        self.edit(|edit| edit.make(directory, name, new, &New::Directory))
    }

    fn symlink(
        &mut self,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        new: &NewVnode,
    ) -> Result<Created> {
        check_target(target.len() as u64)?;
        let directory = self.own(directory)?;
        let content = New::Symlink(target.to_vec());
        self.edit(|edit| edit.make(directory, name, new, &content))
    }

    fn link(&mut self, directory: Fid, name: &[u8], file: Fid) -> Result<Linked> {
        let (directory, file) = (self.own(directory)?, self.own(file)?);
        self.edit(|edit| edit.link(directory, name, file))
    }

    fn remove_file(&mut self, directory: Fid, name: &[u8]) -> Result<Removed> {
        let directory = self.own(directory)?;
        self.edit(|edit| edit.unlink(directory, name, false))
    }

    fn remove_directory(&mut self, directory: Fid, name: &[u8]) -> Result<Removed> {
        let directory = self.own(directory)?;
        self.edit(|edit| edit.unlink(directory, name, true))
    }

    fn rename(&mut self, from: Fid, name: &[u8], to: Fid, new_name: &[u8]) -> Result<Renamed> {
        let (from, to) = (self.own(from)?, self.own(to)?);
        self.edit(|edit| edit.rename(from, name, to, new_name))
    }

    fn set_attributes(&mut self, fid: Fid, wanted: &SetAttributes) -> Result<VnodeStatus> {
        let fid = self.own(fid)?;
        self.edit(|edit| edit.set_attributes(fid, wanted))
    }

    fn set_owner(&mut self, owner: PtsId) -> Result<()> {
        let id = self.id;
        self.change
            .part(|change| owner_change(owner).make(change, id))
    }
}
