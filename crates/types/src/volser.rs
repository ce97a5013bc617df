//! Volumes, partitions and transactions as volume servers describe them (AFS-3 volint).

mod info;
mod partition;
mod status;
mod transaction;

pub use info::{VolintInfo, VolintXInfo, VolumeChanges};
pub use partition::{DiskPartition, DiskPartition64, PartitionIds};
pub use status::VolserStatus;
pub use transaction::{
    AttachFlags, DestServer, Destinations, ForwardResults, ReplicaDest, RestoreCookie,
    TransDebugInfo, TransactionFlags,
};

use afar_xdr::{CharArray, List, XdrString};

use crate::PartitionId;

/// A volume's name in a volume server's structures (AFS-3 VNAMESIZE, 32 words).
pub type VolintName = CharArray<32>;
/// A volume's name as an argument of a volume server. Names have at most 31 bytes, and those of
/// read-write volumes 22, so that `.readonly` can be added.
pub type VolintNameText = XdrString<32>;
/// The volumes of a partition. AFS-3 sets no limit; a partition with more cannot be listed.
pub type VolintInfos = List<VolintInfo, 1_048_576>;
/// The volumes of a partition, with statistics.
pub type VolintXInfos = List<VolintXInfo, 1_048_576>;
/// The transactions of a volume server. AFS-3 sets no limit.
pub type TransDebugInfos = List<TransDebugInfo, 65_536>;
/// The partitions of a server, all of them (VOLMAXPARTS).
pub type Partitions = List<PartitionId, 255>;

#[cfg(test)]
mod tests;
