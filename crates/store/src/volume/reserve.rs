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

    /// Has so many KiB of the quota count as used, whoever changes the volume, until another number is given. It is not
    /// durable.
    ///
    /// # Errors
    ///
    /// If the partition has stopped.
    pub fn promise_quota(&self, kib: u64) -> Result<()> {
        self.partition.reader()?.env().promise(self.id.0, kib);
        Ok(())
    }
}
