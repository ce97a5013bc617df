//! Volumes: making, cloning, removing and describing them.

mod clone;
mod copy;
mod create;
mod filling;
mod list;
mod removed;
mod reserve;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use afar_types::{VolumeId, VolumeType};

use crate::error::{Result, StoreError};
use crate::meta::{Rows, Table, VolumeRow};
use crate::partition::{Partition, Reader};

pub use clone::NewClone;
pub(crate) use clone::freeze;
pub use create::NewVolume;
pub(crate) use filling::Filling;
pub use removed::RemovedVolume;
pub use state::{VolumeChange, VolumeState, VolumeSummary};

/// A volume of an open partition.
///
/// It is a name, not a lock: the volume can be removed meanwhile, and then every method says so.
#[derive(Clone)]
pub struct Volume {
    pub(crate) partition: Arc<Partition>,
    pub(crate) id: VolumeId,
}

impl Partition {
    /// A volume, if it is here.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`].
    pub fn volume(self: &Arc<Self>, id: VolumeId) -> Result<Volume> {
        if !self.has_volume(id)? {
            return Err(StoreError::NoVolume(id));
        }
        Ok(Volume {
            partition: Arc::clone(self),
            id,
        })
    }

    /// Whether a volume is here.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn has_volume(&self, id: VolumeId) -> Result<bool> {
        Ok(self
            .reader()?
            .get(Table::Volumes, &id.0.to_be_bytes())?
            .is_some())
    }

    /// How many volumes there are.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn volume_count(&self) -> Result<u64> {
        self.reader()?.count(Table::Volumes)
    }

    /// Numbers of volumes above `after`, in order, at most `limit`.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn volume_ids(&self, after: VolumeId, limit: usize) -> Result<Vec<VolumeId>> {
        let Some(from) = after.0.checked_add(1) else {
            return Ok(Vec::new());
        };
        let reader = self.reader()?;
        let mut ids = Vec::new();
        for row in reader
            .scan(Table::Volumes, &from.to_be_bytes())?
            .take(limit)
        {
            let (key, _) = row?;
            let id = key.try_into().map(u32::from_be_bytes);
            ids.push(VolumeId(
                id.map_err(|_| reader.env().corrupt("the number of a volume"))?,
            ));
        }
        Ok(ids)
    }
}

impl Volume {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The partition it is on.
    #[must_use]
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// The volume's row, whether or not it may be used.
    pub(crate) fn row(&self, reader: &Reader) -> Result<VolumeRow> {
        reader
            .volume(self.id.0)?
            .ok_or(StoreError::NoVolume(self.id))
    }

    /// The volume's row, if it may be used.
    pub(crate) fn online(&self, reader: &Reader) -> Result<VolumeRow> {
        let row = self.row(reader)?;
        if !row.is_online() {
            return Err(StoreError::Offline(self.id));
        }
        Ok(row)
    }
}

impl VolumeRow {
    /// Whether clients may use it.
    pub(crate) fn is_online(&self) -> bool {
        self.has(Self::IN_SERVICE)
            && self.has(Self::BLESSED)
            && !self.has(Self::OFFLINE)
            && !self.has(Self::DESTROY_ME)
    }
}

/// The longest name of a volume.
pub const MAX_VOLUME_NAME: usize = 31;

/// Whether a name can be a volume's: 1 to 31 printable bytes without space or slash, and not a
/// number, which would be taken for a volume's id.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let bad = |why| StoreError::BadName {
        name: name.to_owned(),
        why,
    };
    if name.is_empty() || name.len() > MAX_VOLUME_NAME {
        return Err(bad("a volume's name has 1 to 31 bytes"));
    }
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'/')
    {
        return Err(bad(
            "a volume's name has printable ASCII only, without space and slash",
        ));
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad("a volume's name is not a number"));
    }
    Ok(())
}

/// Whether a number can be a volume's.
pub(crate) fn check_id(id: VolumeId) -> Result<()> {
    if id.is_none() {
        return Err(StoreError::OutOfRange {
            option: "volume id",
            value: id.to_string(),
            range: "1 to 4294967295",
        });
    }
    Ok(())
}

/// Whether a volume of this kind takes changes.
pub(crate) fn is_writable(kind: VolumeType) -> bool {
    kind == VolumeType::ReadWrite
}
