//! A server's partitions together.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_types::VolumeId;
use parking_lot::RwLock;

use crate::config::PartitionOptions;
use crate::error::{Result, StoreError};
use crate::partition::Partition;
use crate::volume::{NewVolume, Volume};

/// All partitions of a server. Each has its own database, segments and committer, so what happens
/// on one does not hold up another.
pub struct Store {
    partitions: Vec<Arc<Partition>>,
    /// Where volumes were found last: an index into `partitions`. Only a hint.
    places: RwLock<HashMap<VolumeId, usize>>,
}

impl Store {
    /// Opens partitions. Nothing is read per volume: a volume is looked for on its first use.
    ///
    /// # Errors
    ///
    /// If one of them cannot be opened.
    pub fn open(paths: &[PathBuf], options: &PartitionOptions) -> Result<Self> {
        let open = |path: &PathBuf| Partition::open(path, options).map(Arc::new);
        let partitions: Result<Vec<_>> = paths.iter().map(open).collect();
        Ok(Self::new(partitions?))
    }

    /// Of partitions that are open.
    #[must_use]
    pub fn new(partitions: Vec<Arc<Partition>>) -> Self {
        Self {
            partitions,
            places: RwLock::default(),
        }
    }

    /// The partitions, in the order they were given in.
    #[must_use]
    pub fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// The partition in a directory.
    #[must_use]
    pub fn partition(&self, path: &Path) -> Option<&Arc<Partition>> {
        self.partitions
            .iter()
            .find(|partition| partition.path() == path)
    }

    /// A volume, on whichever partition it is. If several have one of that number, the first
    /// counts, as with OpenAFS.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`].
    pub fn volume(&self, id: VolumeId) -> Result<Volume> {
        let hint = self.places.read().get(&id).copied();
        if let Some(partition) = hint.and_then(|index| self.partitions.get(index))
            && partition.has_volume(id)?
        {
            return partition.volume(id);
        }
        for (index, partition) in self.partitions.iter().enumerate() {
            if partition.has_volume(id)? {
                self.places.write().insert(id, index);
                return partition.volume(id);
            }
        }
        if hint.is_some() {
            self.places.write().remove(&id);
        }
        Err(StoreError::NoVolume(id))
    }

    /// Makes a volume on a partition, unless one of that number is on any.
    ///
    /// # Errors
    ///
    /// As [`Partition::create_volume`].
    pub fn create_volume(&self, partition: &Arc<Partition>, new: &NewVolume) -> Result<Volume> {
        let id = new.id();
        match self.volume(id) {
            Ok(_) => Err(StoreError::VolumeExists(id)),
            Err(StoreError::NoVolume(_)) => partition.create_volume(new),
            Err(error) => Err(error),
        }
    }
}
