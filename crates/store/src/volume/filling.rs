//! Filling a volume in many commits, none of which is seen before the last.

use std::sync::Arc;

use afar_types::VolumeId;

use super::clone::none_above;
use super::create::next_tree;
use crate::error::{Result, StoreError};
use crate::meta::{
    At, Change, DoomedKey, FIRST_GENERATION, MemberState, Rows, VolumeInfo, VolumeRow,
};
use crate::partition::{Partition, doom_member};

/// A place to write what a volume is to hold. Given up without [`finish`](Self::finish), also by
/// the end of the process, it leaves no trace.
pub(crate) struct Filling {
    partition: Arc<Partition>,
    volume: VolumeId,
    at: At,
    fresh: bool,
}

impl Filling {
    /// A tree of its own, for all a volume is to hold.
    pub(crate) fn fresh(partition: &Arc<Partition>, volume: VolumeId) -> Result<Self> {
        Self::begin(partition, volume, |change, _| {
            let tree = next_tree(change)?;
            change.doom(DoomedKey::tree(tree));
            Ok((
                At {
                    tree,
                    generation: FIRST_GENERATION,
                },
                true,
            ))
        })
    }

    /// The next generation of a volume, which shows all it holds and takes changes. It must be the
    /// newest of its tree: not a clone of a read-write volume here.
    pub(crate) fn next(partition: &Arc<Partition>, volume: VolumeId) -> Result<Self> {
        Self::begin(partition, volume, |change, volume| {
            let row = change
                .volume(volume.0)?
                .ok_or(StoreError::NoVolume(volume))?;
            none_above(change, volume, row.at())?;
            let members = change.members(row.tree)?;
            if members
                .iter()
                .any(|(generation, _, _)| *generation > row.generation)
            {
                return Err(StoreError::Busy(volume));
            }
            let at = At {
                tree: row.tree,
                generation: row.generation + 1,
            };
            change.put_member(at, volume.0, MemberState::Filling);
            change.doom(DoomedKey::shade(at));
            Ok((at, false))
        })
    }

    fn begin(
        partition: &Arc<Partition>,
        volume: VolumeId,
        make: impl Fn(&mut Change<'_>, VolumeId) -> Result<(At, bool)> + Clone + Send + 'static,
    ) -> Result<Self> {
        let ours = Arc::downgrade(partition);
        // Noted within the operation: the reaper must not see the doom before.
        let (at, fresh) = partition.settled(move |change| {
            let (at, fresh) = make(change, volume)?;
            if let Some(partition) = ours.upgrade() {
                partition.building().lock().insert(at.tree);
            }
            Ok((at, fresh))
        })?;
        Ok(Self {
            partition: Arc::clone(partition),
            volume,
            at,
            fresh,
        })
    }

    /// Where rows are to be put.
    pub(crate) fn at(&self) -> At {
        self.at
    }

    /// Shows what was filled in as the volume `row` and `info` tell of. What the volume held
    /// before is removed. `check` is asked of the volume as it is then, and can refuse.
    pub(crate) fn finish(
        self,
        mut row: VolumeRow,
        info: VolumeInfo,
        check: impl FnOnce(Option<&VolumeRow>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (at, volume, fresh) = (self.at, self.volume, self.fresh);
        row.tree = at.tree;
        row.generation = at.generation;
        self.partition.commit(move |change| {
            let old = change.volume(volume.0)?;
            check(old.as_ref())?;
            if !fresh && old.is_none_or(|old| old.tree != at.tree) {
                return Err(StoreError::NoVolume(volume));
            }
            let doomed = if fresh {
                DoomedKey::tree(at.tree)
            } else {
                DoomedKey::shade(at)
            };
            change.spare(doomed)?;
            change.put_member(at, volume.0, MemberState::Live);
            if let Some(old) = old {
                doom_member(change, old.at(), volume.0)?;
            }
            change.put_volume(volume.0, &row)?;
            change.put_info(volume.0, &info);
            Ok(())
        })
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.partition.building().lock().remove(&self.at.tree);
        self.partition.reap();
    }
}
