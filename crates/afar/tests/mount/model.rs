//! What a file should hold, and operations on it and on the real one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::fs::{Advice, copy_file_range, fadvise};

use crate::mapping;

/// The greatest length.
const LENGTH_MAX: u64 = 1 << 18;
/// The greatest read or write.
const STEP_MAX: u64 = 1 << 16;

/// A file and what it should hold.
pub(crate) struct Checked {
    path: PathBuf,
    open: File,
    content: Vec<u8>,
    rng: Rng,
    /// The last operations, for the message of a failure.
    history: Vec<String>,
    count: u64,
}

impl Checked {
    pub(crate) fn new(path: &Path, seed: u64) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Self {
            open: options.open(path).unwrap(),
            path: path.to_owned(),
            content: Vec::new(),
            rng: Rng::with_seed(seed),
            history: Vec::new(),
            count: 0,
        }
    }

    /// Does one operation, chosen by chance.
    pub(crate) fn step(&mut self) {
        self.count += 1;
        match self.rng.u32(0..1000) {
            0..270 => self.read(),
            270..370 => self.read_mapped(),
            370..620 => self.write(),
            620..720 => self.write_mapped(),
            720..760 => self.copy(),
            760..810 => self.append(),
            810..890 => self.set_len(),
            890..940 => self.length(),
            940..960 => self.forget_pages(),
            960..980 => self.reopen(),
            980..990 => self.sync(),
            990..995 => self.empty(),
            _ => self.whole(),
        }
    }

    fn note(&mut self, what: String) {
        if self.history.len() == 40 {
            self.history.remove(0);
        }
        self.history.push(format!("{}: {what}", self.count));
    }

    /// Where something starts: often at a page, or at the end.
    fn offset(&mut self, max: u64) -> u64 {
        let length = self.content.len() as u64;
        let at = match self.rng.u32(0..4) {
            0 => self.rng.u64(0..=max) / 4096 * 4096,
            1 => length.saturating_sub(self.rng.u64(0..=100)),
            _ => self.rng.u64(0..=max),
        };
        at.min(max)
    }

    fn size(&mut self) -> u64 {
        match self.rng.u32(0..3) {
            0 => self.rng.u64(1..=100),
            1 => self.rng.u64(1..=8192),
            _ => self.rng.u64(1..=STEP_MAX),
        }
    }

    fn read(&mut self) {
        let (offset, size) = (self.offset(LENGTH_MAX), self.size());
        self.note(format!("read {size} at {offset}"));
        let mut buffer = vec![0; size as usize];
        let mut got = 0;
        while got < buffer.len() {
            match self
                .open
                .read_at(&mut buffer[got..], offset + got as u64)
                .unwrap()
            {
                0 => break,
                more => got += more,
            }
        }
        let start = self.content.len().min(offset as usize);
        let end = self.content.len().min((offset + size) as usize);
        self.compare(&buffer[..got], start, end);
    }

    fn read_mapped(&mut self) {
        let length = self.content.len() as u64;
        if length == 0 {
            return self.append();
        }
        let offset = self.offset(length - 1);
        let size = self.size().min(length - offset);
        self.note(format!("read {size} at {offset} by memory"));
        let (start, end) = (offset as usize, (offset + size) as usize);
        let (part, rest) = mapping::read(&self.open, offset, size as usize);
        self.compare(&part, start, end);
        // Beyond the end there is nothing, whatever was there once.
        let inside = rest.len().min(self.content.len() - end);
        self.compare(&rest[..inside], end, end + inside);
        let beyond = rest[inside..].iter().position(|octet| *octet != 0);
        assert_eq!(beyond, None, "beyond the end: {:#?}", self.history);
    }

    fn compare(&self, got: &[u8], start: usize, end: usize) {
        let wanted = &self.content[start..end];
        if got == wanted {
            return;
        }
        let differs = got
            .iter()
            .zip(wanted)
            .position(|(got, wanted)| got != wanted);
        panic!(
            "{}: {} bytes from {start}, wanted {}; first other one at {:?} (is {:?}, wanted {:?}); \
             the last operations: {:#?}",
            self.path.display(),
            got.len(),
            wanted.len(),
            differs.map(|at| at + start),
            differs.map(|at| got[at]),
            differs.map(|at| wanted[at]),
            self.history
        );
    }

    fn data(&mut self, size: u64) -> Vec<u8> {
        // Never zero, so that a hole is told from what was written.
        let first = self.rng.u8(1..);
        (0..size)
            .map(|at| (at as u8).wrapping_add(first) | 1)
            .collect()
    }

    fn write(&mut self) {
        let size = self.size();
        let offset = self.offset(LENGTH_MAX - size);
        self.note(format!("write {size} at {offset}"));
        let data = self.data(size);
        self.open.write_all_at(&data, offset).unwrap();
        self.put(offset as usize, &data);
    }

    /// As memory cannot make a file longer, its length is set before.
    fn write_mapped(&mut self) {
        let size = self.size();
        let offset = self.offset(LENGTH_MAX - size);
        let synced = self.rng.bool();
        self.note(format!(
            "write {size} at {offset} by memory, synced: {synced}"
        ));
        let data = self.data(size);
        if (self.content.len() as u64) < offset + size {
            self.open.set_len(offset + size).unwrap();
        }
        mapping::write(&self.open, offset, &data, synced);
        self.put(offset as usize, &data);
    }

    /// Copies a part of the file to another place in it.
    fn copy(&mut self) {
        let length = self.content.len() as u64;
        if length < 2 {
            return self.append();
        }
        let from = self.offset(length - 1);
        let to = self.offset(LENGTH_MAX - 1);
        // The parts must not meet.
        let size = self.size().min(length - from).min(LENGTH_MAX - to);
        let size = size.min(if from == to { 0 } else { from.abs_diff(to) });
        self.note(format!("copy {size} from {from} to {to}"));
        let (mut off_in, mut off_out) = (from, to);
        while off_in < from + size {
            let left = (from + size - off_in) as usize;
            let file = &self.open;
            let copied =
                copy_file_range(file, Some(&mut off_in), file, Some(&mut off_out), left).unwrap();
            assert_ne!(copied, 0, "{:#?}", self.history);
        }
        if size > 0 {
            let data = self.content[from as usize..(from + size) as usize].to_vec();
            self.put(to as usize, &data);
        }
    }

    fn put(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset..end].copy_from_slice(data);
    }

    fn append(&mut self) {
        let size = self.size();
        if self.content.len() as u64 + size > LENGTH_MAX {
            return self.set_len();
        }
        self.note(format!("append {size}"));
        let data = self.data(size);
        let mut other = OpenOptions::new().append(true).open(&self.path).unwrap();
        std::io::Write::write_all(&mut other, &data).unwrap();
        self.put(self.content.len(), &data);
    }

    fn set_len(&mut self) {
        let length = self.offset(LENGTH_MAX);
        self.note(format!("set length {length}"));
        self.open.set_len(length).unwrap();
        self.content.resize(length as usize, 0);
    }

    fn length(&mut self) {
        self.note("ask for the length".to_owned());
        let by_name = std::fs::metadata(&self.path).unwrap().len();
        let by_file = self.open.metadata().unwrap().len();
        let length = self.content.len() as u64;
        assert_eq!((by_name, by_file), (length, length), "{:#?}", self.history);
    }

    fn reopen(&mut self) {
        self.note("close and open".to_owned());
        let mut options = OpenOptions::new();
        self.open = options.read(true).write(true).open(&self.path).unwrap();
    }

    fn sync(&mut self) {
        self.note("sync".to_owned());
        self.open.sync_all().unwrap();
    }

    /// Has the kernel drop the pages it can, so that they are asked of the mount again.
    fn forget_pages(&mut self) {
        self.note("forget pages".to_owned());
        fadvise(&self.open, 0, None, Advice::DontNeed).unwrap();
    }

    fn empty(&mut self) {
        self.note("open empty".to_owned());
        drop(
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&self.path)
                .unwrap(),
        );
        self.content.clear();
    }

    pub(crate) fn whole(&mut self) {
        self.note("read all".to_owned());
        let read = std::fs::read(&self.path).unwrap();
        self.compare(&read, 0, self.content.len());
    }

    /// Closes the file. Until it [goes on elsewhere](Self::moved), a nameless one stands for it.
    pub(crate) fn close(&mut self) {
        self.note("close".to_owned());
        self.open = tempfile::tempfile().unwrap();
    }

    /// Goes on with the same file at another place.
    pub(crate) fn moved(&mut self, path: &Path) {
        self.note(format!("go on at {}", path.display()));
        self.path = path.to_owned();
        self.reopen();
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }
}
