//! What the kernel must no longer keep.
//!
//! Telling the kernel to drop a name waits for the lock of its directory, and dropping pages waits for
//! reads of them: both may be held by a request that waits for us. So it is done by threads that
//! nobody waits for, several of them, lest one slow directory keep the others stale. One more
//! thread takes what the cache manager says and never waits for the kernel. What waits is a set: it
//! has each inode and each name once, however often it is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use afar_cache::{Acknowledger, Cache, Ino, Invalidation};
use fuser::{Filesystem, INodeNo, Notifier, Session};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::order::Order;

/// Threads that tell the kernel.
const TELLERS: usize = 4;
/// The kernel takes a negative offset for: attributes only.
const ATTRIBUTES_ONLY: i64 = -1;
/// The kernel's FUSE_NOTIFY_INVAL_ENTRY.
const ABOUT_NAME: i32 = 3;
/// The kernel's FUSE_EXPIRE_ONLY.
const EXPIRE: u32 = 1;

/// What the kernel is to be told.
#[derive(Debug, Default)]
struct Pending {
    entries: BTreeSet<(Ino, Vec<u8>)>,
    /// With whether it is the data too.
    inodes: BTreeMap<Ino, bool>,
    /// The last mark among them.
    mark: u64,
    /// Threads that tell the kernel something.
    telling: usize,
    closed: bool,
}

impl Pending {
    fn add(&mut self, invalidation: Invalidation) {
        match invalidation {
            Invalidation::Inode { ino, data } => *self.inodes.entry(ino).or_default() |= data,
            Invalidation::Entry { parent, name } => {
                self.entries.insert((parent, name));
            }
            Invalidation::Mark(mark) => self.mark = self.mark.max(mark),
        }
    }

    fn is_told(&self) -> bool {
        self.telling == 0 && self.entries.is_empty() && self.inodes.is_empty()
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
    /// Returns the mark up to which all is told, if it is.
    fn add(&self, invalidation: Invalidation) -> Option<u64> {
        let mut pending = self.pending.lock();
        pending.add(invalidation);
        self.more.notify_one();
        pending.is_told().then_some(pending.mark)
    }

    /// One of those taken is told. Returns the mark up to which all is, if it is.
    fn told(&self) -> Option<u64> {
        let mut pending = self.pending.lock();
        pending.telling -= 1;
        pending.is_told().then_some(pending.mark)
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
                pending.telling += 1;
                return Some(next);
            }
            if pending.closed {
                return None;
            }
            self.more.wait(&mut pending);
        }
    }
}

/// The kernel's side of a mount.
#[derive(Debug)]
pub(crate) struct Kernel {
    notifier: Notifier,
    device: File,
}

impl Kernel {
    /// The kernel's side of this session.
    ///
    /// # Errors
    /// When the process has too many files open.
    pub(crate) fn of<F: Filesystem>(session: &Session<F>) -> io::Result<Self> {
        Ok(Self {
            notifier: session.notifier(),
            device: session.as_fd().try_clone_to_owned()?.into(),
        })
    }

    /// Has a name looked up before it is used again. The library knows only how to have it dropped, and
    /// then a directory has no path until somebody looks it up: those who work in it are told that it
    /// does not exist, and what is mounted in it is unmounted. Kernels before 6.2 drop it all the same.
    fn expire(&self, parent: Ino, name: &[u8]) -> io::Result<()> {
        match (&self.device).write(&expiry(parent, name)) {
            // It has no such name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written.map(drop),
        }
    }
}

/// What the kernel is written to have a name looked up again: `fuse_out_header`, then
/// `fuse_notify_inval_entry_out`, then the name with its end.
fn expiry(parent: Ino, name: &[u8]) -> Vec<u8> {
    let in_word = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes();
    let mut message = vec![0; 4];
    message.extend(ABOUT_NAME.to_ne_bytes());
    // It answers no request.
    message.extend(0_u64.to_ne_bytes());
    message.extend(parent.0.to_ne_bytes());
    message.extend(in_word(name.len()));
    message.extend(EXPIRE.to_ne_bytes());
    message.extend(name);
    message.push(0);
    let length = in_word(message.len());
    message[..4].copy_from_slice(&length);
    message
}

/// Tells the kernel what the cache manager says, until that ends or the mount is gone.
///
/// # Errors
/// When threads cannot be started.
pub(crate) fn start(
    cache: &Cache,
    kernel: Kernel,
    order: &Arc<Order>,
    runtime: Handle,
) -> io::Result<()> {
    let kernel = Arc::new(kernel);
    let (said, acknowledger) = cache.acknowledged_invalidations();
    let queue = Arc::new(Queue::default());
    for number in 0..TELLERS {
        let (queue, kernel) = (Arc::clone(&queue), Arc::clone(&kernel));
        let (acknowledger, order) = (acknowledger.clone(), Arc::clone(order));
        thread::Builder::new()
            .name(format!("afar-inval-{number}"))
            .spawn(move || tell(&queue, &kernel, &order, &acknowledger))?;
    }
    thread::Builder::new()
        .name("afar-inval".to_owned())
        .spawn(move || listen(said, &queue, &runtime, &acknowledger))?;
    Ok(())
}

fn listen(
    mut said: Receiver<Invalidation>,
    queue: &Queue,
    runtime: &Handle,
    acknowledger: &Acknowledger,
) {
    loop {
        match runtime.block_on(said.recv()) {
            Ok(invalidation) => {
                if let Some(mark) = queue.add(invalidation) {
                    acknowledger.acknowledge(mark);
                }
            }
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

fn tell(queue: &Queue, kernel: &Kernel, order: &Order, acknowledger: &Acknowledger) {
    while let Some(invalidation) = queue.next() {
        // Answers from before it must have come, or there is nothing yet to be dropped.
        order.settle();
        let told = match &invalidation {
            Invalidation::Inode { ino, data } => {
                let offset = if *data { 0 } else { ATTRIBUTES_ONLY };
                kernel.notifier.inval_inode(INodeNo(ino.0), offset, 0)
            }
            Invalidation::Entry { parent, name } => kernel.expire(*parent, name),
            Invalidation::Mark(_) => Ok(()),
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
        if let Some(mark) = queue.told() {
            acknowledger.acknowledge(mark);
        }
    }
    acknowledger.acknowledge(u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_expires_by_one_message() {
        let message = expiry(Ino(7), b"name");
        assert_eq!(message.len(), 37);
        assert_eq!(message[..4], 37_u32.to_ne_bytes());
        assert_eq!(message[4..8], 3_i32.to_ne_bytes());
        assert_eq!(message[16..24], 7_u64.to_ne_bytes());
        assert_eq!(message[24..28], 4_u32.to_ne_bytes());
        assert_eq!(message[28..32], 1_u32.to_ne_bytes());
        assert_eq!(message[32..], *b"name\0");
    }

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
            assert_eq!(queue.add(invalidation), None);
        }
        queue.close();
        let told: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(told, [inode(4, false), inode(5, true), entry]);
        assert_eq!(
            queue.add(Invalidation::Mark(7)),
            None,
            "they are being told"
        );
        assert_eq!(
            [queue.told(), queue.told(), queue.told()],
            [None, None, Some(7)]
        );
        assert_eq!(queue.add(Invalidation::Mark(8)), Some(8));
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
