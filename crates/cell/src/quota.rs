//! Quota and usage of volumes.

use std::sync::Arc;

use afar_types::{FetchVolumeStatus, StoreVolumeStatus};
use afar_xdr::XdrString;

use crate::change::text_error;
use crate::client::Client;
use crate::error::Error;
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

impl Client {
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
    /// When the message is longer than 1,024 octets, or the server refuses.
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
