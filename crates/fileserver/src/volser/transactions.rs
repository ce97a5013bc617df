//! Transactions: which volumes are being worked on, by whom, and since when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use afar_net::AbortCode;
use afar_store::{RemovedVolume, Volume};
use afar_types::{
    AttachFlags, PartitionId, TransDebugInfo, TransactionFlags, TransactionId, UnixTime, VolumeId,
};
use afar_xdr::CharArray;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::codes;
use super::origin::Origin;
use crate::leases::ClosedVolume;
use crate::volumes::{Held, Volumes};

/// Idle time from which a transaction is mentioned in the log.
// spec: volumes#transactions
const WARNING: Duration = Duration::from_secs(300);
/// Bytes of a dump in a packet, by which Monitor's packet numbers are reckoned.
const PACKET: u64 = 1412;

/// The transactions of a server.
///
/// Each is counted as long as a call uses it; ended meanwhile, it goes when the last call does.
pub(super) struct Transactions {
    volumes: Arc<Volumes>,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: i32,
    entries: BTreeMap<TransactionId, Entry>,
    /// Volumes that are being worked on: those of the entries, and those that an operation
    /// reserves for itself.
    places: BTreeSet<Claimed>,
}

type Claimed = (PartitionId, VolumeId);

struct Entry {
    transaction: Arc<Transaction>,
    origin: Origin,
    /// Keeps clients away; none where they may go on.
    held: Option<Held>,
    /// Keeps clients from having leases.
    _closed: Option<ClosedVolume>,
    flags: TransactionFlags,
    calls: u32,
    used: Instant,
    used_at: UnixTime,
    procedure: &'static str,
    ended: bool,
    forwarded: bool,
    warned: bool,
    /// Whether the volume was in service before the caller said that it is to go.
    in_service: Option<bool>,
    /// Whether a volume that is whole was taken out of service in it.
    taken_out: bool,
    /// The volume in whose place this one was made.
    previous: Option<Previous>,
}

/// A volume that was removed, and may be made again from a dump.
pub(super) struct Previous {
    pub(super) volume: RemovedVolume,
    pub(super) in_service: bool,
}

/// What stays the same of a transaction.
pub(super) struct Transaction {
    pub(super) id: TransactionId,
    pub(super) partition: PartitionId,
    pub(super) volume: Volume,
    pub(super) attach: AttachFlags,
    created_at: UnixTime,
    pub(super) traffic: Traffic,
}

/// What went by in the call that uses a transaction.
#[derive(Default)]
pub(super) struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
    sent_at: AtomicU32,
    received_at: AtomicU32,
}

impl Traffic {
    pub(super) fn sent(&self, octets: usize) {
        self.sent.fetch_add(octets as u64, Ordering::Relaxed);
        self.sent_at.store(now().0, Ordering::Relaxed);
    }

    pub(super) fn received(&self, octets: usize) {
        self.received.fetch_add(octets as u64, Ordering::Relaxed);
        self.received_at.store(now().0, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.sent.store(0, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.sent_at.store(0, Ordering::Relaxed);
        self.received_at.store(0, Ordering::Relaxed);
    }
}

impl Transactions {
    pub(super) fn new(volumes: Arc<Volumes>, most: usize) -> Self {
        Self {
            volumes,
            most,
            table: Mutex::default(),
        }
    }

    /// Keeps a volume from other transactions.
    pub(super) fn reserve(
        self: &Arc<Self>,
        partition: PartitionId,
        volume: VolumeId,
    ) -> Result<Reservation, AbortCode> {
        let mut table = self.table.lock();
        if table.places.len() >= self.most {
            return Err(codes::NO_MEMORY);
        }
        if !table.places.insert((partition, volume)) {
            return Err(codes::VOLBUSY);
        }
        debug_assert!(table.places.len() <= self.most, "{} places", self.most);
        Ok(Reservation {
            transactions: Arc::clone(self),
            place: Some((partition, volume)),
        })
    }

    /// Begins a transaction on a volume that was reserved, by this client's call of this name.
    pub(super) fn open(
        &self,
        mut reservation: Reservation,
        volume: Volume,
        attach: AttachFlags,
        (held, closed): (Option<Held>, Option<ClosedVolume>),
        begun: (Origin, &'static str),
    ) -> TransactionId {
        let mut table = self.table.lock();
        let id = table.next_id();
        // From now on the place is the entry's.
        let partition = reservation.place.take().map_or(PartitionId(0), |at| at.0);
        let transaction = Transaction {
            id,
            partition,
            volume,
            attach,
            created_at: now(),
            traffic: Traffic::default(),
        };
        let (origin, procedure) = begun;
        let entry = Entry {
            transaction: Arc::new(transaction),
            origin,
            held,
            _closed: closed,
            flags: TransactionFlags::default(),
            calls: 0,
            used: Instant::now(),
            used_at: now(),
            procedure,
            ended: false,
            forwarded: false,
            warned: false,
            in_service: None,
            taken_out: false,
            previous: None,
        };
        table.entries.insert(id, entry);
        debug_assert!(table.entries.len() <= table.places.len(), "one at a place");
        id
    }

    /// Uses a transaction for a call of this name.
    ///
    /// # Errors
    /// ENOENT if there is none, or its volume has been deleted.
    pub(super) fn find(
        self: &Arc<Self>,
        id: TransactionId,
        procedure: &'static str,
    ) -> Result<Use, AbortCode> {
        self.take(id, |entry| {
            if entry.flags.contains(TransactionFlags::DELETED) {
                return Err(codes::ENOENT);
            }
            entry.procedure = procedure;
            Ok(())
        })
    }

    /// Ends a transaction: at once, or with the last call that uses it.
    ///
    /// # Errors
    /// ENOENT if there is none.
    pub(super) fn end(self: &Arc<Self>, id: TransactionId) -> Result<(), AbortCode> {
        // The one that drops the last use sees that it has ended.
        let _use = self.take(id, |entry| {
            entry.ended = true;
            Ok(())
        })?;
        Ok(())
    }

    fn take(
        self: &Arc<Self>,
        id: TransactionId,
        prepare: impl FnOnce(&mut Entry) -> Result<(), AbortCode>,
    ) -> Result<Use, AbortCode> {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(&id).ok_or(codes::ENOENT)?;
        entry.touch();
        prepare(entry)?;
        Ok(self.use_of(entry))
    }

    fn use_of(self: &Arc<Self>, entry: &mut Entry) -> Use {
        if entry.calls == 0 {
            entry.transaction.traffic.reset();
        }
        entry.calls += 1;
        Use {
            transactions: Arc::clone(self),
            transaction: Arc::clone(&entry.transaction),
        }
    }

    /// Transactions that no call has used for so long. They end with the uses returned.
    pub(super) fn expire(self: &Arc<Self>, limit: Duration) -> Vec<Use> {
        let mut table = self.table.lock();
        let mut expired = Vec::new();
        for entry in table.entries.values_mut() {
            let idle = entry.used.elapsed();
            let volume = entry.transaction.volume.id();
            if entry.calls == 0 && idle > limit {
                tracing::warn!(transaction = entry.transaction.id.0, %volume, "transaction timed out");
                expired.push(self.give_up(entry));
            } else if idle > WARNING && !entry.warned {
                entry.warned = true;
                tracing::warn!(
                    transaction = entry.transaction.id.0, %volume, last = entry.procedure,
                    seconds = idle.as_secs(), "transaction unused for a long time"
                );
            }
        }
        expired
    }

    /// Transactions that no call has used for so long, and the clients that began them.
    pub(super) fn idle(&self, limit: Duration) -> Vec<(TransactionId, Origin)> {
        let table = self.table.lock();
        let is_idle = |entry: &&Entry| entry.calls == 0 && entry.used.elapsed() >= limit;
        let idle = table.entries.values().filter(is_idle);
        idle.map(|entry| (entry.transaction.id, entry.origin.clone()))
            .collect()
    }

    /// A transaction whose client is gone, unless a call uses it. It ends with the use returned.
    pub(super) fn orphan(self: &Arc<Self>, id: TransactionId) -> Option<Use> {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(&id)?;
        (entry.calls == 0).then(|| self.give_up(entry))
    }

    fn give_up(self: &Arc<Self>, entry: &mut Entry) -> Use {
        entry.ended = true;
        self.use_of(entry)
    }

    /// Whether a volume is being worked on.
    pub(super) fn is_busy(&self, partition: PartitionId, volume: VolumeId) -> bool {
        self.table.lock().places.contains(&(partition, volume))
    }

    /// Volumes of a partition that are being worked on.
    pub(super) fn busy(&self, partition: PartitionId) -> BTreeSet<VolumeId> {
        let table = self.table.lock();
        let places = (partition, VolumeId(0))..=(partition, VolumeId(u32::MAX));
        table.places.range(places).map(|place| place.1).collect()
    }

    /// Transactions as Monitor shows them, the newest first.
    pub(super) fn list(&self) -> Vec<TransDebugInfo> {
        let table = self.table.lock();
        table.entries.values().rev().map(Entry::describe).collect()
    }

    fn change<T>(&self, id: TransactionId, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.table.lock().entries.get_mut(&id).map(change)
    }

    /// A call no longer uses a transaction.
    fn leave(&self, id: TransactionId) {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(&id) else {
            return;
        };
        debug_assert!(entry.calls > 0, "transaction {} is not in use", id.0);
        entry.calls -= 1;
        entry.touch();
        if entry.calls > 0 || !entry.ended {
            return;
        }
        let entry = table.entries.remove(&id);
        if let Some(entry) = &entry {
            let was_taken = table.places.remove(&entry.place());
            debug_assert!(was_taken, "the place of transaction {} is free", id.0);
        }
        drop(table);
        // The volume goes back to the clients with the hold, outside of the lock.
        if let Some(entry) = entry
            && entry.forwarded
            && !entry.flags.contains(TransactionFlags::DELETED)
        {
            let volume = entry.transaction.volume.id();
            self.volumes.set_moved(volume, false);
        }
    }
}

impl Table {
    /// Numbers are counted from 1 and start over after the last, past those in use.
    fn next_id(&mut self) -> TransactionId {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let id = TransactionId(self.last);
            if !self.entries.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Entry {
    fn place(&self) -> Claimed {
        (self.transaction.partition, self.transaction.volume.id())
    }

    fn touch(&mut self) {
        self.used = Instant::now();
        self.used_at = now();
        self.warned = false;
    }

    fn describe(&self) -> TransDebugInfo {
        let transaction = &self.transaction;
        let traffic = &transaction.traffic;
        let packet = |octets: &AtomicU64| {
            let number = octets.load(Ordering::Relaxed) / PACKET + 1;
            i32::try_from(number).unwrap_or(i32::MAX)
        };
        let time = |at: &AtomicU32| UnixTime(at.load(Ordering::Relaxed));
        let info = TransDebugInfo {
            transaction: transaction.id,
            time: self.used_at,
            creation_time: transaction.created_at,
            return_code: 0,
            volume: transaction.volume.id(),
            partition: transaction.partition,
            attach_flags: transaction.attach,
            flags: self.flags,
            deleted: u8::from(self.ended),
            last_procedure: CharArray::new(self.procedure).unwrap_or_default(),
            ..TransDebugInfo::default()
        };
        if self.calls == 0 {
            return info;
        }
        TransDebugInfo {
            call_valid: true,
            read_next: packet(&traffic.received),
            transmit_next: packet(&traffic.sent),
            last_send_time: time(&traffic.sent_at),
            last_receive_time: time(&traffic.received_at),
            ..info
        }
    }
}

/// A volume that other transactions are kept from, until this is dropped.
pub(super) struct Reservation {
    transactions: Arc<Transactions>,
    place: Option<Claimed>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let was_taken = self.transactions.table.lock().places.remove(&place);
            debug_assert!(was_taken, "{place:?} is free");
        }
    }
}

/// A transaction in use by a call.
pub(super) struct Use {
    transactions: Arc<Transactions>,
    pub(super) transaction: Arc<Transaction>,
}

impl Use {
    /// What becomes of the volume.
    pub(super) fn flags(&self) -> TransactionFlags {
        self.change(|entry| entry.flags).unwrap_or_default()
    }

    /// Says what becomes of the volume.
    pub(super) fn set_flags(&self, flags: TransactionFlags) {
        self.change(|entry| entry.flags = flags);
    }

    /// The volume is gone: nothing but the end of the transaction is left to do.
    pub(super) fn set_deleted(&self) {
        self.change(|entry| entry.flags.0 |= TransactionFlags::DELETED.0);
    }

    /// Clients have been told that the volume moved.
    pub(super) fn set_forwarded(&self) {
        self.change(|entry| entry.forwarded = true);
    }

    /// Notes whether the volume is in service, if it was not noted before.
    pub(super) fn note_in_service(&self, in_service: bool) {
        self.change(|entry| _ = entry.in_service.get_or_insert(in_service));
    }

    /// Whether the volume was in service before the caller said otherwise.
    pub(super) fn was_in_service(&self) -> Option<bool> {
        self.change(|entry| entry.in_service).flatten()
    }

    /// Notes whether a volume that is whole is out of service by what this transaction did.
    pub(super) fn note_taken_out(&self, taken_out: bool) {
        self.change(|entry| entry.taken_out = taken_out);
    }

    /// Whether a volume that is whole is out of service by what this transaction did.
    pub(super) fn was_taken_out(&self) -> bool {
        self.change(|entry| entry.taken_out).unwrap_or_default()
    }

    /// Keeps clients from reading the volume too, or lets them again, where they may now.
    pub(super) fn set_moving(&self, moving: bool) {
        self.change(|entry| {
            if let Some(held) = &entry.held {
                held.set_moving(moving);
            }
        });
    }

    /// Keeps what the transaction's volume takes the place of, until it is known to be whole.
    pub(super) fn keep(&self, previous: Previous) {
        self.change(|entry| entry.previous = Some(previous));
    }

    /// Takes what the volume takes the place of.
    pub(super) fn take_previous(&self) -> Option<Previous> {
        self.change(|entry| entry.previous.take()).flatten()
    }

    /// Whether the transaction lets the volume be changed.
    ///
    /// # Errors
    /// EROFS where it was begun to read.
    pub(super) fn writable(&self) -> Result<(), AbortCode> {
        if self.transaction.attach.contains(AttachFlags::READ_ONLY) {
            return Err(codes::EROFS);
        }
        Ok(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.transactions.change(self.transaction.id, change)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.transactions.leave(self.transaction.id);
    }
}

/// The present, as AFS counts it.
pub(super) fn now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}
