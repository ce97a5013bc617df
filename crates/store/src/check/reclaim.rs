//! Giving back bytes of segments that nothing refers to.
//!
//! They come from writes that were never committed: the process or the machine went down in
//! between, or even noting that they are dead failed. In a segment that is not written to any
//! more, all of whose records are committed, nothing can come to refer to them, so they may be
//! handed to the reaper however long ago they were found. Only another check can have done so
//! meanwhile.

use super::space::Stretch;
use crate::error::Result;
use crate::meta::{Change, Rows, Table, dead_key};
use crate::partition::{Partition, stretch_before};

/// Stretches in one operation.
const BATCH: usize = 1_000;

/// Makes lost bytes dead. Returns how many.
pub(super) fn give_up(partition: &Partition, lost: &[Stretch]) -> Result<u64> {
    let mut given = 0;
    for batch in lost.chunks(BATCH) {
        let batch = batch.to_vec();
        given += partition.commit(move |change| {
            let mut given = 0;
            for stretch in batch {
                given += bury(change, &stretch)?;
            }
            Ok(given)
        })?;
    }
    if given > 0 {
        partition.reap();
    }
    Ok(given)
}

fn bury(change: &mut Change<'_>, (segment, range): &Stretch) -> Result<u64> {
    let inside = range.end <= u64::from(change.segment(*segment)?.end);
    let (Ok(start), Ok(len)) = (
        u32::try_from(range.start),
        u32::try_from(range.end - range.start),
    ) else {
        return Ok(0);
    };
    if !inside {
        return Ok(0);
    }
    for table in [Table::Dead, Table::Free] {
        let last = stretch_before(change, table, *segment, range.end)?;
        if last.is_some_and(|last| last.end > range.start) {
            return Ok(0);
        }
    }
    change.put(
        Table::Dead,
        &dead_key(*segment, start),
        len.to_be_bytes().to_vec(),
    );
    Ok(u64::from(len))
}
