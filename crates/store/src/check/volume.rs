//! The tree of a volume, as of its generation: directories against vnodes against records.

use std::mem;

use afar_dir::{Directory, PAGE_SIZE};
use afar_types::{AclRecord, VolumeId};

use super::{Check, ProblemKind, Stage, skip_damaged};
use crate::error::Result;
use crate::meta::{
    At, Item, Kind, MemberState, Record, Rows, Scan, Table, VnodeRow, VolumeRow, row_key,
    split_member_key, split_row_key,
};
use crate::vnode::{full_acl, make_page};

/// What is kept of a vnode while its volume is checked.
struct Node {
    vnode: u32,
    uniquifier: u32,
    link_count: u32,
    parent: u32,
    length: u64,
    directory: bool,
    record_shift: u8,
    /// Whether the way up from it ends at the root. Unknown at first.
    rooted: Option<bool>,
    /// Entries that name it.
    names: u32,
    /// Entries in it that name directories.
    subdirectories: u32,
}

/// The vnodes of a volume.
#[derive(Default)]
struct Nodes {
    directories: Vec<Node>,
    files: Vec<Node>,
}

impl Nodes {
    fn get(&mut self, vnode: u32) -> Option<&mut Node> {
        let list = if vnode % 2 == 1 {
            &mut self.directories
        } else {
            &mut self.files
        };
        let at = list.binary_search_by_key(&vnode, |node| node.vnode).ok()?;
        list.get_mut(at)
    }
}

/// Rows of one kind as a member sees them, without those that are damaged.
struct Seen<'a> {
    rows: Scan<'a>,
    at: At,
    kind: Kind,
    best: Option<(Item, &'a [u8])>,
}

impl<'a> Seen<'a> {
    fn new(rows: &'a impl Rows, at: At, kind: Kind) -> Result<Self> {
        let from = At {
            tree: at.tree,
            generation: 0,
        };
        let first = Item {
            kind,
            vnode: 0,
            index: 0,
        };
        Ok(Self {
            rows: rows.scan(Table::Rows, &row_key(from, first))?,
            at,
            kind,
            best: None,
        })
    }

    /// The next item there is.
    fn next(&mut self) -> Result<Option<(Item, &'a [u8])>> {
        loop {
            let row = match self.rows.next().map(skip_damaged).transpose()? {
                None => None,
                Some(None) => continue,
                Some(Some((key, value))) => match split_row_key(key) {
                    None => continue,
                    Some((at, item)) => Some((at, item, value)),
                },
            };
            let row = row.filter(|(at, item, _)| at.tree == self.at.tree && item.kind == self.kind);
            let Some((at, item, value)) = row else {
                return Ok(self.best.take().filter(|(_, value)| !value.is_empty()));
            };
            let seen = at.generation <= self.at.generation;
            let done = match self.best {
                Some((same, _)) if same == item => {
                    if seen {
                        self.best = Some((item, value));
                    }
                    None
                }
                _ => mem::replace(&mut self.best, seen.then_some((item, value))),
            };
            if let Some(done) = done.filter(|(_, value)| !value.is_empty()) {
                return Ok(Some(done));
            }
        }
    }
}

impl Check<'_> {
    /// Checks every volume and clone.
    pub(super) fn volumes(&mut self) -> Result<()> {
        let total = self.report.volumes;
        for (done, row) in self.reader.scan(Table::Members, &[])?.enumerate() {
            self.tell(Stage::Volumes, done as u64, total);
            let Some((key, value)) = skip_damaged(row)? else {
                continue;
            };
            let member = split_member_key(key);
            if let Some((at, id)) = member
                && MemberState::from_bytes(value) == Some(MemberState::Live)
                && let Some(Some(row)) = skip_damaged(self.reader.volume(id))?
                && row.at() == at
            {
                self.volume(VolumeId(id), &row)?;
            }
        }
        Ok(())
    }

    fn volume(&mut self, id: VolumeId, row: &VolumeRow) -> Result<()> {
        let at = row.at();
        let mut volume = Tree {
            check: self,
            id,
            at,
            nodes: Nodes::default(),
        };
        let nodes = volume.vnodes()?;
        volume.pages()?;
        volume.records()?;
        volume.links();
        volume.roots();
        volume.counts(row, &nodes);
        Ok(())
    }
}

/// Sums over the vnodes of a volume.
#[derive(Default)]
struct Sums {
    count: u64,
    blocks: u64,
    uniquifier: u32,
    directory: u32,
    file: u32,
}

struct Tree<'t, 'a> {
    check: &'t mut Check<'a>,
    id: VolumeId,
    at: At,
    nodes: Nodes,
}

impl Tree<'_, '_> {
    fn note(&mut self, kind: ProblemKind, what: impl FnOnce() -> String) {
        self.check.problems.note(kind, Some(self.id), what);
    }

    /// Takes in all vnodes.
    fn vnodes(&mut self) -> Result<Sums> {
        let mut sums = Sums::default();
        for kind in [Kind::DirectoryVnode, Kind::FileVnode] {
            let reader = self.check.reader;
            let mut rows = Seen::new(&**reader, self.at, kind)?;
            while let Some((item, value)) = rows.next()? {
                // What cannot be read was noted when all rows were gone through.
                let Some(row) = VnodeRow::from_bytes(value) else {
                    continue;
                };
                sums.count += 1;
                sums.blocks += row.blocks();
                sums.uniquifier = sums.uniquifier.max(row.uniquifier);
                let last = if kind == Kind::FileVnode {
                    &mut sums.file
                } else {
                    &mut sums.directory
                };
                *last = (*last).max(item.vnode);
                self.vnode(item.vnode, &row);
                let list = match kind {
                    Kind::DirectoryVnode => &mut self.nodes.directories,
                    _ => &mut self.nodes.files,
                };
                list.push(Node {
                    vnode: item.vnode,
                    uniquifier: row.uniquifier,
                    link_count: row.link_count,
                    parent: row.parent,
                    length: row.length,
                    directory: row.is_directory(),
                    record_shift: row.record_shift,
                    rooted: None,
                    names: 0,
                    subdirectories: 0,
                });
            }
        }
        self.check.report.vnodes += sums.count;
        Ok(sums)
    }

    /// What can be said of a vnode by itself.
    fn vnode(&mut self, vnode: u32, row: &VnodeRow) {
        if row.is_directory() {
            if let Err(error) = AclRecord::from_bytes(&full_acl(&row.acl)) {
                self.note(ProblemKind::Vnode, || {
                    format!("ACL of directory {vnode}: {error}")
                });
            }
        } else if !row.acl.is_empty() {
            self.note(ProblemKind::Vnode, || {
                format!("vnode {vnode} is no directory and has an ACL")
            });
        }
        if row.uniquifier == 0 {
            self.note(ProblemKind::Vnode, || {
                format!("vnode {vnode} has no uniquifier")
            });
        }
    }

    /// Puts the pages of each directory together, and checks it.
    fn pages(&mut self) -> Result<()> {
        let reader = self.check.reader;
        let mut rows = Seen::new(&**reader, self.at, Kind::Page)?;
        let mut next = rows.next()?;
        for index in 0..self.nodes.directories.len() {
            let vnode = self.nodes.directories[index].vnode;
            let mut data = Vec::new();
            let mut whole = true;
            while let Some((item, value)) = next.filter(|(item, _)| item.vnode <= vnode) {
                if item.vnode < vnode {
                    self.stray(item);
                } else {
                    let expected = data.len() / PAGE_SIZE;
                    let changes = Item::page_change(vnode, item.index);
                    let page = skip_damaged(reader.row(self.at, changes))?
                        .and_then(|changes| make_page(value, changes))
                        .filter(|_| item.index == expected as u64)
                        .filter(|_| expected < afar_dir::MAX_PAGES);
                    whole &= page.is_some();
                    if let Some(page) = page.filter(|_| whole) {
                        data.extend_from_slice(&page);
                    }
                }
                next = rows.next()?;
            }
            let length = self.nodes.directories[index].length;
            if !whole || data.len() as u64 != length {
                let pages = data.len() / PAGE_SIZE;
                self.note(ProblemKind::Directory, || {
                    format!("directory {vnode} of {length} bytes has {pages} good pages in a row")
                });
            }
            if let Err(problems) = afar_dir::check(&data) {
                for problem in problems {
                    self.note(ProblemKind::Directory, || {
                        format!("directory {vnode}: {problem}")
                    });
                }
            }
            self.entries(index, &data);
        }
        while let Some((item, _)) = next {
            self.stray(item);
            next = rows.next()?;
        }
        let mut changes = Seen::new(&**reader, self.at, Kind::PageChange)?;
        while let Some((item, _)) = changes.next()? {
            let page = Item::page(item.vnode, item.index);
            if let Some(None) = skip_damaged(reader.row(self.at, page))? {
                self.note(ProblemKind::Directory, || {
                    format!(
                        "changes of page {} of vnode {}, which is not there",
                        item.index, item.vnode
                    )
                });
            }
        }
        Ok(())
    }

    fn stray(&mut self, item: Item) {
        let what = if item.kind == Kind::Page {
            "page"
        } else {
            "record"
        };
        self.note(ProblemKind::Vnode, || {
            format!(
                "{what} {} of vnode {}, which is not there",
                item.index, item.vnode
            )
        });
    }

    /// Follows the entries of a directory.
    fn entries(&mut self, index: usize, data: &[u8]) {
        let Ok(directory) = Directory::new(data) else {
            return;
        };
        let (own, uniquifier, parent) = {
            let node = &self.nodes.directories[index];
            (node.vnode, node.uniquifier, node.parent)
        };
        // The root is above itself.
        let above = if parent == 0 { own } else { parent };
        let above = (above, self.nodes.get(above).map(|node| node.uniquifier));
        let mut subdirectories = 0;
        // Damaged entries are noted with the directory.
        for entry in directory.entries().flatten() {
            let (vnode, entry_uniquifier) = (entry.id.vnode.0, entry.id.uniquifier.0);
            let found = (vnode, Some(entry_uniquifier));
            let name = || String::from_utf8_lossy(entry.name).into_owned();
            let right = match entry.name {
                b"." => found == (own, Some(uniquifier)),
                b".." => found == above,
                _ => match self
                    .nodes
                    .get(vnode)
                    .filter(|node| node.uniquifier == entry_uniquifier)
                {
                    None => false,
                    Some(node) => {
                        node.names += 1;
                        subdirectories += u32::from(node.directory);
                        let parent = node.parent;
                        if parent != own {
                            self.note(ProblemKind::Links, || {
                                format!(
                                    "vnode {vnode} is in directory {own} as {:?}, and says it is \
                                     in {parent}",
                                    name()
                                )
                            });
                        }
                        true
                    }
                },
            };
            if !right {
                self.note(ProblemKind::Entry, || {
                    format!(
                        "entry {:?} of directory {own} names vnode {vnode} with uniquifier \
                         {entry_uniquifier}, which is wrong",
                        name()
                    )
                });
            }
        }
        self.nodes.directories[index].subdirectories = subdirectories;
    }

    /// Checks that records lie within their files.
    fn records(&mut self) -> Result<()> {
        let reader = self.check.reader;
        let mut rows = Seen::new(&**reader, self.at, Kind::Record)?;
        while let Some((item, value)) = rows.next()? {
            let Some(record) = Record::from_bytes(value) else {
                continue;
            };
            let Some(node) = self.nodes.get(item.vnode) else {
                self.stray(item);
                continue;
            };
            let (length, shift) = (node.length, node.record_shift);
            let plain = u64::from(record.plain_len());
            let start = item.index.checked_mul(1 << shift);
            let end = start.and_then(|start| start.checked_add(plain));
            if plain > 1 << shift || end.is_none_or(|end| end > length) {
                self.note(ProblemKind::Record, || {
                    format!(
                        "record {} of vnode {} has {plain} bytes of {}, in a file of {length}",
                        item.index,
                        item.vnode,
                        1_u64 << shift
                    )
                });
            }
        }
        Ok(())
    }

    /// Compares counts of links with the entries found.
    fn links(&mut self) {
        let nodes = mem::take(&mut self.nodes);
        for node in nodes.directories.iter().chain(&nodes.files) {
            let vnode = node.vnode;
            let root = vnode == 1;
            if node.names == 0 && !root {
                self.note(ProblemKind::Orphan, || {
                    format!("no entry names vnode {vnode}")
                });
            }
            let expected = if node.directory {
                node.subdirectories.saturating_add(2)
            } else {
                node.names
            };
            let named_twice = node.directory && node.names > u32::from(!root);
            if node.link_count != expected && node.names + u32::from(root) > 0 || named_twice {
                let (count, names) = (node.link_count, node.names);
                self.note(ProblemKind::Links, || {
                    format!(
                        "vnode {vnode} has {names} names and {expected} links, and counts {count}"
                    )
                });
            }
        }
        self.nodes = nodes;
    }

    /// Checks that the way up from each directory ends at the root.
    fn roots(&mut self) {
        let empty = self.nodes.directories.is_empty() && self.nodes.files.is_empty();
        match self.nodes.get(1) {
            Some(root) => {
                root.rooted = Some(true);
                let parent = root.parent;
                if parent != 0 {
                    self.note(ProblemKind::Links, || {
                        format!("the root directory says it is in {parent}")
                    });
                }
            }
            // A dump is to be restored into it.
            None if empty => {}
            None => self.note(ProblemKind::Vnode, || {
                "there is no root directory".to_owned()
            }),
        }
        let mut way = Vec::new();
        for index in 0..self.nodes.directories.len() {
            let mut at = self.nodes.directories[index].vnode;
            way.clear();
            // A directory on the way counts as not rooted until its end is known: who meets it
            // again runs in a circle.
            let rooted = loop {
                match self.nodes.get(at) {
                    None => break false,
                    Some(node) => match node.rooted {
                        Some(rooted) => break rooted,
                        None => {
                            node.rooted = Some(false);
                            way.push(at);
                            at = node.parent;
                        }
                    },
                }
            };
            for &vnode in &way {
                if let Some(node) = self.nodes.get(vnode) {
                    node.rooted = Some(rooted);
                }
                if !rooted {
                    self.note(ProblemKind::Orphan, || {
                        format!("directory {vnode} is not below the root")
                    });
                }
            }
        }
    }

    /// Compares the volume's row with what there is.
    fn counts(&mut self, row: &VolumeRow, sums: &Sums) {
        let mut compare = |what: &str, counted: u64, found: u64, right: bool| {
            if !right {
                self.note(ProblemKind::VolumeCounts, || {
                    format!("{what}: its row says {counted}, but it is {found}")
                });
            }
        };
        let (used, files) = (row.disk_used, u64::from(row.file_count));
        compare("KiB used", used, sums.blocks, used == sums.blocks);
        compare("vnodes", files, sums.count, files == sums.count);
        for (what, counted, found) in [
            ("last uniquifier", row.uniquifier, sums.uniquifier),
            ("last directory", row.last_directory, sums.directory),
            ("last file", row.last_file, sums.file),
        ] {
            compare(what, counted.into(), found.into(), counted >= found);
        }
    }
}
