//! The LMDB environment that holds the rows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afar_lmdb::{Durability, OpenError, Watch};
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions, RoTxn, RwTxn, WithoutTls};

use super::DbError;

/// Rows of the services, or of the store itself.
pub(super) type Table = heed::Database<'static, Bytes, Bytes>;

/// Address space for the map; the file is as long as what is in it.
const MAP_SIZE: usize = 1 << 40;

/// The least address space to be content with.
const MAP_SIZE_MIN: usize = 1 << 28;

/// Where the state tells the format of the rows.
const FORMAT_KEY: &[u8] = b"format";

/// The format that this code reads and writes.
const FORMAT: &[u8] = b"2";

/// The one before, whose pages have no checksums.
const FORMAT_BEFORE: &[u8] = b"1";

/// Readers at once. Each takes a cache line of the lock file.
const READERS: u32 = 1024;

/// An open environment.
#[derive(Clone)]
pub(super) struct Env {
    env: heed::Env<WithoutTls>,
    rows: Table,
    state: Table,
    path: Arc<PathBuf>,
    watch: Watch,
    /// The operator was told that it is damaged.
    told: Arc<AtomicBool>,
}

impl Env {
    /// Opens the environment in this directory, which is made if it is not there.
    pub(super) fn open(dir: &Path) -> Result<Self, DbError> {
        std::fs::create_dir_all(dir).map_err(|source| DbError::Open {
            path: dir.to_owned(),
            what: "making its directory",
            source: Arc::new(source),
        })?;
        let path = Arc::new(dir.to_owned());
        let (env, watch) = open_map(&path)?;
        let named = |source| rows_error(&path, &watch, source);
        let txn = env.write_txn().map_err(named)?;
        let (rows, state) = env
            .create_databases_and_commit(txn, |options, txn| {
                let rows = options.create_database::<Bytes, Bytes>(txn, Some("rows"))?;
                let state = options.create_database::<Bytes, Bytes>(txn, Some("state"))?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((rows, state)))
            })
            .map_err(named)?
            .unwrap_commit();
        let env = Self {
            env,
            rows,
            state,
            path: Arc::clone(&path),
            watch: watch.clone(),
            told: Arc::default(),
        };
        env.check_format()?;
        Ok(env)
    }

    /// Notes the format of a new database, and refuses another one than ours.
    fn check_format(&self) -> Result<(), DbError> {
        let mut txn = self.write()?;
        let found = self
            .state
            .get(&txn, FORMAT_KEY)
            .map_err(|e| self.error(e))?;
        match found {
            Some(found) if found == FORMAT => Ok(()),
            Some(found) if found != FORMAT_BEFORE => Err(DbError::Format {
                path: self.path.as_ref().clone(),
                found: found.escape_ascii().to_string(),
            }),
            _ => {
                self.state
                    .put(&mut txn, FORMAT_KEY, FORMAT)
                    .map_err(|e| self.error(e))?;
                txn.commit().map_err(|e| self.error(e))
            }
        }
    }

    /// What is committed now, unchanged for as long as it is looked at.
    pub(super) fn read(&self) -> Result<RoTxn<'_, WithoutTls>, DbError> {
        self.env.read_txn().map_err(|e| self.error(e))
    }

    /// Begins to change rows; dropped without commit, nothing is changed.
    pub(super) fn write(&self) -> Result<RwTxn<'_>, DbError> {
        self.env.write_txn().map_err(|e| self.error(e))
    }

    /// A change within a change, which can be dropped by itself.
    pub(super) fn nested<'p>(&'p self, parent: &'p mut RwTxn<'_>) -> Result<RwTxn<'p>, DbError> {
        self.env.nested_write_txn(parent).map_err(|e| self.error(e))
    }

    /// The services' rows.
    pub(super) fn rows(&self) -> Table {
        self.rows
    }

    /// What the store notes for itself.
    pub(super) fn state(&self) -> Table {
        self.state
    }

    /// The database's directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn error(&self, source: heed::Error) -> DbError {
        let error = rows_error(&self.path, &self.watch, source);
        if matches!(error, DbError::Damaged { .. }) && !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!("{error}");
        }
        error
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("path", &self.path).finish()
    }
}

fn rows_error(path: &Arc<PathBuf>, watch: &Watch, source: heed::Error) -> DbError {
    match (&source, watch.fault()) {
        // LMDB says of some pages only that the transaction must end.
        (heed::Error::Mdb(heed::MdbError::Corrupted | heed::MdbError::BadTxn), Some(what)) => {
            DbError::Damaged {
                path: path.as_ref().clone(),
                what,
            }
        }
        _ => DbError::Rows {
            path: Arc::clone(path),
            source: Arc::new(source),
        },
    }
}

/// Maps the file with as much address space as there is.
fn open_map(dir: &Arc<PathBuf>) -> Result<(afar_lmdb::Env, Watch), DbError> {
    let mut size = MAP_SIZE;
    loop {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.max_dbs(2).max_readers(READERS);
        match afar_lmdb::open(dir, &options, size, Durability::EachCommit) {
            Err(OpenError::Lmdb(heed::Error::Io(error)))
                if error.kind() == std::io::ErrorKind::OutOfMemory && size > MAP_SIZE_MIN =>
            {
                size /= 2;
            }
            Ok(opened) => return Ok(opened),
            Err(error) => return Err(open_error(dir, error)),
        }
    }
}

fn open_error(dir: &Arc<PathBuf>, error: OpenError) -> DbError {
    match error {
        OpenError::Damaged { .. } => DbError::Damaged {
            path: dir.as_ref().clone(),
            what: error.to_string(),
        },
        OpenError::Io { file, source } => DbError::Open {
            path: file,
            what: "reading and writing it",
            source: Arc::new(source),
        },
        OpenError::Lmdb(source) => DbError::Rows {
            path: Arc::clone(dir),
            source: Arc::new(source),
        },
    }
}
