//! Files, directories and symlinks of a volume.

mod attributes;
mod changes;
mod edit;
mod entries;
mod packing;
mod pages;
mod read;
mod sequence;
mod write;

use afar_types::{
    AclRecord, DataVersion, Fid, FileType, PtsId, Uniquifier, UnixTime, VnodeId, VolumeId,
};

use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Rows, VnodeRow};
use crate::volume::Volume;

pub use attributes::SetAttributes;
pub(crate) use changes::{apply, difference};
pub use entries::{Created, Linked, NewVnode, Removed, Renamed};
pub(crate) use packing::{pack_page, unpack_page};
pub(crate) use pages::{make as make_page, read_page};
pub use read::StoredRecord;
pub use sequence::{Sequence, Together, Vnodes};
pub use write::{FileWriter, StoreOptions};
pub(crate) use write::{RECORD_SHIFT, pack_record, shift_for};

/// The longest target of a symlink or mount point.
pub const MAX_TARGET: usize = 1024;

/// Sets fids of a volume aside; returns the first.
pub(crate) fn set_aside(change: &mut Change<'_>, id: VolumeId, count: u32) -> Result<Fid> {
    let mut edit = edit::Edit::begin(change, id)?;
    let (vnode, uniquifier) = edit.set_aside(count)?;
    let first = edit.fid(vnode, uniquifier);
    // Nothing that a copy of the volume has is another.
    edit.change.update_volume(id.0, &edit.volume);
    Ok(first)
}

/// Whether a symlink's target can have this length.
fn check_target(length: u64) -> Result<()> {
    if (1..=MAX_TARGET as u64).contains(&length) {
        return Ok(());
    }
    Err(StoreError::OutOfRange {
        option: "length of a symlink's target",
        value: length.to_string(),
        range: "1 to 1024 bytes",
    })
}

/// A vnode's attributes, as FetchStatus tells them, without what depends on the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VnodeStatus {
    /// Its volume, number and uniquifier.
    pub fid: Fid,
    /// File, directory or symlink.
    pub file_type: FileType,
    /// Names it has; of a directory, its subdirectories and two.
    pub link_count: u32,
    /// Bytes of data; of a directory, of its pages.
    pub length: u64,
    /// Version of the data.
    pub data_version: DataVersion,
    /// The user who stored the data last.
    pub author: PtsId,
    /// The owner.
    pub owner: PtsId,
    /// The group; not used for access.
    pub group: PtsId,
    /// The twelve permission bits.
    pub mode: u16,
    /// The directory it is in; of the root, itself.
    pub parent: VnodeId,
    /// Uniquifier of `parent`.
    pub parent_uniquifier: Uniquifier,
    /// Modification time as clients set it.
    pub modify_time: UnixTime,
    /// When the vnode was changed last, by this server's clock.
    pub server_modify_time: UnixTime,
}

impl VnodeStatus {
    /// Whether it is a mount point: a symlink without an x bit.
    #[must_use]
    pub fn is_mount_point(&self) -> bool {
        self.file_type == FileType::Symlink && self.mode & 0o111 == 0
    }
}

/// Bytes of a directory's ACL without its unused tail.
pub(crate) fn trim_acl(record: &[u8; AclRecord::SIZE]) -> Vec<u8> {
    let used = record
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    record[..used].to_vec()
}

/// The whole ACL of a row.
pub(crate) fn full_acl(trimmed: &[u8]) -> [u8; AclRecord::SIZE] {
    let mut record = [0; AclRecord::SIZE];
    let len = trimmed.len().min(record.len());
    record[..len].copy_from_slice(&trimmed[..len]);
    record
}

pub(crate) fn file_type(kind: u8) -> FileType {
    match kind {
        VnodeRow::FILE => FileType::File,
        VnodeRow::DIRECTORY => FileType::Directory,
        VnodeRow::SYMLINK => FileType::Symlink,
        other => FileType::Other(other.into()),
    }
}

/// The vnode a fid names.
pub(crate) fn node(rows: &impl Rows, at: At, fid: Fid) -> Result<VnodeRow> {
    named(rows.vnode(at, fid.vnode.0)?, fid)
}

/// The row of a vnode's number, if it is of the one that a fid names.
fn named(row: Option<VnodeRow>, fid: Fid) -> Result<VnodeRow> {
    match row {
        Some(row) if row.uniquifier == fid.uniquifier.0 => Ok(row),
        _ => Err(StoreError::NoVnode(fid)),
    }
}

/// The directory a fid names.
pub(crate) fn directory(rows: &impl Rows, at: At, fid: Fid) -> Result<VnodeRow> {
    directory_of(node(rows, at, fid)?, fid)
}

/// The same row, if it is a directory's.
fn directory_of(row: VnodeRow, fid: Fid) -> Result<VnodeRow> {
    if !row.is_directory() {
        return Err(StoreError::NotDirectory(fid.vnode));
    }
    Ok(row)
}

/// What is told of a vnode.
pub(crate) fn status(rows: &impl Rows, at: At, fid: Fid, row: &VnodeRow) -> Result<VnodeStatus> {
    let parent = match row.parent {
        0 => None,
        parent => rows.vnode(at, parent)?.map(|parent| parent.uniquifier),
    };
    Ok(status_of(fid, row, parent))
}

/// The same, given the uniquifier of the directory it is in.
fn status_of(fid: Fid, row: &VnodeRow, parent: Option<u32>) -> VnodeStatus {
    let (parent, parent_uniquifier) = match row.parent {
        0 => (fid.vnode, fid.uniquifier),
        above => (VnodeId(above), Uniquifier(parent.unwrap_or(0))),
    };
    VnodeStatus {
        fid,
        file_type: file_type(row.kind),
        link_count: row.link_count,
        length: row.length,
        data_version: DataVersion(row.data_version),
        author: PtsId(row.author),
        owner: PtsId(row.owner),
        group: PtsId(row.group),
        mode: row.mode,
        parent,
        parent_uniquifier,
        modify_time: UnixTime(row.modify_time),
        server_modify_time: UnixTime(row.server_modify_time),
    }
}

impl Volume {
    /// A fid in this volume.
    #[must_use]
    pub fn fid(&self, vnode: VnodeId, uniquifier: Uniquifier) -> Fid {
        Fid {
            volume: self.id,
            vnode,
            uniquifier,
        }
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Fid {
        Fid::root(self.id)
    }

    /// Whether a fid is of this volume.
    pub(crate) fn own(&self, fid: Fid) -> Result<Fid> {
        if fid.volume == self.id {
            Ok(fid)
        } else {
            Err(StoreError::NoVolume(VolumeId(fid.volume.0)))
        }
    }
}
