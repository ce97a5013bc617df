//! The log: what committed transactions changed since the last checkpoint.
//!
//! LMDB makes a commit durable by writing each changed page to its place and syncing twice. Here a
//! commit is durable when one frame, with the rows it changed, is appended to the log and synced
//! once. The rows reach the database later, at a checkpoint ([`super::base`]); until then they are in
//! the [memtable](super::memtable).
//!
//! There are two files. One is written until a checkpoint begins, then the other; when the
//! checkpoint is complete the first can be rewritten from its start. A frame carries the number
//! of the run (from one opening of the partition to the next) and its own number in it, so that
//! frames of earlier use are never taken for new ones.
//!
//! A frame may also have records as they are in their segments, so that one sync makes both durable.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::env::Table;
use crate::segment::{DiskTimes, is_no_space};
use crate::writing;

/// Bytes by which a file is lengthened with zeros: a sync of bytes that were there before needs
/// no journal of the file system.
const STEP: u64 = 4 << 20;
/// Begins each frame.
const MAGIC: [u8; 4] = *b"afLG";
/// A frame is written with zeros up to the next multiple of so many bytes, a page of the kernel's cache.
/// Of a page that is written in part the rest is read first, from the disk if it has been there for long.
const PAGE: usize = 4096;
/// Bytes before a frame's payload: magic, length, run, number, checksum.
const HEADER: usize = 32;
/// The length that stands for a row that was deleted.
const DELETED: u32 = u32::MAX;
/// In the place of a table's number: the key is segment and offset, the value what a record has
/// there.
pub(crate) const RECORD: u8 = u8::MAX;

/// Names of the two files.
pub(crate) const FILES: [&str; 2] = ["log.0", "log.1"];

/// The log, for appending.
pub(crate) struct Log {
    files: [File; 2],
    /// Bytes of each file.
    lengths: [u64; 2],
    current: usize,
    offset: u64,
    /// Where the last frame begins.
    last: u64,
    run: u64,
    next: u64,
    unsynced: bool,
    /// Whether there are records since the last switch.
    records: bool,
    frame: Vec<u8>,
    times: DiskTimes,
}

/// Where a replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) run: u64,
    /// The number of the first frame.
    pub(crate) next: u64,
    /// The file it is at the start of.
    pub(crate) file: usize,
}

impl Log {
    /// Opens the log for a new run, in the first file.
    pub(crate) fn open(dir: &Path, run: u64) -> io::Result<Self> {
        let open = |name| {
            File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(dir.join(name))
        };
        let files = [open(FILES[0])?, open(FILES[1])?];
        let lengths = [files[0].metadata()?.len(), files[1].metadata()?.len()];
        Ok(Self {
            files,
            lengths,
            current: 0,
            offset: 0,
            last: 0,
            run,
            next: 0,
            unsynced: false,
            records: false,
            frame: Vec::new(),
            times: DiskTimes::default(),
        })
    }

    /// How long the disk took.
    pub(crate) fn times(&self) -> &DiskTimes {
        &self.times
    }

    /// Where a replay begins that is to begin with the next frame. Later frames go to the other
    /// file, from its start.
    pub(crate) fn switch(&mut self) -> Position {
        self.current = 1 - self.current;
        self.offset = 0;
        self.records = false;
        Position {
            run: self.run,
            next: self.next,
            file: self.current,
        }
    }

    /// Where a replay begins that is to begin with the first frame of the run.
    pub(crate) fn start(&self) -> Position {
        Position {
            run: self.run,
            next: 0,
            file: 0,
        }
    }

    /// Whether there are records since the last switch.
    pub(crate) fn has_records(&self) -> bool {
        self.records
    }

    /// Bytes since the last switch.
    pub(crate) fn len(&self) -> u64 {
        self.offset
    }

    /// Begins a frame.
    pub(crate) fn begin(&mut self) {
        self.frame.clear();
        self.frame.resize(HEADER, 0);
    }

    /// Adds a row to the frame: its sealed value, or that it was deleted.
    pub(crate) fn row(&mut self, table: Table, key: &[u8], sealed: Option<&[u8]>) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(DELETED - 1);
        self.head(table as u8, key, sealed.map_or(DELETED, len));
        self.frame.extend_from_slice(sealed.unwrap_or_default());
    }

    /// Adds a record to the frame, and returns where its bytes are to be put.
    pub(crate) fn record(&mut self, place: &[u8], len: u32) -> &mut [u8] {
        self.records = true;
        self.head(RECORD, place, len);
        let start = self.frame.len();
        self.frame.resize(start + len as usize, 0);
        &mut self.frame[start..]
    }

    fn head(&mut self, table: u8, key: &[u8], value_len: u32) {
        self.frame.push(table);
        self.frame.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
        self.frame.extend_from_slice(&value_len.to_be_bytes());
        self.frame.extend_from_slice(key);
    }

    /// Makes room for the frame. After that [`append`](Self::append) overwrites what is there, and
    /// cannot fail for want of space.
    pub(crate) fn reserve(&mut self) -> io::Result<()> {
        let end = self.offset + self.frame.len() as u64;
        let end = end.next_multiple_of(PAGE as u64);
        while self.lengths[self.current] < end {
            let step = self.lengths[self.current] + STEP;
            let result = self.lengthen(step);
            // On a disk that is nearly full the last bytes are for what was asked.
            if result.as_ref().is_err_and(is_no_space) {
                self.lengthen(end)?;
            } else {
                result?;
            }
        }
        Ok(())
    }

    fn lengthen(&mut self, until: u64) -> io::Result<()> {
        let zeros = vec![0; 1 << 20];
        let length = &mut self.lengths[self.current];
        while *length < until {
            let part = (until - *length).min(zeros.len() as u64);
            #[expect(clippy::cast_possible_truncation, reason = "at most 1 MiB")]
            let part = &zeros[..part as usize];
            self.files[self.current].write_all_at(part, *length)?;
            *length += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the frame.
    pub(crate) fn append(&mut self) -> io::Result<()> {
        let too_long = |_| io::Error::other("a commit of more than 4 GiB");
        let len = u32::try_from(self.frame.len() - HEADER).map_err(too_long)?;
        let sum = checksum(self.run, self.next, &self.frame[HEADER..]);
        self.frame[..4].copy_from_slice(&MAGIC);
        self.frame[4..8].copy_from_slice(&len.to_be_bytes());
        self.frame[8..16].copy_from_slice(&self.run.to_be_bytes());
        self.frame[16..24].copy_from_slice(&self.next.to_be_bytes());
        self.frame[24..32].copy_from_slice(&sum.to_be_bytes());
        let end = self.offset + self.frame.len() as u64;
        let zeros = [0; PAGE];
        #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
        let padding = (end.next_multiple_of(PAGE as u64) - end) as usize;
        self.frame.extend_from_slice(&zeros[..padding]);
        let file = &self.files[self.current];
        self.times
            .write(|| file.write_all_at(&self.frame, self.offset))?;
        self.last = self.offset;
        self.offset = end;
        self.next += 1;
        self.unsynced = true;
        // One large commit should not keep its memory for good.
        if self.frame.capacity() > 16 << 20 {
            self.frame = Vec::new();
        }
        Ok(())
    }

    /// Has the disk begin with the frame that was appended last.
    pub(crate) fn begin_writing(&self) {
        writing::begin(&self.files[self.current], self.last..self.offset);
    }

    /// Takes the frame back that was appended last, of a transaction that could not be committed: the
    /// log ends before it, also after a power failure.
    pub(crate) fn take_back(&mut self) -> io::Result<()> {
        let file = &self.files[self.current];
        file.write_all_at(&[0; HEADER], self.last)?;
        file.sync_data()?;
        self.offset = self.last;
        self.next -= 1;
        Ok(())
    }

    /// Makes all frames durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            let file = &self.files[self.current];
            self.times.sync(|| file.sync_data())?;
        }
        Ok(())
    }
}

fn checksum(run: u64, number: u64, payload: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&run.to_be_bytes());
    hash.update(&number.to_be_bytes());
    hash.update(payload);
    hash.digest()
}

/// A row of a frame: table, key, sealed value or nothing.
pub(crate) type LoggedRow<'a> = (u8, &'a [u8], Option<&'a [u8]>);

/// Reads the frames from a position on, up to the first that is not complete.
pub(crate) struct Replay {
    files: [File; 2],
    position: Position,
    offset: u64,
    switched: bool,
}

impl Replay {
    pub(crate) fn open(dir: &Path, position: Position) -> io::Result<Self> {
        let open = |name| File::open(dir.join(name));
        Ok(Self {
            files: [open(FILES[0])?, open(FILES[1])?],
            position,
            offset: 0,
            switched: false,
        })
    }

    /// The next frame's payload, if there is one.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(payload) = self.frame()? {
            return Ok(Some(payload));
        }
        if self.switched {
            return Ok(None);
        }
        // A checkpoint that was not completed went on in the other file.
        self.switched = true;
        self.position.file = 1 - self.position.file;
        self.offset = 0;
        self.frame()
    }

    fn frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let file = &self.files[self.position.file & 1];
        let length = file.metadata()?.len();
        let mut header = [0; HEADER];
        if self.offset + HEADER as u64 > length {
            return Ok(None);
        }
        file.read_exact_at(&mut header, self.offset)?;
        let word = |at: usize| u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[at + i]));
        let payload_len = word(0) & u64::from(u32::MAX);
        let start = self.offset + HEADER as u64;
        let ours = header[..4] == MAGIC
            && word(8) == self.position.run
            && word(16) == self.position.next
            && start + payload_len <= length;
        if !ours {
            return Ok(None);
        }
        let mut payload = vec![0; usize::try_from(payload_len).map_err(io::Error::other)?];
        file.read_exact_at(&mut payload, start)?;
        if checksum(self.position.run, self.position.next, &payload) != word(24) {
            return Ok(None);
        }
        self.position.next += 1;
        self.offset = start + payload_len;
        Ok(Some(payload))
    }
}

/// The rows of a frame; `None` in place of one that cannot be.
pub(crate) fn rows(payload: &[u8]) -> impl Iterator<Item = Option<LoggedRow<'_>>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let row = split_row(&mut rest);
        if row.is_none() {
            rest = &[];
        }
        Some(row)
    })
}

fn split_row<'a>(rest: &mut &'a [u8]) -> Option<LoggedRow<'a>> {
    let (&[table, key_len], after) = rest.split_first_chunk()?;
    let (value_len, after) = after.split_first_chunk()?;
    let value_len = u32::from_be_bytes(*value_len);
    let (key, after) = after.split_at_checked(key_len.into())?;
    if value_len == DELETED {
        *rest = after;
        return Some((table, key, None));
    }
    let (value, after) = after.split_at_checked(usize::try_from(value_len).ok()?)?;
    *rest = after;
    Some((table, key, Some(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(log: &mut Log, value: &[u8]) {
        log.begin();
        log.row(Table::Rows, b"key", Some(value));
        log.row(Table::Changes, b"gone", None);
        log.reserve().unwrap();
        log.append().unwrap();
    }

    /// Otherwise the kernel must read what was in the rest of the page.
    #[test]
    fn whole_pages_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 1).unwrap();
        append(&mut log, &[1; 3 * PAGE]);
        let reused = log.lengths[0];
        log.switch();
        log.switch();
        append(&mut log, b"little");
        append(&mut log, b"more");
        let content = std::fs::read(dir.path().join(FILES[0])).unwrap();
        let end = usize::try_from(log.offset).unwrap();
        assert!(end < PAGE);
        assert_eq!(content[end..PAGE], vec![0; PAGE - end]);
        assert_eq!(content[PAGE..2 * PAGE], [1; PAGE], "no more than that");
        append(&mut log, &vec![2; usize::try_from(reused).unwrap() - PAGE]);
        assert_eq!(log.lengths[0] % PAGE as u64, 0, "the last one too");
    }

    fn values(dir: &Path, from: Position) -> Vec<Vec<u8>> {
        let mut replay = Replay::open(dir, from).unwrap();
        let mut values = Vec::new();
        while let Some(payload) = replay.next().unwrap() {
            let found: Vec<_> = rows(&payload).map(Option::unwrap).collect();
            assert_eq!(found[1], (Table::Changes as u8, &b"gone"[..], None));
            values.push(found[0].2.unwrap().to_vec());
        }
        values
    }

    #[test]
    fn frames_come_back_over_a_switch() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 7).unwrap();
        let start = log.start();
        append(&mut log, b"one");
        append(&mut log, b"two");
        let middle = log.switch();
        append(&mut log, b"three");
        log.sync().unwrap();
        assert_eq!(values(dir.path(), start), [&b"one"[..], b"two", b"three"]);
        assert_eq!(values(dir.path(), middle), [&b"three"[..]]);
    }

    #[test]
    fn a_frame_that_was_taken_back_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 1).unwrap();
        let start = log.start();
        append(&mut log, b"kept");
        append(&mut log, b"taken back");
        log.take_back().unwrap();
        assert_eq!(values(dir.path(), start), [b"kept"]);
        append(&mut log, b"the next");
        assert_eq!(values(dir.path(), start), [&b"kept"[..], b"the next"]);
    }

    #[test]
    fn records_come_back_beside_rows() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 1).unwrap();
        let start = log.start();
        log.begin();
        log.record(b"place", 3).copy_from_slice(b"abc");
        log.row(Table::Rows, b"key", Some(b"value"));
        log.reserve().unwrap();
        log.append().unwrap();
        assert!(log.has_records());
        let payload = Replay::open(dir.path(), start).unwrap().next().unwrap();
        let found: Vec<_> = rows(&payload.unwrap())
            .map(Option::unwrap)
            .map(|row| (row.0, row.2.unwrap().to_vec()))
            .collect();
        assert_eq!(
            found,
            [
                (RECORD, b"abc".to_vec()),
                (Table::Rows as u8, b"value".to_vec())
            ]
        );
        log.switch();
        assert!(!log.has_records());
    }

    #[test]
    fn frames_of_an_earlier_run_are_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 1).unwrap();
        append(&mut log, b"old one");
        append(&mut log, b"old two");
        let mut log = Log::open(dir.path(), 2).unwrap();
        let start = log.start();
        append(&mut log, b"new one");
        assert_eq!(values(dir.path(), start), [&b"new one"[..]]);
    }

    #[test]
    fn a_torn_frame_ends_the_replay() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 1).unwrap();
        let start = log.start();
        append(&mut log, b"whole");
        let end = log.len();
        append(&mut log, &[7; 5000]);
        for at in [end, end + 5, end + 31, end + 100, end + 5000] {
            let file = File::options()
                .read(true)
                .write(true)
                .open(dir.path().join(FILES[0]))
                .unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert_eq!(values(dir.path(), start), [&b"whole"[..]], "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        assert_eq!(values(dir.path(), start).len(), 2);
    }
}
