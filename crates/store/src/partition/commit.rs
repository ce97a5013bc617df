//! The committer: the one thread that changes a partition's rows.
//!
//! It runs all operations that wait, and those that come meanwhile, on one copy of the memtable,
//! makes the records they refer to durable unless the log does ([`super::logged`]), appends to the
//! log, shows the copy to readers, syncs the log, and only then answers them. While one commit is on
//! its way to the disk the next operations gather, so the more clients wait, the more share a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use afar_types::UnixTime;
use parking_lot::Mutex;

use super::checkpoint::{Cut, LOG_MOST};
use super::pending::Deferred;
use super::{Core, logged};
use crate::config::Durability;
use crate::error::{Result, StoreError};
use crate::meta::{Batch, Change, Kept, Log, Rows, WrittenRow};

/// Most operations in one commit.
const BATCH: usize = 512;
/// The committer waits for callers that were just answered for this part of the last commit's time.
const PATIENCE: u32 = 2;
/// Number of commits that do not wait for callers, after a wait was for nothing.
const PAUSE: u32 = 16;

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

/// An operation and the way back to its caller.
trait Operation: Send {
    fn run(self: Box<Self>, change: Change<'_>) -> (Answer, Kept);
    /// A record to write, which it may refer to.
    fn deferred(&self) -> Option<&Arc<Deferred>>;
    /// As how many operations it counts.
    fn weight(&self) -> usize;
    /// Answers without having run.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct Job<T, F> {
    operation: F,
    weight: usize,
    deferred: Option<Arc<Deferred>>,
    answer: SyncSender<Result<T>>,
}

impl<T, F> Operation for Job<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Change<'_>) -> Result<T> + Send,
{
    fn run(self: Box<Self>, mut change: Change<'_>) -> (Answer, Kept) {
        let Self {
            operation, answer, ..
        } = *self;
        match operation(&mut change) {
            Ok(value) => (
                Box::new(move |durable| tell(&answer, durable.map(|()| value))),
                change.finish(),
            ),
            Err(error) => {
                let taken_back = change.roll_back();
                (Box::new(move |_| tell(&answer, Err(error))), taken_back)
            }
        }
    }

    fn deferred(&self) -> Option<&Arc<Deferred>> {
        self.deferred.as_ref()
    }

    fn weight(&self) -> usize {
        self.weight
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
    /// Take the state for a checkpoint.
    Cut(SyncSender<Result<Cut>>),
    /// Make what is in the log durable.
    Sync(SyncSender<Result<()>>),
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
    thread: Mutex<Option<JoinHandle<Log>>>,
}

/// The way to the committer.
#[derive(Clone)]
pub(super) struct Queue {
    sender: Sender<Message>,
    /// Operations in it.
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    /// Has an operation run, and waits until it is durable.
    pub(super) fn commit<T, F>(&self, core: &Core, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Change<'_>) -> Result<T> + Send + 'static,
    {
        self.commit_with(core, None, 1, operation)
    }

    /// The same with a record to write, which the operation may refer to, and which is as much work as
    /// `weight` operations.
    pub(super) fn commit_with<T, F>(
        &self,
        core: &Core,
        deferred: Option<Arc<Deferred>>,
        weight: usize,
        operation: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Change<'_>) -> Result<T> + Send + 'static,
    {
        core.stopped()?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.ask(core, |answer| {
            Message::Run(Box::new(Job {
                operation,
                weight,
                deferred,
                answer,
            }))
        })
    }

    /// Takes the state between two commits, and has the log go on in its other file.
    pub(super) fn cut(&self, core: &Core) -> Result<Cut> {
        self.ask(core, Message::Cut)
    }

    /// Makes all commits durable.
    pub(super) fn sync(&self, core: &Core) -> Result<()> {
        self.ask(core, Message::Sync)
    }

    fn ask<T>(
        &self,
        core: &Core,
        message: impl FnOnce(SyncSender<Result<T>>) -> Message,
    ) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        // If the committer is gone, so is the answer.
        drop(self.sender.send(message(answer)));
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
    pub(super) fn start(core: Arc<Core>, log: Log) -> Result<Self> {
        let (sender, receiver) = channel();
        let counters = Arc::new(Counters::default());
        let count = Arc::clone(&counters);
        let waiting = Arc::new(AtomicUsize::new(0));
        let waits = Arc::clone(&waiting);
        let thread = thread::Builder::new()
            .name("afar-commit".to_owned())
            .spawn(move || {
                let mut work = Work {
                    core: &core,
                    counters: &count,
                    log,
                    waiting: &waits,
                    clients: 0,
                    took: Duration::ZERO,
                    hopeless: 0,
                };
                work.commit_all(&receiver);
                work.log
            })
            .map_err(|e| StoreError::io("starting the committer", e))?;
        Ok(Self {
            queue: Queue { sender, waiting },
            counters,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Whether no operation waits.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.waiting.load(Ordering::Relaxed) == 0
    }

    pub(super) fn stats(&self) -> CommitStats {
        CommitStats {
            commits: self.counters.commits.load(Ordering::Relaxed),
            operations: self.counters.operations.load(Ordering::Relaxed),
        }
    }

    /// Lets it finish what waits, ends it, and returns the log.
    pub(super) fn stop(&self) -> Option<Log> {
        // It is gone already if sending fails.
        drop(self.queue.sender.send(Message::Stop));
        let ended = self.thread.lock().take()?.join();
        if ended.is_err() {
            tracing::error!("the committer panicked");
        }
        ended.ok()
    }
}

/// A commit that takes operations still.
struct Open {
    rows: Batch,
    kept: Kept,
    /// Records that the operations refer to and that may not be written yet.
    deferred: Vec<Arc<Deferred>>,
    /// To those whose operations it has.
    answers: Vec<Answer>,
    /// As how many operations all of them count.
    weight: usize,
    /// How long nobody came.
    idle: Duration,
}

impl Open {
    /// What the next operation is to change.
    fn change(&mut self) -> Change<'_> {
        let volumes = std::mem::take(&mut self.kept.volumes);
        Change::new(&mut self.rows, now()).with_volumes(volumes)
    }
}

struct Work<'a> {
    core: &'a Core,
    counters: &'a Counters,
    log: Log,
    /// Operations that wait for the next commit.
    waiting: &'a AtomicUsize,
    /// Operations that were on their way at the end of the last commit.
    clients: usize,
    /// How long the last commit took.
    took: Duration,
    /// Commits for which not to wait, since it was for nothing.
    hopeless: u32,
}

impl Work<'_> {
    fn commit_all(&mut self, receiver: &Receiver<Message>) {
        let mut next = None;
        loop {
            let message = match next.take() {
                Some(message) => message,
                None => match self.first(receiver) {
                    Some(message) => message,
                    None => return,
                },
            };
            match message {
                Message::Run(first) => next = self.commit(first, receiver),
                Message::Cut(answer) => {
                    let synced = self.sync_log();
                    tell(
                        &answer,
                        synced.map(|()| Cut::take(&self.core.env, &mut self.log)),
                    );
                }
                Message::Sync(answer) => tell(&answer, self.sync_log()),
                Message::Stop => {
                    if let Err(error) = self.sync_log() {
                        self.core.stop(&error);
                    }
                    return;
                }
            }
        }
    }

    /// The next message; none if nobody can send any more.
    fn first(&mut self, receiver: &Receiver<Message>) -> Option<Message> {
        // To be woken takes as long as some clients need to come again.
        if self.clients > 1 && self.hopeless == 0 {
            let since = Instant::now();
            while since.elapsed() < self.took / PATIENCE {
                match receiver.try_recv() {
                    Ok(message) => return Some(message),
                    Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) => thread::yield_now(),
                }
            }
            self.hopeless = PAUSE;
        }
        receiver.recv().ok()
    }

    /// Runs what waits, and gives those that were just answered a moment to come again: a commit
    /// of all of them is worth more than two of half of them. They come one after the other, so most
    /// of that moment is not lost. Returns a message of another sort, if one came in between.
    fn gather(&mut self, receiver: &Receiver<Message>, open: &mut Open) -> Option<Message> {
        let patience = self.took / PATIENCE;
        while open.weight < BATCH {
            match receiver.try_recv() {
                Ok(Message::Run(operation)) => self.take(open, operation),
                Ok(other) => return Some(other),
                Err(_none) => {
                    let all = open.answers.len() >= self.clients;
                    if all || self.hopeless > 0 || open.idle >= patience {
                        break;
                    }
                    let since = Instant::now();
                    thread::yield_now();
                    open.idle += since.elapsed();
                }
            }
        }
        self.hopeless = match open.idle.is_zero() {
            // Many have other things to do; look again later.
            false if open.answers.len() * 4 < self.clients * 3 => PAUSE,
            _ => self.hopeless.saturating_sub(1),
        };
        None
    }

    /// Runs an operation in the open commit.
    fn take(&self, open: &mut Open, operation: Box<dyn Operation>) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        open.deferred.extend(operation.deferred().cloned());
        open.weight += operation.weight();
        let (answer, more) = operation.run(open.change());
        open.answers.push(answer);
        merge(&mut open.kept, more);
    }

    fn sync_log(&mut self) -> Result<()> {
        self.core.stopped()?;
        let synced = self.log.sync();
        synced.map_err(|error| self.core.env.io("syncing the log", error))
    }

    /// Commits an operation together with those that come meanwhile. Returns a message of another
    /// sort, if one came in between.
    fn commit(
        &mut self,
        first: Box<dyn Operation>,
        receiver: &Receiver<Message>,
    ) -> Option<Message> {
        let since = Instant::now();
        let mut open = match self.begin() {
            Ok(open) => open,
            Err(error) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.failed(&error);
                first.refuse(error);
                return None;
            }
        };
        self.take(&mut open, first);
        let next = self.gather(receiver, &mut open);
        let idle = open.idle;
        let answers = std::mem::take(&mut open.answers);
        let mut result = self.close(open);
        if result.is_ok() && self.core.options.durable() != Durability::Async {
            result = self.sync_log();
            // The memtable shows what the log may not have: nothing can be promised any more.
            if let Err(error) = &result {
                self.core.stop(error);
            }
        }
        match &result {
            Ok(()) => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
                self.counters
                    .operations
                    .fetch_add(answers.len() as u64, Ordering::Relaxed);
                self.core.backlog.grew(self.log.len());
            }
            Err(error) => self.failed(error),
        }
        self.took = since.elapsed().saturating_sub(idle);
        self.clients = answers.len() + self.waiting.load(Ordering::Relaxed);
        for answer in answers {
            answer(result.clone());
        }
        self.core.segments.begin_writing_between();
        next
    }

    /// Sees to what a commit leaves behind that failed.
    fn failed(&self, error: &StoreError) {
        // They are of changes that were taken back.
        self.core.env.images().lock().clear();
        match error {
            StoreError::NoSpace(_) | StoreError::Stopped { .. } => {}
            // A record was not written, which nothing refers to.
            StoreError::Segment(_) if !self.core.segments.is_poisoned() => {}
            error => self.core.stop(error),
        }
    }

    /// Writes the open commit to the log, and shows it to readers.
    fn close(&mut self, mut open: Open) -> Result<()> {
        let core = self.core;
        let mut kept = std::mem::take(&mut open.kept);
        let wrote = core.options.durable() == Durability::Full
            && kept.segments.values().any(|delta| delta.end > 0);
        let volumes = std::mem::take(&mut kept.volumes);
        let mut change = Change::new(&mut open.rows, now()).with_volumes(volumes);
        change.write_volumes();
        for (number, delta) in &kept.segments {
            let mut row = change.segment(*number)?;
            row.end = row.end.max(delta.end);
            row.live = row.live.saturating_add_signed(delta.live);
            change.put_segment(*number, row);
        }
        merge(&mut kept, change.finish());
        let Open { rows, deferred, .. } = open;
        let write_deferred = || deferred.iter().try_for_each(|record| record.write(core));
        self.frame(std::mem::take(&mut kept.rows));
        let in_log = wrote && logged::fits(&kept);
        if in_log {
            let added = logged::add(&mut self.log, &kept, &core.segments, &deferred);
            added.map_err(|error| core.env.io("logging records", error))?;
        }
        let reserved = self.log.reserve();
        reserved.map_err(|error| core.env.io("lengthening the log", error))?;
        if !in_log {
            write_deferred()?;
        }
        if wrote && !in_log {
            core.segments.sync()?;
        }
        let appended = self.log.append();
        appended.map_err(|error| core.env.io("writing the log", error))?;
        if core.options.durable() != Durability::Async {
            // The disk writes it while records are put into their files.
            self.log.begin_writing();
        }
        // From now on they are read.
        let written = write_deferred();
        match &written {
            Ok(()) => core.env.publish(rows),
            Err(_) => {
                if let Err(error) = self.log.take_back() {
                    // Nobody knows what a replay would find.
                    core.stop(&core.env.io("taking a frame of the log back", error));
                }
            }
        }
        written
    }

    /// Begins a commit, if there is room for what it does.
    fn begin(&self) -> Result<Open> {
        self.core.stopped()?;
        if self.log.len() > LOG_MOST && !self.core.backlog.written() {
            return Err(StoreError::NoSpace(self.core.path.clone()));
        }
        Ok(Open {
            rows: self.core.env.begin()?,
            kept: Kept::default(),
            deferred: Vec::new(),
            answers: Vec::new(),
            weight: 0,
            idle: Duration::ZERO,
        })
    }

    /// Puts the rows a batch changed, as they are now, into the log's next frame.
    fn frame(&mut self, mut rows: Vec<WrittenRow>) {
        // Stable: of the same row's writes the last one stays the last.
        rows.sort_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        self.log.begin();
        for same in rows.chunk_by(|a, b| (a.table, &a.key) == (b.table, &b.key)) {
            if let Some(row) = same.last() {
                self.log.row(row.table, &row.key, row.sealed.as_deref());
            }
        }
    }
}

/// The time, in seconds since 1970. An operation may come to a commit that was begun in the second
/// before its caller asked, so each has its own.
fn now() -> u32 {
    UnixTime::from(SystemTime::now()).0
}

fn merge(sum: &mut Kept, more: Kept) {
    sum.rows.extend(more.rows);
    // Each change goes on with those of the changes before.
    sum.volumes = more.volumes;
    sum.records.extend(more.records);
    for (number, delta) in more.segments {
        let sum = sum.segments.entry(number).or_default();
        sum.end = sum.end.max(delta.end);
        sum.live += delta.live;
    }
}
