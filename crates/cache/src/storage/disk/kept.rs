//! The record of what was written to a file and is not on a server yet.

use afar_types::{CellName, DataVersion, Fid, UnixTime};
use xxhash_rust::xxh3::xxh3_64;

use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;
use crate::storage::Kept;

/// What such a record begins with: a name, and the version of its form.
const MAGIC: &[u8; 12] = b"AFARKEPT\0\0\0\x02";
/// Bytes of one that are always there, but for the name of the cell and the checksum.
const FIXED: usize = 12 + 12 + 3 * 8 + 3 * 4 + 1 + 1 + 4;

pub(super) fn encode(key: &FileKey, kept: &Kept) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED + 300);
    bytes.extend(MAGIC);
    bytes.extend(key.fid.volume.0.to_be_bytes());
    bytes.extend(key.fid.vnode.0.to_be_bytes());
    bytes.extend(key.fid.uniquifier.0.to_be_bytes());
    bytes.extend(kept.base.0.to_be_bytes());
    bytes.extend(kept.length.to_be_bytes());
    bytes.extend(kept.limit.to_be_bytes());
    bytes.extend(kept.mtime.0.to_be_bytes());
    bytes.extend(kept.tried.0.to_be_bytes());
    bytes.extend(kept.writer.to_be_bytes());
    bytes.push(u8::from(kept.resized));
    let cell = key.cell.as_str().as_bytes();
    // A cell's name has at most 255 bytes.
    bytes.push(u8::try_from(cell.len()).unwrap_or(u8::MAX));
    bytes.extend(cell);
    let ranges: Vec<_> = kept.ranges.iter().collect();
    bytes.extend(
        u32::try_from(ranges.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    for range in ranges {
        bytes.extend(range.start.to_be_bytes());
        bytes.extend(range.end.to_be_bytes());
    }
    bytes.extend(xxh3_64(&bytes).to_be_bytes());
    bytes
}

/// Nothing if it is damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<(FileKey, Kept)> {
    let (rest, sum) = bytes.split_last_chunk::<8>()?;
    // The sum first: of a torn record nothing is believed.
    if u64::from_be_bytes(*sum) != xxh3_64(rest) {
        return None;
    }
    let mut rest = rest.strip_prefix(MAGIC)?;
    let fid = Fid::new(word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
    let base = DataVersion(long(&mut rest)?);
    let (length, limit) = (long(&mut rest)?, long(&mut rest)?);
    let (mtime, tried) = (UnixTime(word(&mut rest)?), UnixTime(word(&mut rest)?));
    let writer = word(&mut rest)?;
    let (resized, after) = rest.split_first()?;
    let (cell_length, after) = after.split_first()?;
    let (cell, after) = after.split_at_checked(usize::from(*cell_length))?;
    rest = after;
    let cell: CellName = std::str::from_utf8(cell).ok()?.parse().ok()?;
    let count = word(&mut rest)? as usize;
    if rest.len() != count.checked_mul(16)? {
        return None;
    }
    let mut ranges = RangeSet::default();
    for _ in 0..count {
        let (start, end) = (long(&mut rest)?, long(&mut rest)?);
        ranges.insert(start..end);
    }
    let kept = Kept {
        base,
        ranges,
        length,
        limit,
        resized: *resized != 0,
        mtime,
        tried,
        writer,
    };
    Some((FileKey { fid, cell }, kept))
}

fn word(rest: &mut &[u8]) -> Option<u32> {
    let (word, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*word))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    let (long, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_be_bytes(*long))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_back_and_damaged_ones_do_not(
            fid in any::<[u32; 3]>(),
            numbers in any::<[u64; 3]>(),
            parts in prop::collection::vec((0_u64..1000, 1_u64..50), 0..20),
            resized in any::<bool>(),
            place in any::<prop::sample::Index>(),
        ) {
            let key = FileKey {
                fid: Fid::new(fid[0], fid[1], fid[2]),
                cell: "a.example".parse().unwrap(),
            };
            let mut ranges = RangeSet::default();
            for (start, length) in parts {
                ranges.insert(start..start + length);
            }
            let kept = Kept {
                base: DataVersion(numbers[0]),
                ranges,
                length: numbers[1],
                limit: numbers[2],
                resized,
                mtime: UnixTime(fid[0]),
                tried: UnixTime(fid[1]),
                writer: fid[2],
            };
            let mut bytes = encode(&key, &kept);
            prop_assert_eq!(decode(&bytes), Some((key, kept)));
            let place = place.index(bytes.len());
            prop_assert_eq!(decode(&bytes[..place]), None);
            bytes[place] ^= 4;
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn no_octets_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut sealed = MAGIC.to_vec();
            sealed.extend(bytes);
            sealed.extend(xxh3_64(&sealed).to_be_bytes());
            // Whatever comes out, nothing broke.
            let _read = decode(&sealed);
        }
    }
}
