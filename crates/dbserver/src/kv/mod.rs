//! Rows of bytes by key, read from this machine and changed in order.
//!
//! Reading is always local, from LMDB. Changes are closures over the rows: a committer takes all
//! that are queued, runs one after the other, makes the result durable once, and answers them.
//! What must be agreed with other servers is agreed before that.
//!
//! The first byte of a key tells whose row it is: `V` for the location server, `P` for the
//! protection server. docs/formats/databases.md tells what is in the rows.

mod copy;
mod env;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod health;
mod job;
mod local;
mod view;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};

pub use error::{DbError, UINTERNAL, UIOERROR, UNOQUORUM};
#[cfg(feature = "etcd")]
pub use etcd::EtcdOptions;
pub use view::{Change, KEY_MAX, Range, View};

use env::Env;
use job::{Job, Task};

/// Changes that may wait; who comes then waits for room.
const QUEUE: usize = 4096;

/// Rows in one change of a database on this machine only: a bound for the memory it takes.
const ROWS_LOCAL: usize = 50_000;

/// How a database is kept.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// Where servers agree on changes; none by default: the database is this machine's alone.
    #[cfg(feature = "etcd")]
    pub etcd: Option<EtcdOptions>,
}

/// A handle of an open database; its clones are of the same one. With the last of them it is
/// closed, when the changes that wait have been made.
#[derive(Debug, Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    /// Gone only while the database is closed.
    queue: Option<mpsc::Sender<Box<dyn Job>>>,
    committer: Option<JoinHandle<()>>,
    /// Dropped last: it copies what the committer did.
    _copier: copy::Copier,
    #[cfg(feature = "etcd")]
    health: Option<Arc<health::Health>>,
}

/// What the committer takes its changes from.
type Queue = mpsc::Receiver<Box<dyn Job>>;

/// What runs on the committer's thread, and what is known of the others.
struct Committer {
    run: Box<dyn FnOnce(Queue) + Send>,
    #[cfg(feature = "etcd")]
    health: Option<Arc<health::Health>>,
}

impl Committer {
    #[cfg(feature = "etcd")]
    fn new(env: &Env, options: &Options) -> Result<Self, DbError> {
        let Some(options) = &options.etcd else {
            return Ok(Self {
                health: None,
                ..Self::local(env)
            });
        };
        let (replica, health) = etcd::Replica::open(env.clone(), options.clone())?;
        Ok(Self {
            run: Box::new(|jobs| replica.run(jobs)),
            health: Some(health),
        })
    }

    #[cfg(not(feature = "etcd"))]
    fn new(env: &Env, _: &Options) -> Result<Self, DbError> {
        Ok(Self::local(env))
    }

    fn local(env: &Env) -> Self {
        let env = env.clone();
        Self {
            run: Box::new(move |jobs| local::run(&env, jobs)),
            #[cfg(feature = "etcd")]
            health: None,
        }
    }
}

impl Database {
    /// Opens the database in this directory, or makes it. A directory can be open once only.
    ///
    /// # Errors
    /// When the directory cannot be made or used, or holds something else.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, DbError> {
        let env = Env::open(dir)?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let committer = Committer::new(&env, options)?;
        let run = committer.run;
        let thread = std::thread::Builder::new()
            .name("db-commit".to_owned())
            .spawn(move || run(jobs))
            .map_err(|source| DbError::Open {
                path: dir.to_owned(),
                what: "starting its committer",
                source: Arc::new(source),
            })?;
        let copier = copy::Copier::start(env.clone()).map_err(|source| DbError::Open {
            path: dir.to_owned(),
            what: "starting what copies it",
            source: Arc::new(source),
        })?;
        let inner = Inner {
            env,
            queue: Some(queue),
            committer: Some(thread),
            _copier: copier,
            #[cfg(feature = "etcd")]
            health: committer.health,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// When the copy in this directory was made to which [`restore`](Self::restore) goes back; `None` if
    /// there is no whole one. It is made some seconds after a change, and when the database is closed.
    #[must_use]
    pub fn copy_made(dir: &Path) -> Option<SystemTime> {
        copy::made(dir)
    }

    /// Puts the rows of the copy in the place of those of a database that is not open. The files that are
    /// replaced stay under other names.
    ///
    /// # Errors
    /// There is no whole copy, or the files cannot be written.
    pub fn restore(dir: &Path) -> Result<(), DbError> {
        copy::restore(dir)
    }

    /// Reads rows as of one moment. Takes microseconds and may be called from any thread; as long
    /// as it lasts, the space of rows that are replaced cannot be used again.
    ///
    /// # Errors
    /// When the database cannot be read, and what `f` returns.
    pub fn read<T, E: From<DbError>>(
        &self,
        f: impl FnOnce(&View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        #[cfg(feature = "etcd")]
        if let Some(health) = &self.inner.health {
            health.check()?;
        }
        let txn = self.inner.env.read()?;
        f(&View::new(&self.inner.env, &txn))
    }

    /// The number of the last commit.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn commit(&self) -> Result<u64, DbError> {
        Ok(self.inner.env.read()?.id() as u64)
    }

    /// Rows that one change may touch at most.
    #[must_use]
    pub fn rows_per_change(&self) -> usize {
        #[cfg(feature = "etcd")]
        if self.inner.health.is_some() {
            return etcd::ROWS;
        }
        ROWS_LOCAL
    }

    /// Changes rows: all that `f` does is kept, or nothing if it fails. When this returns, what
    /// was kept is durable and seen by every later reader.
    ///
    /// `f` runs on the committer's thread and may run more than once; only its last result counts.
    /// Dropping the future does not undo a change that waits.
    ///
    /// # Errors
    /// When the change cannot be kept, and what `f` returns.
    pub async fn write<T, E>(
        &self,
        f: impl Fn(&mut Change<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        let queue = self.inner.queue.as_ref().ok_or(DbError::Closed)?;
        queue
            .send(Box::new(Task::new(f, answer)))
            .await
            .map_err(|_| DbError::Closed)?;
        result.await.unwrap_or_else(|_| Err(DbError::Closed.into()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.queue.take());
        let Some(committer) = self.committer.take() else {
            return;
        };
        // The last handle may have been in a change.
        if committer.thread().id() != std::thread::current().id() && committer.join().is_err() {
            tracing::error!("the committer of the database panicked");
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("env", &self.env)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
