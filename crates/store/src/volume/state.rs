//! What is told of a volume, and changing it.

use std::time::SystemTime;

use afar_types::{PtsId, UnixTime, VolumeId, VolumeType};

use super::{Volume, check_id, check_name};
use crate::error::{Result, StoreError};
use crate::meta::{Change, MemberState, Rows, VolumeInfo, VolumeRow};
use crate::partition::roll;
use crate::segment::Compression;

/// A volume's header: what `vos examine` shows and a dump carries. Sizes are in KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeState {
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Which member of its group it is.
    pub kind: VolumeType,
    /// The group's read-write volume.
    pub parent: VolumeId,
    /// The newest read-only clone, or 0.
    pub clone: VolumeId,
    /// The backup clone, or 0.
    pub backup: VolumeId,
    /// The volume its data came from by a restore, or 0.
    pub restored_from: VolumeId,
    /// Clients may use it.
    pub online: bool,
    /// Meant to be used.
    pub in_service: bool,
    /// An administrator has let it be used.
    pub blessed: bool,
    /// Half made, and removed when the server starts again.
    pub destroy_me: bool,
    /// The uniquifier given out last.
    pub uniquifier: u32,
    /// Space it may use; 0 is no limit.
    pub max_quota: u64,
    /// Space kept for it; not used.
    pub min_quota: u64,
    /// Space it uses: each vnode's length, rounded up, and at least one.
    pub disk_used: u64,
    /// Vnodes it has.
    pub file_count: u32,
    /// The owner.
    pub owner: PtsId,
    /// For accounting; not used.
    pub account: u32,
    /// When it was made; of a clone, when it was made or brought up to date.
    pub creation_date: UnixTime,
    /// When it was used last.
    pub access_date: UnixTime,
    /// When it was changed last.
    pub update_date: UnixTime,
    /// When it is to be removed; not used.
    pub expiration_date: UnixTime,
    /// When a backup clone was made of it last.
    pub backup_date: UnixTime,
    /// When this instance was made.
    pub copy_date: UnixTime,
    /// Counts releases and the like, for tools that set it.
    pub update_counter: u32,
    /// Midnight (UTC) of the day `day_use` counts.
    pub day_use_date: UnixTime,
    /// Uses today.
    pub day_use: u32,
    /// Uses on each of the seven days before, yesterday first.
    pub week_use: [u32; 7],
    /// Why it is offline.
    pub offline_message: Vec<u8>,
    /// Message of the day.
    pub motd: Vec<u8>,
    /// How new data is packed.
    pub compression: Compression,
}

impl VolumeState {
    pub(crate) fn new(
        id: VolumeId,
        row: &VolumeRow,
        info: VolumeInfo,
        now: u32,
        used: u32,
    ) -> Self {
        let mut week_use = info.week_use;
        let today = now - now % 86_400;
        let stale = info.day_use_date < today;
        if stale {
            roll(
                &mut week_use,
                info.day_use,
                (today - info.day_use_date) / 86_400,
            );
        }
        Self {
            id,
            name: String::from_utf8_lossy(&info.name).into_owned(),
            kind: row.kind,
            parent: VolumeId(row.parent),
            clone: VolumeId(row.clone),
            backup: VolumeId(row.backup),
            restored_from: VolumeId(info.restored_from),
            online: row.is_online(),
            in_service: row.has(VolumeRow::IN_SERVICE),
            blessed: row.has(VolumeRow::BLESSED),
            destroy_me: row.has(VolumeRow::DESTROY_ME),
            uniquifier: row.uniquifier,
            max_quota: row.max_quota,
            min_quota: info.min_quota,
            disk_used: row.disk_used,
            file_count: row.file_count,
            owner: PtsId(info.owner),
            account: info.account,
            creation_date: UnixTime(row.creation_date),
            access_date: UnixTime(info.access_date),
            update_date: UnixTime(row.update_date),
            expiration_date: UnixTime(info.expiration_date),
            backup_date: UnixTime(info.backup_date),
            copy_date: UnixTime(row.copy_date),
            update_counter: info.update_counter,
            day_use_date: UnixTime(if stale { today } else { info.day_use_date }),
            day_use: if stale { 0 } else { info.day_use }.saturating_add(used),
            week_use,
            offline_message: info.offline_message,
            motd: info.motd,
            compression: row.compression,
        }
    }
}

/// What is needed of a volume's header to serve its clients; [`VolumeState`] has all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSummary {
    /// Which member of its group it is.
    pub kind: VolumeType,
    /// Clients may use it.
    pub online: bool,
    /// KiB it may use; 0 is no limit.
    pub max_quota: u64,
    /// KiB it uses.
    pub disk_used: u64,
    /// The owner.
    pub owner: PtsId,
    /// When it was made; of a clone, when it was made or brought up to date.
    pub creation_date: UnixTime,
}

/// What to change of a volume's header. `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct VolumeChange {
    /// Another name.
    pub name: Option<String>,
    /// Meant to be used.
    pub in_service: Option<bool>,
    /// Let be used by an administrator.
    pub blessed: Option<bool>,
    /// Taken offline.
    pub offline: Option<bool>,
    /// Half made.
    pub destroy_me: Option<bool>,
    /// KiB it may use; 0 is no limit.
    pub max_quota: Option<u64>,
    /// KiB kept for it.
    pub min_quota: Option<u64>,
    /// The group's read-write volume.
    pub parent: Option<VolumeId>,
    /// The newest read-only clone.
    pub clone: Option<VolumeId>,
    /// The backup clone.
    pub backup: Option<VolumeId>,
    /// Read-only or backup, of a clone. A read-write volume stays one.
    pub kind: Option<VolumeType>,
    /// The owner.
    pub owner: Option<PtsId>,
    /// When it was made.
    pub creation_date: Option<UnixTime>,
    /// When it was changed last.
    pub update_date: Option<UnixTime>,
    /// Uses today.
    pub day_use: Option<u32>,
    /// The counter of updates.
    pub update_counter: Option<u32>,
    /// Why it is offline.
    pub offline_message: Option<Vec<u8>>,
    /// Message of the day.
    pub motd: Option<Vec<u8>>,
    /// How new data is packed. What is there stays as it is.
    pub compression: Option<Compression>,
}

impl VolumeChange {
    /// Makes it a part of another change. Its name must be one that a volume can have.
    pub(crate) fn make(self, change: &mut Change<'_>, id: VolumeId) -> Result<()> {
        let mut row = change.volume(id.0)?.ok_or(StoreError::NoVolume(id))?;
        let mut info = change.info(id.0)?.ok_or(StoreError::NoVolume(id))?;
        self.apply(&mut row, &mut info);
        change.put_volume(id.0, &row)?;
        change.put_info(id.0, &info);
        Ok(())
    }

    fn apply(self, row: &mut VolumeRow, info: &mut VolumeInfo) {
        let mut flag = |bit, on: Option<bool>| {
            if let Some(on) = on {
                row.set(bit, on);
            }
        };
        flag(VolumeRow::IN_SERVICE, self.in_service);
        flag(VolumeRow::BLESSED, self.blessed);
        flag(VolumeRow::OFFLINE, self.offline);
        flag(VolumeRow::DESTROY_ME, self.destroy_me);
        set(&mut row.max_quota, self.max_quota);
        set(&mut row.parent, self.parent.map(|id| id.0));
        set(&mut row.clone, self.clone.map(|id| id.0));
        set(&mut row.backup, self.backup.map(|id| id.0));
        set(
            &mut row.creation_date,
            self.creation_date.map(|date| date.0),
        );
        set(&mut row.update_date, self.update_date.map(|date| date.0));
        set(&mut row.compression, self.compression);
        set(&mut info.name, self.name.map(String::into_bytes));
        set(&mut info.min_quota, self.min_quota);
        set(&mut info.owner, self.owner.map(|id| id.0));
        set(&mut info.day_use, self.day_use);
        set(&mut info.update_counter, self.update_counter);
        set(&mut info.offline_message, self.offline_message);
        set(&mut info.motd, self.motd);
        // What a clone shares with others cannot be made to take changes by its kind alone.
        if let Some(kind) = self.kind
            && !super::is_writable(kind)
            && !super::is_writable(row.kind)
        {
            row.kind = kind;
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

impl Volume {
    /// The volume's header.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`].
    pub fn state(&self) -> Result<VolumeState> {
        let reader = self.partition.reader()?;
        let row = self.row(&reader)?;
        let info = reader
            .info(self.id.0)?
            .ok_or(StoreError::NoVolume(self.id))?;
        let now = UnixTime::from(SystemTime::now()).0;
        let used = self.partition.usage().pending(self.id.0);
        Ok(VolumeState::new(self.id, &row, info, now, used))
    }

    /// The part of the volume's header that every request needs.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`].
    pub fn summary(&self) -> Result<VolumeSummary> {
        let reader = self.partition.reader()?;
        let row = self.row(&reader)?;
        let owner = reader.owner(self.id.0)?;
        Ok(VolumeSummary {
            kind: row.kind,
            online: row.is_online(),
            max_quota: row.max_quota,
            disk_used: row.disk_used,
            owner: PtsId(owner.ok_or(StoreError::NoVolume(self.id))?),
            creation_date: UnixTime(row.creation_date),
        })
    }

    /// Counts one use of the volume, for its statistics by day and week.
    pub fn count_use(&self) {
        self.partition.usage().count(self.id.0);
    }

    /// Changes the volume's header.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`], or if the new name cannot be a volume's.
    pub fn change(&self, wanted: VolumeChange) -> Result<()> {
        if let Some(name) = &wanted.name {
            check_name(name)?;
        }
        let id = self.id;
        self.partition.commit(move |change| wanted.make(change, id))
    }

    /// Gives the volume another number. What it holds stays.
    ///
    /// # Errors
    ///
    /// [`StoreError::VolumeExists`] or [`StoreError::NoVolume`].
    pub fn renumber(&self, to: VolumeId) -> Result<Self> {
        check_id(to)?;
        let from = self.id;
        self.partition.commit(move |change| {
            if change.volume(to.0)?.is_some() {
                return Err(StoreError::VolumeExists(to));
            }
            let mut row = change.volume(from.0)?.ok_or(StoreError::NoVolume(from))?;
            let info = change.info(from.0)?.ok_or(StoreError::NoVolume(from))?;
            if row.parent == from.0 {
                row.parent = to.0;
            }
            change.delete_volume(from.0)?;
            change.delete_member(row.at(), from.0)?;
            change.put_member(row.at(), to.0, MemberState::Live);
            change.put_volume(to.0, &row)?;
            change.put_info(to.0, &info);
            Ok(())
        })?;
        Ok(Self {
            partition: std::sync::Arc::clone(&self.partition),
            id: to,
        })
    }
}
