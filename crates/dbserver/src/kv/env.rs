//! The LMDB environment that holds the rows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
const FORMAT: &[u8] = b"1";

/// Readers at once. Each takes a cache line of the lock file.
const READERS: u32 = 1024;

/// An open environment.
#[derive(Clone)]
pub(super) struct Env {
    env: heed::Env<WithoutTls>,
    rows: Table,
    state: Table,
    path: Arc<PathBuf>,
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
        let named = |source| rows_error(&path, source);
        let env = open_map(dir).map_err(named)?;
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
            path,
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
            Some(found) => Err(DbError::Format {
                path: self.path.as_ref().clone(),
                found: found.escape_ascii().to_string(),
            }),
            None => {
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
    #[cfg(feature = "etcd")]
    pub(super) fn state(&self) -> Table {
        self.state
    }

    /// The database's directory.
    #[cfg(feature = "etcd")]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn error(&self, source: heed::Error) -> DbError {
        rows_error(&self.path, source)
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("path", &self.path).finish()
    }
}

fn rows_error(path: &Arc<PathBuf>, source: heed::Error) -> DbError {
    DbError::Rows {
        path: Arc::clone(path),
        source: Arc::new(source),
    }
}

/// Maps the file with as much address space as there is.
fn open_map(dir: &Path) -> heed::Result<heed::Env<WithoutTls>> {
    let mut size = MAP_SIZE;
    loop {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(size).max_dbs(2).max_readers(READERS);
        match open_with(&options, dir) {
            Err(heed::Error::Io(error))
                if error.kind() == std::io::ErrorKind::OutOfMemory && size > MAP_SIZE_MIN =>
            {
                size /= 2;
            }
            opened => return opened,
        }
    }
}

#[expect(
    unsafe_code,
    reason = "a memory map is unsafe to make: the file could be changed by others"
)]
fn open_with(
    options: &EnvOpenOptions<WithoutTls>,
    dir: &Path,
) -> heed::Result<heed::Env<WithoutTls>> {
    // SAFETY: only LMDB itself writes to the files in this directory, which it guards by its own
    // lock file; nobody else has business there.
    unsafe { options.open(dir) }
}
