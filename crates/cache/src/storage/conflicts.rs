//! The record of changes that could not be made at their servers: a file with a line for each, of which the oldest go
//! when it is long. See docs/formats/cache.md.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::{lost, private};
use crate::model::conflict::Conflict;

/// The file.
pub(super) const NAME: &str = "conflicts";
/// The same while it is rewritten.
const NEW: &str = "conflicts.new";
/// Bytes of the file.
const BYTES_MOST: usize = 1 << 20;
/// Bytes that wait to be written.
const QUEUED_MOST: usize = BYTES_MOST / 2;

/// The record in the directory of a cache.
#[derive(Debug)]
pub(crate) struct Conflicts {
    dir: PathBuf,
    /// Lines that are not in the file yet.
    queued: Mutex<Vec<u8>>,
    /// Held while the file is written or read.
    turn: Mutex<()>,
    /// The log has it that the file cannot be written.
    told: AtomicBool,
}

impl Conflicts {
    /// The record of the cache in this directory; nothing is read or made yet.
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            queued: Mutex::default(),
            turn: Mutex::default(),
            told: AtomicBool::new(false),
        }
    }

    /// Notes a conflict, which waits for no disk. Returns whether somebody must have it [written](Self::write): else
    /// that is due already.
    pub(crate) fn add(&self, conflict: &Conflict) -> bool {
        // Where the cache is may change, so the name in lost+found is noted.
        let kept = conflict.kept.as_deref().and_then(Path::file_name);
        let line = Conflict {
            kept: kept.map(PathBuf::from),
            ..conflict.clone()
        };
        let line = line.to_string();
        let line = format!("{line}\t{:016x}\n", xxh3_64(line.as_bytes()));
        let mut queued = self.queued.lock();
        let is_first = queued.is_empty();
        queued.extend_from_slice(line.as_bytes());
        if queued.len() > QUEUED_MOST {
            *queued = newest(&queued, QUEUED_MOST / 2).to_vec();
        }
        is_first
    }

    /// Writes what was added. If that fails, the log says so once.
    pub(crate) fn write(&self) {
        let turn = self.turn.lock();
        let lines = std::mem::take(&mut *self.queued.lock());
        if lines.is_empty() {
            return;
        }
        let written = self.append(&lines);
        drop(turn);
        if let Err(error) = written
            && !self.told.swap(true, Ordering::Relaxed)
        {
            let dir = self.dir.display();
            tracing::error!(%dir, %error, "the record of conflicts cannot be written");
        }
    }

    fn append(&self, lines: &[u8]) -> io::Result<()> {
        let path = self.dir.join(NAME);
        let mut file = private::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::with_capacity(lines.len() + 1);
        if let Some(last) = length.checked_sub(1) {
            let mut end = [0];
            file.read_exact_at(&mut end, last)?;
            // A line that was not written to its end spoils no other.
            if end != *b"\n" {
                bytes.push(b'\n');
            }
        }
        bytes.extend_from_slice(lines);
        let whole = length.saturating_add(bytes.len() as u64);
        if whole <= BYTES_MOST as u64 {
            return file.write_all(&bytes);
        }
        let mut all = fs::read(&path)?;
        all.extend_from_slice(&bytes);
        let new = self.dir.join(NEW);
        private::write(&new, newest(&all, BYTES_MOST / 2))?;
        fs::rename(new, path)
    }

    /// What is noted, the oldest first. Lines that are damaged count for nothing.
    pub(crate) fn read(&self) -> io::Result<Vec<Conflict>> {
        self.write();
        let turn = self.turn.lock();
        let file = match fs::File::open(self.dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MOST as u64).read_to_end(&mut bytes)?;
        drop(turn);
        let lost = self.dir.join(lost::NAME);
        let noted = bytes.split(|byte| *byte == b'\n').filter_map(parse);
        let whole = noted.map(|conflict| Conflict {
            kept: conflict.kept.map(|name| lost.join(name)),
            ..conflict
        });
        Ok(whole.collect())
    }
}

/// A line, if it is whole.
fn parse(line: &[u8]) -> Option<Conflict> {
    let (line, sum) = std::str::from_utf8(line).ok()?.rsplit_once('\t')?;
    let is_whole = sum == format!("{:016x}", xxh3_64(line.as_bytes()));
    is_whole.then(|| line.parse().ok()).flatten()
}

/// The last lines, of no more bytes than this.
fn newest(lines: &[u8], most: usize) -> &[u8] {
    let Some(from) = lines.len().checked_sub(most).filter(|from| *from > 0) else {
        return lines;
    };
    // If a line begins just there, the byte before it ends one.
    let mut before = lines.iter().skip(from - 1);
    let skipped = before.position(|byte| *byte == b'\n');
    skipped
        .and_then(|skipped| lines.get(from + skipped..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use afar_types::{Fid, UnixTime};

    use super::*;

    fn conflict(number: u32) -> Conflict {
        Conflict {
            time: UnixTime(number),
            cell: "a.example".parse().unwrap(),
            fid: Fid::new(5, 1, 1),
            verb: "mkdir".to_owned(),
            name: format!("new\n{number}").into_bytes(),
            why: "it exists already".to_owned(),
            kept: None,
        }
    }

    #[test]
    fn what_is_added_is_there_for_the_next_process_too() {
        let dir = tempfile::tempdir().unwrap();
        let conflicts = Conflicts::new(dir.path());
        assert!(conflicts.read().unwrap().is_empty());
        assert!(
            !dir.path().join(NAME).exists(),
            "nothing is made for nothing"
        );
        let stored = Conflict {
            kept: Some(dir.path().join("lost+found/a.example.5.2.7")),
            ..conflict(2)
        };
        assert!(conflicts.add(&conflict(1)));
        assert!(!conflicts.add(&stored), "the first one sees to it");
        assert_eq!(conflicts.read().unwrap(), [conflict(1), stored.clone()]);
        assert!(conflicts.add(&conflict(3)));
        conflicts.write();
        let again = Conflicts::new(dir.path()).read().unwrap();
        assert_eq!(again, [conflict(1), stored, conflict(3)]);
        let mode = fs::metadata(dir.path().join(NAME)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn damaged_lines_count_for_nothing_and_spoil_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let conflicts = Conflicts::new(dir.path());
        for number in 1..=3 {
            conflicts.add(&conflict(number));
        }
        conflicts.write();
        let text = fs::read_to_string(&path).unwrap();
        let torn = text.len() - 5;
        let damaged = text.replacen("mkdir", "rmdir", 1);
        fs::write(&path, &damaged.as_bytes()[..torn]).unwrap();
        assert_eq!(conflicts.read().unwrap(), [conflict(2)]);
        conflicts.add(&conflict(4));
        assert_eq!(conflicts.read().unwrap(), [conflict(2), conflict(4)]);
        fs::write(&path, b"\xff\n\n\tx\t\n").unwrap();
        conflicts.add(&conflict(5));
        assert_eq!(conflicts.read().unwrap(), [conflict(5)]);
    }

    #[test]
    fn the_older_half_goes_when_it_is_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let conflicts = Conflicts::new(dir.path());
        let mut shrunk = false;
        let mut length = 0;
        for number in 0..30_000 {
            conflicts.add(&conflict(number));
            if number % 100 == 0 {
                conflicts.write();
                let now = fs::metadata(&path).unwrap().len();
                assert!(now <= BYTES_MOST as u64);
                shrunk |= now < length;
                length = now;
            }
        }
        assert!(shrunk, "it never was too long");
        let left = conflicts.read().unwrap();
        assert!(left.len() > 4000, "{}", left.len());
        let first = left[0].time.0;
        let numbers: Vec<u32> = left.iter().map(|conflict| conflict.time.0).collect();
        assert_eq!(numbers, (first..30_000).collect::<Vec<_>>());
        assert!(!dir.path().join(NEW).exists());
    }

    #[test]
    fn what_waits_is_bounded_and_what_cannot_be_written_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let conflicts = Conflicts::new(&dir.path().join("none"));
        for number in 0..20_000 {
            conflicts.add(&conflict(number));
            assert!(conflicts.queued.lock().len() <= QUEUED_MOST);
        }
        let last = conflict(19_999).to_string();
        let queued = String::from_utf8(conflicts.queued.lock().clone()).unwrap();
        assert!(queued.contains(&last));
        assert!(queued.lines().all(|line| parse(line.as_bytes()).is_some()));
        conflicts.write();
        assert!(conflicts.queued.lock().is_empty());
        assert!(conflicts.told.load(Ordering::Relaxed));
        assert!(conflicts.read().unwrap().is_empty());
    }

    #[test]
    fn the_newest_lines_are_whole_ones() {
        for (most, left) in [
            (0, ""),
            (2, ""),
            (3, "cc\n"),
            (5, "cc\n"),
            (6, "bb\ncc\n"),
            (9, "aa\nbb\ncc\n"),
            (99, "aa\nbb\ncc\n"),
        ] {
            let newest = newest(b"aa\nbb\ncc\n", most);
            assert_eq!(std::str::from_utf8(newest).unwrap(), left, "{most}");
        }
        assert_eq!(newest(b"long", 2), b"");
    }
}
