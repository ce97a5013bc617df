//! Slots of a few sizes, in one sparse file for each size; beside it the file of their records.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::record::{RECORD, Record};
use crate::storage::{Wait, private};

/// Bytes of a block of a file.
pub(super) const BLOCK: u64 = 64 << 10;
/// The sizes of slots.
const SIZES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The ends of the names of their files.
const NAMES: [&str; SIZES.len()] = ["4k", "8k", "16k", "32k", "64k"];
/// Records that are read at a time.
const RECORDS: usize = 4096;

/// A place on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    /// Which size it has.
    pub(super) class: u8,
    pub(super) number: u32,
}

impl Slot {
    /// Bytes it has room for.
    pub(super) fn size(self) -> u32 {
        SIZES[usize::from(self.class)]
    }

    /// Where it begins in the file of its size.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.number) * u64::from(self.size())
    }
}

/// The smallest size with room for so many bytes.
fn class_for(length: usize) -> u8 {
    let class = SIZES.iter().position(|size| length <= *size as usize);
    // There are only a few, so the number fits.
    u8::try_from(class.unwrap_or(SIZES.len() - 1)).unwrap_or_default()
}

/// The files.
#[derive(Debug)]
pub(super) struct Slots {
    dir: PathBuf,
    blocks: Vec<File>,
    records: Vec<File>,
}

/// The names of all of them, in the directory of the cache.
pub(super) fn names() -> impl Iterator<Item = String> {
    let of = |kind: &'static str| NAMES.iter().map(move |size| format!("{kind}.{size}"));
    of("blocks").chain(of("index"))
}

impl Slots {
    /// Opens them; those that are not there are made.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let open = |kind: &str| {
            let all = NAMES.iter().map(|size| {
                let mut options = private::options();
                let options = options.read(true).write(true).create(true).truncate(false);
                options.open(dir.join(format!("{kind}.{size}")))
            });
            all.collect::<io::Result<Vec<_>>>()
        };
        Ok(Self {
            dir: dir.to_owned(),
            blocks: open("blocks")?,
            records: open("index")?,
        })
    }

    fn blocks(&self, slot: Slot) -> &File {
        &self.blocks[usize::from(slot.class)]
    }

    fn records(&self, slot: Slot) -> &File {
        &self.records[usize::from(slot.class)]
    }

    /// Where a slot is, for the log.
    pub(super) fn place(&self, slot: Slot) -> String {
        let name = NAMES[usize::from(slot.class)];
        let path = self.dir.join(format!("blocks.{name}"));
        format!("{} at {}", path.display(), slot.offset())
    }

    pub(super) fn write(&self, slot: Slot, data: &[u8]) -> io::Result<()> {
        self.blocks(slot).write_all_at(data, slot.offset())
    }

    /// Reads the beginning of a slot; without waiting, only if that is in memory.
    pub(super) fn read(&self, slot: Slot, data: &mut [u8], wait: Wait) -> io::Result<()> {
        let file = self.blocks(slot);
        if wait == Wait::Yes {
            return file.read_exact_at(data, slot.offset());
        }
        let mut parts = [IoSliceMut::new(data)];
        let read = preadv2(file, &mut parts, slot.offset(), ReadWriteFlags::NOWAIT);
        match read {
            Ok(read) if read == data.len() => Ok(()),
            // A part of it is in memory, or the file system knows no such thing.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::AGAIN) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn write_record(&self, slot: Slot, record: &Record) -> io::Result<()> {
        let at = u64::from(slot.number) * RECORD as u64;
        self.records(slot).write_all_at(&record.encode(slot), at)
    }

    /// Clears the records of slots that are free, those of neighbours at once.
    pub(super) fn clear_records(&self, mut slots: Vec<Slot>) -> io::Result<()> {
        slots.sort_unstable();
        let follows = |one: &Slot, next: &Slot| {
            one.class == next.class && one.number.checked_add(1) == Some(next.number)
        };
        for run in slots.chunk_by(follows) {
            let zeroes = vec![0; run.len() * RECORD];
            let at = u64::from(run[0].number) * RECORD as u64;
            self.records(run[0]).write_all_at(&zeroes, at)?;
        }
        Ok(())
    }

    /// Gives the disk back what a slot takes. Fails where the file system cannot.
    pub(super) fn punch(&self, slot: Slot) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = u64::from(slot.size());
        Ok(fallocate(self.blocks(slot), flags, slot.offset(), length)?)
    }

    /// Tells of each slot there is what is recorded of it.
    pub(super) fn each(&self, mut tell: impl FnMut(Slot, Option<Record>)) -> io::Result<()> {
        let mut buffer = vec![0; RECORDS * RECORD];
        for class in 0..NAMES.len() {
            let file = &self.records[class];
            let mut slot = Slot {
                class: u8::try_from(class).unwrap_or_default(),
                number: 0,
            };
            let length = file.metadata()?.len();
            let mut at = 0;
            while at < length {
                let left = usize::try_from(length - at).unwrap_or(usize::MAX);
                let part = left.min(buffer.len()) / RECORD * RECORD;
                // The process ended while this record was written: it was never whole.
                if part == 0 {
                    break;
                }
                file.read_exact_at(&mut buffer[..part], at)?;
                let (records, _) = buffer[..part].as_chunks::<RECORD>();
                for record in records {
                    tell(slot, Record::decode(record, slot));
                    let Some(next) = slot.number.checked_add(1) else {
                        break;
                    };
                    slot.number = next;
                }
                at += part as u64;
            }
        }
        Ok(())
    }

    /// Puts all on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut files = self.blocks.iter().chain(&self.records);
        files.try_for_each(File::sync_data)
    }
}

/// Which slots are in use, and what is taken of the disk.
#[derive(Debug, Default)]
pub(super) struct Space {
    rooms: [Room; SIZES.len()],
    /// Bytes of slots in use, and of free ones that still take theirs.
    taken: u64,
}

#[derive(Debug, Default)]
struct Room {
    /// Slots before this one are in use or free.
    end: u32,
    /// Free ones that still take their bytes of the disk.
    full: Vec<u32>,
    /// Free ones that do not.
    empty: Vec<u32>,
}

impl Space {
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// What is taken is what slots take that are not given back; none is free twice.
    fn check(&self) {
        let mut taken = 0;
        for (room, size) in self.rooms.iter().zip(SIZES) {
            let free = room.full.len() + room.empty.len();
            debug_assert!(free <= room.end as usize, "a slot is free twice: {room:?}");
            taken += (u64::from(room.end) - room.empty.len() as u64) * u64::from(size);
        }
        debug_assert_eq!(self.taken, taken, "{self:?}");
    }

    /// A slot for so many bytes, if that takes no more of the disk than the limit.
    pub(super) fn take(&mut self, length: usize, limit: u64) -> Option<Slot> {
        let class = class_for(length);
        let size = u64::from(SIZES[usize::from(class)]);
        let room = &mut self.rooms[usize::from(class)];
        debug_assert!(
            length <= SIZES[usize::from(class)] as usize,
            "{length} bytes"
        );
        let slot = |number| Some(Slot { class, number });
        // It costs the disk nothing more. Over a limit that was lowered it goes as well: the caller empties it first.
        if self.taken <= limit
            && let Some(number) = room.full.pop()
        {
            return slot(number);
        }
        if self.taken + size > limit {
            return None;
        }
        if let Some(number) = room.empty.pop() {
            self.taken += size;
            return slot(number);
        }
        let number = room.end;
        room.end = number.checked_add(1)?;
        self.taken += size;
        slot(number)
    }

    /// A slot is in use no more.
    pub(super) fn free(&mut self, slot: Slot) {
        self.rooms[usize::from(slot.class)].full.push(slot.number);
        self.check();
    }

    /// A free slot that still takes its bytes of the disk; it is neither free nor in use until it
    /// is said that it was [emptied](Self::emptied).
    pub(super) fn take_full(&mut self) -> Option<Slot> {
        // The greatest first: they give back most.
        let class = self.rooms.iter().rposition(|room| !room.full.is_empty())?;
        let number = self.rooms[class].full.pop()?;
        let class = u8::try_from(class).unwrap_or_default();
        Some(Slot { class, number })
    }

    /// A slot gave back its bytes.
    pub(super) fn emptied(&mut self, slot: Slot) {
        self.taken -= u64::from(slot.size());
        self.rooms[usize::from(slot.class)].empty.push(slot.number);
        self.check();
    }

    /// There is a slot with this number; said of each, in order, when the cache is opened. It is in
    /// use until it is said to be free.
    pub(super) fn found(&mut self, slot: Slot) {
        let room = &mut self.rooms[usize::from(slot.class)];
        room.end = slot.number.saturating_add(1);
        self.taken += u64::from(slot.size());
        self.check();
    }
}
