//! Which bytes of a file are there.

use std::ops::Range;

use rangemap::RangeSet;

/// Ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extents(RangeSet<u64>);

impl Extents {
    /// Those of a list, unless they are none of a file of this length.
    pub(crate) fn from_list(list: &[(u64, u64)], length: u64) -> Option<Self> {
        let mut extents = Self::default();
        for &(begin, end) in list {
            if begin >= end || end > length {
                return None;
            }
            extents.insert(begin..end);
        }
        Some(extents)
    }

    /// The first so many of them, each as its begin and end.
    pub(crate) fn list(&self, most: usize) -> Vec<(u64, u64)> {
        let ranges = self.0.iter().take(most);
        ranges.map(|range| (range.start, range.end)).collect()
    }

    /// These bytes are there too.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.0.insert(range);
        }
    }

    /// How many bytes are there.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// What is missing of a file of this length.
    pub(crate) fn gaps(&self, length: u64) -> Vec<Range<u64>> {
        self.0.gaps(&(0..length)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extents_are_the_octets_inserted(
            ranges in proptest::collection::vec((0..60_u64, 0..20_u64), 0..12)
        ) {
            let mut extents = Extents::default();
            let mut octets = [false; 80];
            for (begin, length) in ranges {
                extents.insert(begin..begin + length);
                for at in begin..begin + length {
                    octets[usize::try_from(at).unwrap()] = true;
                }
            }
            let there = octets.iter().filter(|&&there| there).count();
            prop_assert_eq!(extents.total(), u64::try_from(there).unwrap());
            let mut missing = [false; 80];
            for gap in extents.gaps(80) {
                for at in gap {
                    missing[usize::try_from(at).unwrap()] = true;
                }
            }
            prop_assert!(octets.iter().zip(missing).all(|(&there, missing)| there != missing));
            let list = extents.list(100);
            prop_assert!(list.windows(2).all(|two| two[0].1 < two[1].0));
            prop_assert_eq!(Extents::from_list(&list, 80), Some(extents));
        }
    }

    #[test]
    fn lists_of_another_file_are_refused() {
        for list in [[(0, 11)], [(3, 3)], [(4, 3)]] {
            assert_eq!(Extents::from_list(&list, 10), None);
        }
    }
}
