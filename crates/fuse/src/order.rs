//! Answers, and what takes them back, in their order.
//!
//! An answer says how long the kernel may use it without asking. If it becomes wrong, the kernel is
//! told to drop it: by other threads, and so perhaps before the answer has come. Then there is nothing
//! to drop, and what is wrong stays. So answers of this kind are given between [`Order::enter`] and
//! the end of what that returns, with a time only if nothing was invalidated since they were asked
//! for, and the kernel is told nothing before those have ended that began before ([`Order::settle`]).
//! An answer only takes a system call that does not wait.

use std::collections::BTreeSet;

use parking_lot::{Condvar, Mutex};

/// Answers that are being given.
#[derive(Debug, Default)]
pub(crate) struct Order {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// An answer that is being given.
#[derive(Debug)]
pub(crate) struct Giving<'a> {
    order: &'a Order,
    number: u64,
}

impl Order {
    /// An answer is given until what this returns is dropped.
    pub(crate) fn enter(&self) -> Giving<'_> {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.under_way.insert(number);
        Giving {
            order: self,
            number,
        }
    }

    /// Waits until all answers are given that are being given now.
    pub(crate) fn settle(&self) {
        let mut state = self.state.lock();
        let last = state.last;
        while state.under_way.first().is_some_and(|first| *first <= last) {
            self.given.wait(&mut state);
        }
    }
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.order.state.lock().under_way.remove(&self.number);
        self.order.given.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_told_waits_for_answers_before_it_only() {
        let (order, told) = (Order::default(), AtomicBool::new(false));
        order.settle();
        let before = order.enter();
        thread::scope(|scope| {
            let teller = scope.spawn(|| {
                order.settle();
                told.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!told.load(Ordering::SeqCst));
            let later = order.enter();
            drop(before);
            teller.join().unwrap();
            drop(later);
        });
    }
}
