//! Metadata: the rows of a partition, in one LMDB environment, and what is newer in memory and a log.
//!
//! Only this module knows the database. A row's value ends in a checksum over its key and itself,
//! so that a row that rotted or landed in a wrong place is told from a good one.

mod base;
mod change;
mod env;
mod hold;
mod image;
mod key;
mod log;
mod memtable;
mod record;
mod rows;
#[cfg(test)]
mod tests;
mod versions;

pub(crate) use base::Base;
pub(crate) use change::{Change, FIRST_GENERATION, Kept, WrittenRow};
pub(crate) use env::{Batch, Env, Pin, Table, View};
pub(crate) use hold::Hold;
pub(crate) use image::{Image, PageImage};
pub(crate) use key::{
    At, DoomedKey, Item, Kind, NoteName, change_key, change_start, dead_key, member_key, row_key,
    split_change_key, split_dead_key, split_member_key, split_row_key, tree_range,
};
pub(crate) use log::{Log, Position, RECORD as LOGGED_RECORD, Replay, rows as logged_rows};
pub(crate) use record::{INLINE_MAX, NewRecord, Record};
pub(crate) use rows::{MemberState, SegmentRow, VnodeRow, VolumeInfo, VolumeRow, blocks};
pub(crate) use versions::{Changes, Pair, Rows, Scan};
