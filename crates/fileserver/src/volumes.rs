//! Which volumes there are, and whether clients may use them at the moment.
//!
//! The volume server takes a volume away from the clients while it works on it ([`Hold`]): then
//! they get VBUSY, VOFFLINE or VMOVED and come again, or look elsewhere. The file server enters a
//! volume for each step on the store ([`Volumes::enter`]), never while it waits for a client, so a
//! volume is free for the volume server at once.

use std::collections::HashMap;
use std::sync::Arc;

use afar_net::AbortCode;
use afar_store::{NewVolume, Partition, Store, StoreError, Volume};
use afar_types::error::{VBUSY, VMOVED, VNOVOL, VOFFLINE};
use afar_types::{PartitionId, VolumeId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::abort::store_code;

/// What is to be done in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Nothing is changed.
    Read,
    /// Something is changed.
    Change,
}

/// What clients get of a volume that the volume server works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// They may read; changes get VBUSY.
    Busy,
    /// Everything gets VBUSY: in a moment the volume is found elsewhere, or here again. VOFFLINE
    /// would be an error to whoever reads a volume while it moves.
    Moving,
    /// Everything gets VOFFLINE.
    Offline,
}

/// The volumes of a server.
pub struct Volumes {
    store: Store,
    names: Vec<PartitionId>,
    table: Mutex<HashMap<VolumeId, Entry>>,
    /// Told when the last user leaves a volume that someone wants to hold.
    left: Notify,
}

/// A volume that is used, held, or gone elsewhere; others have no entry.
#[derive(Debug, Default)]
struct Entry {
    readers: u32,
    writers: u32,
    hold: Option<Hold>,
    moved: bool,
}

impl Entry {
    fn refusal(&self, intent: Intent) -> Option<AbortCode> {
        match (self.hold, intent) {
            (Some(Hold::Offline), _) => Some(AbortCode(VOFFLINE)),
            (Some(Hold::Busy), Intent::Change) => Some(AbortCode(VBUSY)),
            (Some(Hold::Moving), _) if !self.moved => Some(AbortCode(VBUSY)),
            _ if self.moved => Some(AbortCode(VMOVED)),
            _ => None,
        }
    }

    fn users(&mut self, intent: Intent) -> &mut u32 {
        match intent {
            Intent::Read => &mut self.readers,
            Intent::Change => &mut self.writers,
        }
    }

    fn is_idle(&self) -> bool {
        self.readers == 0 && self.writers == 0 && self.hold.is_none() && !self.moved
    }
}

impl Volumes {
    /// Of these partitions, which are open.
    #[must_use]
    pub fn new(partitions: Vec<(PartitionId, Arc<Partition>)>) -> Self {
        let (names, partitions) = partitions.into_iter().unzip();
        Self {
            store: Store::new(partitions),
            names,
            table: Mutex::default(),
            left: Notify::new(),
        }
    }

    /// Partitions, in the order they were given in.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Arc<Partition>)> {
        self.names.iter().copied().zip(self.store.partitions())
    }

    /// The partition of this number.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&Arc<Partition>> {
        self.partitions()
            .find_map(|(name, partition)| (name == id).then_some(partition))
    }

    /// The number of a partition.
    #[must_use]
    pub fn name_of(&self, partition: &Arc<Partition>) -> Option<PartitionId> {
        self.partitions()
            .find_map(|(name, known)| Arc::ptr_eq(known, partition).then_some(name))
    }

    /// A volume, on whichever partition, whether or not clients may use it.
    ///
    /// # Errors
    /// [`StoreError::NoVolume`].
    pub fn find(&self, id: VolumeId) -> Result<Volume, StoreError> {
        self.store.volume(id)
    }

    /// Makes a volume on a partition, unless one of that number is on any.
    ///
    /// # Errors
    /// As [`Partition::create_volume`].
    pub fn create(
        &self,
        partition: &Arc<Partition>,
        new: &NewVolume,
    ) -> Result<Volume, StoreError> {
        let volume = self.store.create_volume(partition, new)?;
        self.set_moved(new.id(), false);
        Ok(volume)
    }

    /// Makes a volume on a partition, unless one of that number is there. One on another partition
    /// is in the way too, but for a volume that moves from there: clients keep to the one they
    /// have until it is removed.
    ///
    /// # Errors
    /// As [`Partition::create_volume`].
    pub fn create_on(
        &self,
        partition: &Arc<Partition>,
        new: &NewVolume,
        moves: bool,
    ) -> Result<Volume, StoreError> {
        if !moves {
            return self.create(partition, new);
        }
        // Whichever is found now is the one that clients go on with.
        if self.store.volume(new.id()).is_ok() {
            tracing::debug!(volume = %new.id(), "also on another partition of this server");
        }
        let volume = partition.create_volume(new)?;
        self.set_moved(new.id(), false);
        Ok(volume)
    }

    /// Whether clients who enter a volume of this number get this one: another partition can have
    /// one too, while a volume moves between them.
    #[must_use]
    pub fn is_served(&self, volume: &Volume) -> bool {
        let served = self.store.volume(volume.id());
        served.is_ok_and(|served| Arc::ptr_eq(served.partition(), volume.partition()))
    }

    /// Enters a volume for one step on the store. Leave it before waiting for a client.
    ///
    /// # Errors
    /// VBUSY, VOFFLINE or VMOVED while it is held or away, VNOVOL if it is not here.
    pub fn enter(&self, id: VolumeId, intent: Intent) -> Result<Entered<'_>, AbortCode> {
        {
            let mut table = self.table.lock();
            let entry = table.entry(id).or_default();
            if let Some(code) = entry.refusal(intent) {
                return Err(code);
            }
            *entry.users(intent) += 1;
        }
        // From here on dropping leaves the volume.
        let admission = Admission {
            volumes: self,
            id,
            intent,
        };
        match self.store.volume(id) {
            Ok(volume) => Ok(Entered {
                volume,
                _admission: admission,
            }),
            Err(StoreError::NoVolume(_)) => Err(AbortCode(VNOVOL)),
            Err(error) => Err(store_code(&error)),
        }
    }

    /// Takes a volume away from the clients; waits for the steps that are running. A volume that
    /// is held already stays with its holder.
    ///
    /// # Errors
    /// [`AlreadyHeld`].
    pub async fn hold(self: &Arc<Self>, id: VolumeId, hold: Hold) -> Result<Held, AlreadyHeld> {
        {
            let mut table = self.table.lock();
            let entry = table.entry(id).or_default();
            if entry.hold.is_some() {
                return Err(AlreadyHeld(id));
            }
            entry.hold = Some(hold);
        }
        let held = Held {
            volumes: Arc::clone(self),
            id,
        };
        held.settle(hold).await;
        Ok(held)
    }

    /// From now on clients are told that the volume has moved, or no longer so.
    pub fn set_moved(&self, id: VolumeId, moved: bool) {
        let mut table = self.table.lock();
        if moved {
            table.entry(id).or_default().moved = true;
        } else if let Some(entry) = table.get_mut(&id) {
            entry.moved = false;
            if entry.is_idle() {
                table.remove(&id);
            }
        }
    }

    /// What holds a volume, if anything does.
    #[must_use]
    pub fn held(&self, id: VolumeId) -> Option<Hold> {
        self.table.lock().get(&id).and_then(|entry| entry.hold)
    }

    fn is_settled(&self, id: VolumeId, hold: Hold) -> bool {
        let table = self.table.lock();
        table
            .get(&id)
            .is_none_or(|entry| entry.writers == 0 && (hold == Hold::Busy || entry.readers == 0))
    }

    fn change(&self, id: VolumeId, change: impl FnOnce(&mut Entry)) {
        let mut table = self.table.lock();
        if let Some(entry) = table.get_mut(&id) {
            change(entry);
            if entry.is_idle() {
                table.remove(&id);
            }
        }
    }
}

/// The volume is held by another transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("volume {0} is being worked on by another transaction")]
pub struct AlreadyHeld(pub VolumeId);

/// A volume that a step is being done in.
pub struct Entered<'v> {
    /// The volume.
    pub volume: Volume,
    _admission: Admission<'v>,
}

struct Admission<'v> {
    volumes: &'v Volumes,
    id: VolumeId,
    intent: Intent,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        let intent = self.intent;
        let mut wanted = false;
        self.volumes.change(self.id, |entry| {
            *entry.users(intent) -= 1;
            wanted = entry.hold.is_some();
        });
        if wanted {
            self.volumes.left.notify_waiters();
        }
    }
}

/// A volume that is kept from the clients, until this is dropped.
pub struct Held {
    volumes: Arc<Volumes>,
    id: VolumeId,
}

impl Held {
    /// The volume's number.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// What may be read meanwhile may not be while the volume moves, or may be again.
    pub fn set_moving(&self, moving: bool) {
        self.volumes.change(self.id, |entry| {
            entry.hold = match entry.hold {
                Some(Hold::Busy) if moving => Some(Hold::Moving),
                Some(Hold::Moving) if !moving => Some(Hold::Busy),
                hold => hold,
            };
        });
    }

    async fn settle(&self, hold: Hold) {
        loop {
            let left = self.volumes.left.notified();
            tokio::pin!(left);
            // Registered before looking, so that nobody leaves unseen in between.
            left.as_mut().enable();
            if self.volumes.is_settled(self.id, hold) {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.volumes.change(self.id, |entry| entry.hold = None);
    }
}
