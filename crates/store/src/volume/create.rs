//! Making and removing volumes.

use std::sync::Arc;

use afar_dir::EntryId;
use afar_types::{AclRecord, AclRecordEntry, PtsId, Rights, VolumeId, VolumeType};

use super::{Volume, check_id, check_name};
use crate::error::{Result, StoreError};
use crate::meta::{
    At, Change, FIRST_GENERATION, Item, MemberState, Rows, Table, VnodeRow, VolumeInfo, VolumeRow,
};
use crate::partition::{Partition, doom_member};
use crate::segment::Compression;
use crate::vnode::{RECORD_SHIFT, pack_page, trim_acl};

/// KiB a new volume may have, as with OpenAFS.
// spec: volumes#dates-of-a-volume
const NEW_QUOTA: u64 = 5_000;
/// The group of administrators, to which a new root directory belongs.
const ADMINISTRATORS: PtsId = PtsId(-204);

/// A volume to be made.
#[derive(Debug, Clone)]
pub struct NewVolume {
    id: VolumeId,
    name: String,
    kind: VolumeType,
    parent: VolumeId,
    max_quota: u64,
    root: bool,
    in_service: bool,
    compression: Option<Compression>,
}

impl NewVolume {
    /// A read-write volume with an empty root directory.
    #[must_use]
    pub fn new(id: VolumeId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            kind: VolumeType::ReadWrite,
            parent: id,
            max_quota: NEW_QUOTA,
            root: true,
            in_service: true,
            compression: None,
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Of which kind, and for read-only and backup volumes the read-write one they are of.
    #[must_use]
    pub fn kind(mut self, kind: VolumeType, parent: VolumeId) -> Self {
        self.kind = kind;
        self.parent = parent;
        self
    }

    /// KiB it may use; 0 is no limit. By default 5000.
    #[must_use]
    pub fn max_quota(mut self, kib: u64) -> Self {
        self.max_quota = kib;
        self
    }

    /// Without a root directory: a dump is to be restored into it.
    #[must_use]
    pub fn without_root(mut self) -> Self {
        self.root = false;
        self
    }

    /// Out of service, and removed if the server starts again before
    /// [`Volume::change`] puts it in service.
    #[must_use]
    pub fn unfinished(mut self) -> Self {
        self.in_service = false;
        self
    }

    /// How its data is packed; by default as the partition's options say.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }
}

impl Partition {
    /// Makes a volume.
    ///
    /// # Errors
    ///
    /// [`StoreError::VolumeExists`], or if number or name cannot be a volume's.
    pub fn create_volume(self: &Arc<Self>, new: &NewVolume) -> Result<Volume> {
        check_id(new.id)?;
        check_name(&new.name)?;
        let compression = new
            .compression
            .unwrap_or_else(|| self.options().new_compression());
        let wanted = new.clone();
        self.commit(move |change| create(change, &wanted, compression))?;
        Ok(Volume {
            partition: Arc::clone(self),
            id: new.id,
        })
    }

    /// Makes many volumes in one step: all of them, or none.
    ///
    /// # Errors
    ///
    /// As [`Partition::create_volume`], for the first that cannot be made.
    pub fn create_volumes(&self, new: &[NewVolume]) -> Result<()> {
        for volume in new {
            check_id(volume.id)?;
            check_name(&volume.name)?;
        }
        let default = self.options().new_compression();
        let wanted = new.to_vec();
        self.commit(move |change| {
            for volume in &wanted {
                create(change, volume, volume.compression.unwrap_or(default))?;
            }
            Ok(())
        })
    }

    /// Removes a volume. Its space comes back in the background.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`].
    pub fn remove_volume(&self, id: VolumeId) -> Result<()> {
        self.commit(move |change| remove(change, id))?;
        self.reap();
        Ok(())
    }
}

/// Takes the next number for a tree.
pub(super) fn next_tree(change: &mut Change<'_>) -> Result<u64> {
    const KEY: &[u8] = b"next-tree";
    let next = match change.get(Table::Settings, KEY)? {
        None => 1,
        Some(value) => u64::from_be_bytes(
            value
                .try_into()
                .map_err(|_| change.env().corrupt("the number of trees"))?,
        ),
    };
    change.put(Table::Settings, KEY, (next + 1).to_be_bytes().to_vec());
    Ok(next)
}

fn create(change: &mut Change<'_>, new: &NewVolume, compression: Compression) -> Result<()> {
    let id = new.id.0;
    if change.volume(id)?.is_some() {
        return Err(StoreError::VolumeExists(new.id));
    }
    let now = change.now();
    let at = At {
        tree: next_tree(change)?,
        generation: FIRST_GENERATION,
    };
    let mut row = VolumeRow {
        tree: at.tree,
        generation: at.generation,
        kind: new.kind,
        flags: VolumeRow::BLESSED,
        compression,
        parent: new.parent.0,
        clone: 0,
        backup: 0,
        uniquifier: 1,
        last_directory: 1,
        last_file: 0,
        max_quota: new.max_quota,
        disk_used: 0,
        file_count: 0,
        creation_date: now,
        update_date: now,
        copy_date: now,
    };
    row.set(VolumeRow::IN_SERVICE, new.in_service);
    row.set(VolumeRow::DESTROY_ME, !new.in_service);
    if new.root {
        let root = root_directory(now);
        row.disk_used = root.blocks();
        row.file_count = 1;
        let page = afar_dir::make(EntryId::new(1, 1), EntryId::new(1, 1));
        change.put_row(at, Item::page(1, 0), pack_page(&page))?;
        change.put_vnode(at, 1, &root)?;
    }
    change.put_member(at, id, MemberState::Live);
    change.put_volume(id, &row)?;
    let info = VolumeInfo {
        name: new.name.clone().into_bytes(),
        day_use_date: now - now % 86_400,
        ..VolumeInfo::default()
    };
    change.put_info(id, &info);
    Ok(())
}

/// A new volume's root: mode 0777, all rights to system:administrators.
fn root_directory(now: u32) -> VnodeRow {
    let all = AclRecordEntry {
        id: ADMINISTRATORS,
        rights: Rights::ALL,
    };
    let acl = AclRecord::new(vec![all], Vec::new()).unwrap_or_default();
    VnodeRow {
        kind: VnodeRow::DIRECTORY,
        record_shift: RECORD_SHIFT,
        mode: 0o777,
        link_count: 2,
        uniquifier: 1,
        data_version: 1,
        length: afar_dir::PAGE_SIZE as u64,
        modify_time: now,
        server_modify_time: now,
        author: 0,
        owner: 0,
        group: 0,
        parent: 0,
        acl: trim_acl(&acl.to_bytes()),
    }
}

/// Takes a volume's rows away and leaves the rest to the reaper.
pub(super) fn remove(change: &mut Change<'_>, id: VolumeId) -> Result<()> {
    let row = change.volume(id.0)?.ok_or(StoreError::NoVolume(id))?;
    change.delete_volume(id.0)?;
    doom_member(change, row.at(), id.0)?;
    // The group's read-write volume forgets a clone that is gone.
    if row.parent != id.0
        && let Some(mut parent) = change.volume(row.parent)?
        && (parent.clone == id.0 || parent.backup == id.0)
    {
        if parent.clone == id.0 {
            parent.clone = 0;
        }
        if parent.backup == id.0 {
            parent.backup = 0;
        }
        change.put_volume(row.parent, &parent)?;
    }
    Ok(())
}
