//! What a run likes to do: names, vnodes, sizes.

use afar_store::NewVnode;
use afar_types::{AclRecord, AclRecordEntry, Fid, PtsId, Rights, UnixTime, VolumeId};
use fastrand::Rng;

use crate::data::Pattern;
use crate::tree::{Tree, fid};

/// Bytes of a record of most files, and of large ones.
const RECORD: u64 = 128 << 10;
const LARGE: u64 = 16 << 20;

/// What sort of run it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    /// Different names that are used.
    pub(crate) names: u32,
    /// Vnodes from which on a volume is rather emptied than filled.
    pub(crate) crowd: usize,
    /// Of 100 operations, how many store data.
    pub(crate) writes: u32,
    /// Of 1000 operations, how many are on whole volumes.
    pub(crate) volumes: u32,
    /// Whether much data is stored.
    pub(crate) heavy: bool,
}

impl Profile {
    pub(crate) fn of(random: &mut Rng) -> Self {
        let mut choice = |options: &[u32]| options[random.usize(..options.len())];
        Self {
            names: choice(&[12, 40, 40, 600]),
            crowd: choice(&[20, 60, 60, 400]) as usize,
            writes: choice(&[10, 20, 20, 35]),
            volumes: choice(&[5, 20, 40, 100]),
            heavy: choice(&[0, 0, 0, 1]) == 1,
        }
    }
}

/// A name, seldom one that cannot be.
pub(crate) fn name(random: &mut Rng, names: u32) -> Vec<u8> {
    let number = random.u32(..names);
    let long = |len: usize| {
        let mut name = vec![b'a' + u8::try_from(number % 26).unwrap(); len];
        name[0] = b'0' + u8::try_from(number / 26 % 10).unwrap();
        name
    };
    match random.u32(..200) {
        0 => b"".to_vec(),
        1 => b".".to_vec(),
        2 => b"..".to_vec(),
        3 => b"a/b".to_vec(),
        4 => b"a\0b".to_vec(),
        5 => long(256),
        6 => long(255),
        7 => long(1_000),
        8..20 => long([14, 15, 16, 17, 47, 48, 49, 79, 80, 254][random.usize(..10)]),
        20..24 => format!("\u{e4}\u{20ac} {number}").into_bytes(),
        24..26 => vec![0xff, 0xfe, b'a' + u8::try_from(number % 26).unwrap()],
        _ => format!("n{number}").into_bytes(),
    }
}

/// A name of a directory's entries, if it has any.
pub(crate) fn entry(random: &mut Rng, tree: &Tree, directory: Fid, names: u32) -> Option<Vec<u8>> {
    let entries = &tree.directory(directory).ok()?.entries;
    let from = format!("n{}", random.u32(..names)).into_bytes();
    let mut after = entries.range(from..).chain(entries);
    after.next().map(|(name, _)| name.clone())
}

/// A vnode of a volume: a directory, or a file or symlink.
pub(crate) fn vnode(random: &mut Rng, volume: u32, tree: &Tree, directory: bool) -> Fid {
    let last = tree.nodes.last_key_value().map_or(1, |(vnode, _)| *vnode);
    let from = random.u32(..=last);
    let mut nodes = tree.nodes.range(from..).chain(&tree.nodes);
    let found = nodes.find(|(vnode, _)| *vnode % 2 == u32::from(directory));
    let (vnode, uniquifier) = found.map_or((2, 1), |(vnode, node)| (*vnode, node.uniquifier));
    fid(volume, (vnode, uniquifier))
}

/// Seldom a fid that is not what it should be.
pub(crate) fn spoil(random: &mut Rng, wanted: Fid, old: &[Fid]) -> Fid {
    match random.u32(..100) {
        0 if !old.is_empty() => old[random.usize(..old.len())],
        1 => Fid {
            uniquifier: afar_types::Uniquifier(random.u32(..40)),
            ..wanted
        },
        2 if random.u8(..4) == 0 => Fid {
            volume: VolumeId(random.u32(..30)),
            ..wanted
        },
        _ => wanted,
    }
}

pub(crate) fn new_vnode(random: &mut Rng) -> NewVnode {
    let mut new = NewVnode::new(PtsId(random.i32(-300..300)), random.u16(..));
    new.group = random.bool().then(|| PtsId(random.i32(..)));
    new.modify_time = random.bool().then(|| UnixTime(random.u32(..)));
    new
}

pub(crate) fn acl(random: &mut Rng) -> AclRecord {
    let mut left = 20;
    let mut entries = || {
        let count = random.usize(..=left);
        left -= count;
        let mut entries: Vec<AclRecordEntry> = Vec::new();
        for _ in 0..count {
            entries.push(AclRecordEntry {
                id: PtsId(random.i32(..)),
                rights: Rights(random.u32(..)),
            });
        }
        entries
    };
    let (positive, negative) = (entries(), entries());
    AclRecord::new(positive, negative).unwrap()
}

pub(crate) fn pattern(random: &mut Rng) -> Pattern {
    // Few different ones, so that records of different files are equal.
    let seed = if random.bool() {
        random.u64(..4)
    } else {
        random.u64(..)
    };
    match random.u8(..8) {
        0..3 => Pattern::Noise(seed),
        3..7 => Pattern::Text(seed),
        _ => Pattern::Byte([0, 0, b'x'][random.usize(..3)]),
    }
}

/// How much is stored at once.
pub(crate) fn len(random: &mut Rng, heavy: bool) -> u64 {
    match random.u32(..1_000) {
        0..40 => 0,
        40..700 => random.u64(..2_500),
        700..900 => random.u64(2_500..20_000),
        900..950 => near_records(random, 2),
        950..990 => random.u64(20_000..200_000),
        990..999 => random.u64(..1_500_000),
        _ if heavy && random.u8(..4) == 0 => LARGE + random.u64(..RECORD),
        _ => near_records(random, 10),
    }
}

/// Where in a file of this length something is done.
pub(crate) fn offset(random: &mut Rng, length: u64) -> u64 {
    match random.u32(..1_000) {
        0..400 => 0,
        400..550 => length,
        550..750 => random.u64(..=length),
        750..850 => near_records(random, 4),
        850..960 => length.saturating_add(random.u64(..100_000)),
        960..970 => LARGE + random.u64(..LARGE),
        970..980 => near_records(random, 300),
        980..985 => (1 << 32) + near_records(random, 4),
        985..990 => random.u64(..1 << 40),
        990..992 => (1 << 62) + random.u64(..1 << 20),
        992..994 => (1 << 63) - random.u64(..4_000),
        994 => u64::MAX - random.u64(..4_000),
        _ => random.u64(..300_000),
    }
}

fn near_records(random: &mut Rng, most: u64) -> u64 {
    let near = random.u64(..=most) * RECORD + random.u64(..7);
    near.saturating_sub(3)
}
