//! Which keys are busy among more than there is memory for: the algorithm Space-Saving (Metwally,
//! Agrawal, El Abbadi, 2005).
//!
//! A fixed number of keys have a count. A key that has none takes the place of the least one, and goes on
//! from its count, of which the sketch remembers that it may be wrong by so much. So no count is too
//! low, and count less error is certain. A stream of keys that are seen once changes places at the
//! lower end only, and has nothing that is certain.

use std::hash::Hash;

/// What a key is looked up by: the key itself, or something that costs less to make.
pub trait Lookup<K>: Hash {
    /// Whether it stands for this key. Both have the same hash then.
    fn is(&self, key: &K) -> bool;

    /// The key it stands for.
    fn to_key(&self) -> K;
}

impl<K: Hash + Eq + Clone> Lookup<K> for K {
    fn is(&self, key: &K) -> bool {
        self == key
    }

    fn to_key(&self) -> K {
        self.clone()
    }
}

/// A key with its count.
#[derive(Debug, Clone)]
struct Slot<K> {
    key: K,
    count: u64,
    /// How much of the count may be of other keys.
    error: u64,
}

/// Counts of keys, at most so many.
#[derive(Debug)]
pub(crate) struct Sketch<K> {
    slots: Vec<Slot<K>>,
    most: usize,
}

impl<K> Sketch<K> {
    /// With room for so many keys, one at least.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            slots: Vec::new(),
            most: most.max(1),
        }
    }

    /// Counts a key; returns how much of its count is certain.
    pub(crate) fn count(&mut self, key: &impl Lookup<K>, by: u64) -> u64 {
        if let Some(slot) = self.slots.iter_mut().find(|slot| key.is(&slot.key)) {
            slot.count = slot.count.saturating_add(by);
            return slot.count - slot.error;
        }
        self.insert(key.to_key(), by);
        by
    }

    /// Enters a key that is not here with a count that is certain.
    pub(crate) fn insert(&mut self, key: K, by: u64) {
        if self.slots.len() < self.most {
            self.slots.push(Slot {
                key,
                count: by,
                error: 0,
            });
            return;
        }
        if let Some(least) = self.slots.iter_mut().min_by_key(|slot| slot.count) {
            *least = Slot {
                key,
                count: least.count.saturating_add(by),
                error: least.count,
            };
        }
    }

    /// Takes a key out.
    pub(crate) fn remove(&mut self, key: &impl Lookup<K>) {
        if let Some(at) = self.slots.iter().position(|slot| key.is(&slot.key)) {
            self.slots.swap_remove(at);
        }
    }

    /// Halves all counts, so that what is busy now counts more than what was.
    pub(crate) fn age(&mut self) {
        for slot in &mut self.slots {
            slot.count /= 2;
            slot.error /= 2;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots = Vec::new();
    }

    /// Keys with their counts, and how much of these may be of others.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&K, u64, u64)> {
        let slots = self.slots.iter();
        slots.map(|slot| (&slot.key, slot.count, slot.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct Key(u32);

    #[test]
    fn no_count_is_too_low_and_what_is_certain_is_not_too_high() {
        let mut sketch = Sketch::new(20);
        let mut truth = [0_u64; 200];
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Small numbers come often.
            let draw = (random >> 33) % 200;
            let key = usize::try_from(draw * draw / 200).unwrap();
            truth[key] += 1;
            sketch.count(&Key(u32::try_from(key).unwrap()), 1);
        }
        assert_eq!(sketch.counts().count(), 20);
        for (key, count, error) in sketch.counts() {
            let true_count = truth[key.0 as usize];
            assert!(
                count >= true_count && count - error <= true_count,
                "{key:?}"
            );
        }
        // More than a twentieth of all is never missed.
        let busy = truth.iter().filter(|count| **count > 1000).count();
        assert!(busy > 0);
        let found = sketch
            .counts()
            .filter(|(key, ..)| truth[key.0 as usize] > 1000);
        assert_eq!(found.count(), busy);
    }

    #[test]
    fn a_flood_of_keys_seen_once_is_nothing_certain() {
        let mut sketch = Sketch::new(8);
        let highest = (0..10_000).map(|key| sketch.count(&Key(key), 1)).max();
        assert_eq!(highest, Some(1));
    }
}
