//! Data of files kept in memory.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use afar_types::{CellName, DataVersion, VolumeId};
use bytes::Bytes;

use crate::ranges::RangeSet;
use crate::storage::{FileKey, Pieces, Storage};

/// Keeps data in memory, up to a limit: the files used longest ago lose what is clean.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<FileKey, File>,
    /// Counts uses.
    clock: u64,
    /// Octets, clean and dirty.
    octets: u64,
}

#[derive(Debug, Default)]
struct File {
    version: DataVersion,
    clean: Extents,
    dirty: Extents,
    used: u64,
}

/// Octets by their place; none overlap.
#[derive(Debug, Default)]
struct Extents(BTreeMap<u64, Bytes>);

impl Memory {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn file(&mut self, key: &FileKey) -> &mut File {
        self.clock += 1;
        let file = self.files.entry(key.clone()).or_default();
        file.used = self.clock;
        file
    }

    /// Changes a file, and counts what that brings or takes.
    fn change<T>(&mut self, key: &FileKey, change: impl FnOnce(&mut File) -> T) -> T {
        let file = self.file(key);
        let before = file.octets();
        let result = change(file);
        let after = file.octets();
        self.octets = self.octets - before + after;
        result
    }

    fn shrink(&mut self, limit: u64, keep: &FileKey) {
        while self.octets > limit {
            let clean = self
                .files
                .iter()
                .filter(|(key, file)| *key != keep && !file.clean.0.is_empty());
            let Some(oldest) = clean.min_by_key(|(_, file)| file.used) else {
                return;
            };
            let key = oldest.0.clone();
            self.drop_clean(&key);
        }
    }

    fn drop_clean(&mut self, key: &FileKey) {
        if let Some(file) = self.files.get_mut(key) {
            self.octets -= file.clean.octets();
            file.clean = Extents::default();
            if file.dirty.0.is_empty() {
                self.files.remove(key);
            }
        }
    }
}

impl File {
    fn octets(&self) -> u64 {
        self.clean.octets() + self.dirty.octets()
    }
}

impl Extents {
    fn octets(&self) -> u64 {
        self.0.values().map(|data| data.len() as u64).sum()
    }

    fn read(&self, range: Range<u64>) -> Pieces {
        let before = self.0.range(..range.start).next_back();
        let rest = self.0.range(range.start..range.end.max(range.start));
        let parts = before.into_iter().chain(rest);
        parts
            .filter_map(|(&at, data)| {
                let start = at.max(range.start);
                let end = (at + data.len() as u64).min(range.end);
                let place = usize::try_from(start - at).ok()?;
                let length = usize::try_from(end.checked_sub(start)?).ok()?;
                (length > 0).then(|| (start, data.slice(place..place + length)))
            })
            .collect()
    }

    /// Takes octets out.
    fn cut(&mut self, range: Range<u64>) {
        let before = self.0.range(..range.start).next_back().map(|(at, _)| *at);
        let rest = self.0.range(range.start..range.end.max(range.start));
        let touched: Vec<u64> = before.into_iter().chain(rest.map(|(at, _)| *at)).collect();
        for at in touched {
            let Some(data) = self.0.remove(&at) else {
                continue;
            };
            let end = at + data.len() as u64;
            let part = |from: u64, to: u64| {
                let from = usize::try_from(from - at).unwrap_or(data.len());
                let to = usize::try_from(to - at).unwrap_or(data.len());
                data.slice(from..to)
            };
            if at < range.start {
                let head = part(at, end.min(range.start));
                self.0.insert(at, head);
            }
            if range.end < end {
                let tail = part(range.end.max(at), end);
                self.0.insert(range.end.max(at), tail);
            }
        }
    }

    fn write(&mut self, offset: u64, data: Bytes) {
        if !data.is_empty() {
            self.cut(offset..offset + data.len() as u64);
            self.0.insert(offset, data);
        }
    }
}

impl Storage for Memory {
    fn read(&self, key: &FileKey, version: DataVersion, range: Range<u64>) -> io::Result<Pieces> {
        let mut state = self.lock();
        if !state.files.contains_key(key) {
            return Ok(Vec::new());
        }
        let file = state.file(key);
        if file.version != version {
            return Ok(Vec::new());
        }
        Ok(file.clean.read(range))
    }

    fn write_clean(
        &self,
        key: &FileKey,
        version: DataVersion,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let mut state = self.lock();
        state.change(key, |file| {
            if file.version != version {
                file.clean = Extents::default();
                file.version = version;
            }
            file.clean.write(offset, Bytes::copy_from_slice(data));
        });
        state.shrink(self.limit, key);
        Ok(())
    }

    fn read_dirty(&self, key: &FileKey, range: Range<u64>) -> io::Result<Pieces> {
        let state = self.lock();
        let file = state.files.get(key);
        Ok(file.map_or_else(Vec::new, |file| file.dirty.read(range)))
    }

    fn write_dirty(&self, key: &FileKey, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.change(key, |file| {
            file.dirty.write(offset, Bytes::copy_from_slice(data));
        });
        state.shrink(self.limit, key);
        Ok(())
    }

    fn cut_dirty(&self, key: &FileKey, length: u64) -> io::Result<()> {
        self.lock()
            .change(key, |file| file.dirty.cut(length..u64::MAX));
        Ok(())
    }

    fn stored(
        &self,
        key: &FileKey,
        ranges: &RangeSet,
        from: Option<(DataVersion, u64)>,
        to: DataVersion,
    ) -> io::Result<()> {
        self.lock().change(key, |file| {
            match from {
                Some((from, limit)) if from == file.version => file.clean.cut(limit..u64::MAX),
                _ => file.clean = Extents::default(),
            }
            file.version = to;
            for range in ranges.iter() {
                for (at, data) in file.dirty.read(range.clone()) {
                    file.clean.write(at, data);
                }
                file.dirty.cut(range);
            }
        });
        Ok(())
    }

    fn forget(&self, key: &FileKey) {
        let mut state = self.lock();
        if let Some(file) = state.files.remove(key) {
            state.octets -= file.octets();
        }
    }

    fn forget_volume(&self, cell: &CellName, volume: VolumeId) {
        let mut state = self.lock();
        let of_volume = |key: &&FileKey| key.fid.volume == volume && key.cell == *cell;
        let keys: Vec<_> = state.files.keys().filter(of_volume).cloned().collect();
        for key in keys {
            state.drop_clean(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use afar_types::Fid;

    use super::*;

    fn key(vnode: u32) -> FileKey {
        FileKey {
            fid: Fid::new(1, vnode, 1),
            cell: "a.example".parse().unwrap(),
        }
    }

    fn text(pieces: &Pieces) -> Vec<(u64, &str)> {
        let text = |data: &'static [u8]| std::str::from_utf8(data).unwrap();
        let _ = text;
        pieces
            .iter()
            .map(|(at, data)| (*at, std::str::from_utf8(data).unwrap()))
            .collect()
    }

    #[test]
    fn what_is_written_last_is_read() {
        let memory = Memory::new(1000);
        let (key, version) = (key(2), DataVersion(1));
        memory.write_clean(&key, version, 0, b"abcdefgh").unwrap();
        memory.write_clean(&key, version, 2, b"XY").unwrap();
        memory.write_clean(&key, version, 10, b"z").unwrap();
        let read = memory.read(&key, version, 1..20).unwrap();
        assert_eq!(text(&read), [(1, "b"), (2, "XY"), (4, "efgh"), (10, "z")]);
        assert!(memory.read(&key, DataVersion(2), 0..20).unwrap().is_empty());
    }

    #[test]
    fn stored_octets_become_clean_and_old_ones_stay_if_they_may() {
        let memory = Memory::new(1000);
        let key = key(2);
        memory
            .write_clean(&key, DataVersion(1), 0, b"abcdefgh")
            .unwrap();
        memory.write_dirty(&key, 1, b"XY").unwrap();
        memory.write_dirty(&key, 20, b"later").unwrap();
        let mut ranges = RangeSet::default();
        ranges.insert(1..3);
        let from = Some((DataVersion(1), 5));
        memory.stored(&key, &ranges, from, DataVersion(2)).unwrap();
        let read = memory.read(&key, DataVersion(2), 0..100).unwrap();
        assert_eq!(text(&read), [(0, "a"), (1, "XY"), (3, "de")]);
        let dirty = memory.read_dirty(&key, 0..100).unwrap();
        assert_eq!(text(&dirty), [(20, "later")]);
        memory.cut_dirty(&key, 22).unwrap();
        assert_eq!(
            text(&memory.read_dirty(&key, 0..100).unwrap()),
            [(20, "la")]
        );
    }

    #[test]
    fn the_limit_takes_clean_octets_of_others_only() {
        let memory = Memory::new(10);
        memory
            .write_clean(&key(2), DataVersion(1), 0, b"12345")
            .unwrap();
        memory.write_dirty(&key(4), 0, b"12345").unwrap();
        memory
            .write_clean(&key(6), DataVersion(1), 0, b"12345")
            .unwrap();
        assert!(
            memory
                .read(&key(2), DataVersion(1), 0..9)
                .unwrap()
                .is_empty()
        );
        assert_eq!(memory.read_dirty(&key(4), 0..9).unwrap().len(), 1);
        assert_eq!(memory.read(&key(6), DataVersion(1), 0..9).unwrap().len(), 1);
        assert_eq!(memory.lock().octets, 10);
    }
}
