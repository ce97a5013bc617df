//! The table of promises: which host was promised word of which file, until when.
//!
//! A promise is a slot of 40 bytes that stands in three chains: of its file, of its host, and of
//! the 128 seconds it ends in. So it is found from each side, and every operation costs what it
//! touches. Files and promises are found by hash tables that hold nothing but slot numbers.
//!
//! The table is plain data: it knows no clock, no lock and no network. Times are seconds since the
//! server started.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use afar_types::{Fid, Uniquifier, VnodeId, VolumeId};
use hashbrown::HashTable;

use super::slab::{NIL, Slab, Slot};

/// Seconds in a tick. Promises end at ticks, as OpenAFS rounds them.
// spec: afs-rpc#promises
pub(super) const TICK: u32 = 128;

/// Chains of promises by their end. The longest promise is 4 h and some minutes, 115 ticks, so
/// that what ends a round later is never in front of what ends earlier in a chain.
const WHEEL: usize = 128;

/// The number of a host.
pub(super) type HostIndex = u32;

/// Names a promise as long as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    slot: u32,
    generation: u32,
}

/// A promise.
#[derive(Debug, Clone, Default)]
struct Entry {
    file: u32,
    host: HostIndex,
    of_file: Links,
    of_host: Links,
    of_tick: Links,
    /// The tick it ends at, and in the lowest bit whether the host has been told of it.
    end: u32,
    /// Counts the promises that were made in this slot, and what made one doubtful.
    generation: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Links {
    previous: u32,
    next: u32,
}

impl Slot for Entry {
    fn chain(&mut self) -> &mut u32 {
        &mut self.of_file.next
    }
}

/// A file somebody was promised word of.
#[derive(Debug, Clone, Default)]
struct File {
    fid: Fid,
    first: u32,
    holders: u32,
    of_volume: Links,
}

impl Slot for File {
    fn chain(&mut self) -> &mut u32 {
        &mut self.of_volume.next
    }
}

/// Both ends of a chain.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    const EMPTY: Self = Self {
        first: NIL,
        last: NIL,
    };
}

/// The files of a volume, in the order in which they came in.
#[derive(Debug)]
struct VolumeFiles {
    chain: Chain,
    files: usize,
}

/// A host's promises.
#[derive(Debug, Clone)]
struct HostPromises {
    first: u32,
    held: u32,
    /// Whether it may be promised anything.
    open: bool,
}

/// Which of the chains of a promise is meant.
#[derive(Clone, Copy)]
enum Of {
    File,
    Host,
    Tick,
}

impl Entry {
    fn links(&mut self, of: Of) -> &mut Links {
        match of {
            Of::File => &mut self.of_file,
            Of::Host => &mut self.of_host,
            Of::Tick => &mut self.of_tick,
        }
    }

    fn tick(&self) -> u32 {
        self.end >> 1
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    promises: Slab<Entry>,
    /// Promises by file slot and host.
    by_holder: HashTable<u32>,
    files: Slab<File>,
    /// Files by fid.
    by_fid: HashTable<u32>,
    volumes: HashMap<VolumeId, VolumeFiles>,
    hosts: Vec<HostPromises>,
    wheel: Vec<Chain>,
    /// The first tick whose chain may hold promises that have ended.
    swept: u32,
    hasher: RandomState,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            promises: Slab::new(),
            by_holder: HashTable::new(),
            files: Slab::new(),
            by_fid: HashTable::new(),
            volumes: HashMap::new(),
            hosts: Vec::new(),
            wheel: vec![Chain::EMPTY; WHEEL],
            swept: 0,
            hasher: RandomState::new(),
        }
    }

    /// Promises in the table.
    pub(super) fn len(&self) -> usize {
        self.promises.len()
    }

    /// Files that somebody holds a promise of.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Promises a host holds.
    pub(super) fn held(&self, host: HostIndex) -> u32 {
        self.hosts.get(host as usize).map_or(0, |host| host.held)
    }

    /// From now on the host may be promised something.
    pub(super) fn open_host(&mut self, host: HostIndex) {
        let index = host as usize;
        if self.hosts.len() <= index {
            let none = HostPromises {
                first: NIL,
                held: 0,
                open: false,
            };
            self.hosts.resize(index + 1, none);
        }
        self.hosts[index].open = true;
    }

    /// The host may be promised nothing until it is opened again, and forgets up to `budget` of its
    /// promises. Returns how many.
    pub(super) fn shut_host(&mut self, host: HostIndex, budget: usize) -> usize {
        if let Some(entry) = self.hosts.get_mut(host as usize) {
            entry.open = false;
        }
        self.remove_some(host, budget)
    }

    /// Forgets up to `budget` promises of a host. Returns how many.
    pub(super) fn remove_some(&mut self, host: HostIndex, budget: usize) -> usize {
        let mut removed = 0;
        while removed < budget
            && let Some(slot) = self.first_of_host(host)
        {
            self.remove_slot(slot);
            removed += 1;
        }
        removed
    }

    fn first_of_host(&self, host: HostIndex) -> Option<u32> {
        let first = self.hosts.get(host as usize)?.first;
        (first != NIL).then_some(first)
    }

    /// How many hosts hold a promise of this file.
    pub(super) fn holders(&self, fid: Fid) -> u32 {
        self.find_file(fid)
            .map_or(0, |file| self.files[file].holders)
    }

    /// Whether a host holds a promise of this file.
    pub(super) fn is_held(&self, host: HostIndex, fid: Fid) -> bool {
        let file = self.find_file(fid);
        file.is_some_and(|file| self.find_promise(file, host).is_some())
    }

    /// Promises a host word of a file until the end of this tick, or for longer if it was promised
    /// so before. `None` if the host may be promised nothing, or all numbers are in use.
    pub(super) fn add(&mut self, host: HostIndex, fid: Fid, tick: u32) -> Option<Handle> {
        if !self.hosts.get(host as usize)?.open {
            return None;
        }
        let file = self.file_or_new(fid)?;
        if let Some(slot) = self.find_promise(file, host) {
            if self.promises[slot].tick() < tick {
                self.unlink(slot, Of::Tick);
                // What a reply has told of stays told: otherwise `drop_untold` would take it with the longer one.
                let told = self.promises[slot].end & 1;
                self.promises[slot].end = tick << 1 | told;
                self.link(slot, Of::Tick);
            }
            return Some(self.handle(slot));
        }
        let Some(slot) = self.promises.take() else {
            self.drop_file_if_unheld(file);
            return None;
        };
        let entry = &mut self.promises[slot];
        (entry.file, entry.host, entry.end) = (file, host, tick << 1);
        for of in [Of::File, Of::Host, Of::Tick] {
            self.link(slot, of);
        }
        self.files[file].holders += 1;
        self.hosts[host as usize].held += 1;
        let (promises, hasher) = (&self.promises, &self.hasher);
        let hash = |&slot: &u32| holder_hash(hasher, &promises[slot]);
        self.by_holder.insert_unique(hash(&slot), slot, hash);
        self.check();
        Some(self.handle(slot))
    }

    /// The tick at which a promise ends, if it still stands; then the host counts as told of it.
    pub(super) fn tell(&mut self, handle: Handle) -> Option<u32> {
        let entry = &mut self.promises[handle.slot];
        (entry.generation == handle.generation).then(|| {
            entry.end |= 1;
            entry.tick()
        })
    }

    /// Forgets a promise that no reply has told of.
    pub(super) fn drop_untold(&mut self, handle: Handle) {
        let entry = &self.promises[handle.slot];
        if entry.generation == handle.generation && entry.end & 1 == 0 {
            self.remove_slot(handle.slot);
        }
    }

    /// Forgets the promises of a file that end after now, and appends their hosts to `hosts`; that
    /// of the host `except` stays. Earlier ends are forgotten too.
    pub(super) fn break_fid(
        &mut self,
        fid: Fid,
        except: Option<HostIndex>,
        now: u32,
        hosts: &mut Vec<HostIndex>,
    ) {
        let Some(file) = self.find_file(fid) else {
            return;
        };
        let kept = except.and_then(|host| self.find_promise(file, host));
        if let Some(kept) = kept {
            // A reply of this host's that is on its way may tell of the time before the change.
            let generation = &mut self.promises[kept].generation;
            *generation = generation.wrapping_add(1);
        }
        self.break_file(file, kept, now, hosts);
    }

    fn break_file(&mut self, file: u32, kept: Option<u32>, now: u32, hosts: &mut Vec<HostIndex>) {
        let mut slot = self.files[file].first;
        while slot != NIL {
            let next = self.promises[slot].of_file.next;
            if Some(slot) != kept {
                if self.promises[slot].tick().saturating_mul(TICK) > now {
                    hosts.push(self.promises[slot].host);
                }
                // With the last one its file goes.
                self.remove_slot(slot);
            }
            slot = next;
        }
    }

    /// Files of a volume that somebody holds a promise of.
    pub(super) fn files_of(&self, volume: VolumeId) -> usize {
        self.volumes.get(&volume).map_or(0, |of| of.files)
    }

    /// Like [`break_fid`](Self::break_fid) for the file of the volume that came in first. Returns
    /// whether there was one.
    pub(super) fn break_first_of(
        &mut self,
        volume: VolumeId,
        now: u32,
        hosts: &mut Vec<HostIndex>,
    ) -> bool {
        let first = self.volumes.get(&volume).map(|of| of.chain.first);
        if let Some(file) = first {
            self.break_file(file, None, now, hosts);
        }
        first.is_some()
    }

    /// Forgets the promises of a file.
    pub(super) fn discard(&mut self, fid: Fid) {
        if let Some(file) = self.find_file(fid) {
            self.break_file(file, None, u32::MAX, &mut Vec::new());
        }
    }

    /// Forgets one promise. Returns whether it was there.
    pub(super) fn remove(&mut self, host: HostIndex, fid: Fid) -> bool {
        let file = self.find_file(fid);
        let slot = file.and_then(|file| self.find_promise(file, host));
        if let Some(slot) = slot {
            self.remove_slot(slot);
        }
        slot.is_some()
    }

    /// Forgets up to `budget` promises that have ended. Returns how many.
    pub(super) fn expire(&mut self, now: u32, budget: usize) -> usize {
        let mut expired = 0;
        let over = now / TICK;
        while expired < budget {
            let slot = self.wheel[wheel_place(self.swept)].first;
            if slot != NIL && self.promises[slot].tick() <= over {
                self.remove_slot(slot);
                expired += 1;
            } else if self.swept < over {
                // After a long rest one round of the wheel finds everything.
                let round = u32::try_from(WHEEL).unwrap_or(u32::MAX);
                self.swept = (self.swept + 1).max(over.saturating_sub(round));
            } else {
                break;
            }
        }
        expired
    }

    /// Forgets the promise that ends first, and tells whose it was and of what.
    pub(super) fn evict(&mut self) -> Option<(HostIndex, Fid)> {
        // From here on the wheel is in the order of ends.
        let start = wheel_place(self.swept);
        let slot = (0..WHEEL)
            .map(|step| self.wheel[(start + step) % WHEEL].first)
            .find(|&slot| slot != NIL)?;
        let entry = &self.promises[slot];
        let evicted = (entry.host, self.files[entry.file].fid);
        self.remove_slot(slot);
        Some(evicted)
    }

    /// The promises of a host that it has been told of: file and last tick.
    pub(super) fn of_host(&self, host: HostIndex) -> impl Iterator<Item = (Fid, u32)> + '_ {
        let mut slot = self.first_of_host(host).unwrap_or(NIL);
        std::iter::from_fn(move || {
            let entry = (slot != NIL).then(|| &self.promises[slot])?;
            slot = entry.of_host.next;
            Some(entry)
        })
        .filter(|entry| entry.end & 1 == 1)
        .map(|entry| (self.files[entry.file].fid, entry.tick()))
    }

    fn handle(&self, slot: u32) -> Handle {
        Handle {
            slot,
            generation: self.promises[slot].generation,
        }
    }

    fn remove_slot(&mut self, slot: u32) {
        let hash = holder_hash(&self.hasher, &self.promises[slot]);
        let found = self.by_holder.find_entry(hash, |&other| other == slot);
        debug_assert!(found.is_ok(), "promise {slot} is not found by its holder");
        if let Ok(found) = found {
            found.remove();
        }
        for of in [Of::File, Of::Host, Of::Tick] {
            self.unlink(slot, of);
        }
        let entry = &mut self.promises[slot];
        // A reply that is on its way has a handle, and must not tell of what is here next.
        entry.generation = entry.generation.wrapping_add(1);
        let (file, host) = (entry.file, entry.host);
        self.promises.give_back(slot);
        debug_assert!(self.hosts[host as usize].held > 0, "host {host}");
        debug_assert!(self.files[file].holders > 0, "file {file}");
        self.hosts[host as usize].held -= 1;
        self.files[file].holders -= 1;
        self.drop_file_if_unheld(file);
        self.check();
    }

    /// Each promise is found by its holder, each file by its fid, and none is there without the other.
    fn check(&self) {
        let (promises, files) = (self.promises.len(), self.files.len());
        debug_assert_eq!(self.by_holder.len(), promises, "promises by holder");
        debug_assert_eq!(self.by_fid.len(), files, "files by fid");
        debug_assert!(files <= promises, "{files} files of {promises} promises");
        debug_assert!(self.volumes.len() <= files, "volumes of {files} files");
    }

    fn find_promise(&self, file: u32, host: HostIndex) -> Option<u32> {
        let hash = self.hasher.hash_one((file, host));
        let is_it = |&slot: &u32| {
            let entry = &self.promises[slot];
            entry.file == file && entry.host == host
        };
        self.by_holder.find(hash, is_it).copied()
    }

    /// The first slot of the chain a promise stands in, and for ticks also the last.
    fn ends(&mut self, slot: u32, of: Of) -> (&mut u32, Option<&mut u32>) {
        let entry = &self.promises[slot];
        match of {
            Of::File => (&mut self.files[entry.file].first, None),
            Of::Host => (&mut self.hosts[entry.host as usize].first, None),
            Of::Tick => {
                let chain = &mut self.wheel[wheel_place(entry.tick())];
                (&mut chain.first, Some(&mut chain.last))
            }
        }
    }

    /// Puts a promise into a chain: at the end of its tick's, at the front of the others.
    fn link(&mut self, slot: u32, of: Of) {
        let (first, last) = self.ends(slot, of);
        let links = if let Some(last) = last {
            let previous = std::mem::replace(last, slot);
            if previous == NIL {
                *first = slot;
            }
            Links {
                previous,
                next: NIL,
            }
        } else {
            let next = std::mem::replace(first, slot);
            Links {
                previous: NIL,
                next,
            }
        };
        if links.previous != NIL {
            self.promises[links.previous].links(of).next = slot;
        }
        if links.next != NIL {
            self.promises[links.next].links(of).previous = slot;
        }
        *self.promises[slot].links(of) = links;
    }

    fn unlink(&mut self, slot: u32, of: Of) {
        let Links { previous, next } = *self.promises[slot].links(of);
        let (first, last) = self.ends(slot, of);
        if previous == NIL {
            debug_assert_eq!(*first, slot, "the first of its chain");
            *first = next;
        }
        if let Some(last) = last
            && next == NIL
        {
            debug_assert_eq!(*last, slot, "the last of its chain");
            *last = previous;
        }
        if previous != NIL {
            self.promises[previous].links(of).next = next;
        }
        if next != NIL {
            self.promises[next].links(of).previous = previous;
        }
    }
}

/// Files.
impl Table {
    fn find_file(&self, fid: Fid) -> Option<u32> {
        let hash = self.hasher.hash_one(fid);
        let found = self
            .by_fid
            .find(hash, |&file| self.files[file].fid == fid)?;
        Some(*found)
    }

    fn file_or_new(&mut self, fid: Fid) -> Option<u32> {
        if let Some(file) = self.find_file(fid) {
            return Some(file);
        }
        let file = self.files.take()?;
        let volume = self.volumes.entry(fid.volume).or_insert(VolumeFiles {
            chain: Chain::EMPTY,
            files: 0,
        });
        let previous = std::mem::replace(&mut volume.chain.last, file);
        if previous == NIL {
            volume.chain.first = file;
        } else {
            self.files[previous].of_volume.next = file;
        }
        volume.files += 1;
        self.files[file] = File {
            fid,
            first: NIL,
            holders: 0,
            of_volume: Links {
                previous,
                next: NIL,
            },
        };
        let (files, hasher) = (&self.files, &self.hasher);
        let hash = |&file: &u32| hasher.hash_one(files[file].fid);
        self.by_fid.insert_unique(hash(&file), file, hash);
        Some(file)
    }

    fn drop_file_if_unheld(&mut self, file: u32) {
        let File {
            fid,
            holders,
            of_volume: Links { previous, next },
            ..
        } = self.files[file];
        if holders > 0 {
            return;
        }
        let hash = self.hasher.hash_one(fid);
        let found = self.by_fid.find_entry(hash, |&other| other == file);
        debug_assert!(found.is_ok(), "file {file} is not found by its fid");
        if let Ok(found) = found {
            found.remove();
        }
        if previous != NIL {
            self.files[previous].of_volume.next = next;
        }
        if next != NIL {
            self.files[next].of_volume.previous = previous;
        }
        if let Some(volume) = self.volumes.get_mut(&fid.volume) {
            if previous == NIL {
                volume.chain.first = next;
            }
            if next == NIL {
                volume.chain.last = previous;
            }
            debug_assert!(volume.files > 0, "{fid}");
            volume.files -= 1;
            if volume.files == 0 {
                self.volumes.remove(&fid.volume);
            }
        }
        self.files.give_back(file);
    }
}

/// The fid that stands for a whole volume.
// spec: afs-rpc#breaks
pub(super) fn whole_volume(volume: VolumeId) -> Fid {
    Fid {
        volume,
        vnode: VnodeId(0),
        uniquifier: Uniquifier(0),
    }
}

fn holder_hash(hasher: &RandomState, entry: &Entry) -> u64 {
    hasher.hash_one((entry.file, entry.host))
}

fn wheel_place(tick: u32) -> usize {
    tick as usize % WHEEL
}

#[cfg(test)]
mod tests;
