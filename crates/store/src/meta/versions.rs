//! Reading rows: plain ones, and versioned ones as of a generation.
//!
//! A tree's members (the read-write volume and its clones) share the rows. A member of generation
//! *g* sees of each item the row with the greatest generation not above *g*; an empty row says
//! that the item is gone.

use std::sync::Arc;

use afar_dir::Page;

use super::change::FIRST_GENERATION;
use super::env::{Env, SUM, Table, unseal};
use super::key::{At, Item, Kind, ROW_KEY, member_key, row_key, split_member_key, split_row_key};
use super::memtable::{Layers, Merged};
use super::rows::{MemberState, SegmentRow, VnodeRow, VolumeInfo, VolumeRow};
use crate::error::Result;

/// One row of a scan: its key and its value.
pub(crate) type Pair<'a> = (&'a [u8], &'a [u8]);

/// Whether what has changed of a page is wanted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    Applied,
    LeftOut,
}

/// A versioned row with its checksum: its key and its value.
pub(crate) type SealedRow<'a> = ([u8; ROW_KEY], &'a [u8]);

/// Somewhere rows can be read from: a view of what is committed, or a change in progress.
pub(crate) trait Rows {
    /// Where they are looked for.
    fn layers(&self) -> Layers<'_>;

    fn env(&self) -> &Env {
        self.layers().env
    }

    /// The value of a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        let layers = self.layers();
        match layers.get(table, key)? {
            None => Ok(None),
            Some(sealed) => open(layers.env, table, key, sealed).map(Some),
        }
    }

    /// Rows in the order of their keys, from the first not below `from`.
    fn scan(&self, table: Table, from: &[u8]) -> Result<Scan<'_>> {
        let layers = self.layers();
        Ok(Scan {
            rows: layers.scan(table, from)?,
            env: layers.env,
            table,
        })
    }

    /// How many rows a table has.
    fn count(&self, table: Table) -> Result<u64> {
        self.layers().count(table)
    }

    /// The last row with a key not below `from` and below `to`.
    fn last_between(&self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Pair<'_>>> {
        let layers = self.layers();
        match layers.last_between(table, from, to)? {
            None => Ok(None),
            Some((key, sealed)) => Ok(Some((key, open(layers.env, table, key, sealed)?))),
        }
    }

    /// An item as a member of `at`'s generation sees it.
    fn row(&self, at: At, item: Item) -> Result<Option<&[u8]>> {
        let Some((key, sealed)) = self.sealed_row(at, item)? else {
            return Ok(None);
        };
        let value = open(self.env(), Table::Rows, &key, sealed)?;
        Ok((!value.is_empty()).then_some(value))
    }

    /// The key of an item's row and the row with its checksum, which was not looked at.
    fn sealed_row(&self, at: At, item: Item) -> Result<Option<SealedRow<'_>>> {
        let layers = self.layers();
        let wanted = row_key(at, item);
        // Most rows are of the generation that asks, and are found without a cursor.
        if let Some(sealed) = layers.get(Table::Rows, &wanted)? {
            return Ok(Some((wanted, sealed)));
        }
        if at.generation <= FIRST_GENERATION {
            return Ok(None);
        }
        let tree = at.tree;
        let first = row_key(
            At {
                tree,
                generation: 0,
            },
            item,
        );
        let found = layers.last_between(Table::Rows, &first, &wanted)?;
        Ok(found.and_then(|(key, sealed)| Some((key.try_into().ok()?, sealed))))
    }

    /// A page of a directory: as `make` makes it of its row and of its changes' row, if that is
    /// there and wanted, or as it was made before.
    fn page(
        &self,
        at: At,
        (vnode, page): (u32, u64),
        changes: Changes,
        make: impl FnOnce(&[u8], Option<&[u8]>) -> Option<Page>,
    ) -> Result<Option<Arc<Page>>> {
        let item = Item::page(vnode, page);
        let Some((key, sealed)) = self.sealed_row(at, item)? else {
            return Ok(None);
        };
        let change = match changes {
            Changes::Applied => self.sealed_row(at, Item::page_change(vnode, page))?,
            Changes::LeftOut => None,
        };
        let env = self.env();
        let sum = |sealed: &[u8]| sealed.last_chunk::<SUM>().copied().unwrap_or_default();
        let sums = [
            sum(sealed),
            change.map(|(_, row)| sum(row)).unwrap_or_default(),
        ];
        if let Some(page) = env.pages().get(&(at, item, sums)) {
            return Ok(Some(page));
        }
        let value = open(env, Table::Rows, &key, sealed)?;
        let change = match change {
            None => None,
            Some((key, sealed)) => Some(open(env, Table::Rows, &key, sealed)?),
        };
        let page = make(value, change.filter(|change| !change.is_empty())).map(Arc::new);
        if let Some(page) = &page {
            env.pages().insert((at, item, sums), Arc::clone(page));
        }
        Ok(page)
    }

    /// The items of one kind from `from` on, as a member of `at`'s generation sees them.
    fn items(&self, at: At, from: Item) -> Result<Items<'_>> {
        let start = At {
            tree: at.tree,
            generation: 0,
        };
        Ok(Items {
            rows: self.scan(Table::Rows, &row_key(start, from))?,
            at,
            kind: from.kind,
            vnode: None,
            best: None,
            ended: false,
        })
    }

    /// The pages or records of one vnode from `from` on, as [`Rows::items`].
    fn parts(&self, at: At, from: Item) -> Result<Items<'_>> {
        let mut items = self.items(at, from)?;
        items.vnode = Some(from.vnode);
        Ok(items)
    }

    /// A vnode, if there is one of that number.
    fn vnode(&self, at: At, vnode: u32) -> Result<Option<VnodeRow>> {
        let Some(value) = self.row(at, Item::vnode(vnode))? else {
            return Ok(None);
        };
        let row = VnodeRow::from_bytes(value);
        row.map(Some).ok_or_else(|| {
            self.env()
                .corrupt(format!("vnode {vnode} of tree {}", at.tree))
        })
    }

    /// A volume, if there is one of that number.
    fn volume(&self, id: u32) -> Result<Option<VolumeRow>> {
        self.stored_volume(id)
    }

    /// The same as its table has it.
    fn stored_volume(&self, id: u32) -> Result<Option<VolumeRow>> {
        let Some(value) = self.get(Table::Volumes, &id.to_be_bytes())? else {
            return Ok(None);
        };
        let row = VolumeRow::from_bytes(value);
        row.map(Some)
            .ok_or_else(|| self.env().corrupt(format!("row of volume {id}")))
    }

    /// What else there is to tell of a volume.
    fn info(&self, id: u32) -> Result<Option<VolumeInfo>> {
        let Some(value) = self.get(Table::Infos, &id.to_be_bytes())? else {
            return Ok(None);
        };
        let info = VolumeInfo::from_bytes(value);
        info.map(Some)
            .ok_or_else(|| self.env().corrupt(format!("information of volume {id}")))
    }

    /// The owner of a volume.
    fn owner(&self, id: u32) -> Result<Option<i32>> {
        let Some(value) = self.get(Table::Infos, &id.to_be_bytes())? else {
            return Ok(None);
        };
        let owner = VolumeInfo::owner_of(value);
        owner
            .map(Some)
            .ok_or_else(|| self.env().corrupt(format!("information of volume {id}")))
    }

    /// The members of a tree: generation, volume, state, by generation.
    fn members(&self, tree: u64) -> Result<Vec<(u32, u32, MemberState)>> {
        let from = At {
            tree,
            generation: 0,
        };
        let mut members = Vec::new();
        for row in self.scan(Table::Members, &member_key(from, 0))? {
            let (key, value) = row?;
            let Some((at, volume)) = split_member_key(key) else {
                return Err(self.env().corrupt("a member's key"));
            };
            if at.tree != tree {
                break;
            }
            let state = MemberState::from_bytes(value)
                .ok_or_else(|| self.env().corrupt("a member's state"))?;
            members.push((at.generation, volume, state));
        }
        Ok(members)
    }

    /// A segment's state; of an unknown one, an empty one.
    fn segment(&self, number: u32) -> Result<SegmentRow> {
        match self.get(Table::Segments, &number.to_be_bytes())? {
            None => Ok(SegmentRow::default()),
            Some(value) => SegmentRow::from_bytes(value)
                .ok_or_else(|| self.env().corrupt(format!("row of segment {number}"))),
        }
    }
}

fn open<'a>(env: &Env, table: Table, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8]> {
    unseal(table, key, sealed).ok_or_else(|| {
        env.corrupt(format!(
            "a row of {table:?} fails its checksum (key {key:02x?})"
        ))
    })
}

/// Rows of one table, verified.
pub(crate) struct Scan<'a> {
    rows: Merged<'a>,
    env: &'a Env,
    table: Table,
}

impl<'a> Iterator for Scan<'a> {
    type Item = Result<Pair<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next_row().transpose()?;
        Some(row.and_then(|(key, sealed)| Ok((key, open(self.env, self.table, key, sealed)?))))
    }
}

/// Versioned rows of one kind, as one member sees them.
pub(crate) struct Items<'a> {
    rows: Scan<'a>,
    at: At,
    kind: Kind,
    /// Of this one only.
    vnode: Option<u32>,
    best: Option<(Item, &'a [u8])>,
    ended: bool,
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<(Item, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let row = match self.rows.next() {
                None => None,
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Some(Ok((key, value))) => split_row_key(key)
                    .filter(|(at, item)| at.tree == self.at.tree && item.kind == self.kind)
                    .filter(|(_, item)| self.vnode.is_none_or(|vnode| item.vnode == vnode))
                    .map(|(at, item)| (at.generation, item, value)),
            };
            let Some((generation, item, value)) = row else {
                self.ended = true;
                break;
            };
            let seen = generation <= self.at.generation;
            let last = match &mut self.best {
                Some((same, best)) if *same == item => {
                    if seen {
                        *best = value;
                    }
                    None
                }
                best if seen => best.replace((item, value)),
                best => best.take(),
            };
            if let Some((item, value)) = last
                && !value.is_empty()
            {
                return Some(Ok((item, value)));
            }
        }
        let (item, value) = self.best.take()?;
        (!value.is_empty()).then_some(Ok((item, value)))
    }
}
