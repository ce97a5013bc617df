//! Advisory locks of files (AFS-3 RXAFS SetLock, ExtendLock, ReleaseLock).
//!
//! As AFS has them, a lock is a count of the vnode and nobody's in particular: n readers, or one
//! writer. It ends 300 s after it was taken or extended last; a client that keeps one extends it
//! in time. Locks are not kept over a restart: clients that extend one are told that it is gone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use afar_types::Fid;
use parking_lot::Mutex;

/// How long a lock holds if it is not extended (AFS-3: AFS_LOCKWAIT).
const LIFE: Duration = Duration::from_secs(300);
/// Files that can be locked at once.
const MAX_LOCKED: usize = 1 << 20;

/// Why a lock is not given or kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Others hold one that excludes it.
    Held,
    /// There is none to extend.
    NotHeld,
    /// More files are locked than the server keeps track of.
    TooMany,
}

#[derive(Debug, Clone, Copy)]
struct Lock {
    /// Readers, or -1 for a writer.
    count: i32,
    until: Instant,
}

/// The locks of a server.
#[derive(Debug, Default)]
pub(crate) struct FileLocks(Mutex<HashMap<Fid, Lock>>);

impl FileLocks {
    /// Takes a lock, for writing or for reading.
    pub(crate) fn set(&self, fid: Fid, exclusive: bool, now: Instant) -> Result<(), LockError> {
        let mut locks = self.0.lock();
        if locks.len() >= MAX_LOCKED && !locks.contains_key(&fid) {
            locks.retain(|_, lock| now <= lock.until);
            if locks.len() >= MAX_LOCKED {
                return Err(LockError::TooMany);
            }
        }
        let held = locks.get(&fid).filter(|lock| now <= lock.until);
        let count = match (held.map_or(0, |lock| lock.count), exclusive) {
            (0, true) => -1,
            (readers @ 0.., false) => readers.saturating_add(1),
            _ => return Err(LockError::Held),
        };
        let until = now + LIFE;
        locks.insert(fid, Lock { count, until });
        Ok(())
    }

    /// Lets a lock hold for another while. One that is over and that nobody else took since is
    /// there again, as with OpenAFS.
    pub(crate) fn extend(&self, fid: Fid, now: Instant) -> Result<(), LockError> {
        let mut locks = self.0.lock();
        let lock = locks.get_mut(&fid).ok_or(LockError::NotHeld)?;
        lock.until = now + LIFE;
        Ok(())
    }

    /// Gives one lock up. Whether the file is without any now.
    pub(crate) fn release(&self, fid: Fid) -> bool {
        let mut locks = self.0.lock();
        match locks.get_mut(&fid) {
            Some(lock) if lock.count > 1 => {
                lock.count -= 1;
                false
            }
            _ => {
                locks.remove(&fid);
                true
            }
        }
    }

    /// What a status shows: readers, or -1 for a writer.
    pub(crate) fn count(&self, fid: Fid, now: Instant) -> i32 {
        let locks = self.0.lock();
        let lock = locks.get(&fid).filter(|lock| now <= lock.until);
        lock.map_or(0, |lock| lock.count)
    }

    /// The file is gone.
    pub(crate) fn discard(&self, fid: Fid) {
        self.0.lock().remove(&fid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(1, 2, 3);

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let (locks, now) = (FileLocks::default(), Instant::now());
        let set = |exclusive| locks.set(FILE, exclusive, now);
        assert_eq!((set(false), set(false)), (Ok(()), Ok(())));
        assert_eq!(
            (locks.count(FILE, now), set(true)),
            (2, Err(LockError::Held))
        );
        assert!(!locks.release(FILE));
        assert!(locks.release(FILE));
        assert_eq!(set(true), Ok(()));
        assert_eq!(
            (locks.count(FILE, now), set(false)),
            (-1, Err(LockError::Held))
        );
        assert_eq!(set(true), Err(LockError::Held));
        assert!(locks.release(FILE));
        // One too many changes nothing.
        assert!(locks.release(FILE));
        assert_eq!(locks.count(FILE, now), 0);
    }

    #[test]
    fn locks_end_after_300_s_unless_they_are_extended() {
        let (locks, began) = (FileLocks::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(locks.extend(FILE, at(0)), Err(LockError::NotHeld));
        locks.set(FILE, true, at(0)).unwrap();
        locks.extend(FILE, at(200)).unwrap();
        assert_eq!(locks.count(FILE, at(400)), -1);
        assert_eq!(locks.set(FILE, false, at(400)), Err(LockError::Held));
        assert_eq!(locks.count(FILE, at(501)), 0);
        // Nobody took it meanwhile.
        assert_eq!(locks.extend(FILE, at(501)), Ok(()));
        assert_eq!(locks.count(FILE, at(501)), -1);
        assert_eq!(locks.set(FILE, false, at(802)), Ok(()));
        assert_eq!(locks.count(FILE, at(802)), 1);
        locks.discard(FILE);
        assert_eq!(locks.extend(FILE, at(802)), Err(LockError::NotHeld));
    }
}
