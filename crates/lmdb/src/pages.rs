//! Looking at the database's pages without LMDB.
//!
//! What is used before LMDB asks about pages is read here: the two that begin the file. A database that
//! has no checksums yet is walked before it gets them, and so is all of it in a check.
//!
//! Numbers are in the machine's own byte order, as LMDB writes them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::sums::Sums;
use crate::{OpenError, SUMS, damaged};

const MAGIC: u32 = 0xbeef_c0de;
/// The one format of data files there is.
const VERSION: u32 = 1;
/// Bytes before a page's contents.
const HEADER: usize = 16;
/// Bytes of a meta page that are used.
const META: usize = HEADER + 136;
/// Where a meta page's body has what each commit writes.
const WRITTEN: usize = 16;
/// Bytes of what is said of one tree.
const TREE: usize = 48;
/// Bytes before a node's key.
const NODE: usize = 8;
/// Names of the two trees that have none; those of others have no parentheses.
const FREE: &str = "(free pages)";
const MAIN: &str = "(tables)";
/// The root of a tree that has no pages.
const NO_PAGE: u64 = u64::MAX;
/// Deeper than any tree is.
const DEPTH: u16 = 32;
/// After so many problems no more are looked for.
const LIMIT: usize = 100;

const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const META_PAGE: u16 = 8;
/// Flags that say what a page is.
const SORT: u16 = 0x6f;

const BIG_DATA: u16 = 1;
const SUB_TREE: u16 = 2;

/// What a meta page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetaPage {
    /// The commit it is of.
    pub(crate) commit: u64,
    page_size: u64,
    last_page: u64,
    free: Tree,
    main: Tree,
    /// The checksum of what a commit writes of it.
    sum: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tree {
    depth: u16,
    branches: u64,
    leaves: u64,
    overflow: u64,
    entries: u64,
    root: u64,
}

impl MetaPage {
    /// The meta pages that look like ones.
    pub(crate) fn read(file: &File) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        let mut at = 0;
        for _ in 0..2 {
            let mut bytes = [0; META];
            match file.read_exact_at(&mut bytes, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            let Some(meta) = Self::parse(&bytes) else {
                break;
            };
            at = meta.page_size;
            found.push(meta);
        }
        Ok(found)
    }

    fn parse(bytes: &[u8; META]) -> Option<Self> {
        let body = &bytes[HEADER..];
        let page_size = u64::from(u32_at(body, 24)?);
        let right = u16_at(bytes, 10)? & META_PAGE != 0
            && u32_at(body, 0)? == MAGIC
            && u32_at(body, 4)? == VERSION
            && page_size.is_power_of_two()
            && (512..=65_536).contains(&page_size);
        right.then_some(())?;
        Some(Self {
            commit: u64_at(body, 128)?,
            page_size,
            last_page: u64_at(body, 120)?,
            free: Tree::parse(body.get(24..24 + TREE)?)?,
            main: Tree::parse(body.get(24 + TREE..24 + 2 * TREE)?)?,
            sum: xxh3_64(body.get(WRITTEN..)?),
        })
    }

    /// Bytes of a page.
    pub(crate) fn page_size(&self) -> u64 {
        self.page_size
    }

    /// The checksum of what a commit writes of it.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// Bytes of the file with all pages that were ever used.
    pub(crate) fn file_len(&self) -> Option<u64> {
        self.last_page.checked_add(1)?.checked_mul(self.page_size)
    }
}

impl Tree {
    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            depth: u16_at(bytes, 6)?,
            branches: u64_at(bytes, 8)?,
            leaves: u64_at(bytes, 16)?,
            overflow: u64_at(bytes, 24)?,
            entries: u64_at(bytes, 32)?,
            root: u64_at(bytes, 40)?,
        })
    }
}

/// Refuses a database without checksums whose pages are damaged or cut off, and gives its file the length
/// that it has to have.
///
/// The file may end before its last page if that is a free one which was never written.
pub(crate) fn lengthen(
    file: &File,
    path: &Path,
    meta: &MetaPage,
    map_size: u64,
) -> Result<(), OpenError> {
    let named = |source| OpenError::Io {
        file: path.to_owned(),
        source,
    };
    let len = file.metadata().map_err(named)?.len();
    if let Some(problem) = verify(file, meta, None).map_err(named)?.first() {
        return Err(damaged(path, problem));
    }
    let Some(needed) = meta
        .file_len()
        .filter(|needed| *needed <= map_size.max(1 << 40))
    else {
        return Err(damaged(path, "its meta page is damaged"));
    };
    if len < needed {
        file.set_len(needed).map_err(named)?;
    }
    Ok(())
}

/// Goes through all pages that can be reached from a meta page, and compares them with their
/// checksums if there are any. They must not change meanwhile. Returns what is wrong, in words.
pub(crate) fn verify(file: &File, meta: &MetaPage, sums: Option<&Sums>) -> io::Result<Vec<String>> {
    let file_len = file.metadata()?.len();
    let mut walk = Walk {
        file,
        sums,
        size: usize::try_from(meta.page_size).unwrap_or(usize::MAX),
        // Pages behind the end of the file are never used ones.
        pages: (meta.last_page.saturating_add(1)).min(file_len / meta.page_size),
        seen: Vec::new(),
        problems: Vec::new(),
    };
    let words = usize::try_from(walk.pages / 64 + 1).unwrap_or(usize::MAX);
    walk.seen = vec![0; words];
    for (tree, main) in [(meta.free, false), (meta.main, true)] {
        let trees = walk.tree(&tree, if main { MAIN } else { FREE })?;
        if !main && !trees.is_empty() {
            walk.note("the tree of free pages holds other trees".to_owned());
        }
        for (name, tree) in trees {
            walk.tree(&tree, &name)?;
        }
    }
    Ok(walk.problems)
}

struct Walk<'f> {
    file: &'f File,
    sums: Option<&'f Sums>,
    size: usize,
    /// Pages there are; those behind must not be used.
    pages: u64,
    /// A bit for each page that was met.
    seen: Vec<u64>,
    problems: Vec<String>,
}

#[derive(Default)]
struct Counts {
    branches: u64,
    leaves: u64,
    overflow: u64,
    entries: u64,
}

impl Walk<'_> {
    fn note(&mut self, what: String) {
        if self.problems.len() < LIMIT {
            self.problems.push(what);
        }
    }

    /// Whether a page has the checksum it has to have.
    fn is_right(&self, page: u64, bytes: &[u8]) -> io::Result<bool> {
        let Some(sums) = self.sums else {
            return Ok(true);
        };
        Ok(sums.expected(page)? == Some(sums.sum(page, bytes)))
    }

    /// Takes a page that nothing else may refer to.
    fn take(&mut self, page: u64) -> bool {
        if page < 2 || page >= self.pages {
            return false;
        }
        let Some(word) = usize::try_from(page / 64)
            .ok()
            .and_then(|at| self.seen.get_mut(at))
        else {
            return false;
        };
        let bit = 1 << (page % 64);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Goes through a tree, and returns those its leaves hold.
    fn tree(&mut self, tree: &Tree, name: &str) -> io::Result<Vec<(String, Tree)>> {
        let mut trees = Vec::new();
        let mut counts = Counts::default();
        // Page and its height; leaves have height 1.
        let mut left = Vec::new();
        if tree.root != NO_PAGE {
            if tree.depth == 0 || tree.depth > DEPTH {
                self.note(format!("tree {name}: it has depth {}", tree.depth));
                return Ok(trees);
            }
            left.push((tree.root, tree.depth));
        }
        let mut bytes = vec![0; self.size];
        while let Some((page, height)) = left.pop() {
            if self.problems.len() >= LIMIT {
                return Ok(trees);
            }
            if !self.take(page) {
                self.note(format!(
                    "tree {name}: page {page} is missing, or used twice"
                ));
                continue;
            }
            self.file
                .read_exact_at(&mut bytes, page * self.size as u64)?;
            if !self.is_right(page, &bytes)? {
                self.note(format!(
                    "tree {name}: page {page} does not match its checksum in {SUMS}"
                ));
                continue;
            }
            let sort = if height == 1 { LEAF } else { BRANCH };
            let Some(nodes) = nodes(&bytes, page, sort) else {
                self.note(format!("tree {name}: page {page} is damaged"));
                continue;
            };
            if !is_sorted(&bytes, &nodes, sort, name == FREE) {
                self.note(format!(
                    "tree {name}: the keys of page {page} are out of order"
                ));
            }
            if sort == BRANCH {
                counts.branches += 1;
                left.extend(nodes.iter().map(|node| (node.child, height - 1)));
                continue;
            }
            counts.leaves += 1;
            counts.entries += nodes.len() as u64;
            for node in nodes {
                self.value(&bytes, &node, name, &mut counts, &mut trees)?;
            }
        }
        let found = (
            counts.branches,
            counts.leaves,
            counts.overflow,
            counts.entries,
        );
        if found != (tree.branches, tree.leaves, tree.overflow, tree.entries) {
            self.note(format!(
                "tree {name}: its counts of pages or entries are wrong"
            ));
        }
        Ok(trees)
    }

    /// Looks at what a leaf's node holds, if that is not simply in the page.
    fn value(
        &mut self,
        bytes: &[u8],
        node: &Node,
        name: &str,
        counts: &mut Counts,
        trees: &mut Vec<(String, Tree)>,
    ) -> io::Result<()> {
        let data = bytes.get(node.data..).unwrap_or_default();
        if node.flags == SUB_TREE {
            let key = bytes.get(node.key..node.data).unwrap_or_default();
            let own = String::from_utf8_lossy(key).into_owned();
            match data
                .get(..TREE)
                .filter(|_| name == MAIN && node.len == TREE)
            {
                Some(tree) => trees.extend(Tree::parse(tree).map(|tree| (own, tree))),
                None => self.note(format!("tree {name}: {own:?} is not a tree")),
            }
            return Ok(());
        }
        if node.flags != BIG_DATA {
            return Ok(());
        }
        let first = u64_at(data, 0).unwrap_or(NO_PAGE);
        let needed = (HEADER + node.len).div_ceil(self.size) as u64;
        let mut header = [0; HEADER];
        let there = first < self.pages && needed <= self.pages - first;
        if there {
            self.file
                .read_exact_at(&mut header, first * self.size as u64)?;
        }
        let has = u64::from(u32_at(&header, 12).unwrap_or(0));
        let right = there
            && u64_at(&header, 0) == Some(first)
            && u16_at(&header, 10).is_some_and(|flags| flags & SORT == OVERFLOW)
            // A value that was made smaller by the transaction that wrote it keeps its pages.
            && has >= needed
            && has <= self.pages - first
            && (first..first + has).all(|page| self.take(page));
        if !right {
            self.note(format!(
                "tree {name}: overflow page {first} is damaged, or used twice"
            ));
        }
        counts.overflow += if right { has } else { needed };
        let mut bytes = vec![0; self.size];
        for page in first..first + if right { has } else { 0 } {
            self.file
                .read_exact_at(&mut bytes, page * self.size as u64)?;
            if !self.is_right(page, &bytes)? {
                self.note(format!(
                    "tree {name}: page {page} does not match its checksum in {SUMS}"
                ));
            }
        }
        Ok(())
    }
}

struct Node {
    key: usize,
    data: usize,
    /// Bytes of the value.
    len: usize,
    flags: u16,
    /// The page below, of a branch's node.
    child: u64,
}

/// The nodes of a page, if all of them lie within it.
fn nodes(bytes: &[u8], page: u64, sort: u16) -> Option<Vec<Node>> {
    let (lower, upper) = (
        usize::from(u16_at(bytes, 12)?),
        usize::from(u16_at(bytes, 14)?),
    );
    let right = u64_at(bytes, 0)? == page
        && u16_at(bytes, 10)? & SORT == sort
        && lower > HEADER
        && lower % 2 == 0
        && lower <= upper
        && upper <= bytes.len();
    right.then_some(())?;
    let mut nodes = Vec::with_capacity((lower - HEADER) / 2);
    for at in (HEADER..lower).step_by(2) {
        let start = usize::from(u16_at(bytes, at)?);
        if start < upper {
            return None;
        }
        let (mut low, mut high) = (u16_at(bytes, start)?, u16_at(bytes, start + 2)?);
        if cfg!(target_endian = "big") {
            (low, high) = (high, low);
        }
        let (flags, key_len) = (
            u16_at(bytes, start + 4)?,
            usize::from(u16_at(bytes, start + 6)?),
        );
        let number = u32::from(high) << 16 | u32::from(low);
        let key = start + NODE;
        let data = key + key_len;
        let len = usize::try_from(number).ok()?;
        let inside = match (sort, flags) {
            (BRANCH, _) => 0,
            (_, 0 | SUB_TREE) => len,
            (_, BIG_DATA) => size_of::<u64>(),
            _ => return None,
        };
        if data.checked_add(inside)? > bytes.len() {
            return None;
        }
        nodes.push(Node {
            key,
            data,
            len,
            flags,
            child: u64::from(flags) << 32 | u64::from(number),
        });
    }
    Some(nodes)
}

/// Whether keys rise. The first one of a branch counts as before all others and is empty.
fn is_sorted(bytes: &[u8], nodes: &[Node], sort: u16, numbers: bool) -> bool {
    let keys = nodes.iter().skip(usize::from(sort == BRANCH));
    let keys = keys.map(|node| bytes.get(node.key..node.data).unwrap_or_default());
    if numbers {
        keys.map(|key| u64_at(key, 0)).is_sorted_by(|a, b| a < b)
    } else {
        keys.is_sorted_by(|a, b| a < b)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
