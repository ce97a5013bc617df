//! Sets of bytes of a file.

use std::ops::Range;

/// Bytes of a file, kept as ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(rangemap::RangeSet<u64>);

impl RangeSet {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Behind the last one; 0 if there are none.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// The ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// The parts of these bytes that are in the set, in order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let Range { start, end } = range.clone();
        self.0.overlapping(range).filter_map(move |found| {
            let part = found.start.max(start)..found.end.min(end);
            (!part.is_empty()).then_some(part)
        })
    }

    /// Where the first so many bytes of the set end, if there are more.
    pub(crate) fn first(&self, bytes: u64) -> Option<u64> {
        let mut left = bytes;
        for range in self.iter() {
            if range.end - range.start > left {
                return Some(range.start + left);
            }
            left -= range.end - range.start;
        }
        None
    }

    /// The parts of these bytes that are not in the set, in order.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.0.gaps(&range).collect()
    }

    /// Adds bytes.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.0.insert(range);
        }
    }

    /// Takes bytes out.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.0.remove(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_what_a_list_of_octets_is(
            changes in prop::collection::vec((any::<bool>(), 0_u64..40, 0_u64..12), 0..40),
            from in 0_u64..40,
            length in 0_u64..40,
        ) {
            let (mut set, mut model) = (RangeSet::default(), [false; 64]);
            for (add, start, length) in changes {
                let range = start..start + length;
                if add { set.insert(range.clone()) } else { set.remove(range.clone()) }
                for place in range {
                    model[usize::try_from(place).unwrap()] = add;
                }
            }
            let all: Vec<u64> = set.iter().flatten().collect();
            let expected: Vec<u64> = (0..64).filter(|place| model[usize::try_from(*place).unwrap()]).collect();
            prop_assert_eq!(&all, &expected);
            prop_assert_eq!(set.bytes(), expected.len() as u64);
            prop_assert_eq!(set.end(), expected.last().map_or(0, |last| last + 1));
            for (one, next) in set.iter().zip(set.iter().skip(1)) {
                prop_assert!(one.end < next.start);
            }
            let asked = from..from + length;
            let inside: Vec<u64> = set.within(asked.clone()).flatten().collect();
            let outside: Vec<u64> = set.gaps(asked.clone()).into_iter().flatten().collect();
            let is = |place: &u64| expected.contains(place);
            prop_assert_eq!(inside, asked.clone().filter(is).collect::<Vec<_>>());
            prop_assert_eq!(outside, asked.filter(|place| !is(place)).collect::<Vec<_>>());
        }
    }
}
