//! Volumes that are replaced: the one before stays until the new one is complete.
//!
//! A tool that restores a dump over a volume, or sends a whole one to a site that has one, removes that
//! and makes another of the same number, which it then fills. If that fails there is none. So what is
//! removed is kept for a moment; if a volume is made in its place, it is kept for as long as that is
//! unfinished, and put back if it never is.

use std::sync::Arc;
use std::time::Duration;

use afar_net::AbortCode;
use afar_store::Volume;
use afar_types::{PartitionId, VolumeId};
use parking_lot::Mutex;

use super::streams::blocking;
use super::transactions::{Previous, Use};
use super::{Volser, failed};

/// How long a removed volume is kept: tools make the one that replaces it at once.
const KEPT: Duration = Duration::from_secs(10);
/// Volumes that are kept at a time; of more the oldest are gone for good.
const MOST: usize = 64;

/// Volumes that were just removed, the oldest first.
#[derive(Default)]
pub(super) struct JustRemoved {
    kept: Mutex<Vec<Removed>>,
}

struct Removed {
    partition: PartitionId,
    id: VolumeId,
    /// Tells it from others of its number.
    number: u64,
    previous: Previous,
}

impl JustRemoved {
    /// Keeps a volume for a moment.
    fn keep(self: &Arc<Self>, partition: PartitionId, id: VolumeId, previous: Previous) {
        let mut kept = self.kept.lock();
        let number = kept.last().map_or(0, |last| last.number + 1);
        let oldest = (kept.len() >= MOST).then(|| kept.remove(0));
        kept.push(Removed {
            partition,
            id,
            number,
            previous,
        });
        drop(kept);
        // It does not keep a server that ends.
        let all = Arc::downgrade(self);
        tokio::spawn(async move {
            // What goes, goes where waiting for the disk holds up nobody.
            let dropped = tokio::task::spawn_blocking(move || drop(oldest)).await;
            tokio::time::sleep(KEPT).await;
            let Some(all) = all.upgrade() else { return };
            let old = {
                let mut kept = all.kept.lock();
                let at = kept.iter().position(|removed| removed.number == number);
                at.map(|at| kept.remove(at))
            };
            drop(all);
            let gone = tokio::task::spawn_blocking(move || drop(old)).await;
            if dropped.and(gone).is_err() {
                tracing::error!("removed volumes are not given up");
            }
        });
    }

    /// Takes a volume of this number that was just removed.
    pub(super) fn take(&self, partition: PartitionId, id: VolumeId) -> Option<Previous> {
        let mut kept = self.kept.lock();
        let at = kept
            .iter()
            .rposition(|removed| removed.partition == partition && removed.id == id)?;
        Some(kept.remove(at).previous)
    }

    fn is_empty(&self) -> bool {
        self.kept.lock().is_empty()
    }

    /// Takes what was just removed of a group.
    fn take_group(&self, partition: PartitionId, group: VolumeId) -> Vec<Removed> {
        let is_of = |removed: &mut Removed| {
            removed.partition == partition && removed.previous.volume.group() == Some(group)
        };
        self.kept.lock().extract_if(.., is_of).collect()
    }
}

impl Volser {
    /// Removes the volume of a transaction, so that it can be put back for a moment.
    pub(super) async fn remove_for_now(&self, used: &Use) -> Result<(), AbortCode> {
        let volume = used.transaction.volume.clone();
        let (id, partition) = (volume.id(), used.transaction.partition);
        // One that was made in another's place and is removed itself gives the place back.
        let made = used.take_previous();
        let was = used.was_in_service();
        let removed = blocking(move || {
            let state = volume.state();
            let unfinished = state.as_ref().is_ok_and(|state| state.destroy_me) && was.is_none();
            let in_service = was.unwrap_or_else(|| state.is_ok_and(|state| state.in_service));
            match volume.partition().take_volume(id) {
                Ok(volume) => Ok(Some(Previous { volume, in_service }).filter(|_| !unfinished)),
                Err(afar_store::StoreError::NoVolume(_)) => Ok(None),
                Err(error) => Err(failed("removing a volume", id, &error)),
            }
        })
        .await?;
        if let Some(previous) = made.or(removed) {
            self.removed.keep(partition, id, previous);
        }
        Ok(())
    }

    /// Gives up what was just removed of a volume's group: while it is kept, nothing of the group can be cloned.
    pub(super) async fn forget_removed(
        &self,
        partition: PartitionId,
        volume: &Volume,
    ) -> Result<(), AbortCode> {
        if self.removed.is_empty() {
            return Ok(());
        }
        let (volume, removed) = (volume.clone(), Arc::clone(&self.removed));
        blocking(move || {
            // A volume whose header cannot be read may still be removed.
            if let Ok(state) = volume.state() {
                drop(removed.take_group(partition, state.parent));
            }
            Ok(())
        })
        .await
    }

    /// Before a transaction ends: what its volume took the place of is put back if the volume is not
    /// finished.
    pub(super) async fn settle(&self, used: &Use) {
        let Some(previous) = used.take_previous() else {
            return;
        };
        let volume = used.transaction.volume.clone();
        let id = volume.id();
        let done = blocking(move || {
            let unfinished = match volume.state() {
                Ok(state) => state.destroy_me,
                Err(error) => matches!(error, afar_store::StoreError::NoVolume(_)),
            };
            if !unfinished {
                return Ok(false);
            }
            match volume.partition().remove_volume(id) {
                Ok(()) | Err(afar_store::StoreError::NoVolume(_)) => {}
                Err(error) => return Err(failed("removing an unfinished volume", id, &error)),
            }
            let back = previous.volume.put_back(previous.in_service);
            back.map_err(|error| failed("putting a volume back", id, &error))?;
            Ok(true)
        })
        .await;
        if done == Ok(true) {
            tracing::warn!(volume = %id, "restored a volume, because its replacement was not \
                finished");
            self.break_callbacks(id).await;
        }
    }
}
