//! Doing jobs, many at a time, and those that come of them.

use afar_cell::ended;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};

use crate::error::{Error, Result};
use crate::progress::{Event, Meter};
use crate::totals::Totals;

/// Is handed an error of one name; the other names go on.
pub(crate) type Failed<'a> = &'a mut (dyn FnMut(Error) + Send);

/// Does jobs.
pub(crate) trait Worker: Send + Sync + 'static {
    /// Something to do, which others do not wait for.
    type Job: Send + 'static;
    /// A directory whose attributes are set when all is in it.
    type Later: Send + 'static;

    /// Does a job. What it comes to, errors too, is in the answer.
    fn work(&self, job: Self::Job) -> impl Future<Output = Done<Self::Job, Self::Later>> + Send;

    /// Sets the attributes of a directory that is complete.
    fn finish(&self, later: Self::Later) -> impl Future<Output = Result<()>> + Send;

    /// Where the user sees how far it has come.
    fn progress(&self) -> &Meter;
}

/// What a job leaves behind.
#[derive(Debug)]
pub(crate) struct Done<J, L> {
    pub(crate) totals: Totals,
    /// What to do next.
    pub(crate) more: Vec<J>,
    pub(crate) errors: Vec<Error>,
    pub(crate) later: Option<L>,
    /// When a transfer began and ended.
    pub(crate) transfer: Option<(Instant, Instant)>,
}

impl<J, L> Default for Done<J, L> {
    fn default() -> Self {
        Self {
            totals: Totals::default(),
            more: Vec::new(),
            errors: Vec::new(),
            later: None,
            transfer: None,
        }
    }
}

/// Jobs at a time for copies from AFS. Each file has calls of its own; how many a server gets in all
/// is its window's concern.
const JOBS: usize = 32;

/// How many jobs there are at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) jobs: usize,
    /// Directories finished at a time.
    pub(crate) finish: usize,
}

impl Limits {
    /// For copies to the local disk. A directory must be finished before the one it is in: nobody may
    /// come through that one any more then.
    pub(crate) fn local() -> Self {
        Self {
            jobs: JOBS,
            finish: 1,
        }
    }

    /// For copies into AFS: by fid, each directory can be reached whatever those above allow.
    pub(crate) fn afs(jobs: usize) -> Self {
        Self { jobs, finish: jobs }
    }
}

/// Does the jobs and those that come of them; errors are handed over as they come, and the rest goes on.
pub(crate) async fn run<W: Worker>(
    worker: W,
    jobs: Vec<W::Job>,
    limits: Limits,
    failed: Failed<'_>,
) -> Totals {
    let begin = Instant::now();
    let (mut totals, mut later) = (Totals::default(), Vec::new());
    let mut transfer: Option<(Instant, Instant)> = None;
    let worker = Arc::new(worker);
    let mut waiting = jobs;
    waiting.reverse();
    let mut running = JoinSet::new();
    loop {
        while running.len() < limits.jobs
            && let Some(job) = waiting.pop()
        {
            let worker = Arc::clone(&worker);
            running.spawn(async move { worker.work(job).await });
        }
        worker.progress().tell(Event::Queued(waiting.len() as u64));
        let Some(joined) = running.join_next().await else {
            break;
        };
        let done = settled(joined).await;
        totals.add(&done.totals);
        later.extend(done.later);
        waiting.extend(done.more.into_iter().rev());
        if let Some((from, to)) = done.transfer {
            transfer = Some(match transfer {
                Some((first, last)) => (first.min(from), last.max(to)),
                None => (from, to),
            });
        }
        for error in done.errors {
            failed(error);
        }
    }
    finish(&worker, later, limits.finish, failed).await;
    totals.transfer = transfer.map_or(Duration::ZERO, |(from, to)| to.duration_since(from));
    totals.whole = begin.elapsed();
    totals
}

/// Finishes directories, the deepest first: setting a directory's time must come after the last
/// change in it.
async fn finish<W: Worker>(
    worker: &Arc<W>,
    mut later: Vec<W::Later>,
    most: usize,
    failed: Failed<'_>,
) {
    let mut running = JoinSet::new();
    loop {
        while running.len() < most
            && let Some(directory) = later.pop()
        {
            let worker = Arc::clone(worker);
            running.spawn(async move { worker.finish(directory).await });
        }
        let Some(joined) = running.join_next().await else {
            return;
        };
        if let Err(error) = settled(joined).await {
            failed(error);
        }
    }
}

async fn settled<T>(joined: Result<T, JoinError>) -> T {
    match joined {
        Ok(result) => result,
        Err(error) => ended(error).await,
    }
}
