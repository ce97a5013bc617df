//! What the kernel must no longer keep.
//!
//! Telling the kernel to drop a name waits for the lock of its directory, and dropping pages waits for
//! reads of them: both may be held by a request that waits for us. So it is done by threads that
//! nobody waits for, several of them, lest one slow directory keep the others stale. One more
//! thread takes what the cache manager says and never waits for the kernel. What waits is a set: it
//! has each inode and each name once, however often it is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;

use afar_cache::{Ino, Invalidation};
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Threads that tell the kernel.
const TELLERS: usize = 4;
/// The kernel takes a negative offset for: attributes only.
const ATTRIBUTES_ONLY: i64 = -1;

/// What the kernel is to be told.
#[derive(Debug, Default)]
struct Pending {
    entries: BTreeSet<(Ino, Vec<u8>)>,
    /// With whether it is the data too.
    inodes: BTreeMap<Ino, bool>,
    closed: bool,
}

impl Pending {
    fn add(&mut self, invalidation: Invalidation) {
        match invalidation {
            Invalidation::Inode { ino, data } => *self.inodes.entry(ino).or_default() |= data,
            Invalidation::Entry { parent, name } => {
                self.entries.insert((parent, name));
            }
        }
    }

    /// Data first: it is what is wrong for longest.
    fn take(&mut self) -> Option<Invalidation> {
        if let Some((ino, data)) = self.inodes.pop_first() {
            return Some(Invalidation::Inode { ino, data });
        }
        let (parent, name) = self.entries.pop_first()?;
        Some(Invalidation::Entry { parent, name })
    }
}

/// What is pending, and a bell for those who tell it.
#[derive(Debug, Default)]
struct Queue {
    pending: Mutex<Pending>,
    more: Condvar,
}

impl Queue {
    fn add(&self, invalidation: Invalidation) {
        self.pending.lock().add(invalidation);
        self.more.notify_one();
    }

    fn close(&self) {
        self.pending.lock().closed = true;
        self.more.notify_all();
    }

    /// The next one; none when the cache manager has ended.
    fn next(&self) -> Option<Invalidation> {
        let mut pending = self.pending.lock();
        loop {
            if let Some(next) = pending.take() {
                return Some(next);
            }
            if pending.closed {
                return None;
            }
            self.more.wait(&mut pending);
        }
    }
}

/// Tells the kernel what the cache manager says, until that ends or the mount is gone.
///
/// # Errors
/// When threads cannot be started.
pub(crate) fn start(
    said: Receiver<Invalidation>,
    notifier: &Notifier,
    runtime: Handle,
) -> io::Result<()> {
    let queue = Arc::new(Queue::default());
    for number in 0..TELLERS {
        let (queue, notifier) = (Arc::clone(&queue), notifier.clone());
        thread::Builder::new()
            .name(format!("afar-inval-{number}"))
            .spawn(move || tell(&queue, &notifier))?;
    }
    thread::Builder::new()
        .name("afar-inval".to_owned())
        .spawn(move || listen(said, &queue, &runtime))?;
    Ok(())
}

fn listen(mut said: Receiver<Invalidation>, queue: &Queue, runtime: &Handle) {
    loop {
        match runtime.block_on(said.recv()) {
            Ok(invalidation) => queue.add(invalidation),
            Err(RecvError::Lagged(missed)) => tracing::error!(
                missed,
                "changes came faster than they could be passed on; the kernel may show old content \
                 until its attributes expire"
            ),
            Err(RecvError::Closed) => break,
        }
    }
    queue.close();
}

fn tell(queue: &Queue, notifier: &Notifier) {
    while let Some(invalidation) = queue.next() {
        let told = match &invalidation {
            Invalidation::Inode { ino, data } => {
                let offset = if *data { 0 } else { ATTRIBUTES_ONLY };
                notifier.inval_inode(INodeNo(ino.0), offset, 0)
            }
            Invalidation::Entry { parent, name } => {
                notifier.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name))
            }
        };
        match told {
            Ok(()) => {}
            // Nobody uses the mount any more.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => queue.close(),
            // The directory is not known to the kernel, or is none there; or it is a mount point
            // somebody mounted on. Then it keeps nothing of it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::EBUSY)) => {}
            Err(error) => tracing::warn!(?invalidation, %error, "the kernel did not drop it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_data_is_not_forgotten() {
        let queue = Queue::default();
        let inode = |number, data| Invalidation::Inode {
            ino: Ino(number),
            data,
        };
        let entry = Invalidation::Entry {
            parent: Ino(1),
            name: b"a".to_vec(),
        };
        for invalidation in [
            entry.clone(),
            inode(5, true),
            inode(5, false),
            inode(4, false),
            entry.clone(),
        ] {
            queue.add(invalidation);
        }
        queue.close();
        let told: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(told, [inode(4, false), inode(5, true), entry]);
    }

    #[test]
    fn tellers_wait_for_more_and_end_at_the_close() {
        let queue = Arc::new(Queue::default());
        let teller = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || std::iter::from_fn(|| queue.next()).count())
        };
        for number in 0..3 {
            queue.add(Invalidation::Inode {
                ino: Ino(number),
                data: true,
            });
        }
        queue.close();
        assert_eq!(teller.join().unwrap(), 3);
    }
}
