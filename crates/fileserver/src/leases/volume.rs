//! Volumes that are needed as a whole: by transactions of the volume server.

use std::sync::Arc;

use afar_lease::{Time, VolumeEntry};
use afar_types::VolumeId;
use tokio::time::timeout;

use super::Leases;

/// A volume in which nothing is leased, until this is dropped.
#[derive(Debug)]
pub struct ClosedVolume {
    leases: Arc<Leases>,
    volume: VolumeId,
}

impl Leases {
    /// Recalls all leases in a volume, and waits until they are over; there are none in it then as long as the result is
    /// kept. Changes must still be possible: holders send what they have.
    pub async fn close_volume(self: &Arc<Self>, volume: VolumeId) -> ClosedVolume {
        self.with(|state, _| state.server.close_volume(volume));
        let closed = ClosedVolume {
            leases: Arc::clone(self),
            volume,
        };
        let freed = self.freed(volume);
        loop {
            let told = freed.notify.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let entry = self.with(|state, now| match state.server.enter_volume(now, volume) {
                VolumeEntry::Proceed => {
                    state.reserves.forget(volume);
                    None
                }
                VolumeEntry::Wait(until) => Some(until.saturating_sub(now)),
            });
            let Some(left) = entry else {
                return closed;
            };
            // Whether it was told or the time is over, it asks again.
            drop(timeout(left.max(Time::from_millis(1)), told).await);
        }
    }
}

impl Drop for ClosedVolume {
    fn drop(&mut self) {
        let volume = self.volume;
        self.leases
            .with(|state, _| state.server.open_volume(volume));
    }
}
