//! Settings that are looked at and changed while a cache is in use: as extended attributes too, of
//! whatever file, as they are the cache's.

use std::str;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use afar_cell::{ServerKind, parse_rank};
use bytes::Bytes;

use crate::cache::Cache;
use crate::config::CacheConfig;
use crate::error::Errno;
use crate::types::Who;

/// Octets that data takes, may take, and takes until it is stored.
const USAGE: &[u8] = b"afs.cache";
/// Octets that data may take; 0 for what the cache was opened with.
const SIZE: &[u8] = b"afs.cachesize";
/// Octets of a file that may have to be stored when it is closed.
const STORE_BEHIND: &[u8] = b"afs.storebehind";
/// Ranks of file servers: address and rank, one a line.
const FILE_RANKS: &[u8] = b"afs.serverprefs";
/// The same of volume location servers.
const LOCATION_RANKS: &[u8] = b"afs.vlserverprefs";
/// Has all volumes looked up again, whatever it is set to.
const CHECK_VOLUMES: &[u8] = b"afs.checkvolumes";

/// The administrator of this machine, who may change settings.
const ROOT: u32 = 0;

impl Cache {
    /// What a setting is; `None` if there is none of this name.
    pub(crate) async fn setting(&self, name: &[u8]) -> Option<Bytes> {
        let text = match name {
            USAGE => {
                let usage = self.0.storage.usage();
                format!("{} {} {}", usage.taken, usage.limit, usage.written)
            }
            SIZE => self.0.storage.usage().limit.to_string(),
            STORE_BEHIND => self.0.store_behind.load(Ordering::Relaxed).to_string(),
            FILE_RANKS => self.ranks(ServerKind::File).await,
            LOCATION_RANKS => self.ranks(ServerKind::Location).await,
            _ => return None,
        };
        Some(text.into())
    }

    /// Changes a setting; `None` if there is none of this name that could be changed.
    pub(crate) async fn change_setting(
        &self,
        who: Who,
        name: &[u8],
        value: &[u8],
    ) -> Option<Result<(), Errno>> {
        if name == CHECK_VOLUMES {
            self.0.client.check_volumes();
            return Some(Ok(()));
        }
        if ![SIZE, STORE_BEHIND, FILE_RANKS, LOCATION_RANKS].contains(&name) {
            return None;
        }
        if who.uid != ROOT {
            return Some(Err(Errno::EPERM));
        }
        let Ok(text) = str::from_utf8(value) else {
            return Some(Err(Errno::EINVAL));
        };
        Some(match name {
            FILE_RANKS => self.set_ranks(ServerKind::File, text).await,
            LOCATION_RANKS => self.set_ranks(ServerKind::Location, text).await,
            name => match text.parse() {
                Ok(octets) if name == SIZE => self.resize_cache(octets).await,
                Ok(octets) => {
                    self.0.store_behind.store(octets, Ordering::Relaxed);
                    Ok(())
                }
                Err(_) => Err(Errno::EINVAL),
            },
        })
    }

    /// The ranks of servers, one a line.
    async fn ranks(&self, kind: ServerKind) -> String {
        let ranks = self.0.client.server_ranks(kind).await.into_iter();
        ranks
            .map(|(host, rank)| format!("{host} {rank}\n"))
            .collect()
    }

    /// Gives servers ranks: all that are named, or none if one cannot be understood.
    async fn set_ranks(&self, kind: ServerKind, text: &str) -> Result<(), Errno> {
        let ranks: Option<Vec<_>> = text.lines().map(parse_rank).collect();
        for (host, rank) in ranks.ok_or(Errno::EINVAL)? {
            self.0.client.set_rank(kind, host, rank).await;
        }
        Ok(())
    }

    /// Has data take no more than so many octets from now on; 0 is what the cache was opened with.
    async fn resize_cache(&self, octets: u64) -> Result<(), Errno> {
        let octets = match octets {
            0 => self.0.config.bytes,
            octets if octets < CacheConfig::BYTES_MIN => return Err(Errno::EINVAL),
            octets => octets,
        };
        let storage = Arc::clone(&self.0.storage);
        let resized = tokio::task::spawn_blocking(move || storage.set_limit(octets));
        resized.await.map_err(|_| Errno::EIO)
    }
}
