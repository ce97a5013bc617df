//! The files of the segments: their names, and a bounded number of them open.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use parking_lot::RwLock;

/// The segment files of a directory. Opens them when they are first wanted and
/// closes those not used for longest.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    read_only: bool,
    limit: usize,
    open: RwLock<BTreeMap<u32, Slot>>,
    clock: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    file: Arc<File>,
    used: AtomicU64,
}

impl Files {
    pub(super) fn new(dir: &Path, read_only: bool, limit: usize) -> Self {
        Self {
            dir: dir.to_owned(),
            read_only,
            limit,
            open: RwLock::default(),
            clock: AtomicU64::new(0),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, segment: u32) -> PathBuf {
        self.dir.join(file_name(segment))
    }

    /// The segments of the directory with the lengths of their files. Files
    /// with other names are nobody's business.
    pub(super) fn list(&self) -> io::Result<BTreeMap<u32, u64>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if let Some(segment) = entry.file_name().to_str().and_then(number) {
                found.insert(segment, entry.metadata()?.len());
            }
        }
        Ok(found)
    }

    /// The open file of a segment.
    pub(super) fn get(&self, segment: u32) -> io::Result<Arc<File>> {
        if let Some(slot) = self.open.read().get(&segment) {
            slot.used.store(self.tick(), Ordering::Relaxed);
            return Ok(Arc::clone(&slot.file));
        }
        // Opened under the lock, so that a file being removed is not kept.
        let mut open = self.open.write();
        if let Some(slot) = open.get(&segment) {
            return Ok(Arc::clone(&slot.file));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(!self.read_only);
        self.insert(&mut open, segment, &options)
    }

    /// Makes the file of a new segment.
    pub(super) fn create(&self, segment: u32) -> io::Result<Arc<File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        self.insert(&mut self.open.write(), segment, &options)
    }

    /// Deletes the file of a segment. One that is not there is fine.
    pub(super) fn remove(&self, segment: u32) -> io::Result<()> {
        let mut open = self.open.write();
        open.remove(&segment);
        match fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn insert(
        &self,
        open: &mut BTreeMap<u32, Slot>,
        segment: u32,
        options: &OpenOptions,
    ) -> io::Result<Arc<File>> {
        if open.len() >= self.limit {
            close_unused(open, self.limit - self.limit.div_ceil(8));
        }
        let path = self.path(segment);
        let file = options.open(&path).or_else(|error| {
            // Others in the process may have used up the descriptors.
            let full = [Errno::EMFILE as i32, Errno::ENFILE as i32];
            if error
                .raw_os_error()
                .is_some_and(|code| full.contains(&code))
                && !open.is_empty()
            {
                close_unused(open, open.len() / 2);
                options.open(&path)
            } else {
                Err(error)
            }
        })?;
        let file = Arc::new(file);
        let slot = Slot {
            file: Arc::clone(&file),
            used: AtomicU64::new(self.tick()),
        };
        open.insert(segment, slot);
        Ok(file)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn open_count(&self) -> usize {
        self.open.read().len()
    }
}

/// Closes the files used longest ago until `keep` are left. A holder of
/// one of them keeps it open for as long.
fn close_unused(open: &mut BTreeMap<u32, Slot>, keep: usize) {
    let mut ages: Vec<_> = open
        .iter()
        .map(|(&segment, slot)| (slot.used.load(Ordering::Relaxed), segment))
        .collect();
    ages.sort_unstable();
    for (_, segment) in ages.iter().take(open.len().saturating_sub(keep)) {
        open.remove(segment);
    }
}

/// The name of a segment's file.
pub(crate) fn file_name(segment: u32) -> String {
    format!("{segment:08}.seg")
}

fn number(name: &str) -> Option<u32> {
    let segment = name.strip_suffix(".seg")?.parse().ok()?;
    (file_name(segment) == name).then_some(segment)
}
