//! A volume in a list of volumes, and the changes that are sent in the same form.

use afar_xdr::{BytesMut, Decode, DecodeError, Decoder, Encode};

use crate::{UnixTime, VolumeId};

use super::VolintName;

/// A volume as a list shows it (AFS-3 volintInfo, 55 words, 220 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct VolintInfo {
    /// Its name.
    pub name: VolintName,
    /// Its id. All else is 0 where ids alone were asked for.
    pub volume: VolumeId,
    /// Which member of its group it is (see [`VolumeType::from_number`]).
    ///
    /// [`VolumeType::from_number`]: crate::VolumeType::from_number
    pub kind: i32,
    /// The group's backup volume.
    pub backup_id: VolumeId,
    /// The group's read-write volume.
    pub parent_id: VolumeId,
    /// The last clone made of it.
    pub clone_id: VolumeId,
    /// [`VolintInfo::OK`], [`VolintInfo::BUSY`], or 0 where it could not be attached.
    pub status: i32,
    /// When this copy was made.
    pub copy_date: UnixTime,
    /// Whether the file server serves it: what tools print as on-line.
    pub in_use: bool,
    /// Whether it must be repaired first.
    pub needs_salvage: bool,
    /// Whether it is to be removed at the next opportunity.
    pub destroy_me: bool,
    /// When the volume was made or, of a read-only one, released.
    pub creation_date: UnixTime,
    /// When it was last read, roughly.
    pub access_date: UnixTime,
    /// When it was last changed.
    pub update_date: UnixTime,
    /// When the last backup volume was made of it.
    pub backup_date: UnixTime,
    /// Accesses since midnight.
    pub day_use: i32,
    /// Files, directories and symlinks in it.
    pub file_count: i32,
    /// KiB it may use; 0 is no limit.
    pub max_quota: i32,
    /// KiB it uses.
    pub size: i32,
    /// 0.
    pub flags: i32,
    /// KiB kept for it. AFS-3 calls the word spare0.
    pub min_quota: i32,
    /// Accesses in the last seven days. AFS-3 calls the word spare1.
    pub week_use: i32,
    /// Counts changes of the volume. AFS-3 calls the word spare2.
    pub update_counter: u32,
    /// 0.
    pub spare: i32,
}

impl VolintInfo {
    /// A volume that could be looked at (VOK).
    // spec: volumes#lists-of-volumes
    pub const OK: i32 = 2;
    /// One that a transaction holds (VBUSY); of it only the id is known.
    pub const BUSY: i32 = 110;
}

/// A volume as a list with statistics shows it (AFS-3 volintXInfo, 80 words, 320 bytes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct VolintXInfo {
    /// Its name.
    pub name: VolintName,
    /// Its id.
    pub volume: VolumeId,
    /// Which member of its group it is.
    pub kind: i32,
    /// The group's backup volume.
    pub backup_id: VolumeId,
    /// The group's read-write volume.
    pub parent_id: VolumeId,
    /// The last clone made of it.
    pub clone_id: VolumeId,
    /// As in [`VolintInfo`].
    pub status: i32,
    /// When this copy was made.
    pub copy_date: UnixTime,
    /// Whether the file server serves it.
    pub in_use: bool,
    /// When the volume was made or, of a read-only one, released.
    pub creation_date: UnixTime,
    /// When it was last read, roughly.
    pub access_date: UnixTime,
    /// When it was last changed.
    pub update_date: UnixTime,
    /// When the last backup volume was made of it.
    pub backup_date: UnixTime,
    /// Accesses since midnight.
    pub day_use: i32,
    /// Files, directories and symlinks in it.
    pub file_count: i32,
    /// KiB it may use; 0 is no limit.
    pub max_quota: i32,
    /// KiB it uses.
    pub size: i32,
    /// Reads since midnight: from the same site, of these by authenticated callers, from others,
    /// of these by authenticated callers.
    pub reads: [i32; 4],
    /// Writes since midnight, likewise.
    pub writes: [i32; 4],
    /// Writes to files whose last writer was the same: last written up to a minute ago, ten
    /// minutes, an hour, a day, a week, and longer.
    pub file_same_author: [i32; 6],
    /// Writes to files by another than their last writer, likewise.
    pub file_diff_author: [i32; 6],
    /// Changes of directories by the one who changed them last, likewise.
    pub dir_same_author: [i32; 6],
    /// Changes of directories by another, likewise.
    pub dir_diff_author: [i32; 6],
}

/// What SetInfo changes of a volume. On the wire it is a [`VolintInfo`] in which -1 stands for
/// "unchanged" and all but these fields mean nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeChanges {
    /// KiB it may use; 0 is no limit.
    pub max_quota: Option<i32>,
    /// Accesses since midnight.
    pub day_use: Option<i32>,
    /// When it was made.
    pub creation_date: Option<UnixTime>,
    /// When it was last changed.
    pub update_date: Option<UnixTime>,
    /// Counts changes of the volume.
    pub update_counter: Option<u32>,
}

/// The word for "unchanged" in unsigned fields.
const UNCHANGED: u32 = u32::MAX;

impl From<&VolintInfo> for VolumeChanges {
    fn from(info: &VolintInfo) -> Self {
        let number = |word| (word != -1).then_some(word);
        let time = |word: UnixTime| (word.0 != UNCHANGED).then_some(word);
        Self {
            max_quota: number(info.max_quota),
            day_use: number(info.day_use),
            creation_date: time(info.creation_date),
            update_date: time(info.update_date),
            update_counter: (info.update_counter != UNCHANGED).then_some(info.update_counter),
        }
    }
}

/// The form OpenAFS's tools send: 0 in what SetInfo never reads, but -1 in flags and spare words.
impl From<&VolumeChanges> for VolintInfo {
    fn from(changes: &VolumeChanges) -> Self {
        Self {
            max_quota: changes.max_quota.unwrap_or(-1),
            day_use: changes.day_use.unwrap_or(-1),
            creation_date: changes.creation_date.unwrap_or(UnixTime(UNCHANGED)),
            update_date: changes.update_date.unwrap_or(UnixTime(UNCHANGED)),
            flags: -1,
            min_quota: -1,
            week_use: -1,
            update_counter: changes.update_counter.unwrap_or(UNCHANGED),
            spare: -1,
            ..Self::default()
        }
    }
}

impl Encode for VolumeChanges {
    fn encode(&self, out: &mut BytesMut) {
        VolintInfo::from(self).encode(out);
    }
}

impl Decode for VolumeChanges {
    const MIN_LEN: usize = VolintInfo::MIN_LEN;
    const MAX_LEN: usize = VolintInfo::MAX_LEN;

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.read::<VolintInfo>().map(|info| Self::from(&info))
    }
}
