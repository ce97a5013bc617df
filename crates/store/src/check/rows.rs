//! The versioned rows: each one by itself, and its versions against who sees them.

use std::mem;

use super::space::Extents;
use super::tables::place;
use super::{Check, ProblemKind, skip_damaged};
use crate::error::Result;
use crate::meta::{
    At, DoomedKey, FIRST_GENERATION, Item, Kind, MemberState, Record, Rows, Table, VnodeRow,
    change_key, row_key, split_change_key, split_row_key, tree_range,
};
use crate::segment::{Codec, MAX_RECORD};
use crate::vnode::{apply, unpack_page};

/// What is known of the tree whose rows the check walks.
#[derive(Default)]
struct Tree {
    number: u64,
    /// Generations of the members whose rows count, in order.
    live: Vec<u32>,
    /// Something of it is waiting for the reaper, so rows that nobody sees are to be expected.
    doomed: bool,
}

/// The versions of an item, in order: generation, and whether it is a mark that the item is gone.
type Versions = Vec<(u32, bool)>;

impl Check<'_> {
    pub(super) fn rows(&mut self, extents: &mut Extents) -> Result<()> {
        let mut tree = Tree::default();
        let mut item = None;
        let mut versions = Versions::new();
        for row in self.reader.scan(Table::Rows, &[])? {
            self.count_row()?;
            let Some((key, value)) = self.good(row)? else {
                continue;
            };
            let Some((at, this)) = split_row_key(key) else {
                self.malformed(|| format!("a versioned row (key {key:02x?})"));
                continue;
            };
            if item != Some((at.tree, this)) {
                self.judge(&tree, item.map(|(_, item)| item), &mem::take(&mut versions));
                item = Some((at.tree, this));
            }
            if at.tree != tree.number {
                tree = self.tree(at.tree)?;
            }
            versions.push((at.generation, value.is_empty()));
            self.row(at, this, value, extents);
            self.listed(at, this)?;
        }
        self.judge(&tree, item.map(|(_, item)| item), &versions);
        self.changes()
    }

    fn tree(&mut self, number: u64) -> Result<Tree> {
        let members = skip_damaged(self.reader.members(number))?.unwrap_or_default();
        let live = members
            .iter()
            .filter(|(_, _, state)| *state != MemberState::Shade);
        let (from, to) = tree_range(number);
        let first = self.reader.scan(Table::Doomed, &from)?.next();
        let doomed = match first.map(skip_damaged).transpose()? {
            None => false,
            Some(None) => true,
            Some(Some((key, _))) => key <= to.as_slice(),
        };
        if !self.is_owned(number)? {
            self.problems.add(ProblemKind::Tree, || {
                format!("tree {number} has rows and belongs to no volume")
            });
        }
        Ok(Tree {
            number,
            live: live.map(|(generation, _, _)| *generation).collect(),
            doomed,
        })
    }

    /// One row by itself.
    fn row(&mut self, at: At, item: Item, value: &[u8], extents: &mut Extents) {
        let directory = item.vnode % 2 == 1;
        let right = match item.kind {
            Kind::DirectoryVnode | Kind::Page | Kind::PageChange => directory,
            Kind::FileVnode | Kind::Record => !directory && item.vnode != 0,
        };
        if !right || at.generation == 0 {
            self.problems.add(ProblemKind::Vnode, || {
                format!(
                    "{}: no vnode {} has a {:?}",
                    place(at),
                    item.vnode,
                    item.kind
                )
            });
        }
        if value.is_empty() {
            if at.generation <= FIRST_GENERATION {
                self.problems.add(ProblemKind::Versions, || {
                    format!("{} hides nothing: nothing is before it", name(at, item))
                });
            }
            return;
        }
        let good = match item.kind {
            Kind::DirectoryVnode | Kind::FileVnode => VnodeRow::from_bytes(value)
                .is_some_and(|row| row.is_directory() == directory && item.index == 0),
            Kind::Page => unpack_page(value, &mut [0; afar_dir::PAGE_SIZE]).is_some(),
            Kind::PageChange => apply(value, &mut [0; afar_dir::PAGE_SIZE]).is_some(),
            Kind::Record => match Record::from_bytes(value) {
                Some(Record::Extent(extent)) => {
                    extents.push(&extent);
                    true
                }
                Some(Record::Inline {
                    codec,
                    plain,
                    stored,
                }) => {
                    plain <= MAX_RECORD && (codec != Codec::Raw || stored.len() == plain as usize)
                }
                None => false,
            },
        };
        if !good {
            self.malformed(|| name(at, item));
        }
    }

    /// From the first clone on each row is in the list of its generation's changes.
    fn listed(&mut self, at: At, item: Item) -> Result<()> {
        if at.generation > FIRST_GENERATION
            && let Some(None) =
                skip_damaged(self.reader.get(Table::Changes, &change_key(at, item)))?
        {
            self.problems.add(ProblemKind::Versions, || {
                format!("{} is not in the list of changes", name(at, item))
            });
        }
        Ok(())
    }

    /// Whether each version of an item is seen by some member of its tree.
    fn judge(&mut self, tree: &Tree, item: Option<Item>, versions: &[(u32, bool)]) {
        let Some(item) = item else { return };
        if tree.doomed || tree.live.is_empty() {
            return;
        }
        let mut older = false;
        for (index, &(generation, gone)) in versions.iter().enumerate() {
            let next = versions.get(index + 1).map(|(next, _)| *next);
            let from = tree.live.partition_point(|member| *member < generation);
            let first = tree.live.get(from);
            let seen = first.is_some_and(|member| next.is_none_or(|next| *member < next));
            if !seen || (gone && !older) {
                let at = At {
                    tree: tree.number,
                    generation,
                };
                self.problems.add(ProblemKind::Versions, || {
                    format!("{} is of no use to any volume", name(at, item))
                });
            }
            older |= seen && !gone;
        }
    }

    /// What is in the list of changes has to be there, unless its tree is being removed.
    fn changes(&mut self) -> Result<()> {
        for row in self.reader.scan(Table::Changes, &[])? {
            self.count_row()?;
            let Some((key, _)) = self.good(row)? else {
                continue;
            };
            let Some((at, item)) = split_change_key(key) else {
                self.malformed(|| format!("a row of the changes (key {key:02x?})"));
                continue;
            };
            let there = skip_damaged(self.reader.get(Table::Rows, &row_key(at, item)))?;
            if let Some(None) = there {
                let doomed = DoomedKey::tree(at.tree).to_bytes();
                let doomed = skip_damaged(self.reader.get(Table::Doomed, &doomed))?.flatten();
                if doomed.is_none() {
                    self.problems.add(ProblemKind::Versions, || {
                        format!("{} is in the list of changes and not there", name(at, item))
                    });
                }
            }
        }
        Ok(())
    }
}

/// Words for a versioned row.
pub(super) fn name(at: At, item: Item) -> String {
    let what = match item.kind {
        Kind::DirectoryVnode => "directory",
        Kind::FileVnode => "file",
        Kind::Page => "page",
        Kind::PageChange => "changes of page",
        Kind::Record => "record",
    };
    match item.kind {
        Kind::DirectoryVnode | Kind::FileVnode => {
            format!("{what} {} at {}", item.vnode, place(at))
        }
        Kind::Page | Kind::Record | Kind::PageChange => {
            format!(
                "{what} {} of vnode {} at {}",
                item.index,
                item.vnode,
                place(at)
            )
        }
    }
}
