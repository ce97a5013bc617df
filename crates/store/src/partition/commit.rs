//! The committer: the one thread that changes a partition's database.
//!
//! It takes all operations that wait, runs them in one transaction, makes the records they refer
//! to durable, commits, and only then answers them. While one commit is on its way to the disk the
//! next operations gather, so the more clients wait, the more share a commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use afar_types::UnixTime;
use parking_lot::Mutex;

use super::Core;
use crate::config::Durability;
use crate::error::{Result, StoreError};
use crate::meta::{Change, Rows, SegmentDelta};

/// Most operations in one commit.
const BATCH: usize = 512;

/// What the committer has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Transactions on the disk.
    pub commits: u64,
    /// Operations in them.
    pub operations: u64,
}

/// Tells an operation's caller how it went.
type Answer = Box<dyn FnOnce(Result<()>) + Send>;
/// What an operation does to segments; an error means that the transaction is broken.
type Deltas = Result<BTreeMap<u32, SegmentDelta>>;

/// An operation and the way back to its caller.
trait Operation: Send {
    fn run(self: Box<Self>, change: Change<'_, '_>) -> (Answer, Deltas);
    /// Answers without having run.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct Job<T, F> {
    operation: F,
    answer: SyncSender<Result<T>>,
}

impl<T, F> Operation for Job<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Change<'_, '_>) -> Result<T> + Send,
{
    fn run(self: Box<Self>, mut change: Change<'_, '_>) -> (Answer, Deltas) {
        let Self { operation, answer } = *self;
        match operation(&mut change) {
            Ok(value) => (
                Box::new(move |durable| tell(&answer, durable.map(|()| value))),
                Ok(change.finish()),
            ),
            Err(error) => {
                let taken_back = change.roll_back();
                (
                    Box::new(move |_| tell(&answer, Err(error))),
                    taken_back.map(|()| BTreeMap::new()),
                )
            }
        }
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        tell(&self.answer, Err(error));
    }
}

fn tell<T>(answer: &SyncSender<Result<T>>, result: Result<T>) {
    // A caller that does not wait any more wants no answer.
    drop(answer.send(result));
}

enum Message {
    Run(Box<dyn Operation>),
    Stop,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    operations: AtomicU64,
}

pub(super) struct Committer {
    queue: Queue,
    counters: Arc<Counters>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The way to the committer.
#[derive(Clone)]
pub(super) struct Queue {
    sender: Sender<Message>,
}

impl Queue {
    /// Has an operation run, and waits until it is durable.
    pub(super) fn commit<T, F>(&self, core: &Core, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Change<'_, '_>) -> Result<T> + Send + 'static,
    {
        core.stopped()?;
        let (answer, answered) = sync_channel(1);
        let job = Box::new(Job { operation, answer });
        if self.sender.send(Message::Run(job)).is_err() {
            core.stopped()?;
        }
        match answered.recv() {
            Ok(result) => result,
            Err(_gone) => {
                core.stopped()?;
                Err(core.env.corrupt("the committer has ended"))
            }
        }
    }
}

impl Committer {
    pub(super) fn start(core: Arc<Core>) -> Result<Self> {
        let (sender, receiver) = channel();
        let counters = Arc::new(Counters::default());
        let count = Arc::clone(&counters);
        let thread = std::thread::Builder::new()
            .name("afar-commit".to_owned())
            .spawn(move || commit_all(&core, &receiver, &count))
            .map_err(|e| StoreError::io("starting the committer", e))?;
        Ok(Self {
            queue: Queue { sender },
            counters,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    pub(super) fn stats(&self) -> CommitStats {
        CommitStats {
            commits: self.counters.commits.load(Ordering::Relaxed),
            operations: self.counters.operations.load(Ordering::Relaxed),
        }
    }

    /// Lets it finish what waits, and ends it.
    pub(super) fn stop(&self) {
        // It is gone already if sending fails.
        drop(self.queue.sender.send(Message::Stop));
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the committer panicked");
        }
    }
}

fn commit_all(core: &Core, receiver: &Receiver<Message>, counters: &Counters) {
    let mut go_on = true;
    while go_on {
        let Ok(Message::Run(first)) = receiver.recv() else {
            return;
        };
        let mut batch = vec![first];
        while batch.len() < BATCH {
            match receiver.try_recv() {
                Ok(Message::Run(operation)) => batch.push(operation),
                Ok(Message::Stop) => {
                    go_on = false;
                    break;
                }
                Err(_none) => break,
            }
        }
        let operations = batch.len() as u64;
        let mut answers = Vec::with_capacity(batch.len());
        let result = commit_batch(core, batch, &mut answers);
        match &result {
            Ok(()) => {
                counters.commits.fetch_add(1, Ordering::Relaxed);
                counters.operations.fetch_add(operations, Ordering::Relaxed);
            }
            Err(StoreError::NoSpace(_) | StoreError::Stopped { .. }) => {}
            Err(error) => core.stop(error),
        }
        for answer in answers {
            answer(result.clone());
        }
    }
}

/// Runs and commits a batch. What it returns is for all of `answers`.
fn commit_batch(
    core: &Core,
    batch: Vec<Box<dyn Operation>>,
    answers: &mut Vec<Answer>,
) -> Result<()> {
    let begun = core.stopped().and_then(|()| core.env.write());
    let mut txn = match begun {
        Ok(txn) => txn,
        Err(error) => {
            for operation in batch {
                operation.refuse(error.clone());
            }
            return Err(error);
        }
    };
    let now = UnixTime::from(SystemTime::now()).0;
    let mut deltas: BTreeMap<u32, SegmentDelta> = BTreeMap::new();
    let mut broken = None;
    for operation in batch {
        if let Some(error) = &broken {
            operation.refuse(StoreError::clone(error));
            continue;
        }
        let (answer, segments) = operation.run(Change::new(&mut txn, &core.env, now));
        answers.push(answer);
        match segments {
            Ok(segments) => merge(&mut deltas, segments),
            Err(error) => broken = Some(error),
        }
    }
    if let Some(error) = broken {
        return Err(error);
    }
    let wrote = deltas.values().any(|delta| delta.end > 0);
    let mut change = Change::new(&mut txn, &core.env, now);
    for (number, delta) in deltas {
        let mut row = change.segment(number)?;
        row.end = row.end.max(delta.end);
        row.live = row.live.saturating_add_signed(delta.live);
        change.put_segment(number, row)?;
    }
    drop(change);
    if wrote && core.options.durable() == Durability::Full {
        core.segments.sync()?;
    }
    txn.commit().map_err(|e| core.env.database(e))
}

fn merge(deltas: &mut BTreeMap<u32, SegmentDelta>, more: BTreeMap<u32, SegmentDelta>) {
    for (number, delta) in more {
        let sum = deltas.entry(number).or_default();
        sum.end = sum.end.max(delta.end);
        sum.live += delta.live;
    }
}
