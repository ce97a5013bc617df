//! A set of sequence numbers kept as ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent ranges `start..end`.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: BTreeMap<u32, u32>,
}

impl RangeSet {
    /// Adds one number; false if it was there.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let below = self
            .ranges
            .range(..=number)
            .next_back()
            .map(|(start, end)| (*start, *end));
        if below.is_some_and(|(_, end)| end > number) {
            return false;
        }
        let start = match below {
            Some((start, end)) if end == number => start,
            _ => number,
        };
        let end = self.ranges.remove(&(number + 1)).unwrap_or(number + 1);
        self.ranges.insert(start, end);
        true
    }

    /// Adds `start..end` and calls `new` with each sub-range that was not there.
    pub(crate) fn insert_range(&mut self, start: u32, end: u32, mut new: impl FnMut(u32, u32)) {
        let (mut merged_start, mut merged_end) = (start, end);
        let mut at = start;
        if let Some((&below_start, &below_end)) = self.ranges.range(..start).next_back()
            && below_end >= start
        {
            if below_end >= end {
                return;
            }
            merged_start = below_start;
            at = below_end;
        }
        // What lies in between is swallowed; the common case is one range or none.
        while at <= end
            && let Some((&inner_start, &inner_end)) = self.ranges.range(at..=end).next()
        {
            if inner_start > at {
                new(at, inner_start.min(end));
            }
            self.ranges.remove(&inner_start);
            at = inner_end;
            merged_end = merged_end.max(inner_end);
        }
        if at < end {
            new(at, end);
        }
        self.ranges.insert(merged_start, merged_end);
    }

    /// Forgets everything below `number`.
    pub(crate) fn remove_below(&mut self, number: u32) {
        while let Some(entry) = self.ranges.first_entry() {
            let (start, end) = (*entry.key(), *entry.get());
            if start >= number {
                break;
            }
            entry.remove();
            if end > number {
                self.ranges.insert(number, end);
                break;
            }
        }
    }

    /// Takes one number out again.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some((&start, &end)) = self.ranges.range(..=number).next_back() else {
            return;
        };
        if end <= number {
            return;
        }
        self.ranges.remove(&start);
        if start < number {
            self.ranges.insert(start, number);
        }
        if number + 1 < end {
            self.ranges.insert(number + 1, end);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the highest range holds one number only.
    pub(crate) fn ends_in_single(&self) -> bool {
        self.ranges
            .last_key_value()
            .is_some_and(|(start, end)| start + 1 == *end)
    }

    /// The ranges from the highest down.
    pub(crate) fn descending(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().rev().map(|(start, end)| (*start, *end))
    }

    /// The ranges from the lowest up.
    pub(crate) fn ascending(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Random operations against a plain set of numbers.
    #[test]
    fn agrees_with_a_set() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let (mut ranges, mut model) = (RangeSet::default(), BTreeSet::new());
            for _ in 0..60 {
                let (a, b) = (random.u32(1..80), random.u32(1..80));
                match random.u8(0..4) {
                    0 => assert_eq!(ranges.insert(a), model.insert(a)),
                    1 if a < b => {
                        let mut new = Vec::new();
                        ranges.insert_range(a, b, |start, end| new.extend(start..end));
                        let expected: Vec<u32> = (a..b).filter(|n| model.insert(*n)).collect();
                        assert_eq!(new, expected);
                    }
                    2 => {
                        ranges.remove(a);
                        model.remove(&a);
                    }
                    _ if a < 20 => {
                        ranges.remove_below(a);
                        model.retain(|n| *n >= a);
                    }
                    _ => {}
                }
                let flat: Vec<u32> = ranges.ascending().flat_map(|(s, e)| s..e).collect();
                assert_eq!(flat, model.iter().copied().collect::<Vec<_>>());
                let list: Vec<_> = ranges.ascending().collect();
                assert!(
                    list.windows(2).all(|pair| pair[0].1 < pair[1].0),
                    "{list:?} not merged"
                );
            }
        }
    }
}
