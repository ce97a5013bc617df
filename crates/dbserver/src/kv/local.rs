//! The committer of a database that is on this machine only.

use tokio::sync::mpsc;

use super::env::Env;
use super::job::{Job, attempt, refuse};

/// Changes in one commit.
const BATCH: usize = 1024;

/// Takes everything queued, changes the rows, syncs them to the disk once, and answers all, until
/// the database is closed.
pub(super) fn run(env: &Env, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    let mut jobs = Vec::new();
    while queue.blocking_recv_many(&mut jobs, BATCH) > 0 {
        commit(env, &mut jobs);
    }
}

fn commit(env: &Env, jobs: &mut Vec<Box<dyn Job>>) {
    let mut txn = match env.write() {
        Ok(txn) => txn,
        Err(error) => return refuse(jobs, &error),
    };
    let mut made = Vec::with_capacity(jobs.len());
    for mut job in jobs.drain(..) {
        let kept = attempt(env, &mut txn, job.as_mut())
            .and_then(|change| change.map_or(Ok(()), |change| change.keep()));
        match kept {
            Ok(()) => made.push(job),
            Err(error) => job.answer(Err(error)),
        }
    }
    if let Err(error) = txn.commit() {
        let error = env.error(error);
        tracing::error!(%error, "cannot commit changes of the database");
        return refuse(&mut made, &error);
    }
    for job in made {
        job.answer(Ok(()));
    }
}
