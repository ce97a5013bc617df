//! Numbers for instances of volumes: what a volume was before it was restored is another one.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use afar_types::{CellName, UnixTime, VolumeId};
use xxhash_rust::xxh3::xxh3_64;

use crate::storage::private;

/// The file of the instances.
pub(super) const NAME: &str = "volumes";
/// More than this is not read of the file.
const LENGTH_MOST: u64 = 64 << 20;

/// The instances of volumes of which anything is kept. A number is never given twice.
#[derive(Debug)]
pub(super) struct Instances {
    path: PathBuf,
    file: Option<File>,
    known: BTreeMap<CellName, BTreeMap<VolumeId, Instance>>,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Instance {
    number: u32,
    /// When it was made; 0 if that is not known.
    made: UnixTime,
}

impl Instances {
    /// Reads what is known. Lines that are damaged count for nothing.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(NAME);
        let text = match fs::metadata(&path) {
            Ok(found) if found.len() <= LENGTH_MOST => fs::read(&path)?,
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut instances = Self {
            path,
            file: None,
            known: BTreeMap::new(),
            next: 1,
        };
        for line in text.split(|octet| *octet == b'\n') {
            let Some((cell, volume, found)) = parse(line) else {
                continue;
            };
            instances.above(found.number);
            let volumes = instances.known.entry(cell).or_default();
            let known = volumes.entry(volume).or_insert(found);
            if known.number <= found.number {
                *known = found;
            }
        }
        Ok(instances)
    }

    /// No number up to this one is given.
    pub(super) fn above(&mut self, number: u32) {
        self.next = self.next.max(number.saturating_add(1));
    }

    /// Whether there is an instance with this number.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let volumes = self.known.values().flat_map(BTreeMap::values);
        let mut numbers: Vec<u32> = volumes.map(|instance| instance.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Rewrites the file, with those of which anything is left only.
    pub(super) fn begin(&mut self, keep: impl Fn(u32) -> bool) -> io::Result<()> {
        self.known.retain(|_, volumes| {
            volumes.retain(|_, instance| keep(instance.number));
            !volumes.is_empty()
        });
        let new = self.path.with_extension("new");
        let mut text = Vec::new();
        for (cell, volumes) in &self.known {
            for (volume, instance) in volumes {
                text.extend(line(cell, *volume, *instance));
            }
        }
        private::write(&new, &text)?;
        // Not synced: a volume whose line is lost costs what is cached of it.
        fs::rename(&new, &self.path)?;
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        Ok(())
    }

    pub(super) fn number(&self, cell: &CellName, volume: VolumeId) -> Option<u32> {
        Some(self.known.get(cell)?.get(&volume)?.number)
    }

    /// The number of a volume as it is now, a new one if it has none.
    pub(super) fn number_or_new(&mut self, cell: &CellName, volume: VolumeId) -> u32 {
        match self.number(cell, volume) {
            Some(number) => number,
            None => self.give(cell, volume, UnixTime(0)),
        }
    }

    /// Notes when a volume was made. If that is another one than before it gets another number;
    /// returns the one it had.
    pub(super) fn made(
        &mut self,
        cell: &CellName,
        volume: VolumeId,
        made: UnixTime,
    ) -> Option<u32> {
        let known = self.known.get_mut(cell);
        match known.and_then(|volumes| volumes.get_mut(&volume)) {
            Some(known) if known.made == made => None,
            Some(known) if known.made.0 == 0 => {
                known.made = made;
                let line = line(cell, volume, *known);
                self.append(&line);
                None
            }
            Some(known) => {
                let before = known.number;
                self.give(cell, volume, made);
                Some(before)
            }
            None => {
                self.give(cell, volume, made);
                None
            }
        }
    }

    fn give(&mut self, cell: &CellName, volume: VolumeId, made: UnixTime) -> u32 {
        let number = self.next;
        // After four thousand million restored volumes nothing new is kept apart any more.
        self.next = self.next.saturating_add(1);
        let instance = Instance { number, made };
        let volumes = self.known.entry(cell.clone()).or_default();
        volumes.insert(volume, instance);
        self.append(&line(cell, volume, instance));
        number
    }

    /// What cannot be written is not known after a restart, and what is kept of it goes then.
    fn append(&mut self, line: &[u8]) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(line)
        {
            tracing::warn!(path = %self.path.display(), %error, "the cache cannot record a volume");
        }
    }
}

fn line(cell: &CellName, volume: VolumeId, instance: Instance) -> Vec<u8> {
    let text = format!("{} {cell} {volume} {}", instance.number, instance.made);
    let sum = xxh3_64(text.as_bytes());
    format!("{text} {sum:016x}\n").into_bytes()
}

fn parse(line: &[u8]) -> Option<(CellName, VolumeId, Instance)> {
    let line = std::str::from_utf8(line).ok()?;
    let (text, sum) = line.rsplit_once(' ')?;
    if u64::from_str_radix(sum, 16) != Ok(xxh3_64(text.as_bytes())) {
        return None;
    }
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let cell = words.next()?.parse().ok()?;
    let volume = words.next()?.parse().ok()?;
    let made = words.next()?.parse().ok()?;
    Some((cell, volume, Instance { number, made }))
}
