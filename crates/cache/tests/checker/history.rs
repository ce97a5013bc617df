//! What was done to one thing, and what whoever looks at it may therefore see.
//!
//! The clock counts events, so that of any two it is known which was first. A change lasts from
//! before it is asked for until it is answered. A look sees one change: one that had begun before the
//! look ended, and that was not surely followed by another whole change before the look began. A
//! change that failed without a word on what became of it goes on: it may be seen, or not, until
//! the same machine has made another change, which it makes in its order.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A time, in events.
pub(crate) type Tick = u64;

static CLOCK: AtomicU64 = AtomicU64::new(1);

/// Now, which is later than any time told before.
pub(crate) fn tick() -> Tick {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

/// Changes kept before old ones are cleared away.
const KEPT: usize = 64;

/// A change.
#[derive(Debug, Clone)]
pub(crate) struct Change<V> {
    pub(crate) value: V,
    /// Which machine made it.
    pub(crate) by: usize,
    begun: Tick,
    ended: Option<Tick>,
    /// Whether it was acknowledged.
    sure: bool,
    /// Whether it failed, and may be made in part.
    doubtful: bool,
}

/// What a look may see.
#[derive(Debug)]
pub(crate) struct Allowed<V> {
    changes: Vec<Change<V>>,
    /// Whether a change was under way, or in doubt, at the time.
    pub(crate) unsettled: bool,
    /// Whether one of these failed, and may be made in part.
    pub(crate) doubtful: bool,
}

/// A thing with a value that is changed as a whole.
#[derive(Debug)]
pub(crate) struct Register<V> {
    changes: Mutex<Vec<Change<V>>>,
    /// For each machine, when the newest change began that it has surely seen.
    seen: Vec<AtomicU64>,
}

impl<V: Clone + Debug> Register<V> {
    pub(crate) fn new(value: V, machines: usize) -> Self {
        let first = Change {
            value,
            by: 0,
            begun: 0,
            ended: Some(0),
            sure: true,
            doubtful: false,
        };
        Self {
            changes: Mutex::new(vec![first]),
            seen: (0..machines).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Change<V>>> {
        self.changes.lock().unwrap()
    }

    /// A machine begins a change. Returns its number.
    pub(crate) fn begin(&self, by: usize, value: V) -> Tick {
        let begun = tick();
        self.lock().push(Change {
            value,
            by,
            begun,
            ended: None,
            sure: false,
            doubtful: false,
        });
        begun
    }

    /// A change is acknowledged.
    pub(crate) fn done(&self, number: Tick) {
        self.done_as(number, |_| {});
    }

    /// A change is acknowledged, and its value known only now.
    pub(crate) fn done_as(&self, number: Tick, know: impl FnOnce(&mut V)) {
        let mut changes = self.lock();
        let now = tick();
        let place = changes.iter().position(|one| one.begun == number).unwrap();
        let by = changes[place].by;
        know(&mut changes[place].value);
        (changes[place].ended, changes[place].sure) = (Some(now), true);
        // What the same machine left in doubt before came before this, or never will.
        for doubt in changes.iter_mut().filter(|one| one.by == by) {
            if doubt.begun < number && doubt.ended.is_none() {
                doubt.ended = Some(number - 1);
            }
        }
    }

    /// A change failed, and nobody knows what became of it.
    pub(crate) fn in_doubt(&self, number: Tick) {
        let mut changes = self.lock();
        let failed = changes.iter_mut().find(|one| one.begun == number);
        failed.unwrap().doubtful = true;
    }

    /// What may be seen by a look that began then and has just ended, by one who has seen this.
    pub(crate) fn allowed(&self, from: Tick, seen: Tick) -> Allowed<V> {
        let changes = self.lock();
        let before =
            |change: &&Change<V>| change.sure && change.ended.is_some_and(|end| end < from);
        let last = changes.iter().filter(before).map(|one| one.begun).max();
        let floor = last.unwrap_or(0).max(seen);
        let open = |one: &&Change<V>| one.ended.is_none_or(|end| end >= floor);
        let open: Vec<_> = changes.iter().filter(open).cloned().collect();
        Allowed {
            doubtful: open.iter().any(|one| one.doubtful),
            changes: open,
            unsettled: changes
                .iter()
                .any(|one| one.ended.is_none_or(|end| end >= from)),
        }
    }

    /// How new what this machine sees must be by what it has seen.
    pub(crate) fn seen(&self, machine: usize) -> Tick {
        self.seen[machine].load(Ordering::SeqCst)
    }

    /// A machine saw one of these changes.
    pub(crate) fn saw(&self, machine: usize, matching: &[&Change<V>]) {
        // Of what it did itself and is not acknowledged it may see less later.
        let known = |change: &&Change<V>| change.sure || change.by != machine;
        if matching.iter().all(known)
            && let Some(oldest) = matching.iter().map(|change| change.begun).min()
        {
            self.seen[machine].fetch_max(oldest, Ordering::SeqCst);
        }
    }

    /// Forgets changes that nobody can see who began to look after this.
    pub(crate) fn forget_before(&self, from: Tick) {
        let mut changes = self.lock();
        if changes.len() < KEPT {
            return;
        }
        let before =
            |change: &&Change<V>| change.sure && change.ended.is_some_and(|end| end < from);
        let last = changes.iter().filter(before).map(|one| one.begun).max();
        let floor = last.unwrap_or(0);
        changes.retain(|one| one.ended.is_none_or(|end| end >= floor));
    }
}

impl<V> Allowed<V> {
    /// Those that are like this.
    pub(crate) fn matching(&self, like: impl Fn(&V) -> bool) -> Vec<&Change<V>> {
        let matching = self.changes.iter().filter(|one| like(&one.value));
        matching.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(register: &Register<u32>, from: Tick) -> Vec<u32> {
        let allowed = register.allowed(from, 0);
        allowed.changes.iter().map(|one| one.value).collect()
    }

    #[test]
    fn only_what_surely_came_later_hides_what_was_before() {
        let register = Register::new(0, 2);
        let first = register.begin(0, 1);
        assert_eq!(values(&register, tick()), [0, 1], "it is under way");
        let early = tick();
        register.done(first);
        assert_eq!(values(&register, early), [0, 1], "the look began before");
        assert_eq!(values(&register, tick()), [1]);
        let doubt = register.begin(0, 2);
        let other = register.begin(1, 3);
        register.done(other);
        let later = register.begin(1, 4);
        register.done(later);
        assert_eq!(values(&register, tick()), [2, 4], "one may come yet");
        let again = register.begin(0, 5);
        register.done(again);
        assert_eq!(values(&register, tick()), [5]);
        let _ = doubt;
    }

    #[test]
    fn nobody_goes_back() {
        let register = Register::new(0, 2);
        register.begin(1, 1);
        let allowed = register.allowed(tick(), register.seen(0));
        let matching = allowed.matching(|value| *value == 1);
        assert_eq!(matching.len(), 1);
        register.saw(0, &matching);
        let seen = register.seen(0);
        let allowed = register.allowed(tick(), seen);
        assert!(allowed.matching(|value| *value == 0).is_empty());
        assert_eq!(register.seen(1), 0);
    }
}
