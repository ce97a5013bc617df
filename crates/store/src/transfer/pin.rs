//! A volume's state that stays as it is while a dump reads it.

use std::sync::Arc;

use crate::error::{Result, StoreError};
use crate::meta::{At, DoomedKey, Hold, MemberState, Rows, VolumeInfo, VolumeRow};
use crate::partition::Partition;
use crate::volume::{Volume, freeze, is_writable};

/// A volume as of one moment. The volume can be changed, cloned and removed meanwhile.
///
/// Of a read-write volume it is what a removed clone is: a shade, which the reaper takes away once
/// nobody holds it, also after the process has ended.
pub(crate) struct Pin {
    pub(crate) partition: Arc<Partition>,
    pub(crate) at: At,
    pub(crate) row: VolumeRow,
    pub(crate) info: VolumeInfo,
    hold: Option<Hold>,
}

impl Pin {
    pub(crate) fn new(volume: &Volume) -> Result<Self> {
        let id = volume.id;
        let (at, row, info, hold) = volume.partition.settled(move |change| {
            let shown = change.volume(id.0)?.ok_or(StoreError::NoVolume(id))?;
            let info = change.info(id.0)?.ok_or(StoreError::NoVolume(id))?;
            let mut next = shown;
            let at = freeze(change, id.0, &mut next)?;
            if is_writable(shown.kind) {
                change.put_volume(id.0, &next)?;
                change.put_member(at, 0, MemberState::Shade);
                change.doom(DoomedKey::shade(at));
            }
            Ok((at, shown, info, change.hold(at)))
        })?;
        Ok(Self {
            partition: Arc::clone(&volume.partition),
            at,
            row,
            info,
            hold: Some(hold),
        })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        drop(self.hold.take());
        self.partition.reap();
    }
}
