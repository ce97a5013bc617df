//! Quota and usage of volumes.

use std::sync::Arc;

use afar_types::error::errno::{EDQUOT, ENOSPC};
use afar_types::{FetchVolumeStatus, StoreVolumeStatus};
use afar_xdr::XdrString;

use crate::change::text_error;
use crate::client::Client;
use crate::error::Error;
use crate::room::NoRoom;
use crate::volume::Volume;

/// What a file server says of a volume and its partition.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VolumeStatus {
    /// State, quota and usage, in KiB.
    pub status: FetchVolumeStatus,
    /// The volume's name, with its suffix.
    pub name: String,
    /// What users are told while it is offline.
    pub offline_message: String,
    /// What users are told once.
    pub message_of_the_day: String,
}

impl NoRoom {
    /// If the quota of a volume with this status leaves no room for so many bytes.
    fn in_quota(volume: &Volume, status: &VolumeStatus, needed: u64) -> Option<Self> {
        let found = Self::new(volume, status, needed);
        let quota = found.quota?;
        // What is over the quota already is not made worse by nothing.
        let fits = needed == 0 || found.used.saturating_add(needed) <= quota;
        (!fits).then_some(found)
    }

    fn new(volume: &Volume, status: &VolumeStatus, needed: u64) -> Self {
        let bytes = |kib: u32| u64::from(kib) * 1024;
        let quota = Some(bytes(status.status.max_quota)).filter(|quota| *quota != 0);
        Self {
            cell: volume.cell_name().clone(),
            volume: status.name.clone(),
            needed,
            used: bytes(status.status.blocks_in_use),
            quota,
            free: bytes(status.status.partition_blocks_available),
            by_quota: quota.is_some(),
        }
    }
}

impl Client {
    /// Whether a volume's quota leaves room for so many bytes more. What cannot be found out now is
    /// found out by storing them.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub async fn check_room(&self, volume: &Arc<Volume>, needed: u64) -> Result<(), Error> {
        match self.volume_status(volume).await {
            Ok(status) => match NoRoom::in_quota(volume, &status, needed) {
                Some(found) => Err(Error::NoRoom(Box::new(found))),
                None => Ok(()),
            },
            Err(error) => {
                tracing::debug!(volume = %volume.id(), %error, "its quota is unknown");
                Ok(())
            }
        }
    }

    /// Says more of an error that means that a volume or its partition is full: what was needed, and
    /// what there is. Other errors stay as they are.
    pub async fn explain_full(&self, volume: &Arc<Volume>, needed: u64, error: Error) -> Error {
        let number = error.errno();
        // spec: afs-rpc#volume-status
        if !matches!(number, Some(EDQUOT | ENOSPC)) || matches!(error, Error::NoRoom(_)) {
            return error;
        }
        let Ok(status) = self.volume_status(volume).await else {
            return error;
        };
        Error::NoRoom(Box::new(NoRoom {
            by_quota: number == Some(EDQUOT),
            ..NoRoom::new(volume, &status, needed)
        }))
    }

    /// Quota and usage of a volume and of its partition (RXAFS GetVolumeStatus).
    ///
    /// # Errors
    /// When no server of the volume gives them.
    pub async fn volume_status(&self, volume: &Arc<Volume>) -> Result<VolumeStatus, Error> {
        let id = volume.id();
        let reply = self
            .on_volume(volume, |server| async move {
                server.get_volume_status(id).await
            })
            .await?;
        Ok(VolumeStatus {
            status: reply.status,
            name: reply.name.to_string(),
            offline_message: reply.offline_message.to_string(),
            message_of_the_day: reply.message_of_the_day.to_string(),
        })
    }

    /// Sets quotas, and the message for users of an offline volume (RXAFS SetVolumeStatus). An empty
    /// message leaves what is there. It is tried again, as setting the same twice does no harm.
    ///
    /// # Errors
    /// When the message is longer than 1,024 bytes, or the server refuses.
    pub async fn set_volume_status(
        &self,
        volume: &Arc<Volume>,
        status: StoreVolumeStatus,
        offline_message: &str,
    ) -> Result<(), Error> {
        volume.check_writable()?;
        let id = volume.id();
        let message = XdrString::try_from(offline_message).map_err(|problem| {
            text_error("the offline message", offline_message.as_bytes(), problem)
        })?;
        self.on_volume(volume, |server| {
            let message = message.clone();
            async move {
                server
                    .set_volume_status(
                        id,
                        status,
                        XdrString::default(),
                        message,
                        XdrString::default(),
                    )
                    .await
            }
        })
        .await?;
        Ok(())
    }
}
