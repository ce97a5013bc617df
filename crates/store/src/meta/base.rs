//! The base: the state of the database that is wholly on the disk, from which the log goes on.
//!
//! A checkpoint writes to the database's file before it syncs it, so after a power failure its pages
//! can be of this one and the one before. But LMDB never overwrites a page that a reader may still
//! see. Until the next checkpoint is complete the partition holds a reader of the last one's state,
//! so all pages of that state stay as they were synced. The two pages that begin the file, which say where the current state has
//! its root, do change: a copy of them is kept here, and put back before the file is opened after
//! a run that did not end well. Then the log is replayed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::log::Position;

/// Names of the two files, written in turn: a write that is torn leaves the one before.
const FILES: [&str; 2] = ["base.0", "base.1"];
/// Begins each file.
const MAGIC: [u8; 8] = *b"afarbase";
/// Bytes before the copy: magic, number, run, frame, file, clean, length of the copy.
const HEADER: usize = 8 + 8 + 8 + 8 + 1 + 1 + 4;
/// The database's file.
pub(crate) const DATABASE: &str = "data.mdb";
/// The most bytes the first two pages can have: LMDB's pages have up to 64 KiB.
const MOST: usize = 2 << 16;

/// What a base says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// Grows with each checkpoint.
    pub(crate) number: u64,
    /// Where the log goes on from it.
    pub(crate) log: Position,
    /// The partition was closed, and the database's file has all there is.
    pub(crate) clean: bool,
    /// The first two pages of the database's file.
    pub(crate) head: Vec<u8>,
}

impl Base {
    /// The newest base there is.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let mut newest: Option<Self> = None;
        for name in FILES {
            let bytes = match std::fs::read(dir.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                result => result?,
            };
            if let Some(base) = Self::from_bytes(&bytes)
                && newest
                    .as_ref()
                    .is_none_or(|newest| newest.number < base.number)
            {
                newest = Some(base);
            }
        }
        Ok(newest)
    }

    /// Makes this the newest base. It is durable on return.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let name = FILES[usize::from(self.number % 2 == 1)];
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(name))?;
        file.write_all_at(&self.to_bytes(), 0)?;
        file.sync_all()?;
        // The first time the file's name is new.
        File::open(dir)?.sync_all()
    }

    /// Puts the database's file back into this state.
    pub(crate) fn restore(&self, dir: &Path) -> io::Result<()> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(dir.join(DATABASE))?;
        let mut head = vec![0; self.head.len()];
        // Where the file was cut off, what is put back says so.
        if file.read_exact_at(&mut head, 0).is_ok() && head == self.head {
            return Ok(());
        }
        file.write_all_at(&self.head, 0)?;
        file.sync_data()
    }

    /// The first two pages of the database's file as they are now.
    pub(crate) fn head(dir: &Path, page_size: usize) -> io::Result<Vec<u8>> {
        let mut head = vec![0; 2 * page_size];
        File::open(dir.join(DATABASE))?.read_exact_at(&mut head, 0)?;
        Ok(head)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.head.len() + 8);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.log.run.to_be_bytes());
        out.extend_from_slice(&self.log.next.to_be_bytes());
        out.push(u8::from(self.log.file == 1));
        out.push(u8::from(self.clean));
        let len = u32::try_from(self.head.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&self.head);
        let sum = xxh3_64(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let number = |at: usize| Some(u64::from_be_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let len = u32::from_be_bytes(header[HEADER - 4..].try_into().ok()?);
        let len = usize::try_from(len).ok().filter(|len| *len <= MOST)?;
        let (head, rest) = rest.split_at_checked(len)?;
        let sum = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
        let flags = [header[32], header[33]];
        if rest.len() != 8 || flags.iter().any(|flag| *flag > 1) {
            return None;
        }
        if header[..8] != MAGIC || xxh3_64(&bytes[..HEADER + len]) != sum {
            return None;
        }
        Some(Self {
            number: number(8)?,
            log: Position {
                run: number(16)?,
                next: number(24)?,
                file: usize::from(header[32] == 1),
            },
            clean: header[33] == 1,
            head: head.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(number: u64) -> Base {
        Base {
            number,
            log: Position {
                run: 3,
                next: number * 10,
                file: 1,
            },
            clean: number == 2,
            head: number.to_be_bytes().repeat(1024),
        }
    }

    #[test]
    fn the_newest_whole_one_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Base::read(dir.path()).unwrap(), None);
        for number in 1..=4 {
            base(number).write(dir.path()).unwrap();
            assert_eq!(Base::read(dir.path()).unwrap(), Some(base(number)));
        }
        let bytes = base(4).to_bytes();
        for at in [0, 9, 40, 5000, bytes.len() - 1] {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            std::fs::write(dir.path().join(FILES[0]), &torn).unwrap();
            assert_eq!(Base::read(dir.path()).unwrap(), Some(base(3)), "byte {at}");
            assert_eq!(Base::from_bytes(&torn[..at]), None);
        }
    }
}
