//! The LMDB environment: its tables, and reading them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use afar_lmdb::{Durability, OpenError, Watch};
use afar_types::UnixTime;
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions, RoTxn, WithoutTls};
use parking_lot::Mutex;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::hold::Holds;
use super::image::{Images, images};
use super::key::{At, Item};
use super::memtable::{Layers, Memtable};
use crate::error::{Result, StoreError};

type Database = heed::Database<'static, Bytes, Bytes>;

/// What is kept in tables of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub(crate) enum Table {
    /// Counters and the partition's own settings, by name.
    Settings,
    /// Volume number to [`VolumeRow`](super::VolumeRow).
    Volumes,
    /// Volume number to [`VolumeInfo`](super::VolumeInfo).
    Infos,
    /// tree, generation, volume to [`MemberState`](super::MemberState).
    Members,
    /// tree, item, generation: the versioned rows.
    Rows,
    /// tree, generation, item: which rows a generation made, from the first clone on.
    Changes,
    /// tree, parity, vnode: numbers that may be used again.
    VnodeSlots,
    /// Numbers of volumes that are half made: removed when the partition is opened.
    Unfinished,
    /// What the reaper has to do: tree, generation (a shade), or tree, 2^32 - 1 (all of it).
    Doomed,
    /// Segment number to [`SegmentRow`](super::SegmentRow).
    Segments,
    /// segment, offset to length: bytes that lost their owner.
    Dead,
    /// segment, offset to length: dead bytes, joined with their neighbours, that are punched.
    Free,
    /// segment, offset to a count: how many extents beyond the first point there.
    Shared,
    /// First half of a plain record's BLAKE3 to an extent that holds it.
    Dedup,
    /// segment, offset to the key in [`Table::Dedup`], for the extents that have one.
    DedupKeys,
}

/// How many there are.
pub(super) const TABLES: usize = 15;

const NAMES: [(Table, &str); TABLES] = [
    (Table::Settings, "settings"),
    (Table::Volumes, "volumes"),
    (Table::Infos, "infos"),
    (Table::Members, "members"),
    (Table::Rows, "rows"),
    (Table::Changes, "changes"),
    (Table::VnodeSlots, "vnode-slots"),
    (Table::Unfinished, "unfinished"),
    (Table::Doomed, "doomed"),
    (Table::Segments, "segments"),
    (Table::Dead, "dead"),
    (Table::Free, "free"),
    (Table::Shared, "shared"),
    (Table::Dedup, "dedup"),
    (Table::DedupKeys, "dedup-keys"),
];

impl Table {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(table, _)| *table)
    }
}

impl Table {
    /// The table of a number in the log.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        NAMES.get(usize::from(byte)).map(|(table, _)| *table)
    }
}

/// Bytes of the checksum at the end of each value.
pub(super) const SUM: usize = 8;

/// Directory pages kept unpacked: 16 MiB of them.
const PAGES: usize = 8_192;

/// Unpacked directory pages by where they are and the checksums of their row and of their changes'
/// row, which change with them.
pub(crate) type PageCache =
    quick_cache::sync::Cache<(At, Item, [[u8; SUM]; 2]), Arc<afar_dir::Page>>;

/// A partition's database.
#[derive(Clone)]
pub(crate) struct Env {
    env: heed::Env<WithoutTls>,
    tables: [Database; TABLES],
    recent: Arc<Mutex<Recent>>,
    path: Arc<PathBuf>,
    watch: Watch,
    pages: Arc<PageCache>,
    images: Arc<Images>,
    holds: Holds,
    /// KiB of volumes' quotas that are promised to somebody.
    promised: Arc<Mutex<BTreeMap<u32, u64>>>,
    /// When a volume was last kept as it was, in seconds since 1970.
    frozen: Arc<AtomicU32>,
}

impl Env {
    /// Opens the environment in `dir`, making its tables if they are not there. `map_size` bounds
    /// what the database can grow to; it costs address space only.
    pub(crate) fn open(partition: &Path, dir: &Path, map_size: usize) -> Result<Self> {
        let path = Arc::new(partition.to_owned());
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options
            .max_readers(4096)
            .max_dbs(u32::try_from(TABLES).unwrap_or(u32::MAX));
        let opened = afar_lmdb::open(dir, &options, map_size, Durability::Checkpoints);
        let (env, watch) = opened.map_err(|e| refused(&path, e))?;
        let failed = |e| database(&path, &watch, e);
        let txn = env.write_txn().map_err(failed)?;
        let tables = env
            .create_databases_and_commit(txn, |options, txn| {
                let mut make = |table: usize| {
                    options.create_database::<Bytes, Bytes>(txn, Some(NAMES[table].1))
                };
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((
                    (
                        make(0)?,
                        make(1)?,
                        make(2)?,
                        make(3)?,
                        make(4)?,
                        make(5)?,
                        make(6)?,
                    ),
                    (
                        make(7)?,
                        make(8)?,
                        make(9)?,
                        make(10)?,
                        make(11)?,
                        make(12)?,
                        make(13)?,
                        make(14)?,
                    ),
                )))
            })
            .map_err(failed)?
            .unwrap_commit();
        let ((a, b, c, d, e, f, g), (h, i, j, k, l, m, n, o)) = tables;
        let tables = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o];
        let stored = commit_of(&env).map_err(failed)?;
        Ok(Self {
            env,
            tables,
            recent: Arc::new(Mutex::new(Recent {
                stored,
                frozen: None,
                newest: Arc::default(),
            })),
            path,
            watch,
            pages: Arc::new(PageCache::new(PAGES)),
            images: Arc::new(images()),
            holds: Holds::default(),
            promised: Arc::default(),
            frozen: Arc::new(AtomicU32::new(UnixTime::from(SystemTime::now()).0)),
        })
    }

    /// A view of everything committed so far.
    pub(crate) fn view(&self) -> Result<View> {
        loop {
            let recent = self.recent.lock().clone();
            let txn = self.pin()?;
            // The database may have been written to since. It has the same then as the frozen
            // memtable, which does no harm above it; but it has more than an older one.
            let since = txn.id().wrapping_sub(recent.stored);
            if since == 0 || (since == 1 && recent.frozen.is_some()) {
                let env = self.clone();
                return Ok(View { recent, txn, env });
            }
        }
    }

    /// Keeps the pages of the database as it is now from being used again.
    pub(crate) fn pin(&self) -> Result<Pin> {
        let txn = self.env.clone().static_read_txn();
        txn.map_err(|e| self.database(e))
    }

    /// A volume is kept as it is now, for a clone or a dump.
    pub(crate) fn note_frozen(&self, now: u32) {
        self.frozen.fetch_max(now, Ordering::Relaxed);
    }

    /// Since when nothing was: what is changed now may count as changed then, and a dump of what is newer than some earlier
    /// dump or clone has it all the same. This process knows nothing of those before it.
    pub(crate) fn unfrozen_since(&self) -> u32 {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Begins a commit. There is to be one at a time.
    pub(crate) fn begin(&self) -> Result<Batch> {
        let view = self.view()?;
        let rows = Memtable::clone(&view.recent.newest);
        Ok(Batch { view, rows })
    }

    /// Shows what a commit did.
    pub(crate) fn publish(&self, batch: Batch) {
        self.recent.lock().newest = Arc::new(batch.rows);
    }

    /// Begins a new memtable, between two commits; [`flush`](Self::flush) writes the one before,
    /// and is to have written the one before that.
    pub(crate) fn freeze(&self) {
        let mut recent = self.recent.lock();
        debug_assert!(recent.frozen.is_none(), "two frozen memtables");
        let newest = std::mem::take(&mut recent.newest);
        recent.frozen = (!newest.is_empty()).then_some(newest);
    }

    /// Writes the frozen memtable to the database, which is not synced yet.
    pub(crate) fn flush(&self) -> Result<()> {
        let Some(frozen) = self.recent.lock().frozen.clone() else {
            return Ok(());
        };
        let stored = self.write(&frozen).map_err(|e| self.database(e))?;
        let mut recent = self.recent.lock();
        recent.stored = stored;
        recent.frozen = None;
        Ok(())
    }

    /// Writes rows to the database. Returns the number of its last commit then.
    fn write(&self, rows: &Memtable) -> heed::Result<usize> {
        let mut txn = self.env.write_txn()?;
        for table in Table::all() {
            for (key, sealed) in rows.rows(table) {
                match sealed {
                    Some(sealed) => self.table(table).put(&mut txn, key, sealed)?,
                    None => _ = self.table(table).delete(&mut txn, key)?,
                }
            }
        }
        txn.commit()?;
        commit_of(&self.env)
    }

    /// Puts on the disk what was written to the database's file.
    pub(crate) fn sync(&self) -> Result<()> {
        self.env.force_sync().map_err(|e| self.database(e))?;
        self.watch
            .sync()
            .map_err(|e| self.io("syncing the checksums of pages", e))
    }

    /// Where the database's files are.
    pub(crate) fn dir(&self) -> &Path {
        self.env.path()
    }

    /// Bytes of the database's pages.
    pub(crate) fn page_size(&self) -> usize {
        self.env.unnamed_database_stat().page_size as usize
    }

    pub(crate) fn partition(&self) -> &Path {
        &self.path
    }

    /// A failure of the system at something.
    pub(crate) fn io(&self, what: &str, source: io::Error) -> StoreError {
        if crate::segment::is_no_space(&source) {
            return StoreError::NoSpace(self.path.as_ref().clone());
        }
        StoreError::io(format!("partition {}: {what}", self.path.display()), source)
    }

    pub(crate) fn table(&self, table: Table) -> Database {
        self.tables[table as usize]
    }

    /// Directory pages that were read before.
    pub(crate) fn pages(&self) -> &PageCache {
        &self.pages
    }

    /// Directories that were changed lately.
    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// KiB of a volume's quota that are promised to somebody.
    pub(crate) fn promised(&self, volume: u32) -> u64 {
        self.promised.lock().get(&volume).copied().unwrap_or(0)
    }

    /// Has so many KiB of a volume's quota count as used from now on.
    pub(crate) fn promise(&self, volume: u32, kib: u64) {
        let mut promised = self.promised.lock();
        match kib {
            0 => promised.remove(&volume),
            kib => promised.insert(volume, kib),
        };
    }

    /// Generations that are kept for their readers.
    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Goes through all pages of the database without LMDB. Returns what is wrong, in words: then
    /// nothing should be read from it any more.
    pub(crate) fn verify_pages(&self) -> Result<Vec<String>> {
        loop {
            // The view keeps its pages from being used again.
            let view = self.view()?;
            let found = self.watch.verify(view.txn.id() as u64);
            // If two commits have gone by since, its meta page is another's.
            if let Some(problems) = found.map_err(|e| self.io("reading data.mdb", e))? {
                return Ok(problems);
            }
        }
    }

    /// Bytes of the database file.
    pub(crate) fn file_len(&self) -> u64 {
        self.env.real_disk_size().unwrap_or(0)
    }

    pub(crate) fn database(&self, source: heed::Error) -> StoreError {
        database(&self.path, &self.watch, source)
    }

    pub(crate) fn corrupt(&self, what: impl Into<String>) -> StoreError {
        corrupt(&self.path, what)
    }
}

fn refused(path: &Arc<PathBuf>, error: OpenError) -> StoreError {
    match error {
        OpenError::Damaged { .. } => damaged(path, error.to_string()),
        OpenError::Lmdb(source) => lmdb(path, source),
        OpenError::Io { source, .. } if crate::segment::is_no_space(&source) => {
            StoreError::NoSpace(path.as_ref().clone())
        }
        OpenError::Io { file, source } => StoreError::io(file.display().to_string(), source),
    }
}

fn database(path: &Arc<PathBuf>, watch: &Watch, source: heed::Error) -> StoreError {
    use heed::MdbError::{BadTxn, Corrupted};
    match (&source, watch.fault()) {
        // LMDB says of some pages only that the transaction must end.
        (heed::Error::Mdb(Corrupted | BadTxn), Some(found)) => damaged(path, found),
        (heed::Error::Mdb(Corrupted), None) => damaged(path, source.to_string()),
        _ => lmdb(path, source),
    }
}

fn lmdb(path: &Arc<PathBuf>, source: heed::Error) -> StoreError {
    let full = match &source {
        heed::Error::Mdb(heed::MdbError::MapFull) => true,
        heed::Error::Io(error) => crate::segment::is_no_space(error),
        _ => false,
    };
    if full {
        return StoreError::NoSpace(path.as_ref().clone());
    }
    StoreError::Database {
        path: path.as_ref().clone(),
        source: Arc::new(source),
    }
}

fn damaged(path: &Arc<PathBuf>, what: String) -> StoreError {
    StoreError::Damaged {
        partition: path.as_ref().clone(),
        what,
    }
}

fn corrupt(path: &Arc<PathBuf>, what: impl Into<String>) -> StoreError {
    StoreError::Corrupt {
        partition: path.as_ref().clone(),
        what: what.into(),
    }
}

/// The checksum of a row: of its value, seeded by its table and key.
fn sum(table: Table, key: &[u8], value: &[u8]) -> [u8; SUM] {
    let mut place = [0; 64];
    place[0] = table as u8;
    // All keys are shorter.
    let len = key.len().min(place.len() - 1);
    place[1..=len].copy_from_slice(&key[..len]);
    xxh3_64_with_seed(value, xxh3_64(&place[..=len])).to_be_bytes()
}

/// A value with its checksum.
pub(crate) fn seal(table: Table, key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let sum = sum(table, key, &value);
    value.extend_from_slice(&sum);
    value
}

/// The value of a sealed one, if its checksum is right.
pub(crate) fn unseal<'a>(table: Table, key: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (value, found) = sealed.split_at_checked(sealed.len().checked_sub(SUM)?)?;
    (found == sum(table, key, value)).then_some(value)
}

/// What the database has not got yet, and how far it has come.
#[derive(Clone)]
struct Recent {
    /// The number of LMDB's last commit, over which the memtables lie.
    stored: usize,
    /// The rows that are being written to the database.
    frozen: Option<Arc<Memtable>>,
    /// Rows that are newer than these.
    newest: Arc<Memtable>,
}

/// The number of LMDB's last commit.
fn commit_of(env: &heed::Env<WithoutTls>) -> heed::Result<usize> {
    env.read_txn().map(|txn| txn.id())
}

/// Keeps pages of the database from being used again.
pub(crate) type Pin = RoTxn<'static, WithoutTls>;

/// The rows as of one commit.
pub(crate) struct View {
    recent: Recent,
    txn: Pin,
    env: Env,
}

impl super::Rows for View {
    fn layers(&self) -> Layers<'_> {
        Layers {
            env: &self.env,
            newest: &self.recent.newest,
            frozen: self.recent.frozen.as_deref(),
            txn: &self.txn,
        }
    }
}

/// A commit in progress: what it began from, and its own rows with those of the commits before.
pub(crate) struct Batch {
    view: View,
    pub(super) rows: Memtable,
}

impl Batch {
    pub(super) fn layers(&self) -> Layers<'_> {
        Layers {
            newest: &self.rows,
            ..super::Rows::layers(&self.view)
        }
    }
}
