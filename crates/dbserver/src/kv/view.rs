//! Reading rows, and changing them.

#[cfg(feature = "etcd")]
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{AnyTls, RoTxn, RwTxn};

use super::DbError;
use super::env::{Env, Table};

/// The longest key (LMDB's limit).
pub const KEY_MAX: usize = 511;

/// The rows as of one moment.
#[derive(Clone, Copy)]
pub struct View<'a> {
    txn: &'a RoTxn<'a, AnyTls>,
    table: Table,
    env: &'a Env,
}

impl<'a> View<'a> {
    pub(super) fn new(env: &'a Env, txn: &'a RoTxn<'a, AnyTls>) -> Self {
        Self {
            txn,
            table: env.rows(),
            env,
        }
    }

    /// The value of this key.
    ///
    /// # Errors
    /// When the database cannot be read, or the key cannot be one.
    pub fn get(&self, key: &[u8]) -> Result<Option<&'a [u8]>, DbError> {
        check_key(key)?;
        self.table.get(self.txn, key).map_err(|e| self.env.error(e))
    }

    /// The rows whose keys start with `prefix`, from the first one not less than `from`, in the
    /// order of their keys.
    #[must_use]
    pub fn range(&self, from: &[u8], prefix: &[u8]) -> Range<'a> {
        let start = from.max(prefix);
        // LMDB knows no empty key.
        let first = match start {
            [] => Bound::Unbounded,
            start => Bound::Included(start),
        };
        let bounds = (first, Bound::Unbounded);
        Range {
            rows: self
                .table
                .range(self.txn, &bounds)
                .map_err(|e| Some(self.env.error(e))),
            prefix: prefix.to_vec(),
            env: self.env,
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// Rows in order; after an error there are no more.
pub struct Range<'a> {
    /// The rows that follow, or why there are none; nothing after the end.
    rows: Result<heed::RoRange<'a, Bytes, Bytes>, Option<DbError>>,
    prefix: Vec<u8>,
    env: &'a Env,
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), DbError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.rows {
            Ok(rows) => rows.next(),
            Err(error) => return error.take().map(Err),
        };
        match next {
            Some(Ok((key, value))) if key.starts_with(&self.prefix) => Some(Ok((key, value))),
            Some(Err(error)) => {
                self.rows = Err(None);
                Some(Err(self.env.error(error)))
            }
            Some(Ok(_)) | None => {
                self.rows = Err(None);
                None
            }
        }
    }
}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("prefix", &self.prefix.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

/// Rows after a change: their values, or that they are gone.
#[cfg(feature = "etcd")]
pub(super) type ChangedRows = std::collections::BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Rows that are being changed: all of it is kept, or nothing.
pub struct Change<'a> {
    txn: RwTxn<'a>,
    env: &'a Env,
    /// The keys that were put or deleted.
    #[cfg(feature = "etcd")]
    changed: BTreeSet<Vec<u8>>,
}

impl<'a> Change<'a> {
    pub(super) fn new(env: &'a Env, txn: RwTxn<'a>) -> Self {
        Self {
            txn,
            env,
            #[cfg(feature = "etcd")]
            changed: BTreeSet::new(),
        }
    }

    /// Keeps the changes for the transaction around this one.
    pub(super) fn keep(self) -> Result<(), DbError> {
        let env = self.env;
        self.txn.commit().map_err(|e| env.error(e))
    }

    /// The rows that were changed, as they are now.
    #[cfg(feature = "etcd")]
    pub(super) fn rows(&self) -> Result<ChangedRows, DbError> {
        let row = |key: &Vec<u8>| Ok((key.clone(), self.get(key)?.map(<[u8]>::to_vec)));
        self.changed.iter().map(row).collect()
    }

    /// The rows as they are now, with what was changed so far.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(self.env, &self.txn)
    }

    /// The value of this key.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, DbError> {
        self.view().get(key)
    }

    /// The rows whose keys start with `prefix`, from the first one not less than `from`, in the
    /// order of their keys.
    #[must_use]
    pub fn range(&self, from: &[u8], prefix: &[u8]) -> Range<'_> {
        self.view().range(from, prefix)
    }

    /// Gives this key this value.
    ///
    /// # Errors
    /// When the database cannot be written, or the key cannot be one.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), DbError> {
        check_key(key)?;
        self.env
            .rows()
            .put(&mut self.txn, key, value)
            .map_err(|e| self.env.error(e))?;
        #[cfg(feature = "etcd")]
        self.note(key);
        Ok(())
    }

    /// Removes this key, if it is there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<(), DbError> {
        check_key(key)?;
        self.env
            .rows()
            .delete(&mut self.txn, key)
            .map_err(|e| self.env.error(e))?;
        #[cfg(feature = "etcd")]
        self.note(key);
        Ok(())
    }

    #[cfg(feature = "etcd")]
    fn note(&mut self, key: &[u8]) {
        if !self.changed.contains(key) {
            self.changed.insert(key.to_vec());
        }
    }
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").finish_non_exhaustive()
    }
}

fn check_key(key: &[u8]) -> Result<(), DbError> {
    if (1..=KEY_MAX).contains(&key.len()) {
        Ok(())
    } else {
        Err(DbError::Key(key.len()))
    }
}
