//! A copy of all rows beside the database, to go back to when that is damaged.
//!
//! It is made from what is committed, some time after a change and when the database is closed: a file of
//! rows by itself, each part of it with a checksum, that takes the place of the one before when it is whole.
//! docs/formats/databases.md tells its bytes.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::DbError;
use super::env::Env;

/// The copy's file in the database's directory.
const COPY: &str = "copy";
/// Where a database is made of the copy.
const RESTORED: &str = "restored";
/// What is appended to the names of files of a damaged database.
const DAMAGED: &str = ".damaged";
/// Begins the file.
const MAGIC: [u8; 8] = *b"afarcopy";
/// Bytes of a part at which it is written. A row has less than that again.
const PART: usize = 1 << 16;
/// The longest part that is read: nothing is allocated because a length says so.
const PART_MAX: usize = 1 << 26;
/// The least time between two copies.
const PAUSE: Duration = Duration::from_secs(10);
/// How many times as long as a copy takes, at least, until the next one is made.
const SHARE: u32 = 100;
/// Parts that go into a new database in one transaction.
const PARTS: usize = 64;
/// The name of the copy that a database was made of, whose commits begin again from 1.
const USED: &str = "copy.restored";

/// The tables in a copy, by the byte that names them.
const TABLES: [u8; 2] = [0, 1];

/// Makes copies of a database until it is closed.
pub(super) struct Copier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: Mutex<bool>,
    changed: Condvar,
}

impl Copier {
    pub(super) fn start(env: Env) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("db-copy".to_owned())
            .spawn(move || run(&env, &theirs))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        *self.shared.stop.lock() = true;
        self.shared.changed.notify_all();
        let Some(thread) = self.thread.take() else {
            return;
        };
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the thread that copies the database panicked");
        }
    }
}

fn run(env: &Env, shared: &Shared) {
    let mut copied = copied(env.path());
    let mut pause = PAUSE;
    let mut failed = false;
    loop {
        let until = Instant::now() + pause;
        let stop = {
            let mut stop = shared.stop.lock();
            while !*stop && !shared.changed.wait_until(&mut stop, until).timed_out() {}
            *stop
        };
        let begun = Instant::now();
        match write(env, copied) {
            Ok(number) => {
                copied = Some(number);
                failed = false;
            }
            Err(error) => {
                if !failed {
                    tracing::error!(%error, "cannot copy the database");
                }
                failed = true;
            }
        }
        if stop {
            return;
        }
        pause = PAUSE.max(begun.elapsed() * SHARE);
    }
}

/// Which commit the copy is of, by its first part.
fn copied(dir: &Path) -> Option<u64> {
    let mut file = File::open(dir.join(COPY)).ok()?;
    let mut head = [0; 16];
    file.read_exact(&mut head).ok()?;
    let (magic, number) = head.split_first_chunk::<8>()?;
    (*magic == MAGIC).then(|| Some(u64::from_be_bytes(number.try_into().ok()?)))?
}

/// Makes a copy of what is committed, unless it is of this commit. Returns which commit the copy is of.
fn write(env: &Env, copied: Option<u64>) -> Result<u64, DbError> {
    let path = env.path().join(COPY);
    let fresh = path.with_extension("new");
    let named = |source| DbError::Open {
        path: path.clone(),
        what: "writing a copy of the rows",
        source: Arc::new(source),
    };
    let txn = env.read()?;
    let number = txn.id() as u64;
    if copied == Some(number) {
        return Ok(number);
    }
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(named)?;
    let mut parts = Parts {
        file: BufWriter::new(file),
        number,
        next: 0,
        part: Vec::with_capacity(2 * PART),
    };
    parts.file.write_all(&MAGIC).map_err(named)?;
    parts.file.write_all(&number.to_be_bytes()).map_err(named)?;
    for table in TABLES {
        let rows = if table == 0 { env.rows() } else { env.state() };
        for row in rows.iter(&txn).map_err(|e| env.error(e))? {
            let (key, value) = row.map_err(|e| env.error(e))?;
            parts.row(table, key, value).map_err(named)?;
        }
    }
    parts.finish().map_err(named)?;
    fs::rename(&fresh, &path).map_err(named)?;
    sync_dir(env.path()).map_err(named)?;
    Ok(number)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The parts of a copy that is written.
struct Parts {
    file: BufWriter<File>,
    /// The commit it is of.
    number: u64,
    /// The number of the next part.
    next: u64,
    part: Vec<u8>,
}

impl Parts {
    fn row(&mut self, table: u8, key: &[u8], value: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidData);
        self.part.push(table);
        let len = u16::try_from(key.len()).map_err(too_long)?;
        self.part.extend_from_slice(&len.to_be_bytes());
        let len = u32::try_from(value.len()).map_err(too_long)?;
        self.part.extend_from_slice(&len.to_be_bytes());
        self.part.extend_from_slice(key);
        self.part.extend_from_slice(value);
        if self.part.len() >= PART {
            self.end()?;
        }
        Ok(())
    }

    /// Writes the part that has begun; an empty one ends the file.
    fn end(&mut self) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidData);
        let len = u32::try_from(self.part.len()).map_err(too_long)?;
        self.file.write_all(&len.to_be_bytes())?;
        let sum = sum(self.number, self.next, &self.part);
        self.file.write_all(&sum.to_be_bytes())?;
        self.file.write_all(&self.part)?;
        self.part.clear();
        self.next += 1;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            self.end()?;
        }
        self.end()?;
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

/// The checksum of a part: it depends on the copy and on which part it is.
fn sum(number: u64, part: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, number.rotate_left(32) ^ part)
}

/// Reads a copy part by part, to the end that it has to have.
fn read(path: &Path, mut each: impl FnMut(&[u8]) -> Result<(), DbError>) -> Result<(), DbError> {
    let broken = |why: String| DbError::NoCopy {
        path: path.to_owned(),
        why,
    };
    let failed = |error: io::Error| broken(error.to_string());
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut head = [0; 16];
    file.read_exact(&mut head).map_err(failed)?;
    let (magic, number) = head.split_at(8);
    if magic != MAGIC {
        return Err(broken("it is not a copy of a database".to_owned()));
    }
    let number = u64::from_be_bytes(number.try_into().unwrap_or_default());
    for next in 0.. {
        let mut head = [0; 12];
        file.read_exact(&mut head).map_err(failed)?;
        let (len, expected) = head.split_at(4);
        let len = u32::from_be_bytes(len.try_into().unwrap_or_default()) as usize;
        let expected = u64::from_be_bytes(expected.try_into().unwrap_or_default());
        let mut part = Vec::new();
        let most = len.min(PART_MAX) as u64;
        (&mut file)
            .take(most)
            .read_to_end(&mut part)
            .map_err(failed)?;
        if part.len() != len || sum(number, next, &part) != expected {
            return Err(broken(format!("part {next} of it is damaged")));
        }
        if part.is_empty() {
            break;
        }
        each(&part)?;
    }
    Ok(())
}

/// The rows of a part: table, key, value.
fn rows(mut part: &[u8]) -> impl Iterator<Item = (u8, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (table, rest) = part.split_first()?;
        let (key, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_first_chunk::<4>()?;
        let key = usize::from(u16::from_be_bytes(*key));
        let value = u32::from_be_bytes(*value) as usize;
        let (key, rest) = rest.split_at_checked(key)?;
        let (value, rest) = rest.split_at_checked(value)?;
        part = rest;
        Some((*table, key, value))
    })
}

/// When the copy in a database's directory was made, if all of it is there.
pub(super) fn made(dir: &Path) -> Option<SystemTime> {
    let path = dir.join(COPY);
    read(&path, |_| Ok(())).ok()?;
    path.metadata().ok()?.modified().ok()
}

/// Puts the rows of the copy in the place of a database that is not open.
pub(super) fn restore(dir: &Path) -> Result<(), DbError> {
    let copy = dir.join(COPY);
    // All of it is read before anything is touched.
    read(&copy, |_| Ok(()))?;
    let fresh = dir.join(RESTORED);
    let named = |path: PathBuf| {
        move |source| DbError::Open {
            path,
            what: "putting the copy in its place",
            source: Arc::new(source),
        }
    };
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(named(fresh.clone()))?;
    }
    fill(&copy, &fresh)?;
    for name in [afar_lmdb::DATA, afar_lmdb::SUMS] {
        let kept = dir.join(format!("{name}{DAMAGED}"));
        for result in [fs::remove_file(&kept), fs::hard_link(dir.join(name), &kept)] {
            match result {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.map_err(named(kept.clone()))?,
            }
        }
    }
    // The checksums first: with them the damaged database is refused, whatever happens now.
    for name in [afar_lmdb::SUMS, afar_lmdb::DATA] {
        let to = dir.join(name);
        fs::rename(fresh.join(name), &to).map_err(named(to))?;
        sync_dir(dir).map_err(named(dir.to_owned()))?;
    }
    fs::rename(&copy, dir.join(USED)).map_err(named(copy))?;
    fs::remove_dir_all(&fresh).map_err(named(fresh))
}

/// Makes a database of a copy.
fn fill(copy: &Path, dir: &Path) -> Result<(), DbError> {
    let env = Env::open(dir)?;
    let mut pending = Vec::new();
    let put = |parts: &mut Vec<Vec<u8>>| {
        let mut txn = env.write()?;
        for part in parts.drain(..) {
            for (table, key, value) in rows(&part) {
                let rows = if table == 0 { env.rows() } else { env.state() };
                rows.put(&mut txn, key, value).map_err(|e| env.error(e))?;
            }
        }
        txn.commit().map_err(|e| env.error(e))
    };
    read(copy, |part| {
        pending.push(part.to_vec());
        if pending.len() >= PARTS {
            put(&mut pending)?;
        }
        Ok(())
    })?;
    put(&mut pending)
}
