//! Records that are in a segment and not yet in the database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Core, Partition, logged};
use crate::config::Durability;
use crate::error::Result;
use crate::meta::{Change, Rows, Table};
use crate::segment::{Extent, Placed, Stored};

/// How long to wait for readers before nothing is given back.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fewest plain bytes of a record that is looked for among those there are.
const DEDUP_MIN: usize = 16 << 10;

/// Records a caller has written. Unless they are [committed](Pending::commit), their bytes become
/// dead when this is dropped.
pub(crate) struct Pending<'p> {
    partition: &'p Partition,
    extents: Vec<Extent>,
    /// The one of them that was added last, if it may not be written yet.
    deferred: Option<Arc<Deferred>>,
    pins: Pins,
}

/// A record that is written by the committer, while the disk writes the log.
pub(super) struct Deferred {
    placed: Placed,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unwritten,
    Written,
    /// It could not be written, and its place was given back.
    Lost,
}

impl Deferred {
    pub(super) fn place(&self) -> SegmentOffset {
        let extent = self.placed.extent();
        (extent.segment, extent.offset)
    }

    pub(super) fn octets(&self) -> &[u8] {
        self.placed.bytes()
    }

    /// Writes it, unless that was tried before.
    pub(super) fn write(&self, core: &Core) -> Result<()> {
        let mut state = self.state.lock();
        if *state == State::Unwritten {
            let filled = core.segments.fill(&self.placed);
            *state = match &filled {
                Ok(()) => State::Written,
                Err(_) => State::Lost,
            };
            filled.map_err(|error| no_space(core, error))?;
        }
        Ok(())
    }
}

/// A segment's number, and an offset in it.
pub(super) type SegmentOffset = (u32, u32);

/// Keeps the reaper from removing segments.
pub(crate) struct Pins {
    core: Arc<Core>,
    segments: Vec<u32>,
    /// Records of others that are to be shared.
    shared: Vec<SegmentOffset>,
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut pinned = self.core.pinned.lock();
        for segment in &self.segments {
            give_up(&mut pinned, segment);
        }
        drop(pinned);
        let mut wanted = self.core.wanted.lock();
        for place in &self.shared {
            give_up(&mut wanted, place);
        }
    }
}

fn give_up<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(key)),
    }
}

impl Pins {
    fn add(&mut self, segment: u32) {
        if !self.segments.contains(&segment) {
            self.segments.push(segment);
            *self.core.pinned.lock().entry(segment).or_default() += 1;
        }
    }
}

impl<'p> Pending<'p> {
    pub(crate) fn new(partition: &'p Partition) -> Self {
        Self {
            partition,
            extents: Vec::new(),
            deferred: None,
            pins: Pins {
                core: Arc::clone(&partition.core),
                segments: Vec::new(),
                shared: Vec::new(),
            },
        }
    }

    /// Writes a record, or has it written when it is committed. It is durable then.
    pub(crate) fn append(&mut self, record: Stored<'_>) -> Result<Extent> {
        let core = &self.partition.core;
        self.write_deferred()?;
        let _epoch = core.epochs.enter();
        let extent = if record.is_owned() && self.partition.defers(record.bytes().len()) {
            let placed = core.segments.place(record.into_owned());
            let placed = placed.map_err(|error| no_space(core, error))?;
            let extent = placed.extent();
            self.deferred = Some(Arc::new(Deferred {
                placed,
                state: Mutex::new(State::Unwritten),
            }));
            extent
        } else {
            let appended = core.segments.append(&record);
            appended.map_err(|error| no_space(core, error))?
        };
        self.pins.add(extent.segment);
        self.extents.push(extent);
        Ok(extent)
    }

    /// Writes what was left to the committer.
    fn write_deferred(&mut self) -> Result<()> {
        let Some(deferred) = self.deferred.take() else {
            return Ok(());
        };
        let written = deferred.write(&self.partition.core);
        if *deferred.state.lock() == State::Lost {
            let lost = deferred.placed.extent();
            self.extents.retain(|extent| *extent != lost);
        }
        written
    }

    /// Looks for a record with the same plain bytes, and keeps it from being given back until
    /// this is committed or dropped. Also returns under what hash the record is to be known.
    pub(crate) fn find_twin(&mut self, plain: &[u8]) -> Result<(Option<Extent>, Option<[u8; 16]>)> {
        let core = &self.partition.core;
        if plain.len() < DEDUP_MIN || !core.dedup.load(Ordering::Relaxed) {
            return Ok((None, None));
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(plain).as_bytes()[..16]);
        let find = || -> Result<Option<Extent>> {
            let reader = core.reader()?;
            let row = reader.get(Table::Dedup, &hash)?;
            Ok(row.and_then(|row| Extent::from_bytes(row).ok()))
        };
        let Some(extent) = find()? else {
            return Ok((None, Some(hash)));
        };
        // Pinned first and looked for again: what is still known then cannot go any more.
        let place = (extent.segment, extent.offset);
        *core.wanted.lock().entry(place).or_default() += 1;
        self.pins.shared.push(place);
        let same = find()? == Some(extent)
            && usize::try_from(extent.plain).is_ok_and(|len| len == plain.len());
        let mut found = Vec::new();
        if same && core.segments.read(&extent, &mut found).is_ok() && found == plain {
            return Ok((Some(extent), Some(hash)));
        }
        Ok((None, Some(hash)))
    }

    /// Runs an operation that refers to the records. If it fails, they are dead.
    pub(crate) fn commit<T, F>(self, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Change<'_>) -> Result<T> + Send + 'static,
    {
        self.commit_weighing(1, operation)
    }

    /// The same with one that is as much work as `weight` operations.
    pub(crate) fn commit_weighing<T, F>(mut self, weight: usize, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Change<'_>) -> Result<T> + Send + 'static,
    {
        let Partition {
            core, committer, ..
        } = self.partition;
        let result = committer
            .queue()
            .commit_with(core, self.deferred.clone(), weight, operation);
        if result.is_ok() {
            self.extents.clear();
        }
        result
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.extents.is_empty() {
            return;
        }
        // Also what nobody will read: a segment reaches as far as its row says.
        if let Err(error) = self.write_deferred() {
            tracing::debug!(%error, "freed the space of an abandoned write");
        }
        let extents = std::mem::take(&mut self.extents);
        let discarded = self.partition.commit(move |change| {
            for extent in &extents {
                change.discard(extent)?;
            }
            Ok(())
        });
        if let Err(error) = discarded {
            tracing::debug!(%error, "cannot free the space of an abandoned write");
        }
    }
}

fn no_space(core: &Core, error: crate::segment::SegmentError) -> crate::StoreError {
    if error.is_no_space() {
        crate::StoreError::NoSpace(core.path.clone())
    } else {
        error.into()
    }
}

impl Partition {
    /// Whether a record of so many bytes is better written by the committer: it is made durable by
    /// the log, and no commit waits for the committer meanwhile.
    fn defers(&self, len: usize) -> bool {
        self.core.options.durable() == Durability::Full
            && len as u64 <= logged::MOST
            && self.committer.is_idle()
    }

    /// Leaves of `segments`, none of which is the current one, those whose records are all
    /// committed. None are left if somebody reads for too long to be sure.
    pub(crate) fn retain_settled(&self, segments: &mut Vec<u32>) -> Result<()> {
        // A writer that wrote to one of them while it was the current one has pinned it after this.
        let epoch = self.core.epochs.advance();
        let since = Instant::now();
        while !self.core.epochs.passed(epoch) {
            self.core.stopped()?;
            if since.elapsed() > PATIENCE {
                segments.clear();
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let pinned = self.core.pinned.lock();
        segments.retain(|segment| !pinned.contains_key(segment));
        Ok(())
    }
}
