//! Cloning. A clone is a row that holds a generation, however large the volume is.

use std::sync::Arc;

use afar_types::{VolumeId, VolumeType};

use super::{Volume, check_id, check_name, is_writable};
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, MemberState, Rows, VolumeInfo, VolumeRow};
use crate::partition::{Partition, doom_member};

/// A clone to be made.
#[derive(Debug, Clone)]
pub struct NewClone {
    pub(super) id: VolumeId,
    pub(super) name: String,
    pub(super) kind: VolumeType,
    pub(super) in_service: bool,
}

impl NewClone {
    /// A read-only or backup clone, or a read-write copy ([`Volume::copy`]).
    #[must_use]
    pub fn new(id: VolumeId, name: impl Into<String>, kind: VolumeType) -> Self {
        Self {
            id,
            name: name.into(),
            kind,
            in_service: true,
        }
    }

    /// Out of service, and removed if the server starts again before
    /// [`Volume::change`] puts it in service.
    #[must_use]
    pub fn unfinished(mut self) -> Self {
        self.in_service = false;
        self
    }
}

impl Volume {
    /// Makes a clone of the volume as it is now, on the same partition.
    ///
    /// # Errors
    ///
    /// [`StoreError::VolumeExists`], or if number or name cannot be a volume's, or a read-write
    /// clone was asked for: that is a copy ([`Volume::copy`]).
    pub fn make_clone(&self, new: &NewClone) -> Result<Self> {
        check_id(new.id)?;
        check_name(&new.name)?;
        if is_writable(new.kind) {
            return Err(StoreError::OutOfRange {
                option: "kind of a clone",
                value: new.kind.to_string(),
                range: "read-only or backup",
            });
        }
        let (source, wanted) = (self.id, new.clone());
        self.partition
            .settled(move |change| clone(change, source, &wanted))?;
        Ok(Self {
            partition: Arc::clone(&self.partition),
            id: new.id,
        })
    }

    /// Brings an older clone of the volume up to now. Number, name and kind of the clone stay.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`] if there is no such clone of this volume.
    pub fn reclone(&self, clone: VolumeId) -> Result<()> {
        let source = self.id;
        self.partition
            .settled(move |change| reclone(change, source, clone))?;
        self.partition.reap();
        Ok(())
    }

    /// Makes a read-only clone the read-write volume of its group (`vos convertROtoRW`): it takes
    /// the number and name given, and changes are accepted from then on. A read-write volume of
    /// that number must have been removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::VolumeExists`], or if number or name cannot be a volume's.
    pub fn convert_to_read_write(&self, id: VolumeId, name: &str) -> Result<Self> {
        check_id(id)?;
        check_name(name)?;
        let (from, named) = (self.id, name.to_owned());
        self.partition
            .settled(move |change| convert(change, from, id, &named))?;
        Ok(Self {
            partition: Arc::clone(&self.partition),
            id,
        })
    }
}

/// Freezes a volume's present state, and returns where it can be read. A read-write volume goes
/// on at the next generation.
pub(crate) fn freeze(change: &mut Change<'_>, id: u32, row: &mut VolumeRow) -> Result<At> {
    let frozen = row.at();
    if is_writable(row.kind) {
        change.env().note_frozen(change.now());
        none_above(change, VolumeId(id), frozen)?;
        change.delete_member(frozen, id)?;
        row.generation = row
            .generation
            .checked_add(1)
            .filter(|generation| *generation != u32::MAX)
            .ok_or_else(|| {
                change
                    .env()
                    .corrupt(format!("volume {id} has no generation left"))
            })?;
        change.put_member(row.at(), id, MemberState::Live);
    }
    Ok(frozen)
}

/// Whether rows of later generations, which nobody is to see any more, are all gone.
pub(super) fn none_above(change: &Change<'_>, id: VolumeId, at: At) -> Result<()> {
    let left = change
        .members(at.tree)?
        .into_iter()
        .any(|(generation, _, state)| state != MemberState::Live && generation > at.generation);
    if left {
        Err(StoreError::Busy(id))
    } else {
        Ok(())
    }
}

impl Partition {
    /// Commits an operation that may have to wait for the reaper first.
    pub(crate) fn settled<T, F>(&self, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut Change<'_>) -> Result<T> + Clone + Send + 'static,
    {
        for _ in 0..3 {
            match self.commit(operation.clone()) {
                Err(StoreError::Busy(_)) => self.wait_cleared()?,
                result => return result,
            }
        }
        self.commit(operation)
    }
}

fn clone(change: &mut Change<'_>, source: VolumeId, new: &NewClone) -> Result<()> {
    if change.volume(new.id.0)?.is_some() {
        return Err(StoreError::VolumeExists(new.id));
    }
    let mut from = change
        .volume(source.0)?
        .ok_or(StoreError::NoVolume(source))?;
    let mut info = change.info(source.0)?.ok_or(StoreError::NoVolume(source))?;
    let frozen = freeze(change, source.0, &mut from)?;
    match new.kind {
        VolumeType::ReadOnly => from.clone = new.id.0,
        VolumeType::Backup => {
            from.backup = new.id.0;
            info.backup_date = change.now();
        }
        VolumeType::ReadWrite => {}
    }
    change.put_volume(source.0, &from)?;
    change.put_info(source.0, &info);
    change.put_member(frozen, new.id.0, MemberState::Live);
    let mut row = VolumeRow {
        generation: frozen.generation,
        kind: new.kind,
        flags: VolumeRow::BLESSED,
        creation_date: change.now(),
        copy_date: change.now(),
        ..from
    };
    row.set(VolumeRow::IN_SERVICE, new.in_service);
    row.set(VolumeRow::DESTROY_ME, !new.in_service);
    change.put_volume(new.id.0, &row)?;
    let info = VolumeInfo {
        name: new.name.clone().into_bytes(),
        day_use: 0,
        week_use: [0; 7],
        ..info
    };
    change.put_info(new.id.0, &info);
    Ok(())
}

fn reclone(change: &mut Change<'_>, source: VolumeId, clone: VolumeId) -> Result<()> {
    let mut from = change
        .volume(source.0)?
        .ok_or(StoreError::NoVolume(source))?;
    let mut info = change.info(source.0)?.ok_or(StoreError::NoVolume(source))?;
    let old = change.volume(clone.0)?.ok_or(StoreError::NoVolume(clone))?;
    if clone == source || is_writable(old.kind) || old.parent != from.parent {
        return Err(StoreError::NoVolume(clone));
    }
    let mut clone_info = change.info(clone.0)?.ok_or(StoreError::NoVolume(clone))?;
    let frozen = freeze(change, source.0, &mut from)?;
    change.put_member(frozen, clone.0, MemberState::Live);
    if old.at() != frozen {
        doom_member(change, old.at(), clone.0)?;
    }
    if old.kind == VolumeType::Backup {
        info.backup_date = change.now();
        from.backup = clone.0;
        change.put_info(source.0, &info);
    }
    if old.kind == VolumeType::ReadOnly {
        from.clone = clone.0;
    }
    change.put_volume(source.0, &from)?;
    let row = VolumeRow {
        generation: frozen.generation,
        kind: old.kind,
        flags: VolumeRow::BLESSED | VolumeRow::IN_SERVICE,
        // spec: afs-rpc#the-time-of-a-copy
        // Linux's client knows by this alone that the volume shows something else.
        creation_date: change.now().max(old.creation_date.saturating_add(1)),
        copy_date: old.copy_date,
        ..from
    };
    change.put_volume(clone.0, &row)?;
    clone_info.backup_date = info.backup_date;
    clone_info.owner = info.owner;
    change.put_info(clone.0, &clone_info);
    Ok(())
}

fn convert(change: &mut Change<'_>, from: VolumeId, id: VolumeId, name: &str) -> Result<()> {
    let old = change.volume(from.0)?.ok_or(StoreError::NoVolume(from))?;
    if id != from && change.volume(id.0)?.is_some() {
        return Err(StoreError::VolumeExists(id));
    }
    let mut info = change.info(from.0)?.ok_or(StoreError::NoVolume(from))?;
    change.delete_volume(from.0)?;
    change.delete_member(old.at(), from.0)?;
    none_above(change, from, old.at())?;
    let newer = change
        .members(old.tree)?
        .into_iter()
        .find(|(generation, _, state)| *state == MemberState::Live && *generation > old.generation);
    if let Some((_, newer, _)) = newer {
        return Err(StoreError::NewerClone(from, VolumeId(newer)));
    }
    let row = VolumeRow {
        generation: old.generation + 1,
        kind: VolumeType::ReadWrite,
        parent: id.0,
        clone: 0,
        creation_date: change.now(),
        copy_date: change.now(),
        ..old
    };
    change.put_member(row.at(), id.0, MemberState::Live);
    change.put_volume(id.0, &row)?;
    info.name = name.as_bytes().to_vec();
    change.put_info(id.0, &info);
    Ok(())
}
