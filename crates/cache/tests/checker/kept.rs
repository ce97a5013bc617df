//! Files that are kept open, and changed under locks, through what a kernel keeps of them.

use std::sync::Arc;
use std::time::Duration;

use afar_cache::{Errno, Handle, Ino, Lock, LockKind, OpenFlags};

use crate::kernel::Kernel;
use crate::worker::{Known, LOCKED, READ, WHO, Worker};

/// How long to wait before something that must be done in the end is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often.
const TRIES: usize = 600;
/// The greatest length; then the file begins with nothing again.
const LENGTH_MAX: usize = 30_000;
/// A read of so many bytes reaches past every end.
const PAST_THE_END: u64 = 100_000;

/// A file that is kept open.
pub(crate) struct Kept {
    known: Known,
    handle: Handle,
}

/// Files that are kept open.
pub(crate) type AllKept = [Option<Kept>; LOCKED];

impl Worker {
    fn kernel(&self) -> Arc<Kernel> {
        Arc::clone(&self.here().kernel)
    }

    /// Opens a file for good, if it is not open.
    async fn keep_open(&mut self, place: usize) -> Result<(Ino, Handle), Errno> {
        if self.kept[place].is_none() {
            let known = self.lookup(Ino::ROOT, &format!("kept{place}")).await?;
            let flags = OpenFlags {
                write: true,
                ..READ
            };
            let opened = self.cache().open_file(WHO, known.attr.ino, flags).await;
            let (handle, _) = opened?;
            self.kept[place] = Some(Kept { known, handle });
        }
        let kept = self.kept[place].as_ref().unwrap();
        Ok((kept.known.attr.ino, kept.handle))
    }

    /// Reads without a lock, so that the kernel has something old.
    pub(crate) async fn glance(&mut self) {
        let (place, begun) = (self.rng.usize(0..LOCKED), self.now());
        let read = match self.keep_open(place).await {
            Ok((ino, handle)) => self.kernel().read(ino, handle, 0, PAST_THE_END).await,
            Err(error) => Err(error),
        };
        if let Err(error) = read {
            self.excuse("reading a file that is kept open", begun, error);
        }
    }

    /// Looks at a file that is kept open under a lock for reading, or changes it under one for writing.
    pub(crate) async fn work_under_lock(&mut self) {
        let world = Arc::clone(&self.world);
        let Ok(_quiet) = world.quiet.try_read() else {
            return;
        };
        let (place, begun) = (self.rng.usize(0..LOCKED), self.now());
        let (ino, handle) = match self.keep_open(place).await {
            Ok(open) => open,
            Err(error) => return self.excuse("opening a file for good", begun, error),
        };
        // A lock of the whole file, as of flock(2), or of a part of it.
        let end = if self.rng.bool() { u64::MAX } else { 99 };
        let writes = self.rng.u32(0..3) > 0;
        let reads_first = writes && self.rng.u32(0..4) == 0;
        let first = if reads_first || !writes {
            LockKind::Read
        } else {
            LockKind::Write
        };
        let mut has = self.lock_kept(handle, end, first).await;
        if has && reads_first {
            has = self.lock_kept(handle, end, LockKind::Write).await;
        }
        if has && writes {
            self.change_kept(place, ino, handle).await;
        } else if has {
            let Ok(content) = world.kept[place].try_read() else {
                panic!("somebody writes kept{place} while another reads under a lock");
            };
            self.compare_kept(place, ino, handle, &content).await;
        }
        let unlocked = self.set_lock(handle, u64::MAX, LockKind::Unlock).await;
        unlocked.unwrap();
    }

    async fn set_lock(&self, handle: Handle, end: u64, kind: LockKind) -> Result<(), Errno> {
        let lock = Lock {
            kind,
            start: 0,
            end,
            pid: 1,
        };
        let owner = self.number as u64 + 1;
        self.cache().setlk(handle, owner, lock, false).await
    }

    async fn lock_kept(&self, handle: Handle, end: u64, kind: LockKind) -> bool {
        let begun = self.now();
        match self.set_lock(handle, end, kind).await {
            // Not that the server has answered: another program here may have the lock already.
            Ok(()) => true,
            Err(Errno::EAGAIN | Errno::EDEADLK) => false,
            Err(error) => {
                self.excuse("locking a file that is kept open", begun, error);
                false
            }
        }
    }

    /// Whether the file is what was made of it under the locks before. Says whether it could be read.
    async fn compare_kept(&self, place: usize, ino: Ino, handle: Handle, content: &[u8]) -> bool {
        let (kernel, begun) = (self.kernel(), self.now());
        let asks_first = self.number.is_multiple_of(2);
        let seen = async {
            let end = match asks_first {
                true => Some(kernel.end(ino).await?),
                false => None,
            };
            Ok((end, kernel.read(ino, handle, 0, PAST_THE_END).await?))
        };
        match seen.await {
            Ok((end, read)) => {
                let machine = self.machine;
                let length = content.len();
                if end.unwrap_or(length as u64) == length as u64 && read == content {
                    return true;
                }
                let same = read.iter().zip(content).take_while(|(a, b)| a == b).count();
                let now = self.what_all_see(&format!("kept{place}")).await;
                panic!(
                    "machine {machine} is told the end {end:?} of kept{place} under a lock, and reads {} bytes, \
                     and not {length}; {same} are right; its kernel has {}; {now}",
                    read.len(),
                    kernel.describe(ino)
                );
            }
            Err(error) => {
                self.excuse("reading under a lock", begun, error);
                false
            }
        }
    }

    /// What the machines say of a file now, in words.
    pub(crate) async fn what_all_see(&self, name: &str) -> String {
        let mut seen = String::new();
        for (number, machine) in self.world.cell.machines.iter().enumerate() {
            let found = machine.cache.lookup(WHO, Ino::ROOT, name.as_bytes()).await;
            let found = found.map(|entry| (entry.attr.size, entry.attr.data_version));
            seen.push_str(&format!("machine {number} says {found:?}; "));
        }
        seen
    }

    async fn change_kept(&mut self, place: usize, ino: Ino, handle: Handle) {
        let world = Arc::clone(&self.world);
        let Ok(mut content) = world.kept[place].try_write() else {
            panic!("two have the lock of kept{place}");
        };
        if !self.compare_kept(place, ino, handle, &content).await {
            return;
        }
        let begun = self.now();
        if let Err(error) = self.edit_kept(ino, handle, &mut content).await {
            self.excuse("writing under a lock", begun, error);
        }
        for _ in 0..TRIES {
            let begun = self.now();
            match self.cache().fsync(handle).await {
                Ok(()) => return,
                Err(error) => self.excuse("storing what was changed under a lock", begun, error),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("kept{place} cannot be stored");
    }

    /// Changes a file, and what it is known to hold if that succeeds.
    async fn edit_kept(
        &mut self,
        ino: Ino,
        handle: Handle,
        content: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let kernel = self.kernel();
        let data = vec![self.rng.u8(1..); self.rng.usize(1..600)];
        match self.rng.u32(0..8) {
            0..4 if content.len() > LENGTH_MAX => {
                kernel.cut(ino, handle, 3).await?;
                content.truncate(3);
            }
            0..2 => {
                let at = self.rng.usize(0..content.len());
                kernel.write(ino, handle, at as u64, &data).await?;
                let end = content.len().max(at + data.len());
                content.resize(end, 0);
                content[at..at + data.len()].copy_from_slice(&data);
            }
            2..5 => {
                kernel.append(ino, handle, &data).await?;
                content.extend_from_slice(&data);
            }
            _ => {
                let end = kernel.end(ino).await?;
                assert_eq!(end, content.len() as u64, "the end under a lock");
                kernel.write(ino, handle, end, &data).await?;
                content.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    /// Closes what was kept open.
    pub(crate) async fn close_kept(&mut self) {
        for kept in self.kept.iter_mut() {
            if let Some(kept) = kept.take() {
                let cache = self.world.cell.machines[self.machine].cache.clone();
                cache.release(kept.handle, None).await;
            }
        }
    }
}
