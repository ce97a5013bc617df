//! Slots with generations: names that stay cheap to look up and are never confused with later ones.

use crate::types::Key;

/// A growing table whose keys go stale when their entry is removed.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Arena<T> {
    /// Adds an entry; `make` is told its key.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            u32::try_from(self.slots.len() - 1).expect("tables are bounded far below 2^32 entries")
        });
        let entry = &mut self.slots[slot as usize];
        let key = Key {
            slot,
            generation: entry.generation,
        };
        entry.value = Some(make(key));
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slots
            .get(key.slot as usize)
            .filter(|s| s.generation == key.generation)?
            .value
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let slot_number = u32::try_from(index).ok()?;
            let value = slot.value.as_ref()?;
            Some((
                Key {
                    slot: slot_number,
                    generation: slot.generation,
                },
                value,
            ))
        })
    }
}
