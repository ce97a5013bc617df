//! The committer of a database that is on this machine only.

use tokio::sync::mpsc;

use super::DbError;
use super::env::Env;
use super::job::{Job, attempt};

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
        match attempt(env, &mut txn, job.as_mut()) {
            Ok(_) => made.push(job),
            Err(error) => job.answer(Err(error)),
        }
    }
    if let Err(error) = txn.commit() {
        let error = env.error(error);
        tracing::error!(%error, "changes of the database could not be committed");
        return refuse(&mut made, &error);
    }
    for job in made {
        job.answer(Ok(()));
    }
}

fn refuse(jobs: &mut Vec<Box<dyn Job>>, error: &DbError) {
    for job in jobs.drain(..) {
        job.answer(Err(error.clone()));
    }
}
