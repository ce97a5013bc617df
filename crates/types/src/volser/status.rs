//! A volume as the transaction that holds it sees it.

use afar_xdr::{Decode, Encode};

use crate::{PtsId, Uniquifier, UnixTime, VolumeId};

/// What GetStatus tells of a transaction's volume (AFS-3 volser_status, 16 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct VolserStatus {
    /// The volume.
    pub volume: VolumeId,
    /// The uniquifier the next vnode gets.
    pub next_uniquifier: Uniquifier,
    /// Which member of its group it is.
    pub kind: i32,
    /// The group's read-write volume.
    pub parent_id: VolumeId,
    /// The last clone made of it.
    pub clone_id: VolumeId,
    /// The group's backup volume.
    pub backup_id: VolumeId,
    /// The volume of the dump it was restored from. Not itself in dumps.
    pub restored_from_id: VolumeId,
    /// KiB it may use; 0 is no limit.
    pub max_quota: i32,
    /// KiB kept for it.
    pub min_quota: i32,
    /// The owner.
    pub owner: PtsId,
    /// When the volume was made or, of a read-only one, released: the same at all its sites.
    pub creation_date: UnixTime,
    /// When it was last read, roughly.
    pub access_date: UnixTime,
    /// When it was last changed.
    pub update_date: UnixTime,
    /// When it expires; 0 if never.
    pub expiration_date: UnixTime,
    /// When the last backup volume was made of it.
    pub backup_date: UnixTime,
    /// When this copy was made.
    pub copy_date: UnixTime,
}
