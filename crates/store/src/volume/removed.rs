//! Volumes that were removed and can still be put back.

use std::sync::Arc;

use afar_types::{VolumeId, VolumeType};

use super::create::remove;
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, DoomedKey, Hold, MemberState, Rows, VolumeInfo, VolumeRow};
use crate::partition::Partition;

/// A volume that was removed. As long as this is there, what it holds is, and it can be put back; the
/// end of the process ends that.
pub struct RemovedVolume {
    partition: Arc<Partition>,
    id: VolumeId,
    kept: Option<Kept>,
}

/// What there was of it.
struct Kept {
    row: VolumeRow,
    info: VolumeInfo,
    /// Generations that its tree had, with itself.
    generations: Vec<u32>,
    /// The read-write volume that named it as its clone.
    named_by: Option<u32>,
    _hold: Hold,
}

impl Partition {
    /// Removes a volume so that it can be put back. Its space comes back when what is returned is dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`].
    pub fn take_volume(self: &Arc<Self>, id: VolumeId) -> Result<RemovedVolume> {
        let kept = self.commit(move |change| take(change, id))?;
        Ok(RemovedVolume {
            partition: Arc::clone(self),
            id,
            kept: Some(kept),
        })
    }
}

impl RemovedVolume {
    /// The read-write volume of its group. As long as this is there, none of the group can be cloned or made
    /// read-write.
    #[must_use]
    pub fn group(&self) -> Option<VolumeId> {
        self.kept.as_ref().map(|kept| VolumeId(kept.row.parent))
    }

    /// Puts the volume back, meant to be used or not.
    ///
    /// # Errors
    ///
    /// [`StoreError::VolumeExists`] if another one has its number by now.
    pub fn put_back(mut self, in_service: bool) -> Result<()> {
        let Some(kept) = self.kept.take() else {
            return Ok(());
        };
        let id = self.id;
        // The hold goes when the commit is done.
        self.partition
            .commit(move |change| put_back(change, id, &kept, in_service).map(|()| kept))
            .map(drop)?;
        self.partition.reap();
        Ok(())
    }
}

impl Drop for RemovedVolume {
    fn drop(&mut self) {
        if self.kept.take().is_some() {
            self.partition.reap();
        }
    }
}

impl std::fmt::Debug for RemovedVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemovedVolume")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

fn take(change: &mut Change<'_>, id: VolumeId) -> Result<Kept> {
    let row = change.volume(id.0)?.ok_or(StoreError::NoVolume(id))?;
    let info = change.info(id.0)?.ok_or(StoreError::NoVolume(id))?;
    let members = change.members(row.tree)?;
    let named_by = match row.parent != id.0 {
        true => change.volume(row.parent)?,
        false => None,
    };
    let named_by = named_by.filter(|by| by.clone == id.0 || by.backup == id.0);
    remove(change, id)?;
    Ok(Kept {
        row,
        info,
        generations: members
            .into_iter()
            .map(|(generation, _, _)| generation)
            .collect(),
        named_by: named_by.map(|_| row.parent),
        // The reaper leaves a tree alone of which somebody holds a generation.
        _hold: change.hold(row.at()),
    })
}

fn put_back(change: &mut Change<'_>, id: VolumeId, kept: &Kept, in_service: bool) -> Result<()> {
    if change.volume(id.0)?.is_some() {
        return Err(StoreError::VolumeExists(id));
    }
    let mut row = kept.row;
    let at = row.at();
    let members = change.members(at.tree)?;
    if members.is_empty() {
        // The last of its tree: what others have left in it is to be cleared away by itself again.
        change.spare(DoomedKey::tree(at.tree))?;
        for generation in kept
            .generations
            .iter()
            .filter(|other| **other != at.generation)
        {
            let shade = At {
                tree: at.tree,
                generation: *generation,
            };
            change.put_member(shade, 0, MemberState::Shade);
            change.doom(DoomedKey::shade(shade));
        }
    } else {
        change.delete_member(at, 0)?;
        change.spare(DoomedKey::shade(at))?;
    }
    change.put_member(at, id.0, MemberState::Live);
    row.set(VolumeRow::DESTROY_ME, false);
    row.set(VolumeRow::IN_SERVICE, in_service);
    change.put_volume(id.0, &row)?;
    change.put_info(id.0, &kept.info);
    if let Some(by) = kept.named_by
        && let Some(mut parent) = change.volume(by)?
    {
        match row.kind {
            VolumeType::ReadOnly if parent.clone == 0 => parent.clone = id.0,
            VolumeType::Backup if parent.backup == 0 => parent.backup = id.0,
            _ => return Ok(()),
        }
        change.put_volume(by, &parent)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use afar_types::PtsId;

    use super::*;
    use crate::check::CheckOptions;
    use crate::config::PartitionOptions;
    use crate::vnode::{NewVnode, StoreOptions};
    use crate::volume::{NewClone, NewVolume};

    const ID: VolumeId = VolumeId(7);
    const CLONE: VolumeId = VolumeId(8);

    fn sound(partition: &Arc<Partition>) {
        let report = partition
            .check(&CheckOptions::default(), &mut |_| ())
            .unwrap();
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    }

    /// A volume with a file, and a clone of it with another one.
    fn made() -> (tempfile::TempDir, Arc<Partition>) {
        let dir = tempfile::tempdir().unwrap();
        let options = PartitionOptions::default().map_size(1 << 28).unwrap();
        let partition = Arc::new(Partition::init(dir.path(), &options).unwrap());
        let volume = partition.create_volume(&NewVolume::new(ID, "v")).unwrap();
        let file = |name: &[u8]| {
            let made = volume.create_file(volume.root(), name, &NewVnode::new(PtsId(1), 0o644));
            let fid = made.unwrap().vnode.fid;
            volume
                .write(fid, 0, name, &StoreOptions::default())
                .unwrap();
        };
        file(b"first");
        let clone = NewClone::new(CLONE, "v.readonly", VolumeType::ReadOnly);
        volume.make_clone(&clone).unwrap();
        file(b"second");
        (dir, partition)
    }

    fn reads(partition: &Arc<Partition>, id: VolumeId, name: &[u8]) -> bool {
        let volume = partition.volume(id).unwrap();
        let found = volume.lookup(volume.root(), name);
        found.is_ok_and(|fid| volume.read_all(fid, 100).unwrap() == name)
    }

    #[test]
    fn a_removed_volume_comes_back_as_it_was_whatever_was_removed_beside_it() {
        for clone_too in [false, true] {
            let (_dir, partition) = made();
            let taken = partition.take_volume(ID).unwrap();
            assert!(!partition.has_volume(ID).unwrap());
            if clone_too {
                partition.remove_volume(CLONE).unwrap();
            }
            partition
                .create_volume(&NewVolume::new(VolumeId(9), "w"))
                .unwrap();
            taken.put_back(true).unwrap();
            assert!(reads(&partition, ID, b"first") && reads(&partition, ID, b"second"));
            assert!(partition.volume(ID).unwrap().state().unwrap().in_service);
            if !clone_too {
                assert!(reads(&partition, CLONE, b"first"));
            }
            partition.wait_cleared().unwrap();
            sound(&partition);
        }
    }

    #[test]
    fn a_clone_comes_back_and_is_named_again() {
        let (_dir, partition) = made();
        let taken = partition.take_volume(CLONE).unwrap();
        taken.put_back(true).unwrap();
        assert!(reads(&partition, CLONE, b"first") && !reads(&partition, CLONE, b"second"));
        let state = partition.volume(ID).unwrap().state().unwrap();
        assert_eq!(state.clone, CLONE);
        sound(&partition);
    }

    #[test]
    fn what_is_not_put_back_is_cleared_away() {
        let (_dir, partition) = made();
        let taken = partition.take_volume(ID).unwrap();
        let other = partition.create_volume(&NewVolume::new(ID, "v")).unwrap();
        drop(taken);
        partition.wait_cleared().unwrap();
        sound(&partition);
        assert!(other.lookup(other.root(), b"first").is_err());
        let taken = partition.take_volume(ID).unwrap();
        partition.create_volume(&NewVolume::new(ID, "v")).unwrap();
        assert!(matches!(
            taken.put_back(true),
            Err(StoreError::VolumeExists(ID))
        ));
        sound(&partition);
    }
}
