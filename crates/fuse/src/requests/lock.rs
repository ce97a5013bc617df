//! Locks.

use afar_cache::{Cache, Errno, Handle, Lock, LockKind};
use fuser::ReplyLock;

use crate::eyes::Noted;
use crate::interrupt::unless_interrupted;
use crate::reply::errno;

/// A lock as the kernel names it.
pub(super) fn lock(kind: i32, start: u64, end: u64, pid: u32) -> Option<Lock> {
    let kind = match kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return None,
    };
    Some(Lock {
        kind,
        start,
        // The kernel counts offsets in 63 bits.
        end: if end >= i64::MAX as u64 {
            u64::MAX
        } else {
            end
        },
        pid,
    })
}

/// Tells which lock is in the way.
pub(super) async fn test(
    noted: Noted,
    cache: &Cache,
    (handle, owner): (Handle, u64),
    lock: Lock,
    reply: ReplyLock,
) {
    let found = cache.getlk(handle, owner, lock).await;
    noted.end(&found.as_ref().map(|_| ()).map_err(|error| *error));
    match found {
        Ok(found) => {
            let (kind, found) = match found {
                Some(found) if found.kind == LockKind::Read => (libc::F_RDLCK, found),
                Some(found) => (libc::F_WRLCK, found),
                None => (libc::F_UNLCK, lock),
            };
            reply.locked(found.start, found.end.min(i64::MAX as u64), kind, found.pid);
        }
        Err(error) => reply.error(errno(error)),
    }
}

/// Takes or gives up a lock; `wait` is the thread that waits until it is free.
pub(super) async fn set(
    cache: &Cache,
    handle: Handle,
    owner: u64,
    lock: Lock,
    wait: Option<u32>,
) -> Result<(), Errno> {
    let Some(asker) = wait else {
        return cache.setlk(handle, owner, lock, false).await;
    };
    unless_interrupted(asker, cache.setlk(handle, owner, lock, true)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_to_the_end_have_no_end() {
        let end = |end| lock(libc::F_WRLCK, 3, end, 1).map(|lock| lock.end);
        assert_eq!(end(9), Some(9));
        assert_eq!(end(i64::MAX as u64), Some(u64::MAX));
        assert_eq!(end(u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn an_unknown_kind_is_none() {
        assert_eq!(lock(77, 0, 1, 1), None);
    }
}
