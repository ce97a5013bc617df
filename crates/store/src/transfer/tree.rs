//! Whether what was restored makes up a sound tree.

use std::collections::BTreeMap;

use afar_dir::{Directory, EntryId};
use afar_types::VolumeId;

use super::batch::Batch;
use super::existing::Existing;
use super::load::drop_vnode;
use super::set::VnodeSet;
use crate::error::{Result, StoreError};
use crate::meta::{At, Rows, VnodeRow, blocks};
use crate::partition::{Partition, Reader};

const ROOT: u32 = 1;

/// What the tree comes to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) vnodes: u32,
    /// KiB.
    pub(super) blocks: u64,
    pub(super) orphans: u64,
    pub(super) link_counts: u64,
}

/// Goes through a tree from its root.
///
/// Every vnode names the directory it is in, and each entry must agree with that. So no vnode is
/// reached twice and none from below itself, and those reached need only be counted: if they are
/// as many as there are, there is nothing else.
pub(super) struct Tree<'t, 'p> {
    partition: &'p Partition,
    at: At,
    id: VolumeId,
    batch: &'t mut Batch<'p>,
    usage: Usage,
    /// Directories reached and not yet gone through.
    left: Vec<u32>,
    /// Those reached, if there are others.
    reached: Option<VnodeSet>,
    pages: Vec<u8>,
}

impl<'t, 'p> Tree<'t, 'p> {
    pub(super) fn new(
        partition: &'p Partition,
        at: At,
        id: VolumeId,
        batch: &'t mut Batch<'p>,
    ) -> Self {
        Self {
            partition,
            at,
            id,
            batch,
            usage: Usage::default(),
            left: Vec::new(),
            reached: None,
            pages: Vec::new(),
        }
    }

    /// Checks the tree, puts link counts right, and leaves out what has no name. `listed` vnodes
    /// are in it.
    pub(super) fn check(mut self, listed: u64) -> Result<Usage> {
        self.walk()?;
        if u64::from(self.usage.vnodes) != listed {
            let first = std::mem::take(&mut self.usage);
            self.reached = Some(VnodeSet::default());
            self.walk()?;
            self.usage = first;
            self.leave_out()?;
        }
        Ok(self.usage)
    }

    fn bad(&self, what: impl Into<String>) -> StoreError {
        StoreError::BadDump {
            volume: self.id,
            what: what.into(),
        }
    }

    fn walk(&mut self) -> Result<()> {
        let reader = self.partition.reader()?;
        let root = reader.vnode(self.at, ROOT)?;
        let root = root.ok_or_else(|| self.bad("it has no root directory (vnode 1)"))?;
        if root.parent != 0 {
            return Err(self.bad(format!(
                "the root directory is in directory {}",
                root.parent
            )));
        }
        drop(reader);
        self.left.push(ROOT);
        while let Some(vnode) = self.left.pop() {
            self.directory(vnode)?;
        }
        Ok(())
    }

    fn directory(&mut self, vnode: u32) -> Result<()> {
        let reader = self.partition.reader()?;
        let row = self.find(&reader, vnode)?;
        let above = match row.parent {
            0 => EntryId::new(vnode, row.uniquifier),
            parent => EntryId::new(parent, self.find(&reader, parent)?.uniquifier),
        };
        let names = self.names(&reader, vnode, &row, above)?;
        let mut directories = 0;
        for (child, (uniquifier, count)) in names {
            let row = reader
                .vnode(self.at, child)?
                .filter(|row| row.uniquifier == uniquifier);
            let row = row.ok_or_else(|| {
                self.bad(format!(
                    "an entry of directory {vnode} names vnode {child} with uniquifier \
                     {uniquifier}, which is not there"
                ))
            })?;
            if row.parent != vnode {
                return Err(self.bad(format!(
                    "vnode {child} is in directory {} and has a name in directory {vnode}",
                    row.parent
                )));
            }
            if row.is_directory() {
                if count > 1 {
                    return Err(self.bad(format!(
                        "directory {child} has {count} names in directory {vnode}"
                    )));
                }
                directories += 1;
                self.left.push(child);
            } else {
                self.count(child, row, count)?;
            }
        }
        self.count(vnode, row, directories + 2)
    }

    fn find(&self, reader: &Reader, vnode: u32) -> Result<VnodeRow> {
        let row = reader.vnode(self.at, vnode)?;
        row.ok_or_else(|| self.bad(format!("vnode {vnode} is not there")))
    }

    /// What a directory's entries name: uniquifier and number of names, by vnode.
    fn names(
        &mut self,
        reader: &Reader,
        vnode: u32,
        row: &VnodeRow,
        above: EntryId,
    ) -> Result<BTreeMap<u32, (u32, u32)>> {
        let mut pages = std::mem::take(&mut self.pages);
        // A directory has at most 2 MiB.
        pages.resize(usize::try_from(row.length).unwrap_or(0), 0);
        self.partition
            .read_data(&**reader, self.at, vnode, row, 0, &mut pages)?;
        let damaged = |error| self.bad(format!("directory {vnode} is damaged: {error}"));
        let directory = Directory::new(&pages).map_err(damaged)?;
        let own = EntryId::new(vnode, row.uniquifier);
        let mut names: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for entry in directory.entries() {
            let entry = entry.map_err(damaged)?;
            let (child, uniquifier) = (entry.id.vnode.0, entry.id.uniquifier.0);
            let expected = match entry.name {
                b"." => own,
                b".." => above,
                _ => {
                    let (same, count) = names.entry(child).or_insert((uniquifier, 0));
                    *count += 1;
                    if *same != uniquifier {
                        return Err(self.bad(format!(
                            "entries of directory {vnode} name vnode {child} with uniquifiers \
                             {same} and {uniquifier}"
                        )));
                    }
                    continue;
                }
            };
            if entry.id != expected {
                return Err(self.bad(format!(
                    "entry {:?} of directory {vnode} names vnode {child}.{uniquifier}, not {}.{}",
                    String::from_utf8_lossy(entry.name),
                    expected.vnode,
                    expected.uniquifier,
                )));
            }
        }
        self.pages = pages;
        Ok(names)
    }

    /// Counts a vnode with so many links.
    fn count(&mut self, vnode: u32, mut row: VnodeRow, links: u32) -> Result<()> {
        if let Some(reached) = &mut self.reached {
            reached.insert(vnode);
            return Ok(());
        }
        self.usage.vnodes += 1;
        self.usage.blocks += blocks(row.length);
        if row.link_count != links {
            row.link_count = links;
            self.usage.link_counts += 1;
            self.batch.vnode(vnode, row)?;
        }
        Ok(())
    }

    /// Removes vnodes that were not reached. OpenAFS keeps such orphans, unseen and counted, until
    /// a salvage.
    fn leave_out(&mut self) -> Result<()> {
        let Some(reached) = self.reached.take() else {
            return Ok(());
        };
        let mut all = Existing::new(self.partition, self.at);
        let mut settled = VnodeSet::default();
        while let Some((item, row)) = all.peek()? {
            let (item, directory) = (*item, row.is_directory());
            all.pop();
            if reached.contains(item.vnode) {
                continue;
            }
            if directory {
                self.check_above(item.vnode, &reached, &mut settled)?;
            }
            drop_vnode(self.batch, self.partition, self.at, item)?;
            self.usage.orphans += 1;
        }
        Ok(())
    }

    /// Whether a directory without a name is in itself, by way of others.
    fn check_above(&self, from: u32, reached: &VnodeSet, settled: &mut VnodeSet) -> Result<()> {
        let reader = self.partition.reader()?;
        let mut path = VnodeSet::default();
        let mut vnode = from;
        while !reached.contains(vnode) && !settled.contains(vnode) {
            if !path.insert(vnode) {
                return Err(self.bad(format!("directory {vnode} is below itself")));
            }
            match reader.vnode(self.at, vnode)? {
                Some(row) if row.parent != 0 => vnode = row.parent,
                _ => break,
            }
        }
        settled.add(path);
        Ok(())
    }
}
