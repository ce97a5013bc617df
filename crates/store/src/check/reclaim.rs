//! Giving back octets of segments that nothing refers to.
//!
//! They come from writes that were never committed: the process or the machine went down in
//! between, or even noting that they are dead failed. In a segment that is not written to any
//! more, all of whose records are committed, nothing can come to refer to them, so they may be
//! handed to the reaper however long ago they were found. Only another check can have done so
//! meanwhile.

use super::space::Stretch;
use crate::error::Result;
use crate::meta::{Change, Rows, Table, dead_key, split_dead_key};
use crate::partition::Partition;

/// Stretches in one operation.
const BATCH: usize = 1_000;

/// Makes lost octets dead. Returns how many.
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
    for table in [Table::Dead, Table::Free] {
        if !inside || is_covered(change, table, *segment, range.start, range.end)? {
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

/// Whether a stretch of a table lies in a range.
fn is_covered(
    change: &Change<'_>,
    table: Table,
    segment: u32,
    start: u64,
    end: u64,
) -> Result<bool> {
    let end = dead_key(segment, u32::try_from(end).unwrap_or(u32::MAX));
    let first = dead_key(segment, 0);
    let Some((key, value)) = change.last_between(table, &first, &end)? else {
        return Ok(false);
    };
    let (Some((_, offset)), Ok(len)) = (split_dead_key(key), value.try_into()) else {
        return Err(change.env().corrupt(format!("a row of {table:?}")));
    };
    let last = u64::from(offset) + u64::from(u32::from_be_bytes(len));
    Ok(last > start)
}
