//! What a kernel keeps of files that are open, as Linux does behind FUSE: a file's length for as long as it was
//! told, and pages.
//!
//! Two of its habits matter. It asks for the length only when somebody reads past the end it knows, or asks for the
//! end. And it takes no attributes that it asked for before it was told to drop some: then the old length stays, and
//! it is what is read up to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use afar_cache::{Acknowledger, Cache, Errno, Handle, Ino, Invalidation, SetAttr};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::worker::WHO;

const PAGE_BYTES: u32 = 4096;
const PAGE: u64 = PAGE_BYTES as u64;
/// An answer is on its way to the kernel for so long, now and then.
const ON_ITS_WAY: Duration = Duration::from_millis(1);

/// What it keeps of a file.
#[derive(Debug, Default)]
struct Inode {
    length: u64,
    /// Until when that need not be asked for.
    until: Option<Instant>,
    /// Counts changes of these two.
    changes: u64,
    /// Counts how often pages were dropped or written: a page that was asked for before is not kept.
    drops: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Inode {
    fn has(&mut self, length: u64) {
        self.length = length;
        self.changes += 1;
        self.until = None;
    }

    fn drop_pages(&mut self) {
        self.pages.clear();
        self.drops += 1;
    }
}

/// The kernel of a machine.
#[derive(Debug)]
pub(crate) struct Kernel {
    cache: Cache,
    inodes: Mutex<BTreeMap<Ino, Inode>>,
}

impl Kernel {
    pub(crate) fn start(cache: &Cache) -> Arc<Self> {
        let kernel = Arc::new(Self {
            cache: cache.clone(),
            inodes: Mutex::default(),
        });
        let (said, acknowledger) = cache.acknowledged_invalidations();
        tokio::spawn(listen(Arc::clone(&kernel), said, acknowledger));
        kernel
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, Inode>> {
        self.inodes.lock().unwrap()
    }

    fn with<T>(&self, ino: Ino, work: impl FnOnce(&mut Inode) -> T) -> T {
        work(self.lock().entry(ino).or_default())
    }

    /// What is kept of a file, in words.
    pub(crate) fn describe(&self, ino: Ino) -> String {
        self.with(ino, |inode| {
            let left = inode.until.map(|until| until.saturating_duration_since(Instant::now()));
            let Inode { length, changes, drops, .. } = inode;
            let pages: Vec<u64> = inode.pages.keys().copied().collect();
            format!("{length} bytes, known for {left:?}, {changes} changes, {drops} drops, pages {pages:?}")
        })
    }

    /// A file's length, as whoever asks for its end is told (SEEK_END).
    pub(crate) async fn end(&self, ino: Ino) -> Result<u64, Errno> {
        let (known, changes) = self.with(ino, |inode| {
            let known = inode.until.is_some_and(|until| until > Instant::now());
            (known.then_some(inode.length), inode.changes)
        });
        if let Some(length) = known {
            return Ok(length);
        }
        let attr = self.cache.getattr(WHO, ino).await?;
        if changes % 4 == 0 {
            tokio::time::sleep(ON_ITS_WAY).await;
        }
        Ok(self.with(ino, |inode| {
            if inode.changes == changes {
                if inode.length != attr.size {
                    inode.drop_pages();
                }
                inode.has(attr.size);
                inode.until = Some(Instant::now() + attr.valid);
            }
            inode.length
        }))
    }

    /// Reads.
    pub(crate) async fn read(
        &self,
        ino: Ino,
        handle: Handle,
        at: u64,
        most: u64,
    ) -> Result<Vec<u8>, Errno> {
        let mut length = self.with(ino, |inode| inode.length);
        if at + most > length {
            length = self.end(ino).await?;
        }
        let end = length.min(at + most);
        let mut data = Vec::new();
        for number in at / PAGE..end.div_ceil(PAGE) {
            let page = self.page(ino, handle, number).await?;
            let from = at.saturating_sub(number * PAGE).min(PAGE);
            let to = (end - number * PAGE).min(PAGE);
            data.extend_from_slice(&page[from as usize..to as usize]);
        }
        Ok(data)
    }

    async fn page(&self, ino: Ino, handle: Handle, number: u64) -> Result<Vec<u8>, Errno> {
        let (known, drops) = self.with(ino, |inode| {
            (inode.pages.get(&number).cloned(), inode.drops)
        });
        if let Some(page) = known {
            return Ok(page);
        }
        let read = self.cache.read(handle, number * PAGE, PAGE_BYTES).await?;
        let mut page = read.to_vec();
        page.resize(PAGE_BYTES as usize, 0);
        self.with(ino, |inode| {
            // What is read while pages are dropped is dropped when it is there.
            if inode.drops == drops {
                inode.pages.insert(number, page.clone());
            }
        });
        Ok(page)
    }

    /// Writes.
    pub(crate) async fn write(
        &self,
        ino: Ino,
        handle: Handle,
        at: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        self.cache.write(handle, at, data).await?;
        self.with(ino, |inode| {
            // A kernel locks a page while it is read. Here another program may just be reading what was
            // there before.
            inode.drops += 1;
            for (place, octet) in (at..).zip(data) {
                if let Some(page) = inode.pages.get_mut(&(place / PAGE)) {
                    page[(place % PAGE) as usize] = *octet;
                }
            }
            let length = inode.length.max(at + data.len() as u64);
            inode.has(length);
        });
        Ok(())
    }

    /// Sets the length.
    pub(crate) async fn cut(&self, ino: Ino, handle: Handle, length: u64) -> Result<(), Errno> {
        let set = SetAttr {
            size: Some(length),
            ..SetAttr::default()
        };
        // Done again, it is the same.
        let first = self.cache.setattr(WHO, ino, set, Some(handle)).await;
        if first.is_err() {
            self.cache.setattr(WHO, ino, set, Some(handle)).await?;
        }
        self.with(ino, |inode| {
            inode.drop_pages();
            inode.has(length);
        });
        Ok(())
    }

    /// Writes at the end (O_APPEND): where that is, it does not ask.
    pub(crate) async fn append(&self, ino: Ino, handle: Handle, data: &[u8]) -> Result<(), Errno> {
        self.cache.append(handle, data).await?;
        self.with(ino, |inode| {
            let length = inode.length + data.len() as u64;
            inode.drop_pages();
            inode.has(length);
        });
        Ok(())
    }
}

async fn listen(kernel: Arc<Kernel>, mut said: Receiver<Invalidation>, acknowledger: Acknowledger) {
    loop {
        match said.recv().await {
            Ok(Invalidation::Inode { ino, data }) => kernel.with(ino, |inode| {
                let length = inode.length;
                inode.has(length);
                if data {
                    inode.drop_pages();
                }
            }),
            Ok(Invalidation::Entry { .. }) => {}
            Ok(Invalidation::Mark(mark)) => acknowledger.acknowledge(mark),
            Err(RecvError::Lagged(missed)) => panic!("{missed} invalidations are missed"),
            Err(RecvError::Closed) => return,
        }
    }
}
