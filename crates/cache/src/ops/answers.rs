//! What tools such as OpenAFS's `cmdebug` ask about a cache from outside.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use afar_cell::{
    Answers, CacheSettings, CallbackService, CellServers, Client, Collection, Ranked, ServerKind,
};
use afar_types::{CellName, DbCacheEntry64, Fid, UnixTime, VolumeType};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::config::Root;
use crate::model::vnode::Vnode;
use crate::ops::cache::{Cache, Inner};

/// A list that was asked for is made again for those who begin to read it later than this.
const FRESH: Duration = Duration::from_secs(1);
/// A list that nobody reads any more is dropped then.
const UNREAD: Duration = Duration::from_secs(60);
/// States of a cached file, in OpenAFS's bits: its status holds, it is of a backup volume, of a read-only one, and a
/// mount point whose volume is known.
const STAT: u8 = 1;
const BACKUP: u8 = 2;
const READ_ONLY: u8 = 4;
/// Kinds of files there.
const MOUNT_POINT: i8 = 1;
const VOLUME_ROOT: i8 = 2;

/// File servers of some cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServersSeen {
    /// File servers that are asked.
    pub up: usize,
    /// Those that do not answer.
    pub down: usize,
    /// Location servers.
    pub locations: usize,
}

/// What a cache knows, for counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Cells that are listed.
    pub cells: usize,
    /// Cells that were used.
    pub used_cells: usize,
    /// Files, directories and symlinks whose status is kept.
    pub files: usize,
    /// The servers of the cell that the cache is for, and those of others.
    pub servers: [ServersSeen; 2],
}

/// Makes the words of a collection of counters.
pub type Counters = Box<dyn Fn(Collection, &Seen) -> Vec<u32> + Send + Sync>;

/// A list that is read by places, one question each. It is made when somebody asks for the first place, or for any if
/// there is none: so that to answer costs the same for each place.
struct Listing<T> {
    made: Option<Instant>,
    list: Vec<T>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            made: None,
            list: Vec::new(),
        }
    }
}

impl<T> Listing<T> {
    /// Whether it is to be made for a reader of this place.
    fn is_old(&self, index: usize) -> bool {
        // Only where a list begins: in the middle its reader would miss entries, or have some twice.
        self.made
            .is_none_or(|made| index == 0 && made.elapsed() >= FRESH)
    }

    fn set(&mut self, list: Vec<T>) {
        *self = Self {
            made: Some(Instant::now()),
            list,
        };
    }
}

/// Answers about a cache as long as there is one.
struct Told {
    cache: Weak<Inner>,
    files: Arc<Mutex<Listing<Weak<Vnode>>>>,
    servers: Mutex<Listing<(Ipv4Addr, u16)>>,
    /// The cells of files that were told, by their numbers, which count from 1.
    cells: Mutex<Vec<CellName>>,
    counters: Counters,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

impl Cache {
    /// What servers and tools ask over the network.
    #[must_use]
    pub fn callbacks(&self) -> &CallbackService {
        self.0.client.callbacks()
    }

    /// Has questions about the cache answered that come over the network, with these counters. That does not keep the
    /// cache alive.
    pub fn answer(&self, counters: Counters) {
        self.callbacks().set_answers(Arc::new(Told {
            cache: Arc::downgrade(&self.0),
            files: Arc::default(),
            servers: Mutex::default(),
            cells: Mutex::default(),
            counters,
        }));
    }
}

impl Told {
    /// The number of a cell.
    fn number(&self, cell: &CellName) -> i32 {
        let mut cells = self.cells.lock();
        let known = cells.iter().position(|known| known == cell);
        let place = known.unwrap_or_else(|| {
            cells.push(cell.clone());
            cells.len() - 1
        });
        i32::try_from(place + 1).unwrap_or(i32::MAX)
    }

    /// Has the list of files dropped when nobody reads it any more: it holds the memory of files that are gone.
    fn drop_later(&self) {
        let files = Arc::downgrade(&self.files);
        tokio::spawn(async move {
            tokio::time::sleep(UNREAD).await;
            if let Some(files) = files.upgrade() {
                *files.lock() = Listing::default();
            }
        });
    }

    /// The file in this place. One that was forgotten since leaves its place to the last.
    fn file(&self, cache: &Inner, index: usize) -> Option<Arc<Vnode>> {
        let mut files = self.files.lock();
        if files.is_old(index) {
            let all = cache.vnodes.all();
            files.set(all.iter().map(Arc::downgrade).collect());
            self.drop_later();
        }
        loop {
            let found = files.list.get(index)?.upgrade();
            if found.is_some() {
                return found;
            }
            files.list.swap_remove(index);
        }
    }
}

/// A number in a word; one that does not fit is the greatest that does.
fn small(number: usize) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

/// The servers of a cell, as far as they are known.
fn servers_of(client: &Client, name: &CellName) -> Vec<Ipv4Addr> {
    let listed = client.cells().into_iter().find(|cell| cell.name == *name);
    let listed = listed.map_or_else(Vec::new, |cell| cell.servers);
    let used = client.servers_of(name).into_iter();
    let all: BTreeSet<Ipv4Addr> = listed
        .into_iter()
        .chain(used)
        .filter_map(|server| match server.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .collect();
    all.into_iter().collect()
}

impl Answers for Told {
    fn entry(&self, index: usize) -> Option<DbCacheEntry64> {
        let cache = self.cache.upgrade()?;
        let vnode = self.file(&cache, index)?;
        let state = vnode.lock();
        let status = state.status();
        let mut states = match vnode.volume.kind() {
            VolumeType::ReadWrite => 0,
            VolumeType::ReadOnly => READ_ONLY,
            VolumeType::Backup => BACKUP,
        };
        if state.holds() {
            states |= STAT;
        }
        let promise = state.promise.filter(|_| state.holds());
        let left = promise.map(|promise| promise.until().duration_since(Instant::now()));
        let expires = left.map_or(0, |left| UnixTime::from(SystemTime::now() + left).0);
        let version = status.map_or(0, |status| status.data_version.0) & u64::from(u32::MAX);
        let mount_state = match status {
            _ if vnode.fid == Fid::root(vnode.fid.volume) => VOLUME_ROOT,
            Some(status) if status.is_mount_point() => MOUNT_POINT,
            _ => 0,
        };
        let entry = DbCacheEntry64 {
            // Not a place in memory, which is nobody's business. 0 would be a process.
            address: i32::try_from(index).map_or(i32::MAX, |index| index.saturating_add(1)),
            cell: self.number(vnode.cell()),
            fid: vnode.fid,
            length: i64::try_from(state.length()).unwrap_or(i64::MAX),
            data_version: u32::try_from(version).unwrap_or_default().cast_signed(),
            callback: promise.map_or(0, |promise| i32::from(promise.server()) + 1),
            callback_expires: expires.cast_signed(),
            // Without this one.
            references: small(Arc::strong_count(&vnode) - 1),
            opens: small(usize::try_from(state.rare.opens).unwrap_or(usize::MAX)),
            writers: small(usize::try_from(state.rare.writers).unwrap_or(usize::MAX)),
            mount_state,
            states,
            ..DbCacheEntry64::default()
        };
        drop(state);
        Some(entry)
    }

    fn cell(&self, index: usize) -> Option<CellServers> {
        let cache = self.cache.upgrade()?;
        let mut names: Vec<CellName> = (cache.client.cells().into_iter())
            .map(|cell| cell.name)
            .collect();
        // What DNS knows, and was used.
        for name in cache.client.used_cells() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let name = names.into_iter().nth(index)?;
        let servers = servers_of(&cache.client, &name);
        Some(CellServers { name, servers })
    }

    fn cell_of_entries(&self, number: i32) -> Option<CellServers> {
        let cache = self.cache.upgrade()?;
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        let name = self.cells.lock().get(place).cloned()?;
        let servers = servers_of(&cache.client, &name);
        Some(CellServers { name, servers })
    }

    fn own_cell(&self) -> Option<CellName> {
        match &self.cache.upgrade()?.config.root {
            Root::Volume(cell, _) => Some(cell.clone()),
            Root::Dynamic => None,
        }
    }

    fn server(&self, index: usize) -> Ranked<'_> {
        Box::pin(async move {
            // Not held while servers are ranked: other questions are answered by the list before.
            let is_old = self.servers.lock().is_old(index);
            if is_old {
                let client = self.cache.upgrade()?.client.clone();
                let mut all = Vec::new();
                for kind in [ServerKind::File, ServerKind::Location] {
                    let ranks = client.server_ranks(kind).await.into_iter();
                    all.extend(ranks.filter_map(|(address, rank)| match address {
                        IpAddr::V4(address) => Some((address, rank)),
                        // The answer has room for addresses of IPv4 alone.
                        IpAddr::V6(_) => None,
                    }));
                }
                self.servers.lock().set(all);
            }
            self.servers.lock().list.get(index).copied()
        })
    }

    fn settings(&self) -> CacheSettings {
        let Some(cache) = self.cache.upgrade() else {
            return CacheSettings::default();
        };
        CacheSettings {
            files: cache.config.files as u64,
            bytes: cache.storage.usage().limit,
        }
    }

    fn counters(&self, collection: Collection) -> Vec<u32> {
        let seen = self.cache.upgrade().map(|cache| seen(&cache));
        (self.counters)(collection, &seen.unwrap_or_default())
    }
}

fn seen(cache: &Inner) -> Seen {
    let own = match &cache.config.root {
        Root::Volume(cell, _) => Some(cell),
        Root::Dynamic => None,
    };
    let used = cache.client.used_cells();
    let mut seen = Seen {
        cells: cache.client.cells().len(),
        used_cells: used.len(),
        files: cache.vnodes.count(),
        servers: Default::default(),
    };
    let [of_own, of_others] = &mut seen.servers;
    for name in &used {
        let place = match Some(name) == own {
            true => &mut *of_own,
            false => &mut *of_others,
        };
        place.locations += cache.client.servers_of(name).len();
        for server in cache.client.file_servers_of(name) {
            match server.is_down() {
                true => place.down += 1,
                false => place.up += 1,
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_made_for_those_who_begin_to_read_it() {
        let mut listing = Listing::default();
        assert!(listing.is_old(7));
        listing.set(vec![1, 2]);
        assert!(!listing.is_old(0) && !listing.is_old(1));
        listing.made = listing.made.and_then(|made| made.checked_sub(FRESH));
        assert!(listing.is_old(0) && !listing.is_old(1));
    }
}
