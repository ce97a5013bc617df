//! What is kept of a status.

use afar_types::{DataVersion, FetchStatus, FileType, PtsId, Uniquifier, UnixTime, VnodeId};

use crate::model::rights::Short;
use crate::model::types::Kind;

/// What is kept of a status: what somebody uses later. What the caller may do is kept with users' rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Brief {
    kind: Option<Kind>,
    anonymous_access: Short,
    /// The lower half, in which all bits with a meaning are.
    unix_mode_bits: u16,
    /// As servers count it; those that tell of more are not known.
    link_count: u16,
    pub(crate) length: u64,
    data_version: DataVersion,
    owner: PtsId,
    group: PtsId,
    parent_vnode: VnodeId,
    parent_uniquifier: Uniquifier,
    client_mod_time: UnixTime,
    server_mod_time: UnixTime,
}

impl From<FetchStatus> for Brief {
    fn from(status: FetchStatus) -> Self {
        let [_, _, high, low] = status.unix_mode_bits.to_be_bytes();
        Self {
            kind: match status.file_type {
                FileType::File => Some(Kind::File),
                FileType::Directory => Some(Kind::Dir),
                FileType::Symlink => Some(Kind::Symlink),
                FileType::Invalid | FileType::Other(_) => None,
            },
            anonymous_access: Short::of(status.anonymous_access),
            unix_mode_bits: u16::from_be_bytes([high, low]),
            link_count: u16::try_from(status.link_count).unwrap_or(u16::MAX),
            length: status.length,
            data_version: status.data_version,
            owner: status.owner,
            group: status.group,
            parent_vnode: status.parent_vnode,
            parent_uniquifier: status.parent_uniquifier,
            client_mod_time: status.client_mod_time,
            server_mod_time: status.server_mod_time,
        }
    }
}

impl From<Brief> for FetchStatus {
    fn from(brief: Brief) -> Self {
        Self {
            interface_version: Self::INTERFACE_VERSION,
            file_type: match brief.kind {
                Some(Kind::File) => FileType::File,
                Some(Kind::Dir) => FileType::Directory,
                Some(Kind::Symlink) => FileType::Symlink,
                None => FileType::Invalid,
            },
            anonymous_access: brief.anonymous_access.rights(),
            unix_mode_bits: brief.unix_mode_bits.into(),
            link_count: brief.link_count.into(),
            length: brief.length,
            data_version: brief.data_version,
            owner: brief.owner,
            group: brief.group,
            parent_vnode: brief.parent_vnode,
            parent_uniquifier: brief.parent_uniquifier,
            client_mod_time: brief.client_mod_time,
            server_mod_time: brief.server_mod_time,
            ..Self::default()
        }
    }
}
