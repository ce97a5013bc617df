//! A volume brought to another server while it is in use, for `vos copy` and `vos move`.

use afar_rpc::afsvol;
use afar_types::{AttachFlags, DestServer, RestoreCookie, TransactionId, UnixTime, VolumeId};

use super::event::OrFail;
use super::{Failure, ServerPartition, Vos, step};

/// The volume that is brought over, and the transactions there that are to be cleaned up.
pub(super) struct Source<'a> {
    pub(super) id: VolumeId,
    pub(super) at: ServerPartition,
    pub(super) server: &'a afsvol::Client,
    pub(super) clone: Option<VolumeId>,
    pub(super) transaction: &'a mut Option<TransactionId>,
    pub(super) clone_transaction: &'a mut Option<TransactionId>,
}

/// The volume that takes the dumps.
pub(super) struct Target {
    pub(super) id: VolumeId,
    pub(super) server: DestServer,
    pub(super) transaction: TransactionId,
    pub(super) cookie: RestoreCookie,
}

impl Vos {
    /// Brings over what changed in the clone since a time, if there is one, and ends its
    /// transaction. Then begins one on the source, whose last changes are to follow.
    pub(super) async fn forward_clone(
        &self,
        source: Source<'_>,
        since: UnixTime,
        target: &Target,
    ) -> Result<TransactionId, Failure> {
        let (id, server) = (source.id, source.server);
        if let (Some(clone), Some(transaction)) = (source.clone, *source.clone_transaction) {
            let new = target.id;
            step!(
                self,
                "Dumping from clone {clone} on source to volume {new} on destination ..."
            );
            let there = target.transaction;
            let forwarded = self
                .rpc(server.forward(
                    transaction,
                    since,
                    target.server,
                    there,
                    target.cookie.clone(),
                ))
                .await;
            forwarded.or_fail_loudly(self, || {
                format!("Failed to move data for the volume {new}\n")
            })?;
            self.done();
            step!(self, "Ending transaction on cloned volume {clone} ...");
            *source.clone_transaction = None;
            let finished = self.finish(server, transaction).await;
            finished.or_fail_loudly(self, || {
                format!("Failed to end the transaction on the cloned volume {clone}\n")
            })?;
            self.done();
        }
        step!(self, "Starting transaction on source volume {id} ...");
        let begun = self
            .begin(server, id, source.at.partition, AttachFlags::BUSY)
            .await;
        let here = begun.or_fail_loudly(self, || {
            format!("Failed to create a transaction on the source volume {id}\n")
        })?;
        *source.transaction = Some(here);
        self.done();
        Ok(here)
    }
}
