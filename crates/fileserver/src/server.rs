//! A file server: volumes, hosts, protection, and what calls share beside these.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use afar_net::Endpoint;
use afar_telemetry::Registry;
use afar_types::{Fid, VolumeId};
use parking_lot::{Mutex, RwLock};

use crate::files::batch::room::Batches;
use crate::files::{Files, Stats};
use crate::following::Following;
use crate::hosts::Hosts;
use crate::leases::Leases;
use crate::locks::FileLocks;
use crate::metrics::Metrics;
use crate::protection::Protection;
use crate::volumes::Volumes;

pub use crate::metrics::FilesWatch;

/// A file server. Its RXAFS is served with [`FileServer::service`], at any number of endpoints.
pub struct FileServer {
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) protection: Arc<Protection>,
    pub(crate) locks: FileLocks,
    pub(crate) stores: StoreLocks,
    pub(crate) batches: Batches,
    pub(crate) following: Following,
    pub(crate) leases: Option<Arc<Leases>>,
    pub(crate) gates: Gates,
    pub(crate) stats: Stats,
    pub(crate) metrics: Metrics,
}

impl FileServer {
    /// Of these volumes, for these hosts, with the users of this protection service.
    #[must_use]
    pub fn new(volumes: Arc<Volumes>, hosts: Arc<Hosts>, protection: Arc<Protection>) -> Arc<Self> {
        Self::with_registry(volumes, hosts, protection, &Registry::default())
    }

    /// The same, whose counters this registry shows.
    #[must_use]
    pub fn with_registry(
        volumes: Arc<Volumes>,
        hosts: Arc<Hosts>,
        protection: Arc<Protection>,
        registry: &Registry,
    ) -> Arc<Self> {
        Self::with_leases(volumes, hosts, protection, registry, None)
    }

    /// The same, which gives clients leases.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn with_leases(
        volumes: Arc<Volumes>,
        hosts: Arc<Hosts>,
        protection: Arc<Protection>,
        registry: &Registry,
        leases: Option<Arc<Leases>>,
    ) -> Arc<Self> {
        if let Some(leases) = &leases {
            leases.start(&hosts, &volumes);
        }
        Arc::new(Self {
            stats: Stats::new(registry),
            metrics: Metrics::new(registry, &volumes, &hosts),
            volumes,
            hosts,
            protection,
            locks: FileLocks::default(),
            stores: StoreLocks::default(),
            batches: Batches::default(),
            following: Following::default(),
            leases,
            gates: Gates::default(),
        })
    }

    /// Its RXAFS at an endpoint, for [`afar_rpc::rxafs::Server`]. Clients are called back from
    /// there.
    #[must_use]
    pub fn service(self: &Arc<Self>, endpoint: Endpoint) -> Files {
        Files::new(Arc::clone(self), endpoint)
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    /// The hosts, and what they were promised.
    #[must_use]
    pub fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// The protection service, as it is known here.
    #[must_use]
    pub fn protection(&self) -> &Arc<Protection> {
        &self.protection
    }

    /// Has calls counted for each file as well, for as long as the result is kept. What is counted is
    /// shown beside the rest.
    #[must_use]
    pub fn watch_files(&self) -> FilesWatch {
        self.metrics.watch_files()
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl fmt::Debug for FileServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileServer")
            .field("protection", &self.protection)
            .finish_non_exhaustive()
    }
}

/// Keeps the stores to one file apart: they take turns, whoever makes them. Nothing else waits
/// for a store.
#[derive(Debug, Default)]
pub(crate) struct StoreLocks(Mutex<HashMap<Fid, Weak<tokio::sync::Mutex<()>>>>);

impl StoreLocks {
    /// Waits for the turn to store to a file; it ends when the guard is dropped.
    pub(crate) async fn turn(&self, fid: Fid) -> StoreTurn<'_> {
        let lock = self.of(fid);
        StoreTurn {
            guard: Some(lock.lock_owned().await),
            locks: self,
            fid,
        }
    }

    /// The same for several files. None of them is kept from others while this waits for one.
    pub(crate) async fn turns(&self, fids: &BTreeSet<Fid>) -> Vec<StoreTurn<'_>> {
        let mut turns = Vec::new();
        loop {
            let had = turns.first().map(|turn: &StoreTurn<'_>| turn.fid);
            let mut busy = None;
            for &fid in fids.iter().filter(|fid| had != Some(**fid)) {
                match self.turn_now(fid) {
                    Some(turn) => turns.push(turn),
                    None => {
                        busy = Some(fid);
                        break;
                    }
                }
            }
            let Some(busy) = busy else { return turns };
            turns.clear();
            turns.push(self.turn(busy).await);
        }
    }

    /// The turn, if nobody has it.
    fn turn_now(&self, fid: Fid) -> Option<StoreTurn<'_>> {
        let turn = StoreTurn {
            guard: self.of(fid).try_lock_owned().ok(),
            locks: self,
            fid,
        };
        turn.guard.is_some().then_some(turn)
    }

    fn of(&self, fid: Fid) -> Arc<tokio::sync::Mutex<()>> {
        let mut table = self.0.lock();
        let known = table.get(&fid).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let lock = Arc::new(tokio::sync::Mutex::new(()));
            table.insert(fid, Arc::downgrade(&lock));
            lock
        })
    }
}

/// A turn to store to a file.
pub(crate) struct StoreTurn<'l> {
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
    locks: &'l StoreLocks,
    fid: Fid,
}

impl Drop for StoreTurn<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut table = self.locks.0.lock();
        // The waiters hold the lock's other references.
        if table
            .get(&self.fid)
            .is_some_and(|lock| lock.strong_count() == 0)
        {
            table.remove(&self.fid);
        }
    }
}

const GATES: usize = 64;

/// Orders changes in a volume against changes of who may make them. An ordinary change checks
/// rights and commits while it shares its volume's gate; a change that others' checks depend on
/// has it alone. Held in blocking code only, for the length of a commit.
#[derive(Debug)]
pub(crate) struct Gates([RwLock<()>; GATES]);

impl Default for Gates {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::new(())))
    }
}

impl Gates {
    /// The gate of a volume, which it shares with some others.
    pub(crate) fn of(&self, volume: VolumeId) -> &RwLock<()> {
        let number = usize::try_from(volume.0).unwrap_or_default();
        &self.0[number % GATES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stores_take_turns_and_leave_nothing_behind() {
        let locks = StoreLocks::default();
        let file = Fid::new(1, 2, 3);
        let first = locks.turn(file).await;
        let other = locks.turn(Fid::new(1, 4, 5)).await;
        let mut second = Box::pin(locks.turn(file));
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), &mut second);
        assert!(waits.await.is_err());
        drop(first);
        let second = second.await;
        assert_eq!(locks.0.lock().len(), 2);
        drop((second, other));
        assert_eq!(locks.0.lock().len(), 0);
    }
}
