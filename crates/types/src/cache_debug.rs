//! What a cache manager tells of its locks and cached files (AFS-3 AFSDBLock, AFSDBCacheEntry):
//! for those who debug one.

use afar_xdr::{CharArray, Decode, Encode};

use crate::Fid;

/// The state of a lock of a cache manager (8 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DbLockDesc {
    /// The awaited events, in bits.
    pub wait_states: i8,
    /// Whether it is held by a writer.
    pub exclusive_locked: i8,
    /// Readers that hold it.
    pub readers_reading: i16,
    /// Threads that wait for it.
    pub n_waiting: i16,
    /// 0.
    pub spare: i16,
    /// Process of the last reader.
    pub last_reader: i32,
    /// Process of the writer.
    pub writer: i32,
    /// Place in the source where it was taken.
    pub source: i32,
}

/// A lock by its name (24 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DbLock {
    /// The name.
    pub name: CharArray<16>,
    /// Its state.
    pub lock: DbLockDesc,
}

/// A cached file (22 words). A length of 2 GiB and more does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DbCacheEntry {
    /// Where it is in memory.
    pub address: i32,
    /// The number of its cell.
    pub cell: i32,
    /// Its fid.
    pub fid: Fid,
    /// Bytes of data.
    pub length: i32,
    /// Low half of the version of the data.
    pub data_version: i32,
    /// Its lock.
    pub lock: DbLockDesc,
    /// The server that made a promise for it; 0 without.
    pub callback: i32,
    /// When the promise ends.
    pub callback_expires: i32,
    /// Users of the entry.
    pub references: i16,
    /// Times it is open.
    pub opens: i16,
    /// Times it is open for writing.
    pub writers: i16,
    /// 1 a mount point, 2 the root of a volume, else 0.
    pub mount_state: i8,
    /// What is known of it, in bits.
    pub states: u8,
}

/// A cached file of any length (23 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DbCacheEntry64 {
    /// Where it is in memory.
    pub address: i32,
    /// The number of its cell.
    pub cell: i32,
    /// Its fid.
    pub fid: Fid,
    /// Bytes of data.
    pub length: i64,
    /// Low half of the version of the data.
    pub data_version: i32,
    /// Its lock.
    pub lock: DbLockDesc,
    /// The server that made a promise for it; 0 without.
    pub callback: i32,
    /// When the promise ends.
    pub callback_expires: i32,
    /// Users of the entry.
    pub references: i16,
    /// Times it is open.
    pub opens: i16,
    /// Times it is open for writing.
    pub writers: i16,
    /// 1 a mount point, 2 the root of a volume, else 0.
    pub mount_state: i8,
    /// What is known of it, in bits.
    pub states: u8,
}

/// Lengths that do not fit become the greatest that does.
impl From<&DbCacheEntry64> for DbCacheEntry {
    fn from(entry: &DbCacheEntry64) -> Self {
        Self {
            address: entry.address,
            cell: entry.cell,
            fid: entry.fid,
            length: i32::try_from(entry.length).unwrap_or(i32::MAX),
            data_version: entry.data_version,
            lock: entry.lock,
            callback: entry.callback,
            callback_expires: entry.callback_expires,
            references: entry.references,
            opens: entry.opens,
            writers: entry.writers,
            mount_state: entry.mount_state,
            states: entry.states,
        }
    }
}

#[cfg(test)]
mod tests {
    use afar_xdr::{from_bytes, to_bytes};

    use super::*;

    fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    fn lock(first: u8) -> DbLockDesc {
        DbLockDesc {
            wait_states: i8::try_from(first).unwrap(),
            exclusive_locked: i8::try_from(first + 1).unwrap(),
            readers_reading: i16::from(first) + 2,
            n_waiting: i16::from(first) + 3,
            spare: i16::from(first) + 4,
            last_reader: i32::from(first) + 5,
            writer: i32::from(first) + 6,
            source: i32::from(first) + 7,
        }
    }

    #[test]
    fn a_lock_has_a_name_of_16_words_and_8_words() {
        let name = CharArray::new("afs_xvcache").unwrap();
        let named = DbLock {
            name,
            lock: lock(1),
        };
        let letters = "afs_xvcache\0\0\0\0\0".bytes().map(u32::from);
        assert_eq!(to_bytes(&named)[..], words(letters.chain(1..=8)));
        assert_eq!(from_bytes(&to_bytes(&named)), Ok(named));
    }

    #[test]
    fn cached_files_have_22_words_or_one_more_for_the_length() {
        let old: DbCacheEntry = from_bytes(&words(1..=22)).unwrap();
        assert_eq!((old.address, old.cell, old.fid), (1, 2, Fid::new(3, 4, 5)));
        assert_eq!((old.length, old.data_version, old.lock), (6, 7, lock(8)));
        assert_eq!((old.callback, old.callback_expires), (16, 17));
        assert_eq!((old.references, old.opens, old.writers), (18, 19, 20));
        assert_eq!((old.mount_state, old.states), (21, 22));
        assert_eq!(to_bytes(&old)[..], words(1..=22));

        let new: DbCacheEntry64 = from_bytes(&words(1..=23)).unwrap();
        assert_eq!(
            (new.length, new.data_version, new.lock),
            (6 << 32 | 7, 8, lock(9))
        );
        assert_eq!((new.mount_state, new.states), (22, 23));
        assert_eq!(to_bytes(&new)[..], words(1..=23));
        assert_eq!(DbCacheEntry::from(&new).length, i32::MAX);
    }
}
