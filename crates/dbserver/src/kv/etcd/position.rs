//! How far the rows follow etcd.

use heed::RwTxn;

use crate::kv::DbError;
use crate::kv::env::Env;

/// The key of the state that tells the position.
const KEY: &[u8] = b"etcd";

/// A place in etcd's history, with the rows as of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The cluster of etcd: revisions of another one mean nothing.
    pub(super) cluster: u64,
    /// Changes up to this revision are in the rows.
    pub(super) applied: i64,
    /// The revision at which `sequence` was changed last, 0 if it never was.
    pub(super) sequence: i64,
}

impl Position {
    /// The position of these rows; `None` if there are none yet, or of another prefix.
    ///
    /// # Errors
    /// When the database cannot be read, or has rows that are not from etcd.
    pub(super) fn read(env: &Env, prefix: &str) -> Result<Option<Self>, DbError> {
        let txn = env.read()?;
        let row = env.state().get(&txn, KEY).map_err(|e| env.error(e))?;
        let Some(row) = row else {
            return match env.rows().is_empty(&txn).map_err(|e| env.error(e))? {
                true => Ok(None),
                false => Err(DbError::NotReplica(env.path().to_owned())),
            };
        };
        Ok(Self::decode(row, prefix))
    }

    fn decode(row: &[u8], prefix: &str) -> Option<Self> {
        let (words, of) = row.split_first_chunk::<24>()?;
        let (words, _) = words.as_chunks::<8>();
        let &[cluster, applied, sequence] = words.first_chunk()?;
        (of == prefix.as_bytes()).then(|| Self {
            cluster: u64::from_be_bytes(cluster),
            applied: i64::from_be_bytes(applied),
            sequence: i64::from_be_bytes(sequence),
        })
    }

    /// Notes the position in the transaction that brings the rows there.
    pub(super) fn write(
        &self,
        env: &Env,
        txn: &mut RwTxn<'_>,
        prefix: &str,
    ) -> Result<(), DbError> {
        let mut row = Vec::with_capacity(24 + prefix.len());
        row.extend_from_slice(&self.cluster.to_be_bytes());
        row.extend_from_slice(&self.applied.to_be_bytes());
        row.extend_from_slice(&self.sequence.to_be_bytes());
        row.extend_from_slice(prefix.as_bytes());
        env.state().put(txn, KEY, &row).map_err(|e| env.error(e))
    }
}
