//! The checksums of pages, and which pages were found right.
//!
//! LMDB writes a page to a place that no reader and no state to go back to refers to. So a checksum
//! is written in place as well: what it overwrites is of no use to anybody.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::pages::MetaPage;
use crate::{Durability, MODE, SUMS};

/// Begins the file.
const MAGIC: [u8; 8] = *b"afarsums";
/// Bytes before the checksums: a sector. After the magic, what is said of commits.
const HEADER: u64 = 512;
/// Commits of which the checksum of their meta page is known: the two in the file, the one before, in
/// whose place the next is written, and the next, whose meta page may not have been written.
const COMMITS: u64 = 4;
/// Bytes of a commit: its number, and the checksum of its meta page.
const COMMIT: u64 = 16;
/// Bytes of a checksum.
const SUM: u64 = 8;
/// Checksums that are written at once.
const BLOCK: u64 = 512;
/// Bytes of them.
const BLOCK_BYTES: usize = 4096;
/// Pages a chunk of bits is for.
const CHUNK: u64 = 1 << 18;

/// The checksums of an environment's pages.
pub(crate) struct Sums {
    data: File,
    path: PathBuf,
    file: File,
    page_size: usize,
    durability: Durability,
    /// A bit for each page that was found right, in chunks that are made when they are needed.
    right: Vec<OnceLock<Box<[AtomicU64]>>>,
    /// Pages that were written by a transaction that is not committed.
    pending: Mutex<BTreeMap<u64, u64>>,
    fault: Mutex<Option<String>>,
}

impl Sums {
    pub(crate) fn new(
        data: File,
        path: PathBuf,
        file: File,
        page_size: u64,
        map_size: usize,
        durability: Durability,
    ) -> Self {
        let chunks = (map_size as u64 / page_size).div_ceil(CHUNK);
        Self {
            data,
            path,
            file,
            page_size: usize::try_from(page_size).unwrap_or(usize::MAX),
            durability,
            right: (0..chunks).map(|_| OnceLock::new()).collect(),
            pending: Mutex::default(),
            fault: Mutex::default(),
        }
    }

    pub(crate) fn data(&self) -> &File {
        &self.data
    }

    pub(crate) fn data_len(&self) -> io::Result<u64> {
        Ok(self.data.metadata()?.len())
    }

    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether so many pages from this one on are as they were written.
    pub(crate) fn check(&self, first: u64, count: u64) -> bool {
        (first..first.saturating_add(count)).all(|page| self.is_right(page) || self.look(page))
    }

    /// The bit of a page, if its chunk is there.
    fn bit(&self, page: u64) -> Option<(&AtomicU64, u64)> {
        let chunk = self.right.get(usize::try_from(page / CHUNK).ok()?)?;
        let word = usize::try_from(page % CHUNK / 64).ok()?;
        Some((chunk.get()?.get(word)?, 1 << (page % 64)))
    }

    fn is_right(&self, page: u64) -> bool {
        // A thread that sets a bit has read the page, and one that sees it reads the page by itself.
        self.bit(page)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn set_right(&self, page: u64) {
        let chunk = usize::try_from(page / CHUNK).ok();
        if let Some(chunk) = chunk.and_then(|chunk| self.right.get(chunk)) {
            chunk.get_or_init(|| (0..CHUNK / 64).map(|_| AtomicU64::new(0)).collect());
        }
        if let Some((word, bit)) = self.bit(page) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Reads a page, and compares it with its checksum.
    fn look(&self, page: u64) -> bool {
        let mut bytes = vec![0; self.page_size];
        let at = page.checked_mul(self.page_size as u64);
        let read = at
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
            .and_then(|at| self.data.read_exact_at(&mut bytes, at));
        let what = match read.and_then(|()| self.expected(page)) {
            Ok(Some(sum)) if sum == self.sum(page, &bytes) => {
                self.set_right(page);
                return true;
            }
            Ok(Some(_)) => format!("page {page} does not match its checksum in {SUMS}"),
            Ok(None) => format!("page {page} has no checksum in {SUMS}: that file was truncated"),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                format!("page {page} is missing: the file was truncated")
            }
            Err(error) => format!("page {page} cannot be read: {error}"),
        };
        *self.fault.lock() = Some(format!("{}: {what}", self.path.display()));
        false
    }

    /// The checksum of a page's bytes. It depends on the page's number, so that one that lies in
    /// another's place is found.
    pub(crate) fn sum(&self, page: u64, bytes: &[u8]) -> u64 {
        sum(page, bytes)
    }

    /// The checksum that a page has to have, if there is one.
    pub(crate) fn expected(&self, page: u64) -> io::Result<Option<u64>> {
        if let Some(sum) = self.pending.lock().get(&page) {
            return Ok(Some(*sum));
        }
        let mut bytes = [0; 8];
        match self.file.read_exact_at(&mut bytes, place(page)) {
            Ok(()) => Ok(Some(u64::from_be_bytes(bytes))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes pages that are being written.
    pub(crate) fn wrote(&self, first: u64, bytes: &[u8]) {
        let mut pending = self.pending.lock();
        for (page, bytes) in (first..).zip(bytes.chunks_exact(self.page_size)) {
            pending.insert(page, sum(page, bytes));
            // It is looked at as it comes back from the file.
            if let Some((word, bit)) = self.bit(page) {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// Writes the checksums of a commit whose meta page is about to be written.
    pub(crate) fn commit(&self, number: u64, last_page: u64, meta: &[u8]) -> io::Result<()> {
        // Until the meta page is written nobody but this thread can ask for them.
        let pending = std::mem::take(&mut *self.pending.lock());
        let done = self.write(&pending, number, last_page, meta);
        if done.is_err() {
            let mut again = self.pending.lock();
            for (page, sum) in pending {
                again.entry(page).or_insert(sum);
            }
        }
        done
    }

    fn write(
        &self,
        pending: &BTreeMap<u64, u64>,
        number: u64,
        last_page: u64,
        meta: &[u8],
    ) -> io::Result<()> {
        let mut rest = pending.iter().peekable();
        while let Some(first) = rest.peek().map(|(page, _)| **page) {
            let block = first / BLOCK;
            let mut bytes = [0; BLOCK_BYTES];
            let at = place(block * BLOCK);
            let len = read_most(&self.file, &mut bytes, at)?;
            let mut end = len;
            while let Some((page, sum)) = rest.next_if(|(page, _)| *page / BLOCK == block) {
                let from = usize::try_from(page % BLOCK * SUM).unwrap_or_default();
                bytes[from..from + 8].copy_from_slice(&sum.to_be_bytes());
                end = end.max(from + 8);
            }
            self.file.write_all_at(&bytes[..end], at)?;
        }
        // Pages at the end may have been taken and given back: the file has them all the same, so that
        // one that is shorter is known to be cut off.
        let needed = last_page
            .saturating_add(1)
            .saturating_mul(self.page_size as u64);
        let grown = self.data_len()? < needed;
        if grown {
            self.data.set_len(needed)?;
        }
        self.file.write_all_at(&MAGIC, 0)?;
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend_from_slice(&xxh3_64(meta).to_be_bytes());
        self.file.write_all_at(&bytes, commit_place(number))?;
        if self.durability == Durability::EachCommit {
            self.file.sync_data()?;
            if grown {
                self.data.sync_data()?;
            }
        }
        Ok(())
    }

    /// The first meta page that is not as a commit wrote it.
    pub(crate) fn wrong_meta(&self, metas: &[MetaPage]) -> io::Result<Option<usize>> {
        for (page, meta) in metas.iter().enumerate() {
            let mut bytes = [0; 16];
            // The first transaction of all is none of ours.
            if meta.commit == 0 {
                continue;
            }
            let read = read_most(&self.file, &mut bytes, commit_place(meta.commit))?;
            let expected = [meta.commit.to_be_bytes(), meta.sum().to_be_bytes()].concat();
            if read < bytes.len() || bytes[..] != expected {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }
}

impl std::fmt::Debug for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sums")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Makes the checksums of a database that has none, from its pages as they are.
pub(crate) fn build(data: &File, dir: &Path, page_size: u64, metas: &[MetaPage]) -> io::Result<()> {
    let fresh = dir.join(format!("{SUMS}.new"));
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .open(&fresh)?;
    let mut header = vec![0; usize::try_from(HEADER).unwrap_or_default()];
    header[..8].copy_from_slice(&MAGIC);
    for meta in metas {
        let at = usize::try_from(commit_place(meta.commit)).unwrap_or_default();
        header[at..at + 8].copy_from_slice(&meta.commit.to_be_bytes());
        header[at + 8..at + 16].copy_from_slice(&meta.sum().to_be_bytes());
    }
    let mut out = BufWriter::new(&file);
    out.write_all(&header)?;
    let mut bytes = vec![0; usize::try_from(page_size).unwrap_or_default()];
    for page in 0..data.metadata()?.len() / page_size {
        data.read_exact_at(&mut bytes, page * page_size)?;
        out.write_all(&sum(page, &bytes).to_be_bytes())?;
    }
    out.flush()?;
    drop(out);
    file.sync_all()?;
    fs::rename(fresh, dir.join(SUMS))?;
    File::open(dir)?.sync_all()
}

fn sum(page: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, page)
}

/// Where a page's checksum is.
fn place(page: u64) -> u64 {
    page.saturating_mul(SUM).saturating_add(HEADER)
}

/// Where the checksum of a commit's meta page is.
fn commit_place(number: u64) -> u64 {
    MAGIC.len() as u64 + number % COMMITS * COMMIT
}

/// Reads what there is, up to the length of `bytes`.
fn read_most(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], at + len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
