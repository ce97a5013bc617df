//! Which of several cells a thread updates, so that threads seldom write to the same cache line.

use std::ops::Deref;

/// Cells of a counter. More threads than these share some.
pub(crate) const SHARDS: usize = 16;

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

thread_local! {
    /// Only its address counts, which differs from thread to thread.
    static MARK: u8 = const { 0 };
}

/// The cell of this thread.
pub(crate) fn shard() -> usize {
    // Fibonacci hashing: addresses of threads differ by multiples of their stacks' size, and the
    // product's high bits depend on all of them.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    const SHIFT: u32 = u64::BITS - SHARDS.ilog2();
    MARK.with(|mark| {
        let address = std::ptr::from_ref(mark).addr() as u64;
        // Four bits are left.
        usize::try_from(address.wrapping_mul(SPREAD) >> SHIFT).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    #[test]
    fn threads_have_cells_of_their_own() {
        const THREADS: usize = 8;
        let all_there = Barrier::new(THREADS);
        let seen: BTreeSet<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        // Threads that live at one time have different addresses.
                        all_there.wait();
                        shard()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|cell| *cell < SHARDS));
        assert!(seen.len() >= 3, "{seen:?}");
        assert_eq!(shard(), shard());
    }
}
