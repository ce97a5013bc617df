//! What is done under a lock, and so exactly once.
//!
//! A client that has got a lock from the server has been told of everything before, however long it was cut
//! off. So here nothing old is allowed at any time.

use std::time::Duration;

use afar_cache::{Errno, Handle, Ino, Lock, LockKind, OpenFlags};

use crate::history::tick;
use crate::worker::{LOCKED, READ, WHO, Worker};

/// How long to wait before something that must be done in the end is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often.
const TRIES: usize = 600;

impl Worker {
    /// Counts on by one, under a lock that is a symlink of one's own.
    pub(crate) async fn count(&mut self) {
        let place = self.rng.usize(0..LOCKED);
        let (lock, mine) = (
            format!("lock{place}"),
            format!("{}-{}", self.number, self.world.number()),
        );
        if !self.take(&lock, &mine).await {
            return;
        }
        let Ok(mut value) = self.world.counters[place].try_lock() else {
            panic!("two have the lock {lock}");
        };
        let (name, begun) = (format!("counter{place}"), self.now());
        match self.get(&name).await {
            Err(error) => self.excuse("reading a counter", begun, error),
            Ok(octets) => {
                let stands = <[u8; 8]>::try_from(octets.as_slice())
                    .ok()
                    .map(u64::from_le_bytes);
                if stands != Some(*value) {
                    let (machine, now) = (self.machine, self.what_all_see(&name).await);
                    panic!("machine {machine} reads {stands:?} of {name}, and not {value}; {now}");
                }
                let next = (*value + 1).to_le_bytes();
                for _ in 0..TRIES {
                    let begun = self.now();
                    match self.put(&name, &next).await {
                        Ok(()) => {
                            *value += 1;
                            break;
                        }
                        Err(error) => self.excuse("counting", begun, error),
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                assert_eq!(value.to_le_bytes(), next, "it cannot be written at all");
            }
        }
        drop(value);
        self.give_back(&lock, &mine).await;
    }

    async fn take(&self, lock: &str, mine: &str) -> bool {
        let (begun, asked) = (self.now(), tick());
        let made = self
            .cache()
            .symlink(WHO, Ino::ROOT, lock.as_bytes(), mine.as_bytes());
        match made.await {
            Ok(entry) => {
                self.cache().forget(entry.attr.ino, 1);
                self.here().was_answered(asked);
                return true;
            }
            Err(Errno::EEXIST) => {}
            Err(error) => self.excuse("taking a lock", begun, error),
        }
        // One that was left behind by himself, perhaps just now, is taken away.
        let theirs = self.target(lock).await;
        if let Ok(Some(target)) = theirs
            && target.split('-').next() == Some(&self.number.to_string())
        {
            self.give_back(lock, &target).await;
        }
        false
    }

    async fn target(&self, lock: &str) -> Result<Option<String>, Errno> {
        let known = match self.lookup(Ino::ROOT, lock).await {
            Ok(known) => known,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.cache().readlink(WHO, known.attr.ino).await {
            Ok(target) => Ok(Some(String::from_utf8(target.to_vec()).unwrap())),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn give_back(&self, lock: &str, mine: &str) {
        for _ in 0..TRIES {
            let begun = self.now();
            match self.cache().unlink(WHO, Ino::ROOT, lock.as_bytes()).await {
                Ok(()) => return,
                Err(error) => self.excuse_change("giving a lock back", begun, error),
            }
            tokio::time::sleep(PAUSE).await;
            // It may be done, and the lock another's by now.
            match self.target(lock).await {
                Ok(Some(target)) if target == mine => {}
                Ok(_) => return,
                Err(error) => self.excuse("looking at a lock", begun, error),
            }
        }
        panic!("the lock {lock} cannot be given back");
    }

    /// Writes a line at the end of a log, under a lock of AFS.
    pub(crate) async fn log(&mut self) {
        let world = std::sync::Arc::clone(&self.world);
        let Ok(_quiet) = world.quiet.try_read() else {
            return;
        };
        let place = self.rng.usize(0..LOCKED);
        let begun = self.now();
        let flags = OpenFlags {
            write: true,
            ..READ
        };
        let known = match self.lookup(Ino::ROOT, &format!("log{place}")).await {
            Ok(known) => known,
            Err(error) => return self.excuse("looking a log up", begun, error),
        };
        let opened = self.cache().open_file(WHO, known.attr.ino, flags).await;
        let handle = match opened {
            Ok((handle, _)) => handle,
            Err(error) => return self.excuse("opening a log", begun, error),
        };
        let (owner, asked) = (self.number as u64 + 1, tick());
        let lock = |kind| Lock {
            kind,
            start: 0,
            end: u64::MAX,
            pid: 1,
        };
        let locked = self
            .cache()
            .setlk(handle, owner, lock(LockKind::Write), false);
        match locked.await {
            Ok(()) => {
                self.here().was_answered(asked);
                self.append(place, handle).await;
                let unlock = lock(LockKind::Unlock);
                let unlocked = self.cache().setlk(handle, owner, unlock, false).await;
                unlocked.unwrap();
            }
            Err(Errno::EAGAIN) => {}
            Err(error) => self.excuse("locking a log", begun, error),
        }
        self.cache().release(handle, None).await;
    }

    async fn append(&self, place: usize, handle: Handle) {
        let Ok(mut lines) = self.world.logs[place].try_lock() else {
            panic!("two have the lock of log{place}");
        };
        let begun = self.now();
        match self.read_all(handle).await {
            Ok(read) => assert!(
                read == *lines,
                "machine {} reads {} bytes of log{place}: {:?}, and not {}: {:?}",
                self.machine,
                read.len(),
                end(&read),
                lines.len(),
                end(&lines)
            ),
            Err(error) => return self.excuse("reading a log", begun, error),
        }
        let line = format!("{} {}\n", self.number, self.world.number());
        let begun = self.now();
        if let Err(error) = self.cache().append(handle, line.as_bytes()).await {
            return self.excuse("writing into a log", begun, error);
        }
        lines.extend_from_slice(line.as_bytes());
        for _ in 0..TRIES {
            let begun = self.now();
            match self.cache().fsync(handle).await {
                Ok(()) => return,
                Err(error) => self.excuse("storing a log", begun, error),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("log{place} cannot be stored");
    }
}

/// The last lines.
fn end(lines: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&lines[lines.len().saturating_sub(60)..])
}
