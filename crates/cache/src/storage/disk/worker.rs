//! What is done to the disk while nobody waits.

use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use afar_types::UnixTime;

use super::record::{BlockId, FileId};
use super::{Disk, Shared, State, directory};
use crate::model::key::FileKey;

/// Records written at a time.
const RECORDS: usize = 64;

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Job {
    /// What was written to a file is clean: it is to be in blocks.
    Move(FileKey),
    /// A file has another version: its blocks are to be recorded as of that.
    Record(FileId),
}

impl Disk {
    /// Begins to do what there will be to do.
    pub(super) fn start(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            directory::remove_old(&shared.dir);
            shared.work();
        };
        let worker = thread::Builder::new()
            .name("afar-cache".to_owned())
            .spawn(work)?;
        *self.worker.lock() = Some(worker);
        Ok(())
    }

    /// Has everything done, and on the disk. Nothing is to be done after that.
    pub(super) fn end(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        let worker = self.worker.lock().take();
        let Some(worker) = worker else {
            return;
        };
        if worker.join().is_err() {
            tracing::error!(dir = %self.shared.dir.display(), "a thread of the cache has panicked");
        }
        if let Err(error) = self.shared.slots.sync() {
            self.shared.failing(&mut self.shared.lock(), &error);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Has something done, once.
    pub(super) fn give(&self, state: &mut State, job: Job) {
        if state.jobs.insert(job) {
            self.work.notify_one();
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let job = loop {
                if let Some(job) = state.jobs.pop_first() {
                    break job;
                }
                if state.closed {
                    return;
                }
                self.work.wait(&mut state);
            };
            drop(state);
            match job {
                Job::Move(key) => self.move_file(&key),
                Job::Record(file) => self.record(file),
            }
        }
    }

    /// Records all blocks of a file as of its present version.
    fn record(&self, file: FileId) {
        let time = UnixTime::from(SystemTime::now()).0;
        let mut next = 0;
        loop {
            let mut state = self.lock();
            let Some(version) = state.index.file(file).map(|file| file.version) else {
                return;
            };
            let some = state.index.within(file, next..u64::MAX);
            let some: Vec<BlockId> = some.take(RECORDS).map(|(_, block)| block.id).collect();
            let Some(last) = some.last() else {
                return;
            };
            next = u64::from(last.number) + 1;
            // Under the lock, as a slot may be another's a moment later.
            for id in some {
                let Some(block) = state.index.block(id).filter(|block| !block.covered) else {
                    continue;
                };
                let record = block.record(version, time);
                if let Err(error) = self.slots.write_record(block.slot, &record) {
                    return self.failing(&mut state, &error);
                }
            }
        }
    }
}
