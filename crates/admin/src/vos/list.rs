//! `vos listpart`, `listvol`, `partinfo` and `status`: what volume servers tell.

use std::net::Ipv4Addr;

use afar_types::{DiskPartition64, PartitionId, TransDebugInfo, VolintInfo, VolintXInfo, VolumeId};
use afar_xdr::XdrString;

use super::codes::{EINVAL, RXGEN_OPCODE};
use super::event::OrFail;
use super::{Failure, ServerPartition, Vos, complain};

/// A partition's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedPartition {
    /// The partition.
    pub partition: PartitionId,
    /// KiB free.
    pub free: i64,
    /// KiB in all.
    pub total: i64,
}

impl Vos {
    /// The partitions of a server.
    ///
    /// # Errors
    /// What the server says.
    pub async fn partitions(&self, server: Ipv4Addr) -> Result<Vec<PartitionId>, Failure> {
        let client = self.volume_server(server);
        let listed = match self.rpc(client.x_list_partitions()).await {
            // spec: afs-rpc#unknown-operations
            Err(RXGEN_OPCODE) => {
                let listed = self.rpc(client.list_partitions()).await;
                listed.map(|reply| reply.partitions.iter().collect())
            }
            listed => listed.map(|reply| reply.partitions.into_vec()),
        };
        let listed = listed.or_fail(self, || {
            "Could not fetch the list of partitions from the server\n".to_owned()
        });
        self.end(listed)
    }

    /// Size and free space of a partition.
    ///
    /// # Errors
    /// What the server says.
    pub async fn partition_size(&self, at: ServerPartition) -> Result<SizedPartition, Failure> {
        let client = self.volume_server(at.server);
        let name = at.partition.to_string();
        let path = XdrString::new(name.as_bytes()).map_err(|_| Failure(EINVAL))?;
        let info = match self.rpc(client.partition_info64(path.clone())).await {
            Err(RXGEN_OPCODE) => {
                let info = self.rpc(client.partition_info(path)).await;
                info.map(|reply| DiskPartition64::from(&reply.partition))
            }
            info => info.map(|reply| reply.partition),
        };
        let info = info.or_fail(self, || {
            format!("Could not get information on partition {name}\n")
        });
        let info = self.end(info)?;
        Ok(SizedPartition {
            partition: at.partition,
            free: info.free,
            total: info.total(),
        })
    }

    /// The volumes of a partition; of each only its id unless all is wanted.
    ///
    /// # Errors
    /// What the server says.
    pub async fn volumes(
        &self,
        at: ServerPartition,
        all: bool,
    ) -> Result<Vec<VolintInfo>, Failure> {
        let client = self.volume_server(at.server);
        let listed = self
            .rpc(client.list_volumes(at.partition, all.into()))
            .await;
        let listed = listed.or_fail(self, || {
            "Could not fetch the list of volumes from the server\n".to_owned()
        });
        self.end(listed).map(|reply| reply.volumes.into_vec())
    }

    /// The volumes of a partition with statistics.
    ///
    /// # Errors
    /// What the server says.
    pub async fn volumes_extended(&self, at: ServerPartition) -> Result<Vec<VolintXInfo>, Failure> {
        let client = self.volume_server(at.server);
        let listed = self.rpc(client.x_list_volumes(at.partition, 1)).await;
        let listed = listed.or_fail(self, || {
            "[UV_XListVolumes] Couldn't fetch volume list\n".to_owned()
        });
        self.end(listed).map(|reply| reply.volumes.into_vec())
    }

    /// One volume.
    ///
    /// # Errors
    /// What the server says: ENODEV if it is not there.
    pub async fn volume(&self, at: ServerPartition, id: VolumeId) -> Result<VolintInfo, Failure> {
        let client = self.volume_server(at.server);
        let listed = self.rpc(client.list_one_volume(at.partition, id)).await;
        let listed = listed.or_fail(self, || {
            format!("Could not fetch the information about volume {id} from the server\n")
        });
        let mut volumes = self.end(listed)?.volumes.into_vec();
        volumes.pop().ok_or(Failure(super::codes::ENODEV))
    }

    /// One volume with statistics.
    ///
    /// # Errors
    /// What the server says: ENODEV if it is not there.
    pub async fn volume_extended(
        &self,
        at: ServerPartition,
        id: VolumeId,
    ) -> Result<VolintXInfo, Failure> {
        let client = self.volume_server(at.server);
        let listed = self.rpc(client.x_list_one_volume(at.partition, id)).await;
        let listed = listed.or_fail(self, || {
            "[UV_XListOneVolume] Couldn't fetch the volume information\n".to_owned()
        });
        let mut volumes = self.end(listed)?.volumes.into_vec();
        volumes.pop().ok_or(Failure(super::codes::ENODEV))
    }

    /// The transactions of a volume server.
    ///
    /// # Errors
    /// What the server says.
    pub async fn transactions(&self, server: Ipv4Addr) -> Result<Vec<TransDebugInfo>, Failure> {
        let client = self.volume_server(server);
        match self.rpc(client.monitor()).await {
            Ok(reply) => Ok(reply.transactions.into_vec()),
            Err(code) => {
                complain!(
                    self,
                    "Could not access status information about the server\n"
                );
                self.explain("", code);
                Err(Failure(code))
            }
        }
    }

    /// Ends a transaction of a volume server.
    ///
    /// # Errors
    /// The server's code, of which nothing is said.
    pub async fn end_transaction(
        &self,
        server: Ipv4Addr,
        transaction: afar_types::TransactionId,
    ) -> Result<(), Failure> {
        let client = self.volume_server(server);
        self.finish(&client, transaction).await.map_err(Failure)
    }
}
