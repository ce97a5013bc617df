//! The locks that programs here have of a file, and the one that this machine has from the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::LockType;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::model::types::{Lock, LockKind};
use crate::model::user::User;

/// For so long somebody who reads under a lock is expected to write as well, once somebody did.
const FORESIGHT: Duration = Duration::from_secs(60);
/// Locks of one file that programs here may have.
const LOCKS_MOST: usize = 4096;

/// The locks of a file.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: Mutex<LockTable>,
    /// Some were given up.
    pub(crate) freed: Notify,
    /// One changes the server's lock at a time.
    pub(crate) serial: AsyncMutex<()>,
}

/// What programs here have.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    held: Vec<(u64, Lock)>,
    /// Owners that had a lock when the file was changed by another machine.
    lost: Vec<u64>,
    /// What the server gave this machine.
    pub(crate) server: Option<LockType>,
    /// The user of this machine that asked for it.
    pub(crate) taker: Option<Arc<User>>,
    /// When a lock for reading was to become one for writing last.
    pub(crate) strengthened: Option<Instant>,
    /// Counts locks the server gave, so that each is extended by one task only.
    pub(crate) given: u64,
}

impl LockTable {
    /// A lock of somebody else that is in the way.
    pub(crate) fn conflict(&self, owner: u64, lock: &Lock) -> Option<Lock> {
        let writes = |lock: &Lock| lock.kind == LockKind::Write;
        let others = self.held.iter().filter(|(other, _)| *other != owner);
        let mut others = others
            .map(|(_, held)| held)
            .filter(|held| overlap(held, lock) && (writes(held) || writes(lock)));
        others.next().copied()
    }

    /// Puts a lock in place of what its owner has there.
    pub(crate) fn set(&mut self, owner: u64, lock: Lock) {
        let mut parts = Vec::new();
        self.held.retain(|(other, held)| {
            if *other != owner || !overlap(held, &lock) {
                return true;
            }
            if held.start < lock.start {
                parts.push((
                    owner,
                    Lock {
                        end: lock.start - 1,
                        ..*held
                    },
                ));
            }
            if held.end > lock.end {
                parts.push((
                    owner,
                    Lock {
                        start: lock.end + 1,
                        ..*held
                    },
                ));
            }
            false
        });
        if lock.kind != LockKind::Unlock {
            parts.push((owner, lock));
        }
        self.held.extend(parts);
        self.check(owner, &lock);
        let held = &self.held;
        // The owner that has given up all may begin again.
        self.lost
            .retain(|owner| held.iter().any(|(other, _)| other == owner));
    }

    /// An owner has one lock at a place, the one it set last, and nobody else has one in its way.
    fn check(&self, owner: u64, lock: &Lock) {
        let own = self.held.iter().filter(|(other, _)| *other == owner);
        let there = own.filter(|(_, held)| overlap(held, lock)).count();
        let is_set = lock.kind != LockKind::Unlock;
        debug_assert_eq!(there, usize::from(is_set), "{lock:?} of {owner}");
        debug_assert!(!is_set || self.conflict(owner, lock).is_none(), "{lock:?}");
        debug_assert!(self.held.len() <= LOCKS_MOST + 1, "{}", self.held.len());
    }

    /// The server's lock did not last while programs here had theirs.
    pub(crate) fn lose(&mut self) {
        self.lost = self.held.iter().map(|(owner, _)| *owner).collect();
    }

    /// Whether somebody must give up what he has before he gets this lock.
    pub(crate) fn is_refused(&self, owner: u64, lock: &Lock) -> bool {
        !is_whole(lock) && self.lost.contains(&owner)
    }

    /// Whether somebody who wants to read is likely to want to write soon.
    pub(crate) fn foresees_writing(&self) -> bool {
        self.strengthened
            .is_some_and(|then| then.elapsed() < FORESIGHT)
    }

    /// Whether no more locks are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= LOCKS_MOST
    }

    /// Whether giving this up would leave more locks than there are.
    pub(crate) fn splits(&self, owner: u64, lock: &Lock) -> bool {
        let mut own = self.held.iter().filter(|(other, _)| *other == owner);
        own.any(|(_, held)| held.start < lock.start && lock.end < held.end)
    }

    /// Whether somebody has a lock.
    pub(crate) fn has(&self, owner: u64) -> bool {
        self.held.iter().any(|(other, _)| *other == owner)
    }

    /// What this machine needs from the server.
    pub(crate) fn needed(&self) -> Option<LockType> {
        let writes = |(_, lock): &(u64, Lock)| lock.kind == LockKind::Write;
        match self.held.iter().any(writes) {
            true => Some(LockType::Write),
            false => (!self.held.is_empty()).then_some(LockType::Read),
        }
    }
}

fn overlap(one: &Lock, other: &Lock) -> bool {
    one.start <= other.end && other.start <= one.end
}

/// Whether it may be one of flock(2).
pub(crate) fn is_whole(lock: &Lock) -> bool {
    (lock.start, lock.end) == (0, u64::MAX)
}

impl Locks {
    pub(crate) fn lock(&self) -> MutexGuard<'_, LockTable> {
        self.table.lock()
    }

    /// Whether nobody has a lock, and no task looks after one that somebody had.
    pub(crate) fn are_unused(&self) -> bool {
        let table = self.lock();
        table.held.is_empty() && table.given == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(kind: LockKind, start: u64, end: u64) -> Lock {
        Lock {
            kind,
            start,
            end,
            pid: 1,
        }
    }

    #[test]
    fn who_lost_a_lock_gets_no_other_before_he_has_none() {
        let mut table = LockTable::default();
        table.set(1, lock(LockKind::Read, 0, 9));
        table.set(1, lock(LockKind::Read, 20, 29));
        table.lose();
        let wanted = lock(LockKind::Write, 5, 5);
        assert!(table.is_refused(1, &wanted) && !table.is_refused(2, &wanted));
        assert!(!table.is_refused(1, &lock(LockKind::Write, 0, u64::MAX)));
        table.set(1, lock(LockKind::Unlock, 0, 9));
        assert!(table.is_refused(1, &wanted));
        table.set(1, lock(LockKind::Unlock, 0, u64::MAX));
        assert!(!table.is_refused(1, &wanted));
    }

    #[test]
    fn no_more_locks_are_made_of_one_than_there_may_be() {
        let mut table = LockTable::default();
        table.set(1, lock(LockKind::Write, 0, u64::MAX));
        for hole in 1..=2 * LOCKS_MOST as u64 {
            let given_up = lock(LockKind::Unlock, 10 * hole, 10 * hole);
            if !table.is_full() || !table.splits(1, &given_up) {
                table.set(1, given_up);
            }
        }
        assert_eq!(table.held.len(), LOCKS_MOST);
        let last = u64::MAX - 10;
        assert!(table.is_full() && table.splits(1, &lock(LockKind::Unlock, last, last)));
        assert!(!table.splits(2, &lock(LockKind::Unlock, last, last)));
        let all = lock(LockKind::Unlock, 0, u64::MAX);
        assert!(!table.splits(1, &all));
        table.set(1, all);
        assert!(!table.has(1) && !table.is_full());
    }

    #[test]
    fn ranges_conflict_between_owners_and_are_split_for_one() {
        let mut table = LockTable::default();
        table.set(1, lock(LockKind::Write, 0, 99));
        assert!(table.conflict(2, &lock(LockKind::Read, 99, 200)).is_some());
        assert!(
            table
                .conflict(2, &lock(LockKind::Write, 100, 200))
                .is_none()
        );
        assert!(table.conflict(1, &lock(LockKind::Write, 0, 10)).is_none());
        assert_eq!(table.needed(), Some(LockType::Write));
        table.set(1, lock(LockKind::Read, 10, 19));
        assert!(table.conflict(2, &lock(LockKind::Read, 12, 13)).is_none());
        assert!(table.conflict(2, &lock(LockKind::Read, 9, 13)).is_some());
        assert!(table.conflict(2, &lock(LockKind::Read, 19, 20)).is_some());
        table.set(1, lock(LockKind::Unlock, 0, 9));
        table.set(1, lock(LockKind::Unlock, 20, u64::MAX));
        assert_eq!(table.needed(), Some(LockType::Read));
        table.set(1, lock(LockKind::Unlock, 0, u64::MAX));
        assert_eq!(table.needed(), None);
    }
}
