//! Access control lists in the binary form that directory vnodes and dumps have.

use crate::{Acl, AclError, PtsId, Rights};

/// Rights in a directory, by protection ids, as a directory's vnode keeps them and a dump
/// carries them: five words (size, version, total, positive and negative entries) and room for 20
/// entries of two words, all big-endian. Negative entries stand in reverse behind the positive
/// ones.
///
/// Entries are in the order of their ids, as evaluation by OpenAFS needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AclRecord {
    positive: Vec<AclRecordEntry>,
    negative: Vec<AclRecordEntry>,
}

/// A user or group and its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclRecordEntry {
    /// The user or group.
    pub id: PtsId,
    /// The rights given, or taken away.
    pub rights: Rights,
}

const VERSION: u32 = 1;
const HEADER: usize = 20;
const ENTRY: usize = 8;

impl AclRecord {
    /// Bytes of the binary form.
    pub const SIZE: usize = 192;

    /// Takes entries in any order.
    ///
    /// # Errors
    /// When there are more than a directory has room for.
    pub fn new(
        mut positive: Vec<AclRecordEntry>,
        mut negative: Vec<AclRecordEntry>,
    ) -> Result<Self, AclError> {
        let total = positive.len() + negative.len();
        if total > Acl::MAX_ENTRIES {
            return Err(AclError::TooManyEntries(total));
        }
        positive.sort_by_key(|entry| entry.id);
        negative.sort_by_key(|entry| entry.id);
        Ok(Self { positive, negative })
    }

    /// Rights given, in the order of the ids.
    #[must_use]
    pub fn positive(&self) -> &[AclRecordEntry] {
        &self.positive
    }

    /// Rights taken away, in the order of the ids.
    #[must_use]
    pub fn negative(&self) -> &[AclRecordEntry] {
        &self.negative
    }

    /// Reads the binary form. As with OpenAFS, the version and what follows the last entry may be
    /// anything and the size may be more than needed; entries not in order are put in order.
    ///
    /// # Errors
    /// When the counts or the size cannot be.
    // spec: volumes#access-lists-of-directories
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Result<Self, AclError> {
        let words = bytes.as_chunks().0;
        let word = |at: usize| words.get(at).map_or(0, |word| u32::from_be_bytes(*word));
        let (size, total, positive, negative) = (word(0), word(2), word(3), word(4));
        let sum = positive.checked_add(negative);
        let count = usize::try_from(total).unwrap_or(usize::MAX);
        if sum != Some(total) || count > Acl::MAX_ENTRIES {
            return Err(AclError::Counts {
                total,
                positive,
                negative,
            });
        }
        let room = usize::try_from(size).unwrap_or(usize::MAX);
        if !(HEADER + count * ENTRY..=Self::SIZE).contains(&room) {
            return Err(AclError::Size { size, total });
        }
        let mut entries = words[HEADER / 4..][..2 * count]
            .chunks_exact(2)
            .map(|pair| AclRecordEntry {
                id: PtsId(i32::from_be_bytes(pair[0])),
                rights: Rights(u32::from_be_bytes(pair[1])),
            });
        let positive = usize::try_from(positive).unwrap_or(usize::MAX);
        let first = entries.by_ref().take(positive).collect();
        Self::new(first, entries.rev().collect())
    }

    /// Writes the binary form, zero behind the last entry.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let (positive, negative) = (self.positive.len(), self.negative.len());
        let total = positive + negative;
        let number = |number| u32::try_from(number).expect("20 entries fit, which new checks");
        let header = [
            number(HEADER + total * ENTRY),
            VERSION,
            number(total),
            number(positive),
            number(negative),
        ];
        let entries = self.positive.iter().chain(self.negative.iter().rev());
        let entries = entries.flat_map(|entry| [entry.id.0.cast_unsigned(), entry.rights.0]);
        let places = bytes.as_chunks_mut().0;
        for (place, word) in places.iter_mut().zip(header.into_iter().chain(entries)) {
            *place = word.to_be_bytes();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(id: i32, rights: u32) -> AclRecordEntry {
        AclRecordEntry {
            id: PtsId(id),
            rights: Rights(rights),
        }
    }

    fn bytes(words: &[i32]) -> [u8; AclRecord::SIZE] {
        let mut bytes = [0; AclRecord::SIZE];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn entries_stand_where_openafs_has_them() {
        let record = AclRecord::new(
            vec![entry(1001, 127), entry(-204, 127), entry(-101, 9)],
            vec![entry(-300, 2), entry(1002, 16)],
        )
        .unwrap();
        let expected = bytes(&[
            60, 1, 5, 3, 2, -204, 127, -101, 9, 1001, 127, 1002, 16, -300, 2,
        ]);
        assert_eq!(record.to_bytes(), expected);
        assert_eq!(AclRecord::from_bytes(&expected), Ok(record));
    }

    #[test]
    fn what_openafs_tolerates_is_read() {
        // Another version, a size with room to spare, no order, rubbish behind the entries.
        let loose = bytes(&[192, 7, 3, 2, 1, 5, 1, -5, 2, 9, 4, 77, 78]);
        let record = AclRecord::from_bytes(&loose).unwrap();
        assert_eq!(record.positive(), [entry(-5, 2), entry(5, 1)]);
        assert_eq!(record.negative(), [entry(9, 4)]);
        assert_eq!(
            record.to_bytes(),
            bytes(&[44, 1, 3, 2, 1, -5, 2, 5, 1, 9, 4])
        );
        let none = AclRecord::from_bytes(&bytes(&[20, 1, 0, 0, 0]));
        assert_eq!(none, Ok(AclRecord::default()));
    }

    #[test]
    fn counts_and_sizes_that_cannot_be() {
        for words in [
            [188, 1, 21, 21, 0],
            [28, 1, 2, 1, 0],
            [28, 1, 0, 1, -1],
            [28, 1, -1, 0, -1],
            [192, 1, i32::MAX, i32::MAX, 0],
        ] {
            let error = AclRecord::from_bytes(&bytes(&words)).unwrap_err();
            assert!(matches!(error, AclError::Counts { .. }), "{words:?}");
        }
        for words in [
            [0, 0, 0, 0, 0],
            [27, 1, 1, 1, 0],
            [193, 1, 1, 1, 0],
            [-1, 1, 1, 1, 0],
        ] {
            let error = AclRecord::from_bytes(&bytes(&words)).unwrap_err();
            assert!(matches!(error, AclError::Size { .. }), "{words:?}");
        }
        let many = vec![entry(1, 1); 11];
        assert_eq!(
            AclRecord::new(many.clone(), many),
            Err(AclError::TooManyEntries(22))
        );
    }

    fn entries(most: usize) -> impl Strategy<Value = Vec<AclRecordEntry>> {
        let one = (-400..400i32, any::<u32>()).prop_map(|(id, rights)| entry(id, rights));
        prop::collection::vec(one, 0..=most)
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(positive in entries(12), negative in entries(8)) {
            let record = AclRecord::new(positive, negative).unwrap();
            let bytes = record.to_bytes();
            prop_assert_eq!(AclRecord::from_bytes(&bytes), Ok(record.clone()));
            let words: Vec<_> = bytes.as_chunks().0.iter().map(|word| i32::from_be_bytes(*word)).collect();
            let ids: Vec<_> = words[5..].iter().copied().step_by(2).collect();
            prop_assert!(ids[..record.positive().len()].is_sorted());
            prop_assert!(ids[record.positive().len()..][..record.negative().len()].iter().rev().is_sorted());
            prop_assert_eq!(words[0], 20 + 8 * words[2]);
        }

        #[test]
        fn arbitrary_records_never_panic(
            size in 0..200i32,
            counts in prop::array::uniform3(-1..22i32),
            rest in prop::collection::vec(any::<i32>(), 43),
        ) {
            let words = [&[size, 1][..], &counts, &rest].concat();
            if let Ok(record) = AclRecord::from_bytes(&bytes(&words)) {
                prop_assert_eq!(record.positive().len(), usize::try_from(counts[1]).unwrap());
                prop_assert_eq!(record.negative().len(), usize::try_from(counts[2]).unwrap());
                prop_assert_eq!(AclRecord::from_bytes(&record.to_bytes()), Ok(record));
            }
        }
    }
}
