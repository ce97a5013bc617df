//! Many small things of one kind, named by numbers.
//!
//! They lie in blocks that are never moved, so that a million of them grow without a copy and
//! without the half-empty space of a vector that doubles.

/// Marks the end of a chain: no thing has this number.
pub(super) const NIL: u32 = u32::MAX;

/// Things in a block.
const BLOCK: usize = 1 << BLOCK_BITS;
const BLOCK_BITS: u32 = 10;

/// What can lie in a [`Slab`]: while it is not in use, one of its members holds the number of the
/// next such.
pub(super) trait Slot: Clone + Default {
    /// The member that chains the unused ones.
    fn chain(&mut self) -> &mut u32;
}

/// The blocks, and which of their slots are in use.
#[derive(Debug)]
pub(super) struct Slab<T> {
    blocks: Vec<Box<[T]>>,
    free: u32,
    used: usize,
}

impl<T: Slot> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            blocks: Vec::new(),
            free: NIL,
            used: 0,
        }
    }

    /// Slots in use.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Takes a slot, whose contents are those of its last user. `None` if there are no numbers
    /// left.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.free == NIL {
            self.grow()?;
        }
        let number = self.free;
        self.free = *self[number].chain();
        self.used += 1;
        debug_assert!(self.used <= self.blocks.len() << BLOCK_BITS);
        Some(number)
    }

    /// Gives a slot back.
    pub(super) fn give_back(&mut self, number: u32) {
        debug_assert!(self.used > 0, "{number} is not in use");
        debug_assert_ne!(self.free, number, "{number} is given back twice");
        let next = self.free;
        *self[number].chain() = next;
        self.free = number;
        self.used -= 1;
    }

    fn grow(&mut self) -> Option<()> {
        let first = u32::try_from(self.blocks.len() << BLOCK_BITS).ok()?;
        let last = first.checked_add(u32::try_from(BLOCK).ok()? - 1)?;
        // A thing with that number would end each chain that it stands in.
        if last == NIL {
            return None;
        }
        let mut block = vec![T::default(); BLOCK].into_boxed_slice();
        for (slot, next) in block.iter_mut().zip(first + 1..) {
            *slot.chain() = next;
        }
        *block[BLOCK - 1].chain() = self.free;
        self.blocks.push(block);
        self.free = first;
        Some(())
    }
}

fn place(number: u32) -> (usize, usize) {
    let number = number as usize;
    (number >> BLOCK_BITS, number & (BLOCK - 1))
}

/// # Panics
/// If no slot has ever had this number.
impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        let (block, slot) = place(number);
        &self.blocks[block][slot]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        let (block, slot) = place(number);
        &mut self.blocks[block][slot]
    }
}
