//! What must be known of something to copy it, wherever it is.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use afar_types::{FetchStatus, FileType, StoreStatus, UnixTime};

/// Mode bits that AFS gives to anyone: setting the others is for administrators.
const MODE_BITS: u32 = 0o777;

/// Mode of a file that is copied from none, less the umask.
const NEW_MODE: u32 = 0o666;

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file of this length.
    File(u64),
    Directory,
    Symlink,
    MountPoint,
    /// A device, pipe or socket.
    Special,
}

/// Kind, mode and time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    /// In whole seconds, as AFS has it.
    pub(crate) modified: UnixTime,
}

impl From<&Metadata> for Facts {
    fn from(metadata: &Metadata) -> Self {
        let kind = metadata.file_type();
        let kind = if kind.is_file() {
            Kind::File(metadata.len())
        } else if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Symlink
        } else {
            Kind::Special
        };
        let mode = match kind {
            // The mode of a pipe says nothing about who may read what comes out of it.
            Kind::Special => NEW_MODE,
            _ => metadata.permissions().mode() & MODE_BITS,
        };
        Self {
            kind,
            mode,
            modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH).into(),
        }
    }
}

impl From<&FetchStatus> for Facts {
    fn from(status: &FetchStatus) -> Self {
        let kind = match status.file_type {
            FileType::File => Kind::File(status.length),
            FileType::Directory => Kind::Directory,
            FileType::Symlink if status.is_mount_point() => Kind::MountPoint,
            FileType::Symlink => Kind::Symlink,
            FileType::Invalid | FileType::Other(_) => Kind::Special,
        };
        Self {
            kind,
            mode: status.unix_mode_bits & MODE_BITS,
            modified: status.client_mod_time,
        }
    }
}

impl Facts {
    /// Whether it is a directory, if need be of another volume.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory | Kind::MountPoint)
    }

    /// Attributes of the copy: those of the original with `preserve`, else its mode less the umask,
    /// and the time of now.
    pub(crate) fn attributes(&self, preserve: bool, umask: u32) -> StoreStatus {
        let (mode, time) = if preserve {
            (self.mode, self.modified)
        } else {
            (self.mode & !umask, SystemTime::now().into())
        };
        StoreStatus {
            mask: StoreStatus::SET_MODE | StoreStatus::SET_MOD_TIME,
            client_mod_time: time,
            unix_mode_bits: mode,
            ..StoreStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_kept_on_demand() {
        let facts = Facts::from(&FetchStatus {
            file_type: FileType::File,
            length: 3,
            unix_mode_bits: 0o4766,
            client_mod_time: UnixTime(1_000),
            ..FetchStatus::default()
        });
        assert_eq!(facts.kind, Kind::File(3));
        let kept = facts.attributes(true, 0o022);
        assert_eq!(
            (kept.unix_mode_bits, kept.client_mod_time.0),
            (0o766, 1_000)
        );
        let new = facts.attributes(false, 0o022);
        assert_eq!(new.unix_mode_bits, 0o744);
        assert!(new.client_mod_time.0 > 1_000);
    }
}
