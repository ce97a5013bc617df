//! Decompressed records, kept for the next reader.
//!
//! Clients read in pieces smaller than a record, and what one reads the next often reads too; each
//! time the whole record would have to be decompressed. The system's cache has the compressed
//! form, this one the plain one, of what is in demand.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use xxhash_rust::xxh3::xxh3_64;

use super::Core;
use crate::error::Result;
use crate::segment::{Codec, Extent};

/// A partition since it was opened, segment, offset. No place in a segment is written twice, and
/// no segment's number given twice, while a partition is open.
type Key = (u64, u32, u32);

#[derive(Clone)]
struct Octets;

impl Weighter<Key, Arc<[u8]>> for Octets {
    fn weight(&self, _: &Key, plain: &Arc<[u8]>) -> u64 {
        plain.len() as u64 + 64
    }
}

/// One for all partitions of the process: a tenth of the machine's memory, at least 16 MiB.
static CACHE: LazyLock<Cache<Key, Arc<[u8]>, Octets>> = LazyLock::new(|| {
    let octets = (memory().unwrap_or(0) / 10).max(16 << 20);
    let records = usize::try_from(octets / (64 << 10)).unwrap_or(usize::MAX);
    Cache::with_weighter(records, octets, Octets)
});

static SEEN: Seen = Seen([const { AtomicU64::new(0) }; PLACES]);

/// Records that were read lately, one for each place; roughly.
struct Seen([AtomicU64; PLACES]);

const PLACES: usize = 1 << 15;

impl Seen {
    /// Whether a record was read before; notes that it was.
    fn again(&self, key: Key) -> bool {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&key.1.to_be_bytes());
        bytes[12..].copy_from_slice(&key.2.to_be_bytes());
        // No hash is 0, which stands for nothing.
        let hash = xxh3_64(&bytes) | 1;
        let place = usize::try_from(hash >> 32).unwrap_or(0) % PLACES;
        self.0[place].swap(hash, Ordering::Relaxed) == hash
    }
}

static OPENED: AtomicU64 = AtomicU64::new(0);

/// A number no other open partition has.
pub(super) fn opened() -> u64 {
    OPENED.fetch_add(1, Ordering::Relaxed)
}

/// Bytes of memory the machine has.
fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

impl Core {
    /// Reads a part of a record.
    pub(super) fn read_plain(
        &self,
        extent: &Extent,
        within: Range<u32>,
        out: &mut [u8],
    ) -> Result<()> {
        if extent.codec == Codec::Raw {
            return Ok(self.segments.read_range(extent, within, out)?);
        }
        let part = within.start as usize..within.end as usize;
        let key = (self.opened, extent.segment, extent.offset);
        if let Some(plain) = CACHE.get(&key)
            && let Some(plain) = plain.get(part.clone())
        {
            out.copy_from_slice(plain);
            return Ok(());
        }
        let whole = part.len() == extent.plain as usize;
        if whole {
            self.segments.read_range(extent, within, out)?;
            // Most of what is read from one end to the other is read once, and takes nobody's place.
            let room = CACHE.capacity().saturating_sub(CACHE.weight());
            if SEEN.again(key) || room > out.len() as u64 {
                CACHE.insert(key, Arc::from(&*out));
            }
            return Ok(());
        }
        let mut plain = vec![0; extent.plain as usize];
        self.segments
            .read_range(extent, 0..extent.plain, &mut plain)?;
        if let Some(part) = plain.get(part) {
            out.copy_from_slice(part);
        }
        CACHE.insert(key, plain.into());
        Ok(())
    }
}
