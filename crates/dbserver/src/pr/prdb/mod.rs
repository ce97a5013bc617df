//! OpenAFS's file of the protection database, `prdb.DB0`: read to take a cell over, written to
//! give it back.
//!
//! The file has ubik's header of 64 bytes, then the database, in which places are counted from
//! after ubik's header: a header with two hash tables, then blocks of 192 bytes. A block is an
//! entry, the continuation of a list, or free. All numbers are big-endian words (OpenAFS
//! src/ptserver/ptserver.h). Supergroups are read and written as a ptserver built with them has
//! them.

mod decode;
mod encode;
mod transfer;

use afar_types::PtsId;

use super::{Entry, Header};

/// Bytes of ubik's header.
const UBIK_LEN: usize = 64;
/// What ubik's header begins with.
const UBIK_MAGIC: u32 = 0x0035_4545;
/// Version of the database.
const VERSION: u32 = 0;
/// Buckets of each hash table.
const BUCKETS: usize = 8191;
/// Words of the header before its hash tables.
const HEADER_WORDS: usize = 18;
/// Bytes of the header.
const HEADER_LEN: usize = 4 * (HEADER_WORDS + 2 * BUCKETS);
/// Bytes of a block.
const BLOCK_LEN: usize = 192;
/// Ids in the list of an entry.
const ENTRY_IDS: usize = 10;
/// Ids in a block that continues a list.
const CONTINUATION_IDS: usize = 39;
/// Groups a group is in, in its entry.
const SUPERGROUP_IDS: usize = 2;
/// What marks a place in a list from which an id was removed.
const REMOVED: i32 = i32::MIN;

/// Type bit of a free block.
const FREE: u32 = 1;
/// Type bit of a block that continues a list.
const CONTINUATION: u32 = 4;

/// Where a word of a block is, as its number.
mod word {
    pub(super) const FLAGS: usize = 0;
    pub(super) const ID: usize = 1;
    pub(super) const CELL_GROUP: usize = 2;
    pub(super) const NEXT: usize = 3;
    pub(super) const CREATED: usize = 4;
    pub(super) const ADDED: usize = 5;
    pub(super) const REMOVED: usize = 6;
    pub(super) const CHANGED: usize = 7;
    pub(super) const IDS: usize = 9;
    pub(super) const NEXT_ID: usize = 19;
    pub(super) const NEXT_NAME: usize = 20;
    pub(super) const OWNER: usize = 21;
    pub(super) const CREATOR: usize = 22;
    pub(super) const N_GROUPS: usize = 23;
    pub(super) const N_USERS: usize = 24;
    pub(super) const COUNT: usize = 25;
    pub(super) const SUPERGROUP_COUNT: usize = 26;
    pub(super) const OWNED: usize = 27;
    pub(super) const NEXT_OWNED: usize = 28;
    pub(super) const NEXT_SUPERGROUPS: usize = 29;
    pub(super) const SUPERGROUPS: usize = 30;
    pub(super) const NAME: usize = 32;
}

/// A protection database as a whole, such as the file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prdb {
    /// What it says of itself as a whole.
    pub header: Header,
    /// Users and groups, in the order of their places.
    pub entries: Vec<PrdbEntry>,
}

/// A user or group of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrdbEntry {
    /// What it is.
    pub entry: Entry,
    /// Members of a group, or groups of a user; no order.
    pub elements: Vec<PtsId>,
}

/// Why a file cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrdbError {
    /// It is not a protection database of the only version there is.
    #[error("not a prdb.DB0 of OpenAFS: {0}")]
    NotPrdb(&'static str),
    /// A block contradicts what it must be.
    #[error("the block at {position} {what}")]
    Block {
        /// Where it is, from after ubik's header.
        position: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// An entry contradicts another.
    #[error("the entry with id {id} {what}")]
    Entry {
        /// Its id.
        id: i32,
        /// What is wrong.
        what: &'static str,
    },
    /// A membership is in one of its two lists only.
    #[error("{member} is in {group} by one of their lists only; prdb_check tells more")]
    OneSided {
        /// The member.
        member: i32,
        /// The group.
        group: i32,
    },
    /// More entries than places can be told in the file.
    #[error("too many entries for a prdb.DB0")]
    TooLarge,
}

/// Place of an entry in the file, as clients of a ptserver see it.
pub(super) fn position(slot: u32) -> Option<i32> {
    let blocks = usize::try_from(slot).ok()?.checked_mul(BLOCK_LEN)?;
    i32::try_from(blocks.checked_add(HEADER_LEN)?).ok()
}

/// The entry's number, for a place of the file where one can be.
pub(super) fn slot(position: i32) -> Option<u32> {
    let blocks = usize::try_from(position).ok()?.checked_sub(HEADER_LEN)?;
    if blocks % BLOCK_LEN != 0 {
        return None;
    }
    u32::try_from(blocks / BLOCK_LEN).ok()
}

#[cfg(test)]
mod tests;
