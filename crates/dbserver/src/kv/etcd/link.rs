//! The connection to etcd: filling the rows from it and following its changes.

use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, EventType, GetOptions, KvClient, SortOrder, SortTarget, WatchOptions,
    WatchResponse, WatchStream,
};
use tokio::time::timeout;

use super::position::Position;
use super::{EtcdOptions, Replica};
use crate::kv::DbError;

/// Rows in one answer while the database is filled.
const PAGE: i64 = 1_000;

/// Bytes of an answer that are taken.
const MESSAGE_MAX: usize = 64 << 20;

/// Why the connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("etcd: {0}")]
    Etcd(#[from] etcd_client::Error),
    #[error("etcd has not answered in time")]
    Silent,
    #[error("etcd has ended the watch: {0}")]
    Ended(String),
    #[error("the rows must be loaded again from etcd")]
    Position,
    #[error(transparent)]
    Rows(#[from] DbError),
}

/// A connection with a watch on the cell's keys.
pub(super) struct Link {
    pub(super) kv: KvClient,
    watch: WatchStream,
}

impl Link {
    /// The next message of the watch. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, LinkError> {
        let message = self.watch.message().await?;
        message.ok_or_else(|| LinkError::Ended("its stream is at its end".to_owned()))
    }

    /// Asks for a message, by which one hears that etcd is there.
    pub(super) async fn ask_progress(&mut self, patience: Duration) -> Result<(), LinkError> {
        timeout(patience, self.watch.request_progress())
            .await
            .map_err(|_| LinkError::Silent)??;
        Ok(())
    }
}

async fn in_time<T>(
    options: &EtcdOptions,
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, LinkError> {
    timeout(options.patience, call)
        .await
        .map_err(|_| LinkError::Silent)?
        .map_err(LinkError::Etcd)
}

impl Replica {
    /// Connects, fills the rows if need be, and follows until everything known at the start is
    /// there.
    pub(super) async fn connect(&mut self) -> Result<Link, LinkError> {
        let options = self.options.clone();
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(options.patience / 2)
            .with_keep_alive(options.patience / 2, options.patience / 2)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some((name, password)) = &options.user {
            connect = connect.with_user(name, password);
        }
        let client = in_time(&options, Client::connect(&options.endpoints, Some(connect))).await?;
        let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_MAX);
        let head = in_time(&options, kv.get(options.sequence_key(), None)).await?;
        let header = head.header().ok_or(LinkError::Position)?;
        let (cluster, revision) = (header.cluster_id(), header.revision());
        let fits = |position: &Position| {
            // A revision that etcd has not reached is of a time before it was restored.
            position.cluster == cluster && position.applied <= revision
        };
        let position = match self.position.filter(fits) {
            Some(position) => position,
            None => self.fill(&mut kv, cluster).await?,
        };
        let watch = WatchOptions::new()
            .with_prefix()
            .with_start_revision(position.applied + 1);
        let mut watching = client.watch_client().max_decoding_message_size(MESSAGE_MAX);
        let watch = in_time(
            &options,
            watching.watch(options.prefix.as_str(), Some(watch)),
        )
        .await?;
        let mut link = Link { kv, watch };
        if let Some(sequence) = head.kvs().first() {
            timeout(
                options.reads_alone,
                self.catch_up(&mut link, sequence.mod_revision()),
            )
            .await
            .map_err(|_| LinkError::Silent)??;
        }
        self.heard();
        Ok(link)
    }

    /// Follows until changes up to this revision are in the rows.
    pub(super) async fn catch_up(
        &mut self,
        link: &mut Link,
        revision: i64,
    ) -> Result<(), LinkError> {
        while self.position.ok_or(LinkError::Position)?.applied < revision {
            let response = in_time_next(&self.options, link).await?;
            self.follow(response)?;
        }
        Ok(())
    }

    /// Applies a message of the watch.
    pub(super) fn follow(&mut self, response: WatchResponse) -> Result<(), LinkError> {
        if response.canceled() || response.compact_revision() > 0 {
            if response.compact_revision() > 0 {
                tracing::info!("etcd no longer has the missed changes; loading all rows again");
                self.position = None;
            }
            return Err(LinkError::Ended(response.cancel_reason().to_owned()));
        }
        self.heard();
        if response.events().is_empty() {
            return Ok(());
        }
        let mut position = self.position.ok_or(LinkError::Position)?;
        let start = position.applied;
        let (prefix, sequence) = (self.options.rows_prefix(), self.options.sequence_key());
        let (env, mut txn) = (&self.env, self.env.write()?);
        for event in response.events() {
            let Some(kv) = event.kv().filter(|kv| kv.mod_revision() > start) else {
                continue;
            };
            let put = event.event_type() == EventType::Put;
            position.applied = kv.mod_revision();
            if kv.key() == sequence {
                if !put {
                    self.position = None;
                    return Err(LinkError::Position);
                }
                position.sequence = kv.mod_revision();
                self.seen.push(kv.value().to_vec());
            } else if let Some(key) = kv.key().strip_prefix(&prefix[..]) {
                let done = if put {
                    env.rows().put(&mut txn, key, kv.value())
                } else {
                    env.rows().delete(&mut txn, key).map(|_| ())
                };
                done.map_err(|e| env.error(e))?;
            }
        }
        if position.applied > start {
            position.write(env, &mut txn, &self.options.prefix)?;
            txn.commit().map_err(|e| env.error(e))?;
            self.position = Some(position);
        }
        Ok(())
    }

    /// Replaces all rows by those of etcd as of one revision.
    async fn fill(&mut self, kv: &mut KvClient, cluster: u64) -> Result<Position, LinkError> {
        self.health.set_filled(false);
        let options = self.options.clone();
        let head = in_time(&options, kv.get(options.sequence_key(), None)).await?;
        let revision = head.header().ok_or(LinkError::Position)?.revision();
        let position = Position {
            cluster,
            applied: revision,
            sequence: head.kvs().first().map_or(0, |kv| kv.mod_revision()),
        };
        let prefix = options.rows_prefix();
        let mut end = prefix.clone();
        // The prefix ends with a slash, after which 0 comes.
        end.pop();
        end.push(b'0');
        let env = self.env.clone();
        let mut txn = env.write()?;
        env.rows().clear(&mut txn).map_err(|e| env.error(e))?;
        let (mut from, mut count) = (prefix.clone(), 0u64);
        loop {
            let page = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE)
                .with_sort(SortTarget::Key, SortOrder::Ascend)
                .with_revision(revision);
            let page = in_time(&options, kv.get(from.clone(), Some(page))).await?;
            for row in page.kvs() {
                if let Some(key) = row.key().strip_prefix(&prefix[..]) {
                    env.rows()
                        .put(&mut txn, key, row.value())
                        .map_err(|e| env.error(e))?;
                    count += 1;
                }
            }
            match page.kvs().last().filter(|_| page.more()) {
                Some(last) => from = [last.key(), b"\0"].concat(),
                None => break,
            }
        }
        position.write(&env, &mut txn, &options.prefix)?;
        txn.commit().map_err(|e| env.error(e))?;
        tracing::info!(rows = count, revision, "loaded the database from etcd");
        self.position = Some(position);
        self.health.set_filled(true);
        Ok(position)
    }
}

async fn in_time_next(options: &EtcdOptions, link: &mut Link) -> Result<WatchResponse, LinkError> {
    timeout(options.patience, link.next())
        .await
        .map_err(|_| LinkError::Silent)?
}
