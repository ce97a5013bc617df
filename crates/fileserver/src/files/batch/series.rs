//! What is remembered of batches: of each series the number of the last one and what came of it, in the volume, durable
//! with its changes.
// spec: batches#once

use std::collections::BTreeMap;
use std::time::SystemTime;

use afar_store::{Sequence, StoreError};
use afar_types::{BatchResult, BatchResults, PtsId, UnixTime};
use afar_xdr::{Decode, Encode, from_bytes, to_bytes};

/// The most series of one user that are remembered of a volume.
const OF_ONE: usize = 16;
/// The same of all users.
const OF_ALL: usize = 256;

/// The last batch of a series.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct Last {
    /// Whose series it is.
    person: PtsId,
    /// When it was used.
    used: UnixTime,
    pub(super) number: u64,
    /// Of the operations, so that others are not taken for them.
    pub(super) digest: u64,
    pub(super) results: BatchResults,
}

/// What is remembered of a series, if it is this user's.
pub(super) fn last(
    sequence: &Sequence<'_, '_>,
    series: [u8; 16],
    person: PtsId,
) -> Result<Option<Last>, StoreError> {
    let note = sequence.note(series)?;
    let last = note.and_then(|note| from_bytes::<Last>(&note).ok());
    Ok(last.filter(|last| last.person == person))
}

/// Remembers a batch, in the place of the one before.
pub(super) fn put(
    sequence: &mut Sequence<'_, '_>,
    series: [u8; 16],
    person: PtsId,
    (number, digest): (u64, u64),
    results: &[BatchResult],
) -> Result<(), StoreError> {
    let last = Last {
        person,
        used: UnixTime::from(SystemTime::now()),
        number,
        digest,
        // There are no more than operations.
        results: BatchResults::new(results).unwrap_or_default(),
    };
    sequence.put_note(series, Some(to_bytes(&last).to_vec()))
}

/// Begins a series, and forgets the one that was not used for longest if there are too many: of the same user, or of the
/// one who has most. A series that is known stays as it is, lest a number that comes late has batches run twice. Returns
/// whether it is this user's.
pub(super) fn open(
    sequence: &mut Sequence<'_, '_>,
    series: [u8; 16],
    person: PtsId,
) -> Result<bool, StoreError> {
    let mut all = 0;
    let mut by_person: BTreeMap<PtsId, Vec<(UnixTime, [u8; 16])>> = BTreeMap::new();
    for (name, note) in sequence.notes()? {
        match from_bytes::<Last>(&note) {
            Ok(last) if name == series => return Ok(last.person == person),
            Ok(last) => {
                all += 1;
                let own = by_person.entry(last.person).or_default();
                own.push((last.used, name));
            }
            Err(_) => sequence.put_note(name, None)?,
        }
    }
    let own = by_person.get(&person).map_or(0, Vec::len);
    let crowd = match own >= OF_ONE {
        true => by_person.get(&person),
        false if all >= OF_ALL => by_person.values().max_by_key(|own| own.len()),
        false => None,
    };
    if let Some((_, oldest)) = crowd.and_then(|crowd| crowd.iter().min()) {
        sequence.put_note(*oldest, None)?;
    }
    put(sequence, series, person, (0, 0), &[])?;
    Ok(true)
}
