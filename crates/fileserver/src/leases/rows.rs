//! What outlives a file server of leases: how often it has started, and which hosts may have leases in which volumes.
//!
//! The format is in `docs/formats/leases.md`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_lease::Row;
use afar_types::{AfsUuid, VolumeId};
use afar_xdr::{Decode, Encode, FixedOpaque, List, from_bytes, to_bytes};
use xxhash_rust::xxh3::xxh3_64;

use crate::hosts::store_file;

const MAGIC: [u8; 8] = *b"AFARLSE\n";
const VERSION: u32 = 1;
const CHECKSUM: usize = 8;

/// Rows at most: as many as hosts may have by [`afar_lease::Limits`].
const ROWS: usize = 20_000 * 64;

/// Lives are numbered at least so far apart as minutes have passed since 2026, so that a server that has lost the
/// file takes no number for the second time, unless it starts more than once a minute.
const MINUTE: Duration = Duration::from_secs(60);
const SINCE: Duration = Duration::from_secs(1_767_225_600);

/// Lives there can be.
const LIVES: u64 = (1 << 24) - 1;

/// Why the file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// It cannot be read or written.
    #[error("{path} cannot be {done}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        done: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// It is cut short, changed, of another version or another server's.
    #[error("{path} is not a file of leases of version {VERSION} of this server: {why}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct Saved {
    magic: FixedOpaque<8>,
    version: u32,
    server: AfsUuid,
    instance: u64,
    rows: List<SavedRow, ROWS>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct SavedRow {
    host: AfsUuid,
    volume: VolumeId,
    session: u64,
}

/// The rows, and the file they are in.
#[derive(Debug)]
pub(super) struct Rows {
    path: PathBuf,
    server: AfsUuid,
    pub(super) instance: u64,
    rows: BTreeMap<(AfsUuid, VolumeId), u64>,
}

impl Rows {
    /// What an earlier life has left; nothing if there is no file. Blocks.
    pub(super) fn load(path: &Path, server: AfsUuid) -> Result<Self, RowsError> {
        let mut rows = Self::empty(path, server);
        let contents = match fs::read(path) {
            Ok(contents) => contents,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(rows),
            Err(source) => {
                let (path, done) = (path.to_owned(), "read");
                return Err(RowsError::Io { path, done, source });
            }
        };
        let saved = read(&contents, server).map_err(|why| RowsError::Malformed {
            path: path.to_owned(),
            why,
        })?;
        rows.instance = rows.instance.max(saved.instance + 1);
        let saved = saved.rows.into_iter();
        rows.rows
            .extend(saved.map(|row| ((row.host, row.volume), row.session)));
        Ok(rows)
    }

    /// None.
    pub(super) fn empty(path: &Path, server: AfsUuid) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().saturating_sub(SINCE);
        Self {
            path: path.to_owned(),
            server,
            instance: now.as_secs() / MINUTE.as_secs() + 1,
            rows: BTreeMap::new(),
        }
    }

    /// Whether another life can have a number of its own.
    pub(super) fn has_number(&self) -> bool {
        self.instance <= LIVES
    }

    pub(super) fn all(&self) -> Vec<Row> {
        let rows = self.rows.iter();
        rows.map(|(&(host, volume), &session)| Row {
            host,
            volume,
            session,
        })
        .collect()
    }

    pub(super) fn put(&mut self, row: Row) {
        self.rows.insert((row.host, row.volume), row.session);
    }

    /// Takes a row out, unless it is of another session by now.
    pub(super) fn remove(&mut self, row: Row) {
        let place = (row.host, row.volume);
        if self.rows.get(&place) == Some(&row.session) {
            self.rows.remove(&place);
        }
    }

    /// The file with all of them, which [`write`] makes durable.
    pub(super) fn contents(&self) -> Contents {
        let rows = self.rows.iter().take(ROWS);
        let rows: Vec<SavedRow> = rows
            .map(|(&(host, volume), &session)| SavedRow {
                host,
                volume,
                session,
            })
            .collect();
        let saved = Saved {
            magic: FixedOpaque(MAGIC),
            version: VERSION,
            server: self.server,
            instance: self.instance,
            rows: List::new(rows).unwrap_or_default(),
        };
        let mut bytes = to_bytes(&saved).to_vec();
        bytes.extend_from_slice(&xxh3_64(&bytes).to_be_bytes());
        Contents {
            path: self.path.clone(),
            bytes,
        }
    }
}

/// A file that is to be written.
pub(super) struct Contents {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Contents {
    /// Writes it. Blocks until it is on stable storage.
    pub(super) fn write(self) -> Result<(), RowsError> {
        store_file(&self.path, &self.bytes).map_err(|source| RowsError::Io {
            path: self.path,
            done: "written",
            source,
        })
    }
}

fn read(contents: &[u8], server: AfsUuid) -> Result<Saved, &'static str> {
    let end = contents.len().checked_sub(CHECKSUM);
    let (body, checksum) = contents.split_at(end.ok_or("it is too short")?);
    if xxh3_64(body).to_be_bytes() != checksum {
        return Err("its checksum is another");
    }
    let saved: Saved = from_bytes(body).map_err(|_| "it cannot be read")?;
    if saved.magic.0 != MAGIC || saved.version != VERSION {
        return Err("it starts with something else");
    }
    if saved.server != server {
        return Err("it is of another server");
    }
    if saved.instance >= LIVES {
        return Err("its number of starts is too high");
    }
    Ok(saved)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn uuid(number: u8) -> AfsUuid {
        AfsUuid::from_random([number; 16])
    }

    #[test]
    fn rows_are_read_as_they_were_written_and_each_life_has_a_number_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let mut rows = Rows::load(&path, uuid(1)).unwrap();
        let row = |host, session| Row {
            host: uuid(host),
            volume: VolumeId(7),
            session,
        };
        rows.put(row(2, 20));
        rows.put(row(3, 30));
        rows.put(row(2, 21));
        rows.remove(row(2, 20));
        rows.remove(row(3, 30));
        rows.contents().write().unwrap();
        let again = Rows::load(&path, uuid(1)).unwrap();
        assert_eq!(again.all(), [row(2, 21)]);
        assert!(again.instance > rows.instance);
    }

    #[test]
    fn what_is_damaged_or_of_another_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let rows = Rows::load(&path, uuid(1)).unwrap();
        rows.contents().write().unwrap();
        let refused = |loaded: Result<Rows, RowsError>| {
            assert!(
                matches!(loaded, Err(RowsError::Malformed { .. })),
                "{loaded:?}"
            );
        };
        refused(Rows::load(&path, uuid(9)));
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            fs::write(&path, changed).unwrap();
            refused(Rows::load(&path, uuid(1)));
            fs::write(&path, &whole[..place]).unwrap();
            refused(Rows::load(&path, uuid(1)));
        }
    }
}
