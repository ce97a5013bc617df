//! What a volume sets aside for somebody: fids, durably, and quota, as long as the server runs.

use afar_types::Fid;

use super::Volume;
use crate::error::Result;

impl Volume {
    /// Sets fids aside: `count` vnode numbers from that of the result, the one at place N with its uniquifier + N. The
    /// volume gives none of them to anything else; [`NewVnode::fid`](crate::NewVnode::fid) uses one.
    ///
    /// # Errors
    ///
    /// [`StoreError::VnodesExhausted`](crate::StoreError::VnodesExhausted).
    pub fn reserve(&self, count: u32) -> Result<Fid> {
        let id = self.id;
        self.partition
            .commit(move |change| crate::vnode::set_aside(change, id, count))
    }

    /// Whether a fid is at or below what was set aside or given to something last.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoVolume`](crate::StoreError::NoVolume).
    pub fn has_set_aside(&self, fid: Fid) -> Result<bool> {
        let row = self.row(&self.partition.reader()?)?;
        let last = row.last_directory.max(row.last_file);
        Ok(fid.volume == self.id && fid.vnode.0 <= last && fid.uniquifier.0 <= row.uniquifier)
    }

    /// Has so many KiB of the quota count as used, whoever changes the volume, until another number is given. It is not
    /// durable.
    pub fn promise_quota(&self, kib: u64) {
        self.partition.env().promise(self.id.0, kib);
    }
}
