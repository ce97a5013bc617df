//! AFS vocabulary and its XDR form.
//!
//! Structures have the field order and sizes of the AFS-3 interface definitions (RXAFS, RXAFSCB,
//! VL, PR, AFSVol, BOZO, RXSTATS); values that AFS splits over words, such as 64-bit lengths, are
//! joined here. Names follow the field: [`Fid`], [`FetchStatus`], [`CallBack`], [`Acl`],
//! [`VldbEntry`], [`VolintInfo`], [`PrEntry`].
//!
//! Arrays that AFS-3 leaves without a limit have one here, far above what servers hold.

mod acl;
mod batch;
mod bozo;
mod cache_debug;
mod cell;
pub mod error;
mod fid;
mod host;
mod partition;
mod protection;
mod rights;
mod rpc_stats;
mod statistics;
mod status;
mod tree;
mod ubik;
mod uuid;
mod vldb;
mod volser;
mod volume;

pub use acl::{Acl, AclEntry, AclError, AclRecord, AclRecordEntry};
pub use batch::{
    BATCH_BYTES, BATCH_OPERATIONS, BatchChange, BatchChanges, BatchCondition, BatchMake,
    BatchOperation, BatchResult, BatchResults, BatchStatus, BatchStatuses, BatchVnode,
};
pub use bozo::{BozoKey, BozoKeyInfo, BozoParameters, BozoState, BozoStatus, BozoText, BozoTime};
pub use cache_debug::{DbCacheEntry, DbCacheEntry64, DbLock, DbLockDesc};
pub use cell::{CellName, CellNameError};
pub use fid::{DataVersion, Fid, PtsId, TransactionId, Uniquifier, UnixTime, VnodeId, VolumeId};
pub use host::{
    AFS_MAX_INTERFACES, CAPABILITY_64BIT_FILES, CAPABILITY_ERROR_TRANSLATION, CAPABILITY_SANE_ACLS,
    CAPABILITY_WRITE_LOCK_ACL, Capabilities, InterfaceAddr,
};
pub use partition::{PartitionError, PartitionId};
pub use protection::{
    PrAccess, PrDebugEntry, PrEntries, PrEntry, PrIds, PrName, PrNameText, PrNames, PrNamesAsked,
    PrUpdateEntry,
};
pub use rights::{Rights, RightsError};
pub use rpc_stats::{RpcStat, RpcStatWords, RpcTimes, RxTime};
pub use statistics::{AfsVolumeInfo, ViceDisk, ViceStatistics, ViceStatistics64, VolumeInfo};
pub use status::{CallBack, CallBackType, FetchStatus, FileType, StoreStatus, VolSync};
pub use tree::{TREE_DATA_MAX, TreeError, TreeItem, TreeNode};
pub use ubik::{UbikDebug, UbikPeer, UbikState, UbikVersion};
pub use uuid::{AfsUuid, UuidError};
pub use vldb::{
    AddrsU, Chain, EntryError, FormError, ListAddrByAttributes, ListByAttributes, NvldbEntries,
    NvldbEntry, Site, SiteFlags, SiteServer, UvldbEntry, VitalVlHeader, VlCallBack, VldStats,
    VldbEntriesO, VldbEntry, VldbEntryO, VldbFlags, VldbUpdateEntry,
};
pub use volser::{
    AttachFlags, DestServer, Destinations, DiskPartition, DiskPartition64, ForwardResults,
    PartitionIds, Partitions, ReplicaDest, RestoreCookie, TransDebugInfo, TransDebugInfos,
    TransactionFlags, VolintInfo, VolintInfos, VolintName, VolintNameText, VolintXInfo,
    VolintXInfos, VolserStatus, VolumeChanges,
};
pub use volume::{FetchVolumeStatus, StoreVolumeStatus, VolumeType};

use afar_xdr::{List, Opaque, XdrString};

/// A name in a directory, at most 255 bytes in practice; 256 (AFSNAMEMAX) on the wire.
pub type FileName = XdrString<256>;
/// A volume name as the VL service takes it; an all-digit one is read as a volume id.
pub type VolumeName = XdrString<65>;
/// The text of an ACL (see [`Acl`]).
pub type AclText = Opaque<1024>;
/// Fids of a bulk call or callback break: at most 50 (AFSCBMAX).
pub type Fids = List<Fid, 50>;
/// Callbacks beside [`Fids`].
pub type CallBacks = List<CallBack, 50>;
/// Reads that a host tells of, or asks for, at a time.
// spec: trees#what-follows
pub const READS_MOST: usize = 256;
/// What programs of a host have read, or are to read, in that order.
pub type Reads = List<Fid, READS_MOST>;
/// Statuses of a bulk call, one for each fid asked.
pub type Statuses = List<FetchStatus, 50>;

#[cfg(test)]
mod tests;
