//! What a volume holds before an incremental dump is restored into it.

use std::collections::VecDeque;

use crate::error::Result;
use crate::meta::{At, Item, Kind, Rows, VnodeRow};
use crate::partition::Partition;

/// Vnodes or records looked up at a time.
const SOME: usize = 512;

/// Vnodes of a volume in the order of a dump: directories first, by number.
pub(super) struct Existing<'p> {
    partition: &'p Partition,
    at: At,
    found: VecDeque<(Item, VnodeRow)>,
    /// Where to look next.
    next: Option<Item>,
}

impl<'p> Existing<'p> {
    pub(super) fn new(partition: &'p Partition, at: At) -> Self {
        Self {
            partition,
            at,
            found: VecDeque::new(),
            next: Some(first(Kind::DirectoryVnode)),
        }
    }

    /// The next vnode, which stays the next.
    pub(super) fn peek(&mut self) -> Result<Option<&(Item, VnodeRow)>> {
        while self.found.is_empty()
            && let Some(from) = self.next
        {
            self.fill(from)?;
        }
        Ok(self.found.front())
    }

    /// Takes the next vnode.
    pub(super) fn pop(&mut self) -> Option<(Item, VnodeRow)> {
        self.found.pop_front()
    }

    fn fill(&mut self, from: Item) -> Result<()> {
        let reader = self.partition.reader()?;
        for found in reader.items(self.at, from)?.take(SOME) {
            let (item, value) = found?;
            let row = VnodeRow::from_bytes(value).ok_or_else(|| {
                reader
                    .env()
                    .corrupt(format!("vnode {} of tree {}", item.vnode, self.at.tree))
            })?;
            self.found.push_back((item, row));
        }
        self.next = match self.found.back() {
            Some((last, _)) if self.found.len() == SOME && last.vnode < u32::MAX => Some(Item {
                vnode: last.vnode + 1,
                ..*last
            }),
            _ if from.kind == Kind::DirectoryVnode => Some(first(Kind::FileVnode)),
            _ => None,
        };
        Ok(())
    }

    /// Whether a page's row is this, and nothing of the page has changed since.
    pub(super) fn has_page(&self, vnode: u32, page: u64, row: &[u8]) -> Result<bool> {
        let reader = self.partition.reader()?;
        let same = reader.row(self.at, Item::page(vnode, page))? == Some(row);
        Ok(same
            && reader
                .row(self.at, Item::page_change(vnode, page))?
                .is_none())
    }

    /// Some of the pages or records a vnode has, from one on.
    pub(super) fn parts(&self, from: Item) -> Result<Vec<Item>> {
        parts(self.partition, self.at, from)
    }
}

const fn first(kind: Kind) -> Item {
    Item {
        kind,
        vnode: 0,
        index: 0,
    }
}

/// Some of the pages or records a vnode has, from one on.
pub(super) fn parts(partition: &Partition, at: At, from: Item) -> Result<Vec<Item>> {
    let reader = partition.reader()?;
    let mut parts = Vec::new();
    for found in reader.items(at, from)?.take(SOME) {
        let (item, _) = found?;
        if item.vnode != from.vnode {
            break;
        }
        parts.push(item);
    }
    Ok(parts)
}
