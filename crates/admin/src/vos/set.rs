//! `vos offline`, `online` and `setfields`.

use std::time::Duration;

use afar_types::{AttachFlags, TransactionFlags, VolumeChanges, VolumeId};

use super::event::OrFail;
use super::{Failure, ServerPartition, Vos};

impl Vos {
    /// Holds a volume as `attach` says for some time, and then has it on line or not.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_volume(
        &self,
        at: ServerPartition,
        id: VolumeId,
        attach: AttachFlags,
        then: TransactionFlags,
        time: Duration,
    ) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        let begun = self.begin(&server, id, at.partition, attach).await;
        let transaction =
            begun.or_fail(self, || "SetVolumeStatus: TransCreate Failed\n".to_owned())?;
        let set = self.set_flags(&server, transaction, then).await;
        let set = set.or_fail(self, || "SetVolumeStatus: SetFlags Failed\n".to_owned());
        if set.is_ok() && !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        let finished = self.finish(&server, transaction).await;
        let finished = finished.or_fail(self, || "SetVolumeStatus: EndTrans Failed\n".to_owned());
        set.and(finished)
    }

    /// Changes quota and counters of a volume.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_fields(
        &self,
        at: ServerPartition,
        id: VolumeId,
        changes: VolumeChanges,
    ) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        let begun = self
            .begin(&server, id, at.partition, AttachFlags::OFFLINE)
            .await;
        let transaction =
            begun.or_fail(self, || "SetVolumeInfo: TransCreate Failed\n".to_owned())?;
        let set = self.rpc(server.set_info(transaction, changes)).await;
        let set = set.or_fail(self, || "SetVolumeInfo: SetInfo Failed\n".to_owned());
        let finished = self.finish(&server, transaction).await;
        let finished = finished.or_fail(self, || "SetVolumeInfo: EndTrans Failed\n".to_owned());
        set.and(finished)
    }
}
