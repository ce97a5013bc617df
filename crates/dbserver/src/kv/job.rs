//! Changes that wait for the committer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use afar_rpc::Serving;
use heed::RwTxn;
use tokio::sync::oneshot;

use super::DbError;
use super::env::Env;
use super::view::Change;

/// A change that somebody waits for.
pub(super) trait Job: Send {
    /// Makes the change; whether it is to be kept. Can be called again, and forgets what was
    /// before.
    fn run(&mut self, change: &mut Change<'_>) -> bool;

    /// Tells the one who waits what came of it. `Ok` means that the others' rows it read and the
    /// rows it changed, if they were kept, are on the disk.
    fn answer(self: Box<Self>, outcome: Result<(), DbError>);
}

/// A closure and where its result goes.
pub(super) struct Task<T, E, F> {
    function: F,
    /// The call that the change is made for, to which belongs what is logged of it.
    served: Option<Serving>,
    result: Option<Result<T, E>>,
    answer: oneshot::Sender<Result<T, E>>,
}

impl<T, E, F> Task<T, E, F> {
    pub(super) fn new(function: F, answer: oneshot::Sender<Result<T, E>>) -> Self {
        Self {
            function,
            served: Serving::current(),
            result: None,
            answer,
        }
    }
}

impl<T, E, F> Job for Task<T, E, F>
where
    F: Fn(&mut Change<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<DbError> + Send,
{
    fn run(&mut self, change: &mut Change<'_>) -> bool {
        let result = Serving::within(self.served.clone(), || (self.function)(change));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn answer(self: Box<Self>, outcome: Result<(), DbError>) {
        let Self {
            function,
            served,
            result,
            answer,
        } = *self;
        // It may hold the database, and who has the answer may want to close it.
        drop(function);
        let result = Serving::within(served, || match (outcome, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(DbError::Fault.into()),
            (Err(error), _) => Err(error.into()),
        });
        if answer.send(result).is_err() {
            tracing::trace!("no caller waits for a change any more");
        }
    }
}

/// Makes a change within `parent`, to be kept there or dropped; `None` if it is not to be kept.
pub(super) fn attempt<'p>(
    env: &'p Env,
    parent: &'p mut RwTxn<'_>,
    job: &mut dyn Job,
) -> Result<Option<Change<'p>>, DbError> {
    let mut change = Change::new(env, env.nested(parent)?);
    let keep = catch_unwind(AssertUnwindSafe(|| job.run(&mut change))).map_err(|_| {
        tracing::error!("a change of the database panicked; discarded it");
        DbError::Fault
    })?;
    Ok(keep.then_some(change))
}

/// Tells everybody who waits that it failed.
pub(super) fn refuse(jobs: &mut Vec<Box<dyn Job>>, error: &DbError) {
    for job in jobs.drain(..) {
        job.answer(Err(error.clone()));
    }
}
