//! Volumes that a client which is gone has left out of service.
//!
//! A volume that moves is taken out of service first, is brought into service elsewhere, and then the
//! location servers are told. A client that ends in between leaves it where it was, and nobody can
//! use it there; one that ends later leaves one that nobody must use any more. Only the location servers
//! know which of the two it is.

use afar_store::VolumeChange;
use afar_types::{PartitionId, SiteFlags, VolumeId, VolumeType};

use super::Volser;
use super::transactions::Use;

impl Volser {
    /// Puts a volume back in service that is where the location servers have it.
    pub(super) async fn put_back_in_service(&self, used: &Use) {
        let (id, partition) = (used.transaction.volume.id(), used.transaction.partition);
        if !self.is_located_here(id, partition).await {
            tracing::warn!(volume = %id, %partition, "left out of service, because the location \
                servers do not list it here");
            return;
        }
        let change = VolumeChange {
            in_service: Some(true),
            ..VolumeChange::default()
        };
        let changed = self.change_header(used, "putting a volume back in service", change);
        if changed.await.is_ok() {
            tracing::warn!(volume = %id, %partition, "back in service, because the client that \
                took it out is gone");
            self.break_callbacks(id).await;
        }
    }

    /// Whether the first location server that answers has a read-write volume at this place.
    async fn is_located_here(&self, id: VolumeId, partition: PartitionId) -> bool {
        let Some(home) = &self.config.home else {
            return false;
        };
        let kind = VolumeType::ReadWrite.number();
        for server in (self.config.location)() {
            let Ok(found) = server.get_entry_by_id_n(id, kind).await else {
                continue;
            };
            let entry = found.entry;
            if entry.volume_id[0] != id {
                return false;
            }
            let sites = entry.server_number.iter().zip(entry.server_partition);
            let mut sites = sites.zip(entry.server_flags).take(entry.n_servers as usize);
            return sites.any(|((address, at), flags)| {
                flags.contains(SiteFlags::READ_WRITE)
                    && at == partition
                    && home.addresses.contains(&(*address).into())
            });
        }
        false
    }
}
