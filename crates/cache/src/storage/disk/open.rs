//! Finding what an earlier process has left.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use afar_types::DataVersion;
use parking_lot::{Condvar, Mutex};

use super::arriving::Arriving;
use super::directory::Directory;
use super::index::{Block, Index};
use super::instances::Instances;
use super::recent::Recent;
use super::record::{FileId, Record};
use super::slots::{Slot, Slots, Space};
use super::written::Written;
use super::{Disk, Limits, Shared, State};
use crate::model::error::CacheError;

/// What is clean.
struct Found {
    slots: Slots,
    index: Index,
    space: Space,
    instances: Instances,
}

impl Disk {
    /// Opens what is kept in a directory, which is ours from then on. What is clean and cannot be
    /// used is thrown away.
    ///
    /// # Errors
    /// When the directory belongs to another process, is of a newer format, or cannot be used.
    pub(crate) fn open(dir: &Path, limits: Limits) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Storage {
            dir: dir.display().to_string(),
            source,
        };
        let directory = Directory::take(dir)?;
        let found = match find(dir) {
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "cannot read the cache; starting \
                                                              with an empty one");
                Directory::clear(dir).and_then(|()| find(dir))
            }
            found => found,
        };
        let found = found.map_err(failed)?;
        let written = Written::open(dir).map_err(failed)?;
        let disk = Self {
            shared: Arc::new(Shared {
                dir: dir.to_owned(),
                slots: found.slots,
                limit: AtomicU64::new(limits.bytes),
                files: limits.files,
                state: Mutex::new(State {
                    index: found.index,
                    space: found.space,
                    arriving: Arriving::default(),
                    recent: Recent::default(),
                    instances: found.instances,
                    written,
                    jobs: BTreeSet::new(),
                    closed: false,
                    told: None,
                }),
                work: Condvar::new(),
                damaged: AtomicU64::new(0),
                _directory: directory,
            }),
            worker: Mutex::default(),
        };
        disk.start().map_err(failed)?;
        let mut state = disk.shared.lock();
        disk.shared.shrink(&mut state);
        while state.index.files() > limits.files && disk.shared.evict(&mut state) {}
        drop(state);
        Ok(disk)
    }
}

/// Reads all records. Of each file what is of its newest version stays.
fn find(dir: &Path) -> io::Result<Found> {
    let slots = Slots::open(dir)?;
    let mut instances = Instances::open(dir)?;
    let numbers = instances.numbers();
    let mut space = Space::default();
    let mut all: Vec<(Slot, Record)> = Vec::new();
    let mut greatest = 0;
    slots.each(|slot, record| {
        space.found(slot);
        if let Some(record) = record {
            greatest = greatest.max(record.block.file.instance);
            if numbers.binary_search(&record.block.file.instance).is_ok() {
                all.push((slot, record));
                return;
            }
        }
        space.free(slot);
    })?;
    // Records may tell of numbers whose lines are lost. Given again, they would be another volume's.
    instances.above(greatest);
    // The newest version of a file first, and of two of one block that put there last.
    all.sort_unstable_by_key(|(slot, record)| {
        let newest = (u64::MAX - record.version.0, record.block.number);
        (record.block.file, newest, u32::MAX - record.time, *slot)
    });
    let mut newest: Option<(FileId, DataVersion)> = None;
    let mut last = None;
    let mut stale = Vec::new();
    all.retain(|(slot, record)| {
        if newest.is_none_or(|(file, _)| file != record.block.file) {
            newest = Some((record.block.file, record.version));
            last = None;
        }
        let right = newest == Some((record.block.file, record.version));
        let keep = right && last.replace(record.block) != Some(record.block);
        if !keep {
            stale.push(*slot);
        }
        keep
    });
    stale.iter().for_each(|slot| space.free(*slot));
    // A stale record would be the newest one at a later start, when the newer ones have been evicted.
    slots.clear_records(stale)?;
    let mut kept: Vec<u32> = all
        .iter()
        .map(|(_, record)| record.block.file.instance)
        .collect();
    kept.dedup();
    instances.begin(|number| kept.binary_search(&number).is_ok())?;
    // When they were put there is all that is known of when they were used.
    all.sort_by_key(|(_, record)| record.time);
    let blocks = all
        .iter()
        .map(|(slot, record)| (Block::new(record, *slot), record.version));
    Ok(Found {
        index: Index::load(blocks.collect()),
        slots,
        space,
        instances,
    })
}
