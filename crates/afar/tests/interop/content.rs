//! Volumes to begin with, as dumps.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use afar_store::{
    DumpOptions, NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions, Volume,
};
use afar_types::{AclRecord, AclRecordEntry, Fid, PtsId, Rights, VolumeId};
use tempfile::TempDir;

/// A volume in a store of its own.
pub(crate) struct Content {
    pub(crate) volume: Volume,
    _dir: TempDir,
}

impl Content {
    /// An empty volume, of which everybody may do with it what `everybody` says.
    pub(crate) fn new(everybody: Rights) -> Self {
        let dir = TempDir::new().unwrap();
        let partition = Partition::init(dir.path(), &PartitionOptions::default()).unwrap();
        let new = NewVolume::new(VolumeId(7), "content").max_quota(0);
        let volume = Arc::new(partition).create_volume(&new).unwrap();
        volume.set_acl(volume.root(), &acl(everybody)).unwrap();
        Self { volume, _dir: dir }
    }

    /// Adds a mount point.
    pub(crate) fn mount(self, name: &str, target: &str) -> Self {
        let new = NewVnode::new(PtsId(0), 0o644);
        let volume = &self.volume;
        volume
            .symlink(volume.root(), name.as_bytes(), target.as_bytes(), &new)
            .unwrap();
        self
    }

    /// Adds a file in the root.
    pub(crate) fn file(self, name: &str, mode: u16, data: &[u8]) -> Self {
        self.file_in(self.volume.root(), name, mode, data);
        self
    }

    /// Adds a file in a directory.
    pub(crate) fn file_in(&self, directory: Fid, name: &str, mode: u16, data: &[u8]) {
        let new = NewVnode::new(PtsId(0), mode);
        let made = self
            .volume
            .create_file(directory, name.as_bytes(), &new)
            .unwrap();
        let options = StoreOptions::default();
        self.volume
            .write(made.vnode.fid, 0, data, &options)
            .unwrap();
    }

    /// Adds a directory with one file in the root.
    pub(crate) fn directory(self, name: &str, everybody: Rights, file: &str) -> Self {
        let new = NewVnode::new(PtsId(0), 0o755);
        let made = self
            .volume
            .make_directory(self.volume.root(), name.as_bytes(), &new)
            .unwrap();
        self.volume
            .set_acl(made.vnode.fid, &acl(everybody))
            .unwrap();
        self.file_in(made.vnode.fid, file, 0o644, b"inside");
        self
    }

    /// Writes the volume into a dump.
    pub(crate) fn dump(&self, path: &Path) {
        let file = File::create(path).unwrap();
        self.volume.dump(file, &DumpOptions::default()).unwrap();
    }
}

fn acl(everybody: Rights) -> AclRecord {
    let entry = |id, rights| AclRecordEntry { id, rights };
    let entries = vec![
        entry(PtsId::ADMINISTRATORS, Rights::ALL),
        entry(PtsId::ANYUSER, everybody),
    ];
    AclRecord::new(entries, Vec::new()).unwrap()
}
