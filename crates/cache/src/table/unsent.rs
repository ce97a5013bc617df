//! Changes that were made here under leases, and that servers do not have yet: a line of them for each volume, sent in
//! the order in which they were made.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_cell::Volume;
use afar_types::{BatchOperation, CellName, Fid, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::model::changes_here::ChangesHere;
use crate::model::error::Errno;
use crate::model::pending::{Pending, SentBefore};
use crate::model::pending_volume::PendingVolume;

/// Changes of a volume that wait before programs do.
const CHANGES: usize = 20_000;
/// Bytes of them.
const BYTES: usize = 64 << 20;
/// How old the first of them becomes before programs wait.
const AGE: Duration = Duration::from_secs(5);
/// How long a program waits for that.
const ROOM: Duration = Duration::from_secs(20);

/// The lines of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    lines: Mutex<BTreeMap<(CellName, VolumeId), Arc<Line>>>,
    pub(crate) counts: Counts,
}

/// What became of changes so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Those made here.
    pub(crate) made: AtomicU64,
    /// Batches that servers have run.
    pub(crate) batches: AtomicU64,
    /// Changes that were sent after a lease was over.
    pub(crate) late: AtomicU64,
    /// Those that servers did not make.
    pub(crate) refused: AtomicU64,
}

impl Unsent {
    /// The line of a volume, a new one if there was none.
    pub(crate) fn of(&self, volume: &Arc<Volume>) -> Arc<Line> {
        let key = (volume.cell_name().clone(), volume.id());
        let mut lines = self.lines.lock();
        let line = lines.entry(key);
        Arc::clone(line.or_insert_with(|| Arc::new(Line::new(volume))))
    }

    /// What became of changes so far, and what waits.
    pub(crate) fn seen(&self) -> ChangesHere {
        let waiting = self.waiting();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChangesHere {
            made: count(&self.counts.made),
            batches: count(&self.counts.batches),
            late: count(&self.counts.late),
            refused: count(&self.counts.refused),
            waiting: waiting.iter().map(|line| line.lock().waiting.len()).sum(),
            bytes: 0,
        }
    }

    /// What waits, by volume.
    pub(crate) fn pending(&self) -> Vec<PendingVolume> {
        let waiting = self.waiting().into_iter();
        waiting.filter_map(|line| line.pending()).collect()
    }

    /// Those in which something waits.
    pub(crate) fn waiting(&self) -> Vec<Arc<Line>> {
        let lines = self.lines.lock();
        let waiting = lines
            .values()
            .filter(|line| !line.lock().waiting.is_empty());
        waiting.cloned().collect()
    }
}

/// The changes of a volume.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) volume: Arc<Volume>,
    queue: Mutex<Queue>,
    /// Some were sent, or failed.
    pub(crate) moved: Notify,
    /// Some were added, for the task that sends them.
    pub(crate) added: Notify,
}

/// What waits in a line.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// In the order in which they were made. Those that are being sent stay until the server has answered.
    pub(crate) waiting: VecDeque<Pending>,
    bytes: usize,
    /// A task sends what is there.
    pub(crate) has_sender: bool,
    /// How sending failed last, if it did.
    pub(crate) failing: Option<Errno>,
    /// A batch that an earlier process has sent, of the first changes that wait.
    pub(crate) again: Option<SentBefore>,
    /// The last change that was made.
    last: u64,
}

impl Line {
    fn new(volume: &Arc<Volume>) -> Self {
        Self {
            volume: Arc::clone(volume),
            queue: Mutex::default(),
            moved: Notify::new(),
            added: Notify::new(),
        }
    }

    /// Locked while a change is made here, so that the line has them in their order. Leases are looked at below it, and
    /// vnodes below those.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// What waits, if something does.
    fn pending(&self) -> Option<PendingVolume> {
        let queue = self.lock();
        let first = queue.waiting.front()?;
        Some(PendingVolume {
            cell: self.volume.cell_name().clone(),
            volume: self.volume.id(),
            changes: queue.waiting.len() as u64,
            bytes: queue.bytes as u64,
            oldest: Instant::now().duration_since(first.made),
            failing: queue.failing,
        })
    }

    /// The last change that was made.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Waits until more changes may be made here, though not for ever: after that the lease will be over, and a call
    /// tells what the server says.
    pub(crate) async fn room(&self) {
        let room = async {
            loop {
                let moved = self.moved.notified();
                tokio::pin!(moved);
                // Before the look: what is sent after it must wake this one.
                moved.as_mut().enable();
                if !self.lock().is_full() {
                    return;
                }
                moved.await;
            }
        };
        if tokio::time::timeout(ROOM, room).await.is_err() {
            tracing::debug!(volume = %self.volume.id(), "too much waits to be sent");
        }
    }

    /// Waits until the server has this change and all before it.
    ///
    /// # Errors
    /// As sending failed; it is tried again.
    pub(crate) async fn sent(&self, number: u64) -> Result<(), Errno> {
        let mut failed = 0;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            {
                let queue = self.lock();
                if queue.first().is_none_or(|first| first > number) {
                    return Ok(());
                }
                // What failed before somebody began to wait may succeed now.
                if let Some(error) = queue.failing.filter(|_| failed > 1) {
                    return Err(error);
                }
                failed += u32::from(queue.failing.is_some());
            }
            moved.await;
        }
    }
}

impl Queue {
    fn first(&self) -> Option<u64> {
        // Those that were refused and are tried again stay before those made later.
        self.waiting.front().map(|pending| pending.number)
    }

    fn is_full(&self) -> bool {
        let old = |pending: &Pending| Instant::now().duration_since(pending.made) > AGE;
        self.waiting.len() >= CHANGES
            || self.bytes >= BYTES
            || self.waiting.front().is_some_and(old)
    }

    /// Adds a change.
    pub(crate) fn push(&mut self, pending: Pending) {
        debug_assert!(
            pending.number > self.last,
            "{} comes too late",
            pending.number
        );
        self.last = pending.number;
        self.bytes += pending.bytes;
        self.waiting.push_back(pending);
    }

    /// Takes changes out that are done.
    pub(crate) fn remove(&mut self, numbers: &[u64]) -> Vec<Pending> {
        let mut done = Vec::with_capacity(numbers.len());
        let mut left = VecDeque::with_capacity(self.waiting.len());
        // They are among the first, in this order.
        let mut numbers = numbers.iter().copied().peekable();
        while let Some(pending) = self.waiting.pop_front() {
            match numbers.next_if_eq(&pending.number) {
                Some(_) => done.push(pending),
                None => left.push_back(pending),
            }
            if numbers.peek().is_none() {
                break;
            }
        }
        while let Some(pending) = left.pop_back() {
            self.waiting.push_front(pending);
        }
        self.bytes -= done.iter().map(|pending| pending.bytes).sum::<usize>();
        done
    }

    /// A lease is lost: what was made under it is late.
    pub(crate) fn lost(&mut self, fid: Fid) {
        for pending in &mut self.waiting {
            pending.late |= pending.is_under(fid);
        }
    }

    /// A change was not made: the versions that later ones expect are less by what it would have added.
    pub(crate) fn not_made(&mut self, number: u64, volume: VolumeId) {
        let mut waiting = self.waiting.iter();
        let Some(refused) = waiting.find(|pending| pending.number == number) else {
            return;
        };
        let counted: Vec<Fid> = match &refused.change.operation {
            BatchOperation::StoreStatus { .. } => Vec::new(),
            BatchOperation::StoreData { target, .. } => vec![target.fid(volume)],
            operation => {
                let vnodes = operation.vnodes().into_iter().flatten();
                let fids = vnodes.map(|vnode| vnode.fid(volume));
                fids.filter(|fid| fid.vnode.is_directory()).collect()
            }
        };
        let later = self.waiting.iter_mut();
        for pending in later.filter(|later| later.number > number) {
            let mut under = std::mem::take(&mut pending.change.under).into_vec();
            for condition in &mut under {
                if counted.contains(&condition.vnode.fid(volume)) {
                    condition.version = condition.version.saturating_sub(1);
                }
            }
            // As many as there were.
            pending.change.under = afar_xdr::List::new(under).unwrap_or_default();
        }
    }
}
