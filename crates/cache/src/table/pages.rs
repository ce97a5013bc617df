//! The pages of directories that are kept in memory: so many bytes of them, those used lately.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::model::vnode::Vnode;

/// Which directories' pages are in memory. The pages themselves are in their vnodes.
#[derive(Debug)]
pub(crate) struct Pages {
    limit: usize,
    queue: Mutex<Queue<Weak<Vnode>>>,
}

impl Pages {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            queue: Mutex::new(Queue::new()),
        }
    }

    /// This directory has so many bytes of pages now. If there are too many of all together, those of
    /// others go. They may be on their way to somebody, who has them then.
    pub(crate) fn note(&self, vnode: &Arc<Vnode>, bytes: usize) {
        let used = |vnode: &Weak<Vnode>| {
            let vnode = vnode.upgrade();
            vnode.is_some_and(|vnode| vnode.used.swap(false, Ordering::Relaxed))
        };
        let mut queue = self.queue.lock();
        let dropped = queue.push(Arc::downgrade(vnode), bytes, self.limit, used);
        // A holder of a vnode's lock may wait for the queue.
        drop(queue);
        for other in dropped.iter().filter_map(Weak::upgrade) {
            if !Arc::ptr_eq(&other, vnode) {
                let mut state = other.lock();
                if let Some(rare) = state.rare.if_any() {
                    rare.pages = None;
                }
                state.rare.tidy();
            }
        }
    }
}

/// What takes memory, in a clock's order.
#[derive(Debug)]
struct Queue<T> {
    order: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Queue<T> {
    const fn new() -> Self {
        Self {
            order: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds one that takes so many bytes. Returns what is too much then: the oldest, but those `used`
    /// since they were looked at last stay once more. The newest stays.
    fn push(&mut self, item: T, bytes: usize, limit: usize, used: impl Fn(&T) -> bool) -> Vec<T> {
        self.order.push_back((item, bytes));
        self.bytes += bytes;
        let mut dropped = Vec::new();
        while self.bytes > limit && self.order.len() > 1 {
            // One that is given a second chance makes room for the next in line.
            if self.order.len() > 2 && self.order.front().is_some_and(|(item, _)| used(item)) {
                let newest = self.order.len() - 1;
                self.order.rotate_left(1);
                self.order.swap(newest - 1, newest);
            }
            if let Some((item, bytes)) = self.order.pop_front() {
                self.bytes -= bytes;
                dropped.push(item);
            }
        }
        debug_assert!(
            self.bytes <= limit || self.order.len() == 1,
            "too much is kept"
        );
        let newest = self.order.back().map_or(0, |(_, bytes)| *bytes);
        debug_assert!(newest <= self.bytes, "{newest} of {}", self.bytes);
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_unless_they_are_used() {
        let mut queue = Queue::new();
        let mut add = |item: u32, bytes| queue.push(item, bytes, 100, |item| item % 10 == 0);
        assert!(add(10, 40).is_empty());
        assert!(add(11, 40).is_empty());
        assert_eq!(add(12, 30), [11]);
        assert_eq!(add(13, 50), [12]);
        // Whatever is used, there are never more bytes than may be, but for a single one.
        assert_eq!(add(20, 90), [13, 10]);
        assert_eq!(add(30, 300), [20]);
        assert_eq!(add(31, 1), [30]);
        assert!(add(32, 1).is_empty());
    }
}
