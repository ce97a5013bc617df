//! Packets on their way, in the order in which they are due.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
};

/// Packets on their way to one side.
///
/// Nearly all packets leave in the order they came, so a plain queue holds those and only
/// the ones that something made late go through a heap.
#[derive(Debug)]
pub struct Pending<T> {
    in_order: VecDeque<Entry<T>>,
    late: BinaryHeap<Entry<T>>,
    pushed: u64,
}

/// One packet and when it is due.
#[derive(Debug)]
pub struct Entry<T> {
    /// When it is due, in nanoseconds.
    pub due: u64,
    /// Its place among all the packets pushed.
    pub sequence: u64,
    /// The packet.
    pub item: T,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            in_order: VecDeque::new(),
            late: BinaryHeap::new(),
            pushed: 0,
        }
    }
}

impl<T> Pending<T> {
    /// Adds a packet. Anything due before the youngest packet in order goes through the heap,
    /// and so does a packet that is `late`, lest those behind it wait for it.
    pub fn push(&mut self, due: u64, late: bool, item: T) {
        let sequence = self.pushed;
        self.pushed += 1;
        let entry = Entry {
            due,
            sequence,
            item,
        };
        if late || self.in_order.back().is_some_and(|last| due < last.due) {
            self.late.push(entry);
        } else {
            self.in_order.push_back(entry);
        }
    }

    /// The packet that leaves next.
    pub fn peek(&self) -> Option<&Entry<T>> {
        match (self.in_order.front(), self.late.peek()) {
            (Some(a), Some(b)) => Some(if b.rank() < a.rank() { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// When the next packet is due, in nanoseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.peek().map(|entry| entry.due)
    }

    /// Takes the next packet if it is due at `now` and `accept` wants it.
    pub fn pop_if(&mut self, now: u64, accept: impl FnOnce(&T) -> bool) -> Option<Entry<T>> {
        let next = self.peek()?;
        if next.due > now || !accept(&next.item) {
            return None;
        }
        let from_heap = self
            .late
            .peek()
            .is_some_and(|entry| entry.sequence == next.sequence);
        if from_heap {
            self.late.pop()
        } else {
            self.in_order.pop_front()
        }
    }

    /// The number of packets on their way.
    pub fn len(&self) -> usize {
        self.in_order.len() + self.late.len()
    }

    /// True if nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Entry<T> {
    fn rank(&self) -> (u64, u64) {
        (self.due, self.sequence)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed: `BinaryHeap` gives the greatest first, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pending: &mut Pending<u32>, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| pending.pop_if(now, |_| true))
            .map(|entry| entry.item)
            .collect()
    }

    #[test]
    fn packets_leave_when_due_and_in_order() {
        let mut pending = Pending::default();
        pending.push(10, false, 1);
        pending.push(35, true, 2);
        pending.push(20, false, 3);
        pending.push(20, false, 4);
        pending.push(40, false, 5);
        assert_eq!(pending.next_due(), Some(10));
        assert_eq!(drain(&mut pending, 9), [0_u32; 0]);
        assert_eq!(drain(&mut pending, 20), [1, 3, 4]);
        assert_eq!(pending.len(), 2);
        assert_eq!(drain(&mut pending, 100), [2, 5]);
        assert!(pending.is_empty());
    }

    #[test]
    fn many_random_packets_leave_sorted() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut pending = Pending::default();
        for i in 0..10_000 {
            pending.push(rng.u64(0..1_000), rng.bool(), i);
        }
        let mut last = (0, 0);
        let mut count = 0;
        while let Some(entry) = pending.pop_if(u64::MAX, |_| true) {
            let rank = (entry.due, entry.sequence);
            assert!(rank >= last);
            last = rank;
            count += 1;
        }
        assert_eq!(count, 10_000);
    }

    #[test]
    fn a_packet_can_be_declined() {
        let mut pending = Pending::default();
        pending.push(1, false, 1);
        assert!(pending.pop_if(5, |item| *item == 2).is_none());
        assert_eq!(pending.len(), 1);
    }
}
