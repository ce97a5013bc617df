//! The small tables: volumes, members of trees, what is to be removed.

use afar_types::{VolumeId, VolumeType};

use super::{Check, ProblemKind, STEP, Stage, skip_damaged};
use crate::error::{Result, StoreError};
use crate::meta::{
    At, DoomedKey, MemberState, Pair, Rows, Table, VolumeInfo, VolumeRow, member_key,
    split_dead_key, split_member_key, tree_range,
};
use crate::segment::Extent;

/// All tables but the versioned rows and their list of changes, which are walked with them.
fn small() -> impl Iterator<Item = Table> {
    Table::all().filter(|table| !matches!(table, Table::Rows | Table::Changes))
}

/// Members of one tree that volumes are: generation, number, whether it takes changes.
#[derive(Default)]
struct Tree {
    number: u64,
    live: Vec<(u32, u32, bool)>,
}

impl Check<'_> {
    pub(super) fn tables(&mut self) -> Result<()> {
        let next_tree = self.next_tree()?;
        for table in small() {
            let mut tree = Tree::default();
            for row in self.reader.scan(table, &[])? {
                self.count_row()?;
                let Some((key, value)) = self.good(row)? else {
                    continue;
                };
                match table {
                    Table::Volumes => self.volume_row(key, value, next_tree)?,
                    Table::Infos => self.info_row(key, value)?,
                    Table::Members => self.member_row(key, value, &mut tree)?,
                    Table::Unfinished => self.unfinished_row(key)?,
                    Table::Doomed => self.doomed_row(key)?,
                    Table::VnodeSlots => self.slot_row(key)?,
                    Table::DedupKeys => self.dedup_key_row(key, value)?,
                    // What lies in segments is compared with the records later on.
                    _ => {}
                }
            }
            self.end_tree(&tree);
        }
        Ok(())
    }

    /// Counts a row, and tells of it now and then.
    pub(super) fn count_row(&mut self) -> Result<()> {
        if self.report.rows.is_multiple_of(STEP) {
            let mut total = 0;
            for table in Table::all() {
                total += self.reader.count(table)?;
            }
            self.tell(Stage::Rows, self.report.rows, total);
        }
        self.report.rows += 1;
        Ok(())
    }

    /// A row, unless its checksum is wrong, which is noted.
    pub(super) fn good<'r>(&mut self, row: Result<Pair<'r>>) -> Result<Option<Pair<'r>>> {
        if let Err(StoreError::Corrupt { what, .. }) = &row {
            self.problems.add(ProblemKind::RowChecksum, || what.clone());
        }
        skip_damaged(row)
    }

    pub(super) fn malformed(&mut self, what: impl FnOnce() -> String) {
        self.problems.add(ProblemKind::RowFormat, what);
    }

    /// The number above those of all trees.
    fn next_tree(&mut self) -> Result<u64> {
        // A damaged row is noted when its table is walked.
        let Some(value) = skip_damaged(self.reader.get(Table::Settings, b"next-tree"))? else {
            return Ok(u64::MAX);
        };
        let Some(value) = value else { return Ok(1) };
        match value.try_into() {
            Ok(next) => Ok(u64::from_be_bytes(next)),
            Err(_) => {
                self.malformed(|| "the number of trees".to_owned());
                Ok(u64::MAX)
            }
        }
    }

    fn volume_row(&mut self, key: &[u8], value: &[u8], next_tree: u64) -> Result<()> {
        self.report.volumes += 1;
        let (Some(id), Some(row)) = (number(key), VolumeRow::from_bytes(value)) else {
            self.malformed(|| format!("row of a volume (key {key:02x?})"));
            return Ok(());
        };
        let volume = Some(VolumeId(id));
        let kind = ProblemKind::Volume;
        if id == 0 {
            self.problems
                .note(kind, volume, || "no volume has number 0".to_owned());
        }
        if row.tree == 0 || row.tree >= next_tree || row.generation == 0 {
            let at = row.at();
            self.problems.note(kind, volume, || {
                format!("{} was never given out", place(at))
            });
        }
        let member = self.reader.get(Table::Members, &member_key(row.at(), id));
        if let Some(state) = skip_damaged(member)?
            && state.and_then(MemberState::from_bytes) != Some(MemberState::Live)
        {
            let at = row.at();
            self.problems
                .note(kind, volume, || format!("is no member of {}", place(at)));
        }
        if let Some(None) = skip_damaged(self.reader.get(Table::Infos, key))? {
            self.problems
                .note(kind, volume, || "its information is missing".to_owned());
        }
        if let Some(noted) = skip_damaged(self.reader.get(Table::Unfinished, key))?
            && noted.is_some() != row.has(VolumeRow::DESTROY_ME)
        {
            self.problems.note(kind, volume, || {
                let half = if noted.is_some() { "" } else { "not " };
                format!("is {half}listed as unfinished, but its row says otherwise")
            });
        }
        Ok(())
    }

    fn info_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (Some(id), Some(_)) = (number(key), VolumeInfo::from_bytes(value)) else {
            self.malformed(|| format!("information of a volume (key {key:02x?})"));
            return Ok(());
        };
        self.needs_volume(id, "has information")
    }

    fn unfinished_row(&mut self, key: &[u8]) -> Result<()> {
        let Some(id) = number(key) else {
            self.malformed(|| format!("an unfinished volume (key {key:02x?})"));
            return Ok(());
        };
        self.needs_volume(id, "is listed as unfinished")
    }

    fn needs_volume(&mut self, id: u32, but: &str) -> Result<()> {
        if let Some(None) = skip_damaged(self.reader.get(Table::Volumes, &id.to_be_bytes()))? {
            self.problems
                .note(ProblemKind::Volume, Some(VolumeId(id)), || {
                    format!("{but}, and there is no such volume")
                });
        }
        Ok(())
    }

    fn member_row(&mut self, key: &[u8], value: &[u8], tree: &mut Tree) -> Result<()> {
        let (Some((at, id)), Some(state)) = (split_member_key(key), MemberState::from_bytes(value))
        else {
            self.malformed(|| format!("a tree's member (key {key:02x?})"));
            return Ok(());
        };
        if at.tree != tree.number {
            self.end_tree(tree);
            *tree = Tree {
                number: at.tree,
                live: Vec::new(),
            };
        }
        if state != MemberState::Live {
            return self.waiting_member(at, id, state);
        }
        let row = skip_damaged(self.reader.volume(id))?;
        match row {
            Some(Some(row)) if row.at() == at => {
                tree.live
                    .push((at.generation, id, row.kind == VolumeType::ReadWrite));
            }
            Some(_) => self
                .problems
                .note(ProblemKind::Volume, Some(VolumeId(id)), || {
                    format!("{} has it as a member, and it is not there", place(at))
                }),
            None => {}
        }
        Ok(())
    }

    /// A shade, or what is being filled, has to be in the list of what goes away.
    fn waiting_member(&mut self, at: At, id: u32, state: MemberState) -> Result<()> {
        let shade = DoomedKey::shade(at).to_bytes();
        let whole = DoomedKey::tree(at.tree).to_bytes();
        let doomed = skip_damaged(self.reader.get(Table::Doomed, &shade))?
            .flatten()
            .is_some()
            || skip_damaged(self.reader.get(Table::Doomed, &whole))?
                .flatten()
                .is_some();
        if !doomed || (state == MemberState::Shade) != (id == 0) {
            self.problems.add(ProblemKind::Tree, || {
                format!(
                    "{} has a member (volume {id}, {state:?}) nobody removes",
                    place(at)
                )
            });
        }
        Ok(())
    }

    /// What is written at a generation is seen by no clone only if none has it or a later one.
    fn end_tree(&mut self, tree: &Tree) {
        for &(generation, id, _) in tree.live.iter().filter(|(_, _, writable)| *writable) {
            let other = tree
                .live
                .iter()
                .find(|(g, v, _)| *v != id && *g >= generation);
            if let Some(&(_, other, _)) = other {
                self.problems
                    .note(ProblemKind::Volume, Some(VolumeId(id)), || {
                        format!("takes changes, and volume {other} of the same tree sees them")
                    });
            }
        }
    }

    fn doomed_row(&mut self, key: &[u8]) -> Result<()> {
        let Some(doomed) = DoomedKey::from_bytes(key) else {
            self.malformed(|| format!("a row of the doomed (key {key:02x?})"));
            return Ok(());
        };
        let members = skip_damaged(self.reader.members(doomed.tree))?.unwrap_or_default();
        let right = match doomed.generation {
            None => members
                .iter()
                .all(|(_, _, state)| *state != MemberState::Live),
            Some(generation) => members
                .iter()
                .any(|(g, _, state)| *g == generation && *state != MemberState::Live),
        };
        if !right {
            self.problems
                .add(ProblemKind::Tree, || match doomed.generation {
                    None => format!("tree {} is to be removed and has volumes", doomed.tree),
                    Some(generation) => {
                        let tree = doomed.tree;
                        format!(
                            "{} is to be removed and is not there",
                            place(At { tree, generation })
                        )
                    }
                });
        }
        Ok(())
    }

    fn slot_row(&mut self, key: &[u8]) -> Result<()> {
        let parts = key.split_first_chunk::<8>().and_then(|(tree, rest)| {
            let (parity, vnode) = rest.split_first()?;
            Some((u64::from_be_bytes(*tree), *parity, number(vnode)?))
        });
        let Some((tree, parity, vnode)) = parts else {
            self.malformed(|| format!("a free vnode number (key {key:02x?})"));
            return Ok(());
        };
        if vnode == 0 || vnode % 2 != u32::from(parity) {
            self.malformed(|| format!("free vnode number {vnode} of tree {tree}"));
        }
        self.needs_owner(tree)
    }

    /// A record that is known by a hash, and the hash by the record.
    fn dedup_key_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (Some((segment, offset)), 16) = (split_dead_key(key), value.len()) else {
            self.malformed(|| format!("the hash of a record (key {key:02x?})"));
            return Ok(());
        };
        let known = skip_damaged(self.reader.get(Table::Dedup, value))?;
        let extent = known.map(|row| row.and_then(|row| Extent::from_bytes(row).ok()));
        if let Some(extent) = extent
            && extent.map(|extent| (extent.segment, extent.offset)) != Some((segment, offset))
        {
            self.problems.add(ProblemKind::Segment, || {
                format!("segment {segment}: the record at {offset} has a hash that is not its own")
            });
        }
        Ok(())
    }

    /// Notes a tree that has rows and neither members nor an end.
    fn needs_owner(&mut self, tree: u64) -> Result<()> {
        if !self.is_owned(tree)? {
            self.problems.add(ProblemKind::Tree, || {
                format!("tree {tree} belongs to no volume")
            });
        }
        Ok(())
    }

    /// Whether a tree has members or is being removed.
    pub(super) fn is_owned(&self, tree: u64) -> Result<bool> {
        let (from, to) = tree_range(tree);
        for table in [Table::Members, Table::Doomed] {
            let first = self.reader.scan(table, &from)?.next();
            match first.map(skip_damaged).transpose()? {
                // A damaged row may be the one that is looked for.
                Some(None) => return Ok(true),
                Some(Some((key, _))) if key < to.as_slice() => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }
}

fn number(key: &[u8]) -> Option<u32> {
    key.try_into().ok().map(u32::from_be_bytes)
}

/// Words for a tree as of a generation.
pub(super) fn place(at: At) -> String {
    format!("generation {} of tree {}", at.generation, at.tree)
}
