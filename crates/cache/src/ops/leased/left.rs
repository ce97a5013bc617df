//! Changes that an earlier process has made and not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use afar_cell::{Error, Volume, Wanted};
use afar_types::{BatchOperation, CellName, Fid, VolumeId};
use tokio::time::Instant;

use crate::model::pending::{Pending, SentBefore};
use crate::model::pending_volume::PendingVolume;
use crate::ops::cache::Cache;
use crate::storage::journal::{LeftChanges, Made, SentBatch};

/// How long what was left waits for a user who has no tokens.
const LOGIN: Duration = Duration::from_secs(600);

/// The changes of a volume that an earlier process has left.
#[derive(Debug, Default)]
pub(crate) struct LeftLine {
    changes: Vec<Made>,
    batch: Option<SentBatch>,
}

/// What was left, by volume.
pub(crate) type LeftLines = BTreeMap<(CellName, VolumeId), LeftLine>;

/// What waits of this, for as long as this process runs.
pub(crate) fn waiting(left: &LeftLines, since: Duration) -> Vec<PendingVolume> {
    let lines = left.iter().map(|((cell, volume), line)| {
        let operations = line.changes.iter().map(|made| &made.change.operation);
        PendingVolume {
            cell: cell.clone(),
            volume: *volume,
            changes: line.changes.len() as u64,
            bytes: operations.map(|it| bytes_of(it) as u64).sum(),
            oldest: since,
            failing: None,
        }
    });
    lines.collect()
}

/// What was left in a journal, by volume.
pub(crate) fn lines(left: LeftChanges) -> LeftLines {
    let mut lines = LeftLines::new();
    for made in left.changes {
        // The journal has no other names.
        if let Ok(cell) = made.cell.to_string().parse::<CellName>() {
            let line = lines.entry((cell, made.volume)).or_default();
            line.changes.push(made);
        }
    }
    for batch in left.batches {
        let Ok(cell) = batch.cell.to_string().parse::<CellName>() else {
            continue;
        };
        let Some(line) = lines.get_mut(&(cell, batch.volume)) else {
            continue;
        };
        let first = line.changes.iter().map(|made| made.number);
        // Where some of it is done with, an answer came, and the rest is to be sent otherwise.
        let whole = batch
            .numbers
            .iter()
            .copied()
            .eq(first.take(batch.numbers.len()));
        line.batch = Some(batch).filter(|_| whole);
    }
    lines
}

impl Cache {
    /// Has changes sent that an earlier process has left, as far as their volumes are found.
    // spec: leases#restart-of-the-holder
    pub(crate) async fn send_left(&self) {
        let keys: Vec<_> = self.0.left.lock().keys().cloned().collect();
        for (cell, id) in keys {
            if self.waits_for_tokens(&(cell.clone(), id)).await {
                continue;
            }
            let volume = match self.volume_of(&cell, id).await {
                Ok(volume) => volume,
                Err(error) => {
                    tracing::warn!(%cell, volume = %id, %error,
                        "cannot send changes made before a restart yet; keeping them");
                    continue;
                }
            };
            let Some(left) = self.0.left.lock().remove(&(cell.clone(), id)) else {
                continue;
            };
            tracing::info!(%cell, volume = %id, changes = left.changes.len(),
                "sending changes made before a restart");
            self.take_up_line(&volume, left);
        }
    }

    /// Whether a user whose changes were left has no tokens yet: before logging in again the server would refuse them.
    async fn waits_for_tokens(&self, key: &(CellName, VolumeId)) -> bool {
        let late = self.0.begun.elapsed().is_ok_and(|time| time > LOGIN);
        if late || self.0.config.users.is_none() {
            return false;
        }
        let users: BTreeSet<u32> = {
            let left = self.0.left.lock();
            let changes = left.get(key).map(|line| line.changes.iter());
            changes
                .into_iter()
                .flatten()
                .map(|made| made.user)
                .collect()
        };
        for uid in users {
            if self.0.users.is_anonymous(&*self.user(uid).await) {
                return true;
            }
        }
        false
    }

    async fn volume_of(&self, cell: &CellName, id: VolumeId) -> Result<Arc<Volume>, Error> {
        let client = &self.0.client;
        let cell = client.cell(cell).await?;
        client
            .volume(&cell, &id.to_string(), Wanted::PreferReadWrite)
            .await
    }

    fn take_up_line(&self, volume: &Arc<Volume>, left: LeftLine) {
        let line = self.0.unsent.of(volume);
        let mut queue = line.lock();
        for made in left.changes {
            let pending = self.pending_of(volume, made);
            for vnode in pending.touched.iter().chain(&pending.makes) {
                vnode.lock().rare.unsent = pending.number;
            }
            queue.push(pending);
        }
        queue.again = left.batch.map(|batch| SentBefore {
            series: batch.series.0,
            number: batch.batch,
            changes: batch.numbers.len(),
        });
        self.begin_sending(&line, &mut queue);
    }

    /// A change as this process sends it. Its lease is nobody's now.
    fn pending_of(&self, volume: &Arc<Volume>, made: Made) -> Pending {
        let id = volume.id();
        let vnode = |fid: Fid| self.0.vnodes.of(volume, fid);
        let operation = &made.change.operation;
        let vnodes = operation.vnodes().into_iter().flatten();
        let touched = vnodes.map(|it| vnode(it.fid(id))).collect();
        let makes = match operation {
            BatchOperation::Create(make)
            | BatchOperation::MakeDir(make)
            | BatchOperation::Symlink(make, _) => Some(vnode(make.wanted.fid(id))),
            _ => None,
        };
        let bytes = bytes_of(operation);
        Pending {
            number: made.number,
            user: made.user,
            touched,
            makes,
            removes: None,
            bytes,
            made: Instant::now(),
            late: false,
            change: made.change,
        }
    }
}

/// Bytes that a change counts for.
fn bytes_of(operation: &BatchOperation) -> usize {
    match operation {
        BatchOperation::StoreData { data, .. } => data.len(),
        _ => 2 * afar_dir::MAX_NAME,
    }
}
