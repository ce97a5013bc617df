//! Keys. All numbers are big-endian, so that their order is the numbers'.

/// What a versioned row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A directory's vnode.
    DirectoryVnode = 0,
    /// The vnode of a file or symlink.
    FileVnode = 1,
    /// A directory page; the index is the page's number.
    Page = 2,
    /// A record of a file's or symlink's data; the index is the record's number.
    Record = 3,
    /// What of a directory page is not as in its row; the index is the page's number.
    PageChange = 4,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::DirectoryVnode,
        Self::FileVnode,
        Self::Page,
        Self::Record,
        Self::PageChange,
    ];

    /// What a vnode consists of beside its own row.
    pub(crate) const fn parts(directory: bool) -> &'static [Self] {
        if directory {
            &[Self::Page, Self::PageChange]
        } else {
            &[Self::Record]
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// A tree as of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub(crate) tree: u64,
    pub(crate) generation: u32,
}

/// What a row is about, in every generation of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) vnode: u32,
    /// Less than 2^48.
    pub(crate) index: u64,
}

/// Bytes of an item in a key.
const ITEM: usize = 11;
/// Bytes of a versioned row's key.
pub(crate) const ROW_KEY: usize = 8 + ITEM + 4;
/// Bytes of a change's key.
pub(crate) const CHANGE_KEY: usize = ROW_KEY;

impl Item {
    /// A vnode's own row.
    pub(crate) const fn vnode(vnode: u32) -> Self {
        Self {
            kind: if vnode % 2 == 1 {
                Kind::DirectoryVnode
            } else {
                Kind::FileVnode
            },
            vnode,
            index: 0,
        }
    }

    /// A page of a directory.
    pub(crate) const fn page(vnode: u32, page: u64) -> Self {
        Self {
            kind: Kind::Page,
            vnode,
            index: page,
        }
    }

    /// The changes of a page.
    pub(crate) const fn page_change(vnode: u32, page: u64) -> Self {
        Self {
            kind: Kind::PageChange,
            vnode,
            index: page,
        }
    }

    /// A record of a file.
    pub(crate) const fn record(vnode: u32, record: u64) -> Self {
        Self {
            kind: Kind::Record,
            vnode,
            index: record,
        }
    }

    fn put(self, out: &mut [u8]) {
        out[0] = self.kind as u8;
        out[1..5].copy_from_slice(&self.vnode.to_be_bytes());
        out[5..ITEM].copy_from_slice(&self.index.to_be_bytes()[2..]);
    }

    fn get(bytes: &[u8]) -> Option<Self> {
        let kind = Kind::from_byte(*bytes.first()?)?;
        let vnode = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?);
        let mut index = [0; 8];
        index[2..].copy_from_slice(bytes.get(5..ITEM)?);
        Some(Self {
            kind,
            vnode,
            index: u64::from_be_bytes(index),
        })
    }
}

/// What a note of a volume is found by.
pub(crate) type NoteName = [u8; 16];

/// "note", volume, name: a setting.
pub(crate) fn note_key(volume: u32, name: NoteName) -> [u8; 24] {
    let mut key = [0; 24];
    key[..4].copy_from_slice(b"note");
    key[4..8].copy_from_slice(&volume.to_be_bytes());
    key[8..].copy_from_slice(&name);
    key
}

/// tree, item, generation.
pub(crate) fn row_key(at: At, item: Item) -> [u8; ROW_KEY] {
    let mut key = [0; ROW_KEY];
    key[..8].copy_from_slice(&at.tree.to_be_bytes());
    item.put(&mut key[8..8 + ITEM]);
    key[8 + ITEM..].copy_from_slice(&at.generation.to_be_bytes());
    key
}

/// The parts of [`row_key`].
pub(crate) fn split_row_key(key: &[u8]) -> Option<(At, Item)> {
    if key.len() != ROW_KEY {
        return None;
    }
    let tree = u64::from_be_bytes(key[..8].try_into().ok()?);
    let item = Item::get(&key[8..8 + ITEM])?;
    let generation = u32::from_be_bytes(key[8 + ITEM..].try_into().ok()?);
    Some((At { tree, generation }, item))
}

/// tree, generation, item.
pub(crate) fn change_key(at: At, item: Item) -> [u8; CHANGE_KEY] {
    let mut key = [0; CHANGE_KEY];
    key[..8].copy_from_slice(&at.tree.to_be_bytes());
    key[8..12].copy_from_slice(&at.generation.to_be_bytes());
    item.put(&mut key[12..]);
    key
}

/// The parts of [`change_key`].
pub(crate) fn split_change_key(key: &[u8]) -> Option<(At, Item)> {
    if key.len() != CHANGE_KEY {
        return None;
    }
    let tree = u64::from_be_bytes(key[..8].try_into().ok()?);
    let generation = u32::from_be_bytes(key[8..12].try_into().ok()?);
    Some((At { tree, generation }, Item::get(&key[12..])?))
}

/// tree, generation, volume: a volume (or, with number 0, the shade of a removed one) of a tree.
pub(crate) fn member_key(at: At, volume: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&at.tree.to_be_bytes());
    key[8..12].copy_from_slice(&at.generation.to_be_bytes());
    key[12..].copy_from_slice(&volume.to_be_bytes());
    key
}

/// The parts of [`member_key`].
pub(crate) fn split_member_key(key: &[u8]) -> Option<(At, u32)> {
    let key: &[u8; 16] = key.try_into().ok()?;
    let tree = u64::from_be_bytes(key[..8].try_into().ok()?);
    let generation = u32::from_be_bytes(key[8..12].try_into().ok()?);
    let volume = u32::from_be_bytes(key[12..].try_into().ok()?);
    Some((At { tree, generation }, volume))
}

/// tree, parity, vnode: a vnode number that may be used again.
pub(crate) fn vnode_slot_key(tree: u64, directory: bool, vnode: u32) -> [u8; 13] {
    let mut key = [0; 13];
    key[..8].copy_from_slice(&tree.to_be_bytes());
    key[8] = u8::from(directory);
    key[9..].copy_from_slice(&vnode.to_be_bytes());
    key
}

/// segment, offset: where a free or shared stretch begins.
pub(crate) fn dead_key(segment: u32, offset: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&segment.to_be_bytes());
    key[4..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The parts of [`dead_key`].
pub(crate) fn split_dead_key(key: &[u8]) -> Option<(u32, u32)> {
    let key: &[u8; 8] = key.try_into().ok()?;
    let segment = u32::from_be_bytes(key[..4].try_into().ok()?);
    let offset = u32::from_be_bytes(key[4..].try_into().ok()?);
    Some((segment, offset))
}

/// Bounds of all keys that begin with a tree.
pub(crate) fn tree_range(tree: u64) -> ([u8; 8], [u8; 32]) {
    let mut to = [0xff; 32];
    to[..8].copy_from_slice(&tree.to_be_bytes());
    (tree.to_be_bytes(), to)
}

/// Where the changes of a generation begin.
pub(crate) fn change_start(at: At) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&at.tree.to_be_bytes());
    key[8..].copy_from_slice(&at.generation.to_be_bytes());
    key
}

/// What the reaper is to take away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DoomedKey {
    pub(crate) tree: u64,
    /// What a shade of this generation was the last to see; without one, the whole tree.
    pub(crate) generation: Option<u32>,
}

impl DoomedKey {
    pub(crate) const fn tree(tree: u64) -> Self {
        Self {
            tree,
            generation: None,
        }
    }

    pub(crate) const fn shade(at: At) -> Self {
        Self {
            tree: at.tree,
            generation: Some(at.generation),
        }
    }

    /// tree, generation; 2^32 - 1 stands for the whole tree.
    pub(crate) fn to_bytes(self) -> [u8; 12] {
        change_start(At {
            tree: self.tree,
            generation: self.generation.unwrap_or(u32::MAX),
        })
    }

    pub(crate) fn from_bytes(key: &[u8]) -> Option<Self> {
        let key: &[u8; 12] = key.try_into().ok()?;
        let generation = u32::from_be_bytes(key[8..].try_into().ok()?);
        Some(Self {
            tree: u64::from_be_bytes(key[..8].try_into().ok()?),
            generation: (generation != u32::MAX).then_some(generation),
        })
    }
}
