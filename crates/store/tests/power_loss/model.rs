//! Volumes in memory: the truth that the store is compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::sync::Arc;

use afar_store::RestoreMode;
use fastrand::Rng;

/// Bytes told by a seed, so that an operation is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) seed: u64,
    pub(crate) len: usize,
}

impl Data {
    /// Half of all data shrinks when it is packed.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut rng = Rng::with_seed(self.seed);
        let mut bytes = vec![0; self.len];
        if rng.bool() {
            rng.fill(&mut bytes);
        } else {
            let mut line = [0; 64];
            rng.fill(&mut line);
            for (number, part) in bytes.chunks_mut(line.len()).enumerate() {
                line[0] = number.to_le_bytes()[0];
                part.copy_from_slice(&line[..part.len()]);
            }
        }
        bytes
    }
}

/// The names from a volume's root down.
pub(crate) type Path = Vec<String>;

/// What a client does to a volume, or a volume server to all of it.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    CreateVolume {
        volume: u32,
    },
    RemoveVolume {
        volume: u32,
    },
    /// Clones `from` to a read-only volume, which may exist already.
    Clone {
        from: u32,
        to: u32,
    },
    Dump {
        from: u32,
    },
    /// Restores a dump of `from`, to a new volume or over one.
    Restore {
        from: u32,
        to: u32,
        mode: RestoreMode,
    },
    /// Makes a read-write copy, which shares the data.
    Copy {
        from: u32,
        to: u32,
    },
    /// Checks the partition and reads all its data while others use it.
    Check,
    MakeDir {
        volume: u32,
        path: Path,
    },
    Create {
        volume: u32,
        path: Path,
    },
    Symlink {
        volume: u32,
        path: Path,
        target: String,
    },
    Write {
        volume: u32,
        path: Path,
        offset: u64,
        data: Data,
    },
    Truncate {
        volume: u32,
        path: Path,
        len: u64,
    },
    Link {
        volume: u32,
        path: Path,
        name: String,
    },
    Rename {
        volume: u32,
        from: Path,
        to: Path,
    },
    Unlink {
        volume: u32,
        path: Path,
    },
    RemoveDir {
        volume: u32,
        path: Path,
    },
    /// Gives a file other data, among other changes.
    Replace {
        volume: u32,
        path: Path,
        data: Data,
    },
    /// Changes of a volume in one commit.
    Together {
        volume: u32,
        operations: Vec<Self>,
    },
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Directory(BTreeMap<String, usize>),
    File(Arc<Vec<u8>>),
    Symlink(String),
}

/// A volume's vnodes; the first is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    nodes: BTreeMap<usize, Node>,
    next: usize,
}

/// What a path leads to, with its number of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory,
    File {
        bytes: Arc<Vec<u8>>,
        names: usize,
    },
    /// A file of which a record fails its checksum.
    Damaged {
        len: u64,
        names: usize,
    },
    Symlink(String),
}

/// What is in each of a client's volumes.
pub(crate) type Found = BTreeMap<u32, BTreeMap<Path, Entry>>;

/// The first difference, as text.
pub(crate) fn difference(found: &Found, expected: &Found) -> Option<String> {
    if !found.keys().eq(expected.keys()) {
        let (found, expected): (Vec<_>, Vec<_>) =
            (found.keys().collect(), expected.keys().collect());
        return Some(format!("volumes are {found:?}, expected {expected:?}"));
    }
    found.iter().find_map(|(volume, found)| {
        let expected = &expected[volume];
        let paths: BTreeSet<&Path> = found.keys().chain(expected.keys()).collect();
        let path = paths
            .into_iter()
            .find(|path| found.get(*path) != expected.get(*path))?;
        let [found, expected] = [found, expected].map(|entries| describe(entries.get(path)));
        Some(format!(
            "volume {volume}, {path:?} is {found}, expected {expected}"
        ))
    })
}

/// Takes files that cannot be read for what they are expected to be.
pub(crate) fn forgive_damage(found: &mut Found, expected: &Found) {
    for (volume, entries) in found {
        for (path, entry) in entries {
            let expected = expected.get(volume).and_then(|entries| entries.get(path));
            if let (Entry::Damaged { len, names }, Some(whole)) = (&*entry, expected)
                && let Entry::File {
                    bytes,
                    names: expected,
                } = whole
                && (bytes.len() as u64, expected) == (*len, names)
            {
                *entry = whole.clone();
            }
        }
    }
}

fn describe(entry: Option<&Entry>) -> String {
    match entry {
        None => "absent".to_owned(),
        Some(Entry::File { bytes, names }) => {
            let sum: u64 = bytes
                .iter()
                .fold(0, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            format!(
                "a file of {} bytes (sum {sum:016x}) with {names} names",
                bytes.len()
            )
        }
        Some(entry) => format!("{entry:?}"),
    }
}

const ROOT: usize = 0;

impl Volume {
    fn new() -> Self {
        let root = Node::Directory(BTreeMap::new());
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
        }
    }

    /// Everything below the root, by path.
    pub(crate) fn entries(&self) -> BTreeMap<Path, Entry> {
        let mut entries = BTreeMap::new();
        let mut left = vec![(Path::new(), ROOT)];
        while let Some((path, number)) = left.pop() {
            let Node::Directory(names) = &self.nodes[&number] else {
                continue;
            };
            for (name, node) in names {
                let path = [path.as_slice(), from_ref(name)].concat();
                let entry = match &self.nodes[node] {
                    Node::Directory(_) => {
                        left.push((path.clone(), *node));
                        Entry::Directory
                    }
                    Node::File(bytes) => {
                        let names = names.values().filter(|other| *other == node).count();
                        Entry::File {
                            bytes: Arc::clone(bytes),
                            names,
                        }
                    }
                    Node::Symlink(target) => Entry::Symlink(target.clone()),
                };
                entries.insert(path, entry);
            }
        }
        entries
    }

    fn find(&self, path: &[String]) -> usize {
        path.iter().fold(ROOT, |dir, name| match &self.nodes[&dir] {
            Node::Directory(names) => names[name],
            node => panic!("{path:?} leads through {node:?}"),
        })
    }

    fn names(&mut self, path: &[String]) -> &mut BTreeMap<String, usize> {
        let dir = self.find(path);
        match self.nodes.get_mut(&dir).unwrap() {
            Node::Directory(names) => names,
            node => panic!("{path:?} is {node:?}"),
        }
    }

    fn bytes(&mut self, path: &[String]) -> &mut Vec<u8> {
        let file = self.find(path);
        match self.nodes.get_mut(&file).unwrap() {
            Node::File(bytes) => Arc::make_mut(bytes),
            node => panic!("{path:?} is {node:?}"),
        }
    }

    fn add(&mut self, path: &[String], node: Node) {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, node);
        let (name, dir) = path.split_last().unwrap();
        self.names(dir).insert(name.clone(), number);
    }

    fn remove(&mut self, path: &[String]) {
        let (name, dir) = path.split_last().unwrap();
        let names = self.names(dir);
        let number = names.remove(name).unwrap();
        if !names.values().any(|other| *other == number) {
            self.nodes.remove(&number);
        }
    }

    fn rename(&mut self, from: &[String], to: &[String]) {
        let node = self.find(from);
        let (old, old_dir) = from.split_last().unwrap();
        let (new, new_dir) = to.split_last().unwrap();
        if self.names(new_dir).contains_key(new) {
            self.remove(to);
        }
        self.names(old_dir).remove(old);
        self.names(new_dir).insert(new.clone(), node);
    }
}

/// All volumes of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) volumes: BTreeMap<u32, Volume>,
}

impl Model {
    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::CreateVolume { volume } => {
                self.volumes.insert(*volume, Volume::new());
            }
            Operation::RemoveVolume { volume } => {
                self.volumes.remove(volume);
            }
            Operation::Clone { from, to }
            | Operation::Copy { from, to }
            | Operation::Restore { from, to, .. } => {
                self.volumes.insert(*to, self.volumes[from].clone());
            }
            Operation::Dump { .. } | Operation::Check => {}
            Operation::MakeDir { volume, path } => {
                self.volume(*volume)
                    .add(path, Node::Directory(BTreeMap::new()));
            }
            Operation::Create { volume, path } => {
                self.volume(*volume).add(path, Node::File(Arc::default()));
            }
            Operation::Symlink {
                volume,
                path,
                target,
            } => {
                self.volume(*volume)
                    .add(path, Node::Symlink(target.clone()));
            }
            Operation::Write {
                volume,
                path,
                offset,
                data,
            } => {
                let bytes = self.volume(*volume).bytes(path);
                let start = usize::try_from(*offset).unwrap();
                bytes.resize(bytes.len().max(start + data.len), 0);
                bytes[start..start + data.len].copy_from_slice(&data.bytes());
            }
            Operation::Truncate { volume, path, len } => {
                self.volume(*volume)
                    .bytes(path)
                    .resize(usize::try_from(*len).unwrap(), 0);
            }
            Operation::Link { volume, path, name } => {
                let volume = self.volume(*volume);
                let node = volume.find(path);
                volume
                    .names(&path[..path.len() - 1])
                    .insert(name.clone(), node);
            }
            Operation::Rename { volume, from, to } => self.volume(*volume).rename(from, to),
            Operation::Unlink { volume, path } | Operation::RemoveDir { volume, path } => {
                self.volume(*volume).remove(path);
            }
            Operation::Replace { volume, path, data } => {
                *self.volume(*volume).bytes(path) = data.bytes();
            }
            Operation::Together { operations, .. } => {
                for operation in operations {
                    self.apply(operation);
                }
            }
        }
    }

    pub(crate) fn found(&self) -> Found {
        self.volumes
            .iter()
            .map(|(number, volume)| (*number, volume.entries()))
            .collect()
    }

    fn volume(&mut self, number: u32) -> &mut Volume {
        self.volumes.get_mut(&number).unwrap()
    }
}

/// Draws operations that the model allows. The volumes of one client are numbered from its base:
/// the read-write one, two clones of it, and those restored from dumps.
#[derive(Clone)]
pub(crate) struct Client {
    rng: Rng,
    base: u32,
    steps: u32,
    pub(crate) model: Model,
}

const CLONES: u32 = 2;
const RESTORED: u32 = 3;
/// Bytes a file may have, so that images stay small.
const LONGEST: u64 = 600 << 10;
/// Bytes of a file in one record.
const RECORD: usize = 128 << 10;

impl Client {
    pub(crate) fn new(seed: u64, base: u32) -> Self {
        let rng = Rng::with_seed(seed ^ u64::from(base) << 32);
        Self {
            rng,
            base,
            steps: 0,
            model: Model::default(),
        }
    }

    /// Draws the next operation and does it to the model.
    pub(crate) fn step(&mut self) -> Operation {
        let operation = self.draw();
        self.steps += 1;
        self.model.apply(&operation);
        operation
    }

    fn draw(&mut self) -> Operation {
        // Now and then all goes, so that segments become empty.
        if self.steps % 70 >= 62
            && let Some(volume) = self.model.volumes.keys().next()
        {
            return Operation::RemoveVolume { volume: *volume };
        }
        if !self.model.volumes.contains_key(&self.base) {
            return Operation::CreateVolume { volume: self.base };
        }
        loop {
            let drawn = match self.rng.u8(0..100) {
                0..4 => Some(self.clone_volume()),
                4..7 => self.remove_volume(),
                7..10 => self.copy_dump_or_restore(),
                10 => Some(Operation::Check),
                11..25 => Some(self.draw_together()),
                _ => {
                    let volume = self.draw_volume();
                    self.draw_in_volume(volume)
                }
            };
            if let Some(operation) = drawn {
                return operation;
            }
        }
    }

    fn clone_volume(&mut self) -> Operation {
        Operation::Clone {
            from: self.base,
            to: self.base + 1 + self.rng.u32(0..CLONES),
        }
    }

    fn remove_volume(&mut self) -> Option<Operation> {
        let volumes: Vec<u32> = self.model.volumes.keys().copied().collect();
        let volume = self.rng.choice(volumes)?;
        // The first one seldom, as the most is in it.
        let spared = volume == self.base && self.rng.u8(0..4) != 0;
        (!spared).then_some(Operation::RemoveVolume { volume })
    }

    fn copy_dump_or_restore(&mut self) -> Option<Operation> {
        let volumes: Vec<u32> = self.model.volumes.keys().copied().collect();
        let from = self.rng.choice(volumes)?;
        let to = self.base + 1 + CLONES + self.rng.u32(0..RESTORED);
        if !self.model.volumes.contains_key(&to) && self.rng.u8(0..3) == 0 {
            return Some(Operation::Copy { from, to });
        }
        let mode = match (self.rng.u8(0..4), self.model.volumes.contains_key(&to)) {
            (0, _) => return Some(Operation::Dump { from }),
            (_, false) => RestoreMode::Full { overwrite: false },
            (1, true) => RestoreMode::Full { overwrite: true },
            (_, true) => RestoreMode::Incremental,
        };
        Some(Operation::Restore { from, to, mode })
    }

    /// Draws changes each of which the model allows after those before.
    fn draw_together(&mut self) -> Operation {
        let (volume, before) = (self.draw_volume(), self.model.clone());
        let mut operations = Vec::new();
        for _ in 0..self.rng.u8(1..20) {
            let operation = match self.draw_in_volume(volume) {
                Some(Operation::Write {
                    volume, path, data, ..
                }) => Operation::Replace { volume, path, data },
                None | Some(Operation::Truncate { .. }) => continue,
                Some(operation) => operation,
            };
            self.model.apply(&operation);
            operations.push(operation);
        }
        self.model = before;
        Operation::Together { volume, operations }
    }

    fn draw_volume(&mut self) -> u32 {
        // The volumes restored are read-write too, but the first one gets most of the work.
        let restored = self
            .model
            .volumes
            .keys()
            .filter(|number| **number > self.base + CLONES);
        let restored: Vec<u32> = restored.copied().collect();
        match self.rng.u8(0..8) {
            0 => self.rng.choice(restored).unwrap_or(self.base),
            _ => self.base,
        }
    }

    fn draw_in_volume(&mut self, volume: u32) -> Option<Operation> {
        let entries = self.model.volumes[&volume].entries();
        let of = |wanted: fn(&Entry) -> bool| -> Vec<&Path> {
            let found = entries.iter().filter(|(_, entry)| wanted(entry));
            found.map(|(path, _)| path).collect()
        };
        let root = Path::new();
        let mut dirs = of(|entry| matches!(entry, Entry::Directory));
        let sub_dirs = dirs.clone();
        dirs.push(&root);
        let files = of(|entry| matches!(entry, Entry::File { .. }));
        let not_dirs = of(|entry| !matches!(entry, Entry::Directory));
        let rng = &mut self.rng;
        let new = |rng: &mut Rng| -> Path {
            let dir = rng.choice(&dirs).copied().unwrap_or(&root);
            [dir.as_slice(), &[new_name(rng)]].concat()
        };
        let free = |path: Path| (!entries.contains_key(&path)).then_some(path);
        let many = entries.len() > 60;
        Some(match rng.u8(0..100) {
            0..20 if !many => Operation::Create {
                volume,
                path: free(new(rng))?,
            },
            20..26 if !many => Operation::MakeDir {
                volume,
                path: free(new(rng))?,
            },
            26..30 if !many => {
                let path = free(new(rng))?;
                Operation::Symlink {
                    volume,
                    path,
                    target: new_name(rng),
                }
            }
            30..62 => {
                let path = rng.choice(files)?.clone();
                let (offset, data) = draw_write(rng);
                Operation::Write {
                    volume,
                    path,
                    offset,
                    data,
                }
            }
            62..67 => {
                let path = rng.choice(files)?.clone();
                Operation::Truncate {
                    volume,
                    path,
                    len: rng.u64(0..LONGEST) >> rng.u8(0..12),
                }
            }
            67..72 => {
                let path = rng.choice(files)?.clone();
                let name = new_name(rng);
                free([&path[..path.len() - 1], from_ref(&name)].concat())?;
                Operation::Link { volume, path, name }
            }
            72..84 => self.draw_rename(volume, &entries, &dirs)?,
            84..96 => Operation::Unlink {
                volume,
                path: rng.choice(not_dirs)?.clone(),
            },
            96.. => {
                let empty = |dir: &&&Path| {
                    !entries
                        .keys()
                        .any(|path| path.len() > dir.len() && path.starts_with(dir))
                };
                let empty: Vec<&&Path> = sub_dirs.iter().filter(empty).collect();
                Operation::RemoveDir {
                    volume,
                    path: (**rng.choice(empty)?).clone(),
                }
            }
            _ => return None,
        })
    }

    fn draw_rename(
        &mut self,
        volume: u32,
        entries: &BTreeMap<Path, Entry>,
        dirs: &[&Path],
    ) -> Option<Operation> {
        let (from, entry) = self.rng.choice(entries)?;
        let dir = match entry {
            // Its names stay in one directory.
            Entry::File { names: 2.., .. } => &from[..from.len() - 1],
            _ => self.rng.choice(dirs)?.as_slice(),
        };
        let to = [dir, &[new_name(&mut self.rng)]].concat();
        if to.starts_with(from) {
            return None;
        }
        match (entry, entries.get(&to)) {
            (_, None) => {}
            (Entry::Directory, _) | (_, Some(Entry::Directory)) => return None,
            // Two names of one file are left as they are by some systems.
            (Entry::File { names: 2.., .. }, _) => return None,
            _ => {}
        }
        Some(Operation::Rename {
            volume,
            from: from.clone(),
            to,
        })
    }
}

/// One of few names, so that they meet; some are longer than one slot of a directory.
fn new_name(rng: &mut Rng) -> String {
    let number = rng.u8(0..40);
    match rng.u8(0..4) {
        0 => format!("a rather long name, numbered {number}"),
        _ => format!("n{number}"),
    }
}

fn draw_write(rng: &mut Rng) -> (u64, Data) {
    // Whole records of few contents, for a partition that stores equal ones once.
    if rng.u8(0..4) == 0 {
        let len = if rng.bool() { RECORD } else { RECORD + 20_000 };
        return (
            rng.u64(0..3) * RECORD as u64,
            Data {
                seed: rng.u64(0..6),
                len,
            },
        );
    }
    let longest = *rng.choice(&[100, 3_000, 20_000, 200_000]).unwrap_or(&100);
    let len = rng.usize(1..longest);
    let offset = match rng.u8(0..3) {
        0 => 0,
        1 => rng.u64(0..10_000),
        _ => rng.u64(0..LONGEST - len as u64),
    };
    (
        offset,
        Data {
            seed: rng.u64(..),
            len,
        },
    )
}
