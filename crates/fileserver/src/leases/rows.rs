//! What outlives a file server of leases: how often it has started, which hosts may have leases in which volumes, and
//! what was set aside for them.
//!
//! The format is in `docs/formats/leases.md`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_lease::Row;
use afar_lease::wire::Block;
use afar_types::{AfsUuid, VolumeId};
use afar_xdr::{Decode, Encode, FixedOpaque, List, from_bytes, to_bytes};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::hosts::store_file;

const MAGIC: [u8; 8] = *b"AFARLSE\n";
const VERSION: u32 = 1;
const CHECKSUM: usize = 8;

/// Rows at most, and blocks: as many as hosts may have by [`afar_lease::Limits`].
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
    blocks: List<SavedBlock, ROWS>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct SavedRow {
    host: AfsUuid,
    volume: VolumeId,
    session: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct SavedBlock {
    host: AfsUuid,
    session: u64,
    block: Block,
}

/// The rows, and the file they are in.
#[derive(Debug)]
pub(super) struct Rows {
    path: PathBuf,
    server: AfsUuid,
    pub(super) instance: u64,
    table: Mutex<Table>,
    /// Which changes of the table the file has. Locked while it is written.
    written: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<(AfsUuid, VolumeId), u64>,
    /// By host, volume and first vnode: the session, and what was set aside for it.
    blocks: BTreeMap<(AfsUuid, VolumeId, u32), (u64, Block)>,
    changes: u64,
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
        let table = rows.table.get_mut();
        for row in saved.rows {
            table.rows.insert((row.host, row.volume), row.session);
        }
        for saved in saved.blocks {
            let key = key(saved.host, &saved.block);
            table.blocks.insert(key, (saved.session, saved.block));
        }
        Ok(rows)
    }

    /// None.
    pub(super) fn empty(path: &Path, server: AfsUuid) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().saturating_sub(SINCE);
        let table = Table {
            // The file does not have the number of this life.
            changes: 1,
            ..Table::default()
        };
        Self {
            path: path.to_owned(),
            server,
            instance: now.as_secs() / MINUTE.as_secs() + 1,
            table: Mutex::new(table),
            written: Mutex::new(0),
        }
    }

    /// Whether another life can have a number of its own.
    pub(super) fn has_number(&self) -> bool {
        self.instance <= LIVES
    }

    pub(super) fn all(&self) -> Vec<Row> {
        let table = self.table.lock();
        let rows = table.rows.iter();
        rows.map(|(&(host, volume), &session)| Row {
            host,
            volume,
            session,
        })
        .collect()
    }

    pub(super) fn put(&self, row: Row) {
        let mut table = self.table.lock();
        table.rows.insert((row.host, row.volume), row.session);
        table.changes += 1;
    }

    /// Takes a row out, unless it is of another session by now, and what was set aside for the session.
    pub(super) fn remove(&self, row: Row) {
        let Row {
            host,
            volume,
            session,
        } = row;
        let mut table = self.table.lock();
        if table.rows.get(&(host, volume)) == Some(&session) {
            table.rows.remove(&(host, volume));
        }
        let of_volume = (host, volume, 0)..=(host, volume, u32::MAX);
        let ended = table.blocks.range(of_volume);
        let ended = ended.filter(|(_, (its, _))| *its == session);
        let ended: Vec<_> = ended.map(|(key, _)| *key).collect();
        for key in ended {
            table.blocks.remove(&key);
        }
        table.changes += 1;
    }

    /// A block is a host's.
    pub(super) fn put_block(&self, host: AfsUuid, session: u64, block: Block) {
        let mut table = self.table.lock();
        table.blocks.insert(key(host, &block), (session, block));
        table.changes += 1;
    }

    /// A block is nobody's any more.
    pub(super) fn remove_block(&self, host: AfsUuid, block: &Block) {
        let mut table = self.table.lock();
        table.blocks.remove(&key(host, block));
        table.changes += 1;
    }

    /// What was set aside for a session, if it is this block.
    pub(super) fn block(&self, host: AfsUuid, session: u64, block: &Block) -> Option<Block> {
        let table = self.table.lock();
        let (its, known) = table.blocks.get(&key(host, block))?;
        let same = (known.uniquifier, known.count) == (block.uniquifier, block.count);
        (*its == session && same).then_some(*known)
    }

    /// Writes the file, unless another call has written all that is there now. Blocks until it is on stable storage.
    pub(super) fn write(&self) -> Result<(), RowsError> {
        let wanted = self.table.lock().changes;
        let mut written = self.written.lock();
        if *written >= wanted {
            return Ok(());
        }
        let (bytes, changes) = self.contents();
        store_file(&self.path, &bytes).map_err(|source| RowsError::Io {
            path: self.path.clone(),
            done: "written",
            source,
        })?;
        *written = changes;
        Ok(())
    }

    fn contents(&self) -> (Vec<u8>, u64) {
        let table = self.table.lock();
        let rows = table.rows.iter().take(ROWS);
        let rows = rows.map(|(&(host, volume), &session)| SavedRow {
            host,
            volume,
            session,
        });
        let blocks = table.blocks.iter().take(ROWS);
        let blocks = blocks.map(|(&(host, ..), &(session, block))| SavedBlock {
            host,
            session,
            block,
        });
        let saved = Saved {
            magic: FixedOpaque(MAGIC),
            version: VERSION,
            server: self.server,
            instance: self.instance,
            rows: List::new(rows.collect::<Vec<_>>()).unwrap_or_default(),
            blocks: List::new(blocks.collect::<Vec<_>>()).unwrap_or_default(),
        };
        let changes = table.changes;
        drop(table);
        let mut bytes = to_bytes(&saved).to_vec();
        bytes.extend_from_slice(&xxh3_64(&bytes).to_be_bytes());
        (bytes, changes)
    }
}

fn key(host: AfsUuid, block: &Block) -> (AfsUuid, VolumeId, u32) {
    (host, block.volume, block.vnode)
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
    use super::*;

    fn uuid(number: u8) -> AfsUuid {
        AfsUuid::from_random([number; 16])
    }

    #[test]
    fn rows_are_read_as_they_were_written_and_each_life_has_a_number_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let rows = Rows::load(&path, uuid(1)).unwrap();
        let row = |host, session| Row {
            host: uuid(host),
            volume: VolumeId(7),
            session,
        };
        rows.put(row(2, 20));
        rows.put(row(3, 30));
        rows.put(row(2, 21));
        rows.remove(row(2, 20));
        let block = |vnode| Block {
            volume: VolumeId(7),
            vnode,
            uniquifier: 2 * vnode,
            count: 16,
            quota: 5,
            number: 9,
        };
        for (vnode, session) in [(100, 21), (200, 21), (300, 20)] {
            rows.put_block(uuid(2), session, block(vnode));
        }
        rows.put_block(uuid(3), 30, block(400));
        rows.remove_block(uuid(2), &block(200));
        rows.remove(row(2, 20));
        rows.remove(row(3, 30));
        rows.write().unwrap();
        let again = Rows::load(&path, uuid(1)).unwrap();
        assert_eq!(again.all(), [row(2, 21)]);
        assert!(again.instance > rows.instance);
        // A claim names it by another number, and asks for as much quota as it likes.
        let claimed = Block {
            number: 10,
            quota: u64::MAX,
            ..block(100)
        };
        assert_eq!(again.block(uuid(2), 21, &claimed), Some(block(100)));
        let others = [
            (uuid(3), 21, block(100)),
            (uuid(2), 20, block(100)),
            (
                uuid(2),
                21,
                Block {
                    count: 17,
                    ..block(100)
                },
            ),
            (uuid(2), 21, block(200)),
            (uuid(2), 20, block(300)),
            (uuid(3), 30, block(400)),
        ];
        for (host, session, block) in others {
            assert_eq!(again.block(host, session, &block), None, "{block:?}");
        }
    }

    #[test]
    fn what_is_damaged_or_of_another_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let rows = Rows::load(&path, uuid(1)).unwrap();
        rows.write().unwrap();
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
