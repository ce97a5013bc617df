//! Which blocks are where, in the order in which they were used.

use std::collections::BTreeMap;
use std::ops::Range;

use afar_types::DataVersion;

use super::record::{BlockId, FileId, Record};
use super::slots::{BLOCK, Slot};

/// No place in the list.
const NONE: u32 = u32::MAX;

/// Blocks on the disk.
#[derive(Debug)]
pub(super) struct Index {
    files: BTreeMap<FileId, File>,
    places: BTreeMap<BlockId, u32>,
    blocks: Vec<Block>,
    /// Places in `blocks` that are not in use.
    unused: Vec<u32>,
    /// Files with blocks.
    filled: usize,
    /// The block that was used last, and the one that was longest not used.
    newest: u32,
    oldest: u32,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct File {
    /// The version its clean bytes belong to, wherever they are.
    pub(super) version: DataVersion,
    /// Its blocks on the disk.
    blocks: u32,
    /// Whether some of its clean bytes are where they were written, and not in blocks.
    over: bool,
}

/// A block on the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) id: BlockId,
    pub(super) slot: Slot,
    pub(super) from: u32,
    pub(super) length: u32,
    pub(super) sum: u64,
    /// Something newer lies over a part of it: it is not to be recorded as of the present version.
    pub(super) covered: bool,
    newer: u32,
    older: u32,
}

impl Block {
    pub(super) fn new(record: &Record, slot: Slot) -> Self {
        Self {
            id: record.block,
            slot,
            from: record.from,
            length: record.length,
            sum: record.sum,
            covered: false,
            newer: NONE,
            older: NONE,
        }
    }

    /// Which bytes of the file these are.
    pub(super) fn range(&self) -> Range<u64> {
        let start = self.id.start() + u64::from(self.from);
        start..start + u64::from(self.length)
    }

    pub(super) fn record(&self, version: DataVersion, time: u32) -> Record {
        Record {
            block: self.id,
            version,
            from: self.from,
            length: self.length,
            sum: self.sum,
            time,
        }
    }

    /// Whether this is still the same one, in the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.id, self.slot, self.sum) == (other.id, other.slot, other.sum)
    }
}

impl Default for Index {
    fn default() -> Self {
        Self {
            files: BTreeMap::new(),
            places: BTreeMap::new(),
            blocks: Vec::new(),
            unused: Vec::new(),
            filled: 0,
            newest: NONE,
            oldest: NONE,
        }
    }
}

/// The numbers of the blocks these bytes are in.
pub(super) fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

impl Index {
    /// Blocks that were found on the disk, those put there first first. All of a file are of the
    /// version given with them.
    pub(super) fn load(found: Vec<(Block, DataVersion)>) -> Self {
        let mut index = Self::default();
        let mut places = Vec::with_capacity(found.len());
        let mut files = Vec::<(FileId, File)>::new();
        index.blocks.reserve_exact(found.len());
        for (place, (block, version)) in (0_u32..).zip(found) {
            places.push((block.id, place));
            files.push((
                block.id.file,
                File {
                    version,
                    blocks: 1,
                    over: false,
                },
            ));
            index.blocks.push(block);
            index.link(place);
        }
        files.sort_unstable_by_key(|(id, _)| *id);
        files.dedup_by(|next, one| {
            let same = next.0 == one.0;
            one.1.blocks += u32::from(same);
            same
        });
        // A map is built in one go from what is sorted.
        places.sort_unstable();
        index.places = places.into_iter().collect();
        debug_assert_eq!(index.places.len(), index.blocks.len(), "a block twice");
        index.filled = files.len();
        index.files = files.into_iter().collect();
        index.check();
        index
    }

    /// Files of which there are blocks.
    pub(super) fn files(&self) -> usize {
        self.filled
    }

    pub(super) fn file(&self, id: FileId) -> Option<File> {
        self.files.get(&id).copied()
    }

    /// Notes the version of a file's clean bytes.
    pub(super) fn set_version(&mut self, id: FileId, version: DataVersion) {
        self.files.entry(id).or_default().version = version;
    }

    /// Notes whether some clean bytes of a file are where they were written.
    pub(super) fn set_over(&mut self, id: FileId, over: bool) {
        if let Some(file) = self.files.get_mut(&id) {
            file.over = over;
        }
    }

    /// Forgets a file of which nothing is left on the disk.
    pub(super) fn forget_file(&mut self, id: FileId) {
        let file = self.files.get(&id);
        if file.is_some_and(|file| file.blocks == 0 && !file.over) {
            self.files.remove(&id);
        }
    }

    /// The files of an instance of a volume.
    pub(super) fn of_instance(&self, instance: u32) -> Vec<FileId> {
        let id = |number| FileId {
            instance,
            vnode: number,
            uniquifier: number,
        };
        let range = self.files.range(id(0)..=id(u32::MAX));
        range.map(|(id, _)| *id).collect()
    }

    pub(super) fn block(&self, id: BlockId) -> Option<&Block> {
        let place = *self.places.get(&id)?;
        self.blocks.get(place as usize)
    }

    /// The blocks of a file with these numbers that are there, in order.
    pub(super) fn within(
        &self,
        file: FileId,
        numbers: Range<u64>,
    ) -> impl Iterator<Item = (u32, &Block)> {
        let id = |number: u64| u32::try_from(number).map(|number| BlockId { file, number });
        let last = numbers.end.saturating_sub(1).min(u32::MAX.into());
        let range = match (numbers.start <= last, id(numbers.start), id(last)) {
            (true, Ok(first), Ok(last)) => Some(self.places.range(first..=last)),
            _ => None,
        };
        let places = range.into_iter().flatten();
        places.filter_map(|(_, place)| Some((*place, self.blocks.get(*place as usize)?)))
    }

    /// Something newer lies over a part of a block.
    pub(super) fn cover(&mut self, id: BlockId) {
        if let Some(block) = self
            .places
            .get(&id)
            .and_then(|place| self.blocks.get_mut(*place as usize))
        {
            block.covered = true;
        }
    }

    /// Adds a block, as the one that was used last. Returns the one that was in its place.
    pub(super) fn insert(&mut self, block: Block) -> Option<Block> {
        let replaced = self.remove(block.id);
        let place = match self.unused.pop() {
            Some(place) => {
                self.blocks[place as usize] = block;
                place
            }
            None => {
                self.blocks.push(block);
                u32::try_from(self.blocks.len() - 1).unwrap_or(NONE)
            }
        };
        self.places.insert(block.id, place);
        let file = self.files.entry(block.id.file).or_default();
        self.filled += usize::from(file.blocks == 0);
        file.blocks += 1;
        self.link(place);
        self.check();
        replaced
    }

    /// Takes a block out. Its file stays known.
    pub(super) fn remove(&mut self, id: BlockId) -> Option<Block> {
        let place = self.places.remove(&id)?;
        debug_assert_eq!(
            self.blocks.get(place as usize).map(|block| block.id),
            Some(id)
        );
        self.unlink(place);
        self.unused.push(place);
        if let Some(file) = self.files.get_mut(&id.file) {
            file.blocks -= 1;
            self.filled -= usize::from(file.blocks == 0);
        }
        self.check();
        self.blocks.get(place as usize).copied()
    }

    /// Takes out what was longest not used. Its file stays known.
    pub(super) fn remove_oldest(&mut self) -> Option<Block> {
        let oldest = self.blocks.get(self.oldest as usize)?.id;
        self.remove(oldest)
    }

    /// The block in this place was used just now.
    pub(super) fn used(&mut self, place: u32) {
        if self.newest != place {
            self.unlink(place);
            self.link(place);
        }
    }

    /// The map, the list and the counts tell of the same blocks.
    fn check(&self) {
        let (places, blocks) = (self.places.len(), self.blocks.len());
        debug_assert_eq!(places + self.unused.len(), blocks, "a place is lost");
        debug_assert_eq!(self.filled == 0, places == 0, "files without blocks");
        debug_assert!(
            self.filled <= self.files.len().min(places),
            "files of blocks"
        );
        let newest = self.blocks.get(self.newest as usize);
        let oldest = self.blocks.get(self.oldest as usize);
        debug_assert_eq!(newest.is_some(), places > 0, "the list's new end");
        debug_assert!(newest.is_none_or(|block| block.newer == NONE), "{newest:?}");
        debug_assert_eq!(oldest.is_some(), places > 0, "the list's old end");
        debug_assert!(oldest.is_none_or(|block| block.older == NONE), "{oldest:?}");
    }

    /// Puts a place at the new end of the list.
    fn link(&mut self, place: u32) {
        let newest = self.newest;
        if let Some(block) = self.blocks.get_mut(place as usize) {
            (block.newer, block.older) = (NONE, newest);
        }
        match self.blocks.get_mut(newest as usize) {
            Some(before) => before.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }

    /// Takes a place out of the list.
    fn unlink(&mut self, place: u32) {
        let Some(block) = self.blocks.get(place as usize) else {
            return;
        };
        let (newer, older) = (block.newer, block.older);
        match self.blocks.get_mut(newer as usize) {
            Some(block) => block.older = older,
            None => self.newest = older,
        }
        match self.blocks.get_mut(older as usize) {
            Some(block) => block.newer = newer,
            None => self.oldest = newer,
        }
    }
}
