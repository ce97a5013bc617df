//! Settings that are looked at and changed while a cache is in use: as extended attributes too, of
//! whatever file, as they are the cache's.

use std::str;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use afar_cell::{ServerKind, parse_rank};
use bytes::Bytes;

use crate::model::config::CacheConfig;
use crate::model::error::Errno;
use crate::model::oob_info::OobInfo;
use crate::model::types::Who;
use crate::model::xattr_name;
use crate::ops::cache::Cache;

/// The administrator of this machine, who may change settings.
const ROOT: u32 = 0;

impl Cache {
    /// Finds out again whose files are whose, as somebody has other tokens now, or a cell could not be
    /// asked. Kernels are told where it has changed.
    pub async fn renew_owners(&self) {
        let changed = self.0.owners.renew().await;
        if changed.is_empty() {
            return;
        }
        for vnode in self.0.vnodes.all() {
            if changed.contains(vnode.cell()) {
                self.0.breaks.invalidate(&vnode);
            }
        }
    }

    /// What a setting is; `None` if there is none of this name.
    pub(crate) async fn setting(&self, name: &str) -> Option<Bytes> {
        let text = match name {
            xattr_name::CACHE => {
                let usage = self.0.storage.usage();
                format!("{} {} {}", usage.taken, usage.limit, usage.written)
            }
            xattr_name::CACHE_SIZE => self.0.storage.usage().limit.to_string(),
            xattr_name::STORE_BEHIND => self.0.store_behind.load(Ordering::Relaxed).to_string(),
            xattr_name::OOB => self.oob_info().to_string(),
            xattr_name::OOB_THRESHOLD => self.0.client.oob_threshold().unwrap_or(0).to_string(),
            xattr_name::FILE_RANKS => self.ranks(ServerKind::File).await,
            xattr_name::LOCATION_RANKS => self.ranks(ServerKind::Location).await,
            _ => return None,
        };
        Some(text.into())
    }

    /// Changes a setting; `None` if there is none of this name that could be changed.
    pub(crate) async fn change_setting(
        &self,
        who: Who,
        name: &str,
        value: &[u8],
    ) -> Option<Result<(), Errno>> {
        if name == xattr_name::CHECK_VOLUMES {
            self.0.client.check_volumes();
            return Some(Ok(()));
        }
        if ![
            xattr_name::CACHE_SIZE,
            xattr_name::STORE_BEHIND,
            xattr_name::OOB_THRESHOLD,
            xattr_name::OOB_RETRY,
            xattr_name::FILE_RANKS,
            xattr_name::LOCATION_RANKS,
        ]
        .contains(&name)
        {
            return None;
        }
        if who.uid != ROOT {
            return Some(Err(Errno::EPERM));
        }
        let Ok(text) = str::from_utf8(value) else {
            return Some(Err(Errno::EINVAL));
        };
        Some(match name {
            xattr_name::FILE_RANKS => self.set_ranks(ServerKind::File, text).await,
            xattr_name::LOCATION_RANKS => self.set_ranks(ServerKind::Location, text).await,
            xattr_name::OOB_RETRY => {
                self.0.client.retry_oob();
                Ok(())
            }
            name => match text.parse() {
                Ok(bytes) if name == xattr_name::CACHE_SIZE => self.resize_cache(bytes).await,
                Ok(bytes) if name == xattr_name::OOB_THRESHOLD => {
                    self.0.client.set_oob_threshold(Some(bytes));
                    Ok(())
                }
                Ok(bytes) => {
                    self.0.store_behind.store(bytes, Ordering::Relaxed);
                    Ok(())
                }
                Err(_) => Err(Errno::EINVAL),
            },
        })
    }

    /// What goes out of band.
    fn oob_info(&self) -> OobInfo {
        OobInfo {
            threshold: self.0.client.oob_threshold(),
            servers: self.0.client.oob_servers(),
        }
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

    /// Has data take no more than so many bytes from now on; 0 is what the cache was opened with.
    async fn resize_cache(&self, bytes: u64) -> Result<(), Errno> {
        let bytes = match bytes {
            0 => self.0.config.bytes,
            bytes if bytes < CacheConfig::BYTES_MIN => return Err(Errno::EINVAL),
            bytes => bytes,
        };
        let storage = Arc::clone(&self.0.storage);
        let resized = tokio::task::spawn_blocking(move || storage.set_limit(bytes));
        resized.await.map_err(|_| Errno::EIO)
    }
}
