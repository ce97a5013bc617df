//! What of the journal is not done, and where it is.

use std::collections::{BTreeMap, BTreeSet};

use afar_types::VolumeId;
use afar_xdr::XdrString;

use super::record::{Made, Place, Record, SentBatch};

/// A volume of a cell.
type Volume = (XdrString<255>, VolumeId);

/// Places of the records that count.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// Changes that are not done, by number.
    changes: BTreeMap<u64, Place>,
    /// The last batch of each volume, if a change of it is not done.
    batches: BTreeMap<Volume, Batch>,
    /// What the changes take.
    bytes: u64,
    /// The greatest number of all.
    last: u64,
}

#[derive(Debug, Clone)]
struct Batch {
    place: Place,
    /// Its changes that are not done.
    open: BTreeSet<u64>,
}

impl Index {
    /// A number that no change had.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// The greatest number of all.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.changes.contains_key(&number)
    }

    /// Changes that are not done.
    pub(super) fn count(&self) -> usize {
        self.changes.len()
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of all records that count.
    pub(super) fn live(&self) -> u64 {
        let batches = self.batches.values();
        self.bytes + batches.map(|batch| batch.place.length).sum::<u64>()
    }

    /// A change was recorded. Returns false if there is one of its number.
    pub(super) fn made(&mut self, number: u64, place: Place) -> bool {
        if self.has(number) {
            return false;
        }
        self.changes.insert(number, place);
        self.bytes += place.length;
        self.last = self.last.max(number);
        true
    }

    /// A batch was recorded.
    pub(super) fn sent(&mut self, batch: &SentBatch, place: Place) {
        // Those that are done as well: no other change may have their numbers.
        self.last = batch.numbers.iter().copied().fold(self.last, u64::max);
        let open = batch.numbers.iter().copied();
        let open: BTreeSet<_> = open.filter(|number| self.has(*number)).collect();
        let volume = volume_of(batch);
        if open.is_empty() {
            self.batches.remove(&volume);
        } else {
            self.batches.insert(volume, Batch { place, open });
        }
    }

    /// Changes are done.
    pub(super) fn done(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.last = self.last.max(*number);
            if let Some(place) = self.changes.remove(number) {
                self.bytes -= place.length;
            }
        }
        self.batches.retain(|_, batch| {
            for number in numbers {
                batch.open.remove(number);
            }
            !batch.open.is_empty()
        });
    }

    /// All are done.
    pub(super) fn clear(&mut self) {
        *self = Self {
            last: self.last,
            ..Self::default()
        };
    }

    /// All places, in an order in which the records mean the same: changes as they were made, then batches.
    pub(super) fn places(&mut self) -> Vec<&mut Place> {
        let mut places: Vec<_> = self.changes.values_mut().collect();
        places.sort_unstable();
        places.extend(self.batches.values_mut().map(|batch| &mut batch.place));
        places
    }
}

fn volume_of(batch: &SentBatch) -> Volume {
    (batch.cell.clone(), batch.volume)
}

/// What an earlier process has left.
#[derive(Debug, Default)]
pub(crate) struct LeftChanges {
    /// Its changes in the order of their numbers, without those that are done.
    pub(crate) changes: Vec<Made>,
    /// The last batch of each volume, if a change of it is not done.
    pub(crate) batches: Vec<SentBatch>,
}

/// What is read of a journal.
#[derive(Debug, Default)]
pub(super) struct Reading {
    index: Index,
    changes: BTreeMap<u64, Made>,
    batches: BTreeMap<Volume, SentBatch>,
}

impl Reading {
    /// Takes a record. Returns false if it cannot follow those before it.
    pub(super) fn add(&mut self, record: Record, place: Place) -> bool {
        match record {
            Record::Made(made) => {
                if !self.index.made(made.number, place) {
                    return false;
                }
                self.changes.insert(made.number, made);
            }
            Record::Sent(batch) => {
                self.index.sent(&batch, place);
                self.batches.insert(volume_of(&batch), batch);
            }
            Record::Done(numbers) => {
                self.index.done(&numbers);
                for number in &numbers {
                    self.changes.remove(number);
                }
            }
        }
        true
    }

    /// What counts of all, and where it is.
    pub(super) fn finish(mut self) -> (Index, LeftChanges) {
        self.batches
            .retain(|volume, _| self.index.batches.contains_key(volume));
        let left = LeftChanges {
            changes: self.changes.into_values().collect(),
            batches: self.batches.into_values().collect(),
        };
        (self.index, left)
    }
}
