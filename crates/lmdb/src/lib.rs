//! LMDB environments whose pages are checked against checksums before they are used.
//!
//! LMDB maps its file and follows what its pages say: a page that rotted, was torn or is cut off ends the
//! process by a signal, or leads to other rows than those that were written. So the LMDB that afar is
//! built with asks before it looks at a page (third-party/lmdb-master-sys), and a file beside the
//! database, `data.sums`, has a checksum of each page. A page is checked when it is used first, by
//! an ordinary read; then a bit in memory says that it is right. Opening reads nothing but the
//! pages that begin the file.
//!
//! - `sums`: the checksums, in memory and in their file
//! - `hooks`: what LMDB calls
//! - `pages`: the database's pages without LMDB
//!
//! docs/formats/store.md tells what is in `data.sums`.

mod hooks;
mod pages;
mod sums;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heed::{EnvFlags, EnvOpenOptions, WithoutTls};

use pages::MetaPage;
use sums::Sums;

/// An environment.
pub type Env = heed::Env<WithoutTls>;

/// LMDB's file.
pub const DATA: &str = "data.mdb";
/// The checksums of its pages.
pub const SUMS: &str = "data.sums";
/// Only the server reads and writes them.
const MODE: u32 = 0o600;

/// When what is committed is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the commit returns.
    EachCommit,
    /// When [`Watch::sync`] returns. Until the next one, whoever opens the environment has put back
    /// the two pages that begin the file as they were at the last one, and answers for them.
    Checkpoints,
}

/// Why an environment could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file is damaged: which, and at which page.
    #[error("{}: {what}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// LMDB cannot open it.
    #[error(transparent)]
    Lmdb(#[from] heed::Error),
}

/// Watches the pages of an open environment.
#[derive(Debug, Clone)]
pub struct Watch {
    sums: Arc<Sums>,
}

/// Opens the environment in `dir`, which is there, or makes it. `map_size` in bytes bounds what it can
/// grow to.
///
/// The files are the server's own: the caller keeps other processes out.
///
/// # Errors
/// A file cannot be used or is damaged, or LMDB refuses.
pub fn open(
    dir: &Path,
    options: &EnvOpenOptions<WithoutTls>,
    map_size: usize,
    durability: Durability,
) -> Result<(Env, Watch), OpenError> {
    let path = dir.join(DATA);
    let named = |source| OpenError::Io {
        file: path.clone(),
        source,
    };
    let data = own_file(&path).map_err(named)?;
    let metas = MetaPage::read(&data).map_err(named)?;
    let newest = metas.iter().max_by_key(|meta| meta.commit);
    let is_new = data.metadata().map_err(named)?.len() == 0;
    let Some(page_size) = newest
        .map(MetaPage::page_size)
        .or_else(|| is_new.then(page_size))
    else {
        return Err(damaged(&path, "page 0 does not begin a database"));
    };
    let sums_path = dir.join(SUMS);
    if is_new {
        // They are written when there are pages on the disk.
        if sums_path.metadata().is_ok_and(|sums| sums.len() > 0) {
            return Err(damaged(
                &path,
                "it is missing or empty, but its checksums exist",
            ));
        }
    } else if let Some(newest) = newest
        && !sums_path.exists()
    {
        pages::lengthen(&data, &path, newest, map_size as u64)?;
        sums::build(&data, dir, page_size, &metas).map_err(|source| OpenError::Io {
            file: sums_path.clone(),
            source,
        })?;
    }
    let file = own_file(&sums_path).map_err(|source| OpenError::Io {
        file: sums_path,
        source,
    })?;
    let sums = Arc::new(Sums::new(
        data,
        path.clone(),
        file,
        page_size,
        map_size,
        durability,
    ));
    if let Some(newest) = newest {
        check_start(&sums, &path, &metas, newest, durability)?;
    }
    let mut options = options.clone();
    options.map_size(map_size);
    let env = hooks::open(dir, &mut options, durability, &sums)?;
    Ok((env, Watch { sums }))
}

/// Checks what is used before LMDB asks: the pages that begin the file, and that it has its length.
fn check_start(
    sums: &Sums,
    path: &Path,
    metas: &[MetaPage],
    newest: &MetaPage,
    durability: Durability,
) -> Result<(), OpenError> {
    let named = |source| OpenError::Io {
        file: path.to_owned(),
        source,
    };
    if metas.len() < 2 {
        return Err(damaged(path, "page 1 does not begin a database"));
    }
    if durability == Durability::EachCommit
        && let Some(page) = sums.wrong_meta(metas).map_err(named)?
    {
        return Err(damaged(
            path,
            &format!("page {page} does not match its checksum in {SUMS}"),
        ));
    }
    let len = sums.data_len().map_err(named)?;
    match newest.file_len() {
        Some(needed) if len >= needed => Ok(()),
        needed => Err(damaged(
            path,
            &format!(
                "it has {len} bytes but needs {}: it was truncated at page {}",
                needed.map_or_else(|| "more".to_owned(), |needed| needed.to_string()),
                len / newest.page_size()
            ),
        )),
    }
}

fn damaged(file: &Path, what: &str) -> OpenError {
    OpenError::Damaged {
        file: file.to_owned(),
        what: what.to_owned(),
    }
}

/// A file that nobody else may read, made if it is not there.
fn own_file(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 != MODE {
        file.set_permissions(PermissionsExt::from_mode(MODE))?;
    }
    Ok(file)
}

/// Bytes of the pages of a new database: those of the system, as LMDB does.
fn page_size() -> u64 {
    const MOST: u64 = 1 << 15;
    #[expect(unsafe_code, reason = "asking the system for a number")]
    // SAFETY: it has no other effect.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096).min(MOST)
}

fn flags(durability: Durability) -> EnvFlags {
    match durability {
        Durability::EachCommit => EnvFlags::empty(),
        Durability::Checkpoints => EnvFlags::NO_READ_AHEAD | EnvFlags::NO_SYNC,
    }
}

impl Watch {
    /// Puts the checksums of what was committed on the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        self.sums.sync()
    }

    /// What is wrong with the page that was refused last, in words.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.sums.fault()
    }

    /// Goes through all pages without LMDB, as of the commit with this number, which a reader keeps as
    /// it is. Returns what is wrong, in words, or `None` if a later commit has taken its place in the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn verify(&self, commit: u64) -> io::Result<Option<Vec<String>>> {
        let metas = MetaPage::read(self.sums.data())?;
        if let Some(meta) = metas.iter().find(|meta| meta.commit == commit) {
            return pages::verify(self.sums.data(), meta, Some(&self.sums)).map(Some);
        }
        if metas.iter().all(|meta| meta.commit < commit) {
            let what = "the page that records the last commit is damaged";
            return Ok(Some(vec![what.to_owned()]));
        }
        Ok(None)
    }
}
