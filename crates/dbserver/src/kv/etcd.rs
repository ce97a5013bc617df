//! A database that several servers agree on through etcd.
//!
//! Each server keeps all rows in LMDB, from which it reads. A change is made there in a
//! transaction that is not committed yet; the rows it changed go to etcd in one transaction, on
//! condition that the key `sequence`, which every change rewrites, is as it was when the change
//! began. So changes are in one order, and none is based on rows that were out of date. If the
//! condition fails, the others' changes are taken from the watch, and the change is made again.
//!
//! When an answer of etcd gets lost, the same changes are sent again under the same condition: if
//! it fails, the value of `sequence` tells whether the lost one was done.

mod link;
mod position;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

use super::DbError;
use super::env::Env;
use super::health::Health;
use super::job::{Job, attempt, refuse};
use super::view::ChangedRows;
use link::{Link, LinkError};
use position::Position;

/// Changes in one transaction.
const BATCH: usize = 256;

/// Rows and bytes in one transaction. Of nested transactions etcd counts each by itself against
/// its limit of 128 operations, those around it included; a request may have 1.5 MiB.
pub(super) const ROWS: usize = 3_000;
const BYTES: usize = 1_000_000;
const NESTED: usize = 60;

/// Between two attempts to reach etcd.
const PAUSE: Duration = Duration::from_millis(250);

/// Where etcd is, and for how long one gets by without it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// Its members, such as `http://db1.example.org:2379`.
    pub endpoints: Vec<String>,
    /// What the keys of this cell start with in etcd. `/afar/` by default.
    pub prefix: String,
    /// Name and password, if etcd wants them.
    pub user: Option<(String, String)>,
    /// A change that etcd has not taken after this time fails. 5 s by default.
    pub patience: Duration,
    /// A server that has not heard of etcd for this time does not answer from its rows any more.
    /// 10 minutes by default.
    pub reads_alone: Duration,
}

impl EtcdOptions {
    /// The cell's database at these members of etcd.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            prefix: "/afar/".to_owned(),
            user: None,
            patience: Duration::from_secs(5),
            reads_alone: Duration::from_secs(600),
        }
    }

    fn sequence_key(&self) -> Vec<u8> {
        format!("{}sequence", self.prefix).into_bytes()
    }

    fn rows_prefix(&self) -> Vec<u8> {
        format!("{}rows/", self.prefix).into_bytes()
    }
}

/// The rows here, and how far they follow etcd.
pub(super) struct Replica {
    env: Env,
    options: EtcdOptions,
    health: Arc<Health>,
    /// None while the rows have to be filled again.
    position: Option<Position>,
    /// Values of `sequence` that came by since the last change.
    seen: Vec<Vec<u8>>,
    /// Whether the operator was told that etcd is away.
    told: bool,
}

/// Changes sent under the present condition without a known outcome.
#[derive(Default)]
struct Doubt {
    /// The values of `sequence` they would have set.
    ids: Vec<Vec<u8>>,
    /// How many of the waiting changes they were.
    jobs: usize,
}

/// Changes that wait, and until when.
struct Waiting {
    jobs: Vec<Box<dyn Job>>,
    until: Instant,
    doubt: Doubt,
}

impl Replica {
    /// Takes up the rows where they were left.
    ///
    /// # Errors
    /// When they cannot be read, or are not a replica: filling it would remove them.
    pub(super) fn open(env: Env, options: EtcdOptions) -> Result<(Self, Arc<Health>), DbError> {
        let position = Position::read(&env, &options.prefix)?;
        let health = Arc::new(Health::new(position.is_some(), options.reads_alone));
        let replica = Self {
            env,
            options,
            health: Arc::clone(&health),
            position,
            seen: Vec::new(),
            told: false,
        };
        Ok((replica, health))
    }

    /// Makes changes and follows those of others, until the database is closed.
    pub(super) fn run(self, queue: mpsc::Receiver<Box<dyn Job>>) {
        match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime.block_on(self.serve(queue)),
            Err(error) => tracing::error!(%error, "the committer of the database cannot run"),
        }
    }

    async fn serve(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let mut waiting = Waiting {
            jobs: Vec::new(),
            until: Instant::now(),
            doubt: Doubt::default(),
        };
        while let Some(mut link) = self.linked(&mut queue, &mut waiting).await {
            match self.work(&mut link, &mut queue, &mut waiting).await {
                Ok(()) => return,
                Err(error) => self.tell(&error),
            }
        }
    }

    /// Waits for a connection. Changes that come meanwhile are refused when their time is over.
    /// `None` when the database is closed.
    async fn linked(
        &mut self,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        waiting: &mut Waiting,
    ) -> Option<Link> {
        let patience = self.options.patience;
        let connecting = async {
            loop {
                match self.connect().await {
                    Ok(link) => return link,
                    Err(error) => {
                        self.tell(&error);
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::pin!(connecting);
        loop {
            let idle = waiting.jobs.is_empty();
            tokio::select! {
                link = &mut connecting => return Some(link),
                taken = queue.recv_many(&mut waiting.jobs, BATCH), if idle => {
                    if taken == 0 {
                        return None;
                    }
                    waiting.until = Instant::now() + patience;
                }
                () = sleep_until(waiting.until), if !idle => waiting.give_up(),
            }
        }
    }

    /// Makes changes and follows, as long as the connection lasts.
    async fn work(
        &mut self,
        link: &mut Link,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        waiting: &mut Waiting,
    ) -> Result<(), LinkError> {
        let patience = self.options.patience;
        let mut tick = interval(patience / 4);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            if !waiting.jobs.is_empty() {
                self.round(link, waiting).await?;
                if Instant::now() >= waiting.until {
                    waiting.give_up();
                }
                continue;
            }
            tokio::select! {
                taken = queue.recv_many(&mut waiting.jobs, BATCH) => {
                    if taken == 0 {
                        return Ok(());
                    }
                    waiting.until = Instant::now() + patience;
                }
                response = link.next() => {
                    last = Instant::now();
                    self.follow(response?)?;
                    self.seen.clear();
                }
                _ = tick.tick() => {
                    if last.elapsed() > patience {
                        return Err(LinkError::Silent);
                    }
                    link.ask_progress(patience).await?;
                }
            }
        }
    }

    /// Tries once to make the changes that wait, as many as go into one transaction.
    async fn round(&mut self, link: &mut Link, waiting: &mut Waiting) -> Result<(), LinkError> {
        let position = self.position.ok_or(LinkError::Position)?;
        let env = self.env.clone();
        let mut txn = env.write()?;
        let (rows, jobs) = gather(&env, &mut txn, &mut waiting.jobs)?;
        if jobs == 0 {
            return Ok(());
        }
        let id = fastrand::u128(..).to_be_bytes().to_vec();
        let request = self.transaction(&rows, &id, position.sequence);
        waiting.doubt.ids.push(id);
        waiting.doubt.jobs = jobs;
        let response = timeout_at(waiting.until, link.kv.txn(request))
            .await
            .map_err(|_| LinkError::Silent)??;
        if !response.succeeded() {
            drop(txn);
            let now = response.op_responses().into_iter().find_map(|op| match op {
                TxnOpResponse::Get(get) => get.kvs().first().map(|kv| kv.mod_revision()),
                _ => None,
            });
            return self.lost_race(link, waiting, now).await;
        }
        if !rows.is_empty() {
            let revision = response.header().map_or(0, |header| header.revision());
            let position = Position {
                applied: revision,
                sequence: revision,
                ..position
            };
            position.write(&env, &mut txn, &self.options.prefix)?;
            txn.commit().map_err(|e| env.error(e))?;
            self.position = Some(position);
        }
        self.heard();
        waiting.done();
        Ok(())
    }

    /// Others were faster, or an earlier attempt was done after all: follows, and finds out.
    async fn lost_race(
        &mut self,
        link: &mut Link,
        waiting: &mut Waiting,
        sequence: Option<i64>,
    ) -> Result<(), LinkError> {
        let Some(sequence) = sequence else {
            // Somebody has emptied etcd.
            self.position = None;
            return Err(LinkError::Position);
        };
        self.seen.clear();
        timeout_at(waiting.until, self.catch_up(link, sequence))
            .await
            .map_err(|_| LinkError::Silent)??;
        if waiting.doubt.ids.iter().any(|id| self.seen.contains(id)) {
            waiting.done();
        } else {
            waiting.doubt = Doubt::default();
        }
        Ok(())
    }

    /// The transaction that puts these rows, if `sequence` was last changed at this revision.
    fn transaction(&self, rows: &ChangedRows, id: &[u8], sequence: i64) -> Txn {
        let prefix = self.options.rows_prefix();
        let key = self.options.sequence_key();
        let mut operations: Vec<TxnOp> = rows
            .iter()
            .map(|(key, value)| {
                let key = [&prefix[..], key].concat();
                match value {
                    Some(value) => TxnOp::put(key, value.clone(), None),
                    None => TxnOp::delete(key, None),
                }
            })
            .collect();
        let mut outer = Vec::new();
        while !operations.is_empty() {
            let rest = operations.split_off(operations.len().min(NESTED));
            outer.push(TxnOp::txn(Txn::new().and_then(operations)));
            operations = rest;
        }
        if !outer.is_empty() {
            outer.push(TxnOp::put(key.clone(), id, None));
        }
        Txn::new()
            .when([Compare::mod_revision(
                key.clone(),
                CompareOp::Equal,
                sequence,
            )])
            .and_then(outer)
            .or_else([TxnOp::get(key, None)])
    }

    fn heard(&mut self) {
        self.health.heard();
        if std::mem::take(&mut self.told) {
            tracing::info!("etcd answers again: the database takes changes");
        }
    }

    /// Tells the operator, once, that etcd is away.
    fn tell(&mut self, error: &LinkError) {
        if std::mem::replace(&mut self.told, true) {
            tracing::debug!(%error, "etcd still does not answer");
        } else {
            tracing::warn!(
                %error,
                endpoints = ?self.options.endpoints,
                "etcd does not answer: the database takes no changes until it does"
            );
        }
    }
}

impl Waiting {
    /// The changes that were sent are done.
    fn done(&mut self) {
        for job in self.jobs.drain(..self.doubt.jobs.min(self.jobs.len())) {
            job.answer(Ok(()));
        }
        self.doubt = Doubt::default();
    }

    /// Nobody waits longer than this. Whether changes in doubt were made, later readers see.
    fn give_up(&mut self) {
        refuse(&mut self.jobs, &DbError::NoQuorum);
        self.doubt = Doubt::default();
    }
}

/// Makes the first changes, as many as fit together; how many that were, and the rows they
/// changed. Changes that cannot be made at all are answered and leave the queue.
fn gather(
    env: &Env,
    txn: &mut heed::RwTxn<'_>,
    jobs: &mut Vec<Box<dyn Job>>,
) -> Result<(ChangedRows, usize), DbError> {
    let (mut rows, mut bytes, mut made) = (ChangedRows::new(), 0, 0);
    while let Some(job) = jobs.get_mut(made) {
        let outcome = attempt(env, txn, job.as_mut()).and_then(|change| {
            let Some(change) = change else {
                return Ok(Some(ChangedRows::new()));
            };
            let changed = change.rows()?;
            let size = size(&changed);
            if changed.len() > ROWS || size > BYTES {
                let rows = changed.len();
                return Err(DbError::TooLarge { rows, bytes: size });
            }
            if rows.len() + changed.len() > ROWS || bytes + size > BYTES {
                return Ok(None);
            }
            bytes += size;
            change.keep().map(|()| Some(changed))
        });
        match outcome {
            Ok(Some(changed)) => {
                rows.extend(changed);
                made += 1;
            }
            Ok(None) => break,
            Err(error) => jobs.remove(made).answer(Err(error)),
        }
    }
    Ok((rows, made))
}

fn size(rows: &ChangedRows) -> usize {
    rows.iter()
        .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len) + 32)
        .sum()
}
