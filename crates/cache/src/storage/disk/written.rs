//! Files with what was written to others and is not stored yet, each at its place.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::kept;
use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;
use crate::storage::{Kept, Left, lost, private};

/// Where they are.
pub(super) const NAME: &str = "dirty";
/// The end of the name of a record.
const KEPT: &str = "kept";
/// The end of its name before it is whole.
const NEW: &str = "new";
/// Of so many files the descriptors are kept.
const OPEN_MOST: usize = 256;
/// A record of more bytes is none of ours.
const RECORD_MOST: u64 = 256 << 20;

/// What was written.
#[derive(Debug)]
pub(super) struct Written {
    dir: PathBuf,
    lost: PathBuf,
    files: BTreeMap<FileKey, Entry>,
    left: Vec<Left>,
    next: u64,
    open: usize,
    /// Bytes in all of them.
    bytes: u64,
}

/// What was written to a file.
#[derive(Debug, Default)]
pub(super) struct Entry {
    number: u64,
    file: Option<Arc<File>>,
    /// Bytes no server has.
    dirty: RangeSet,
    /// Bytes that became clean and are still here.
    settled: RangeSet,
    /// Whether there is a record.
    kept: bool,
}

impl Entry {
    pub(super) fn settled(&self) -> &RangeSet {
        &self.settled
    }

    pub(super) fn dirty(&self) -> &RangeSet {
        &self.dirty
    }
}

impl Written {
    /// Finds what was left. What has no record was acknowledged to nobody, and goes.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let mut written = Self {
            dir: dir.join(NAME),
            lost: dir.join(lost::NAME),
            files: BTreeMap::new(),
            left: Vec::new(),
            next: 1,
            open: 0,
            bytes: 0,
        };
        private::make_dir(&written.dir)?;
        let mut data = Vec::new();
        for entry in fs::read_dir(&written.dir)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            match name.split_once('.') {
                None => data.extend(name.parse::<u64>()),
                // One that was not finished counts for nothing.
                Some((number, NEW)) if number.parse::<u64>().is_ok() => {
                    fs::remove_file(written.dir.join(name))?;
                }
                Some(_) => {}
            }
        }
        data.sort_unstable();
        for number in data {
            written.next = written.next.max(number.saturating_add(1));
            written.find(number)?;
        }
        Ok(written)
    }

    /// Looks what a file is that was left.
    fn find(&mut self, number: u64) -> io::Result<()> {
        let record = self.record(number);
        let bytes = match fs::metadata(&record) {
            Ok(found) if found.len() <= RECORD_MOST => fs::read(&record)?,
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fs::remove_file(self.path(number));
            }
            Err(error) => return Err(error),
        };
        if let Some((key, kept)) = kept::decode(&bytes) {
            self.left.push(Left { number, key, kept });
            return Ok(());
        }
        let place = self.move_to_lost(number, "unnamed", None)?;
        tracing::error!(
            path = %place.display(),
            "data written to a file of AFS is not stored, and the record of which file is \
             damaged; keeping it here"
        );
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }

    fn record(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number}.{KEPT}"))
    }

    /// What is counted is what there is: nothing once no file is left.
    fn check(&self) {
        if self.files.is_empty() {
            debug_assert_eq!((self.bytes, self.open), (0, 0), "of no file");
        }
    }

    /// Bytes of what was written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn find_entry(&self, key: &FileKey) -> Option<&Entry> {
        self.files.get(key)
    }

    /// All files of which something is here.
    pub(super) fn keys(&self) -> Vec<FileKey> {
        self.files.keys().cloned().collect()
    }

    /// The file for what is written to another, made if there is none.
    pub(super) fn file_or_new(&mut self, key: &FileKey) -> io::Result<Arc<File>> {
        if !self.files.contains_key(key) {
            let number = self.next;
            let path = self.path(number);
            let mut options = private::options();
            // One that is there already would hold what was written to another file.
            let file = options.read(true).write(true).create_new(true).open(path)?;
            self.next += 1;
            let mut entry = Entry {
                number,
                ..Entry::default()
            };
            let file = Arc::new(file);
            if self.open < OPEN_MOST {
                self.open += 1;
                entry.file = Some(Arc::clone(&file));
            }
            self.files.insert(key.clone(), entry);
            return Ok(file);
        }
        let file = self.file(key)?;
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The file for what was written to another, if there is one.
    pub(super) fn file(&mut self, key: &FileKey) -> io::Result<Option<Arc<File>>> {
        let Some(entry) = self.files.get_mut(key) else {
            return Ok(None);
        };
        if let Some(file) = &entry.file {
            return Ok(Some(Arc::clone(file)));
        }
        let path = self.dir.join(entry.number.to_string());
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(path)?);
        if self.open < OPEN_MOST {
            self.open += 1;
            entry.file = Some(Arc::clone(&file));
        }
        debug_assert!(self.open <= OPEN_MOST && self.open <= self.files.len());
        Ok(Some(file))
    }

    /// These bytes are here, and dirty. Returns whether the file still is.
    pub(super) fn note(&mut self, key: &FileKey, range: Range<u64>) -> bool {
        let Some(entry) = self.files.get_mut(key) else {
            return false;
        };
        self.bytes += length_of(&entry.dirty.gaps(range.clone()));
        entry.dirty.insert(range);
        let here = entry.dirty.bytes() + entry.settled.bytes();
        debug_assert!(here <= self.bytes, "{here} of {}", self.bytes);
        true
    }

    /// Drops dirty bytes.
    pub(super) fn cut(&mut self, key: &FileKey, range: Range<u64>) {
        if let Some(entry) = self.files.get_mut(key) {
            let parts: Vec<_> = entry.dirty.within(range.clone()).collect();
            self.bytes -= length_of(&parts);
            entry.dirty.remove(range);
            self.tidy(key);
        }
    }

    /// Dirty bytes are clean now. They stay until they are elsewhere.
    pub(super) fn settle(&mut self, key: &FileKey, ranges: &RangeSet) {
        let Some(entry) = self.files.get_mut(key) else {
            return;
        };
        for range in ranges.iter() {
            let parts: Vec<_> = entry.dirty.within(range.clone()).collect();
            for part in parts {
                // They may be clean ones already, of an earlier store.
                self.bytes -= length_of(std::slice::from_ref(&part));
                self.bytes += length_of(&entry.settled.gaps(part.clone()));
                entry.settled.insert(part);
            }
            entry.dirty.remove(range);
        }
    }

    /// Drops bytes that became clean.
    pub(super) fn drop_settled(&mut self, key: &FileKey, range: Range<u64>) {
        if let Some(entry) = self.files.get_mut(key) {
            let parts: Vec<_> = entry.settled.within(range.clone()).collect();
            self.bytes -= length_of(&parts);
            entry.settled.remove(range);
            self.tidy(key);
        }
    }

    /// Removes a file with nothing in it.
    pub(super) fn tidy(&mut self, key: &FileKey) {
        let empty = self
            .files
            .get(key)
            .is_some_and(|entry| entry.dirty.is_empty() && entry.settled.is_empty() && !entry.kept);
        if empty {
            self.remove(key);
        }
    }

    /// Removes what was written to a file.
    pub(super) fn remove(&mut self, key: &FileKey) {
        if let Some(entry) = self.files.remove(key) {
            self.bytes -= entry.dirty.bytes() + entry.settled.bytes();
            self.open -= usize::from(entry.file.is_some());
            if entry.kept {
                self.unlink(&self.record(entry.number));
            }
            self.check();
            self.unlink(&self.path(entry.number));
        }
    }

    fn unlink(&self, path: &Path) {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "cannot be removed from the cache");
        }
    }

    /// The record of what was written to a file no longer holds: a server has it.
    pub(super) fn drop_record(&mut self, key: &FileKey) {
        if let Some(entry) = self.files.get_mut(key)
            && std::mem::take(&mut entry.kept)
        {
            let number = entry.number;
            self.unlink(&self.record(number));
        }
    }

    /// Where a record goes, and the directory to sync.
    pub(super) fn recording(&self, key: &FileKey) -> Option<Recording> {
        let number = self.files.get(key)?.number;
        Some(Recording {
            dir: self.dir.clone(),
            record: self.record(number),
        })
    }

    /// There is a record now. Returns whether its file still is.
    pub(super) fn recorded(&mut self, key: &FileKey, recording: &Recording) -> bool {
        match self.files.get(key).map(|entry| self.record(entry.number)) {
            Some(record) if record == recording.record => {
                if let Some(entry) = self.files.get_mut(key) {
                    entry.kept = true;
                }
                true
            }
            _ => {
                self.unlink(&recording.record);
                false
            }
        }
    }

    pub(super) fn left(&self) -> &[Left] {
        &self.left
    }

    /// What was left is what was written to its file.
    pub(super) fn adopt(&mut self, left: &Left) -> bool {
        if self.files.contains_key(&left.key) {
            return false;
        }
        let Some(at) = self
            .left
            .iter()
            .position(|other| other.number == left.number)
        else {
            return false;
        };
        self.left.remove(at);
        self.bytes += left.kept.ranges.bytes();
        let entry = Entry {
            number: left.number,
            dirty: left.kept.ranges.clone(),
            kept: true,
            ..Entry::default()
        };
        self.files.insert(left.key.clone(), entry);
        true
    }

    /// Moves what was left to where a user finds it.
    pub(super) fn put_aside(&mut self, left: &Left) -> io::Result<PathBuf> {
        let name = format!("{}.{}", left.key.cell, left.key.fid);
        let place = self.move_to_lost(left.number, &name, Some(left.kept.length))?;
        self.left.retain(|other| other.number != left.number);
        Ok(place)
    }

    /// Moves what was written to a file to where a user finds it, and drops it here. None if nothing was written, or
    /// there would be more than `most` bytes there.
    pub(super) fn set_aside(
        &mut self,
        key: &FileKey,
        length: u64,
        most: u64,
    ) -> io::Result<Option<PathBuf>> {
        let Some(entry) = self.files.get(key).filter(|entry| !entry.dirty.is_empty()) else {
            return Ok(None);
        };
        let (number, bytes) = (entry.number, entry.dirty.bytes() + entry.settled.bytes());
        if self.in_lost()?.saturating_add(bytes) > most {
            return Ok(None);
        }
        let name = format!("{}.{}", key.cell, key.fid);
        let place = self.move_to_lost(number, &name, Some(length))?;
        if let Some(entry) = self.files.remove(key) {
            self.bytes -= bytes;
            self.open -= usize::from(entry.file.is_some());
        }
        self.check();
        Ok(Some(place))
    }

    /// Writes what a file was to have to where a user finds it. None if there would be more than `most` bytes there.
    pub(super) fn save(
        &self,
        key: &FileKey,
        data: &[u8],
        most: u64,
    ) -> io::Result<Option<PathBuf>> {
        if self.in_lost()?.saturating_add(data.len() as u64) > most {
            return Ok(None);
        }
        let place = lost::place(&self.lost, &format!("{}.{}", key.cell, key.fid))?;
        private::write(&place, data)?;
        File::open(&place)?.sync_all()?;
        File::open(&self.lost)?.sync_all()?;
        Ok(Some(place))
    }

    /// Bytes of the disk that are taken there.
    fn in_lost(&self) -> io::Result<u64> {
        let entries = match fs::read_dir(&self.lost) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut bytes = 0;
        for entry in entries {
            bytes += entry?.metadata()?.blocks() * 512;
        }
        Ok(bytes)
    }

    fn move_to_lost(&self, number: u64, name: &str, length: Option<u64>) -> io::Result<PathBuf> {
        let place = lost::place(&self.lost, name)?;
        let path = self.path(number);
        if let Some(length) = length {
            OpenOptions::new()
                .write(true)
                .open(&path)?
                .set_len(length)?;
        }
        fs::rename(path, &place)?;
        File::open(&self.lost)?.sync_all()?;
        // Not before it has its new place for good.
        match fs::remove_file(self.record(number)) {
            // It needed none while this process was there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        Ok(place)
    }
}

/// Where a record is written.
#[derive(Debug)]
pub(super) struct Recording {
    dir: PathBuf,
    record: PathBuf,
}

impl Recording {
    /// Puts data and record on the disk.
    pub(super) fn write(&self, data: &File, key: &FileKey, kept: &Kept) -> io::Result<()> {
        // The data first: a record that is found after a crash vouches for all of it.
        data.sync_all()?;
        let new = self.record.with_extension(NEW);
        let mut options = private::options();
        let mut file = options.write(true).create(true).truncate(true).open(&new)?;
        file.write_all(&kept::encode(key, kept))?;
        file.sync_all()?;
        fs::rename(&new, &self.record)?;
        // Without this the name may be gone after a crash, though the record is on the disk.
        File::open(&self.dir)?.sync_all()
    }
}

fn length_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
