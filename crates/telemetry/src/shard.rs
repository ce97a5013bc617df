//! Which of several cells a thread updates, so that threads seldom write to the same cache line, and most write to one
//! that is theirs alone.
//!
//! A thread that is the only one to write to a cell adds to it by a load and a store, which takes a fraction of the time
//! of an atomic addition. There are [`ALONE`] such cells, which go to threads as they begin to count, and back when
//! these end. The other threads share the rest.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Cells of a counter.
pub(crate) const SHARDS: usize = ALONE + SHARED;
/// Those that one thread each writes to. Servers have about so many threads that work all the time.
const ALONE: usize = ALONE_BITS as usize;
/// The same as a number of bits.
const ALONE_BITS: u32 = 16;
/// Those that any number of threads write to.
const SHARED: usize = 16;

/// Keeps what is in it apart from its neighbours: processors fetch pairs of lines of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A thread that has no cell yet.
const NONE: usize = usize::MAX;

thread_local! {
    static CELL: Cell<usize> = const { Cell::new(NONE) };
    static HELD: Held = const { Held(Cell::new(NONE)) };
}

/// The cells that belong to threads, a bit each.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A cell that belongs to this thread until it ends.
struct Held(Cell<usize>);

impl Drop for Held {
    fn drop(&mut self) {
        let held = self.0.get();
        if held < ALONE {
            // What is counted after this, by other destructors, goes to a shared one.
            CELL.set(shared());
            TAKEN.fetch_and(!(1 << held), Ordering::Release);
        }
    }
}

/// The cell of a thread among those that many write to.
fn shared() -> usize {
    // Fibonacci hashing: addresses of threads differ by multiples of their stacks' size, and the
    // product's high bits depend on all of them.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    const SHIFT: u32 = u64::BITS - SHARED.ilog2();
    CELL.with(|mark| {
        let address = std::ptr::from_ref(mark).addr() as u64;
        // Four bits are left.
        ALONE + usize::try_from(address.wrapping_mul(SPREAD) >> SHIFT).unwrap_or(0)
    })
}

/// Takes a cell for this thread alone if there is one.
#[cold]
fn take() -> usize {
    let free = |taken: u32| {
        let free = taken.trailing_ones();
        (free < ALONE_BITS).then(|| taken | 1 << free)
    };
    // What the thread before wrote to it is seen.
    let taken = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free);
    let own = taken.map_or(NONE, |before| before.trailing_ones() as usize);
    // A thread that is ending keeps none.
    let held = own < ALONE && HELD.try_with(|held| held.0.set(own)).is_ok();
    if own < ALONE && !held {
        TAKEN.fetch_and(!(1 << own), Ordering::Release);
    }
    let cell = if held { own } else { shared() };
    CELL.set(cell);
    cell
}

/// The cell of this thread.
pub(crate) fn shard() -> usize {
    match CELL.get() {
        NONE => take(),
        cell => cell,
    }
}

/// Adds to a number in this thread's [cell](shard).
pub(crate) fn add(shard: usize, to: &AtomicU64, by: u64) {
    if shard < ALONE {
        let sum = to.load(Ordering::Relaxed).wrapping_add(by);
        to.store(sum, Ordering::Relaxed);
    } else {
        to.fetch_add(by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    /// The cells of so many threads that live at one time.
    fn cells(threads: usize) -> Vec<usize> {
        let all_there = Barrier::new(threads);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        let cell = shard();
                        all_there.wait();
                        assert_eq!(shard(), cell);
                        cell
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn threads_have_cells_of_their_own_as_long_as_there_are_some() {
        // Again and again: cells come back when threads end.
        for _ in 0..20 {
            let cells = cells(3 * ALONE);
            let alone: Vec<_> = cells.iter().filter(|cell| **cell < ALONE).collect();
            let different: BTreeSet<_> = alone.iter().collect();
            assert_eq!(alone.len(), different.len(), "{cells:?}");
            assert!(cells.iter().all(|cell| *cell < SHARDS));
            let shared: BTreeSet<_> = cells.iter().filter(|cell| **cell >= ALONE).collect();
            assert!(shared.len() >= 3, "{cells:?}");
        }
        assert_eq!(shard(), shard());
    }

    #[test]
    fn what_ends_with_a_thread_is_counted_in_a_shared_cell() {
        static SUM: [AtomicU64; SHARDS] = [const { AtomicU64::new(0) }; SHARDS];
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                add(shard(), &SUM[shard()], 1);
            }
        }
        thread_local! {
            static LAST: Last = const { Last };
        }
        for _ in 0..100 {
            let thread = std::thread::spawn(|| {
                LAST.with(|_| ());
                add(shard(), &SUM[shard()], 1);
            });
            thread.join().unwrap();
        }
        let sum: u64 = SUM.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 200);
    }
}
