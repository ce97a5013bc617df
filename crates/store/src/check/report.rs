//! What a check finds, and how it tells of its progress.

use std::fmt;

use afar_types::VolumeId;

/// A stage of a check or scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// The pages of the database's file.
    Pages,
    /// All rows of the database, one by one.
    Rows,
    /// The tree of each volume.
    Volumes,
    /// What segments hold, and what is free in them.
    Space,
    /// The records themselves.
    Data,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pages => "pages",
            Self::Rows => "rows",
            Self::Volumes => "volumes",
            Self::Space => "space",
            Self::Data => "data",
        })
    }
}

/// How far a check or scrub has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is at.
    pub stage: Stage,
    /// Rows, volumes, segments, or bytes of data done in this stage.
    pub done: u64,
    /// How many there were when the stage began; more can be done than that if the partition grows
    /// meanwhile.
    pub total: u64,
}

/// What sort of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Pages of the database are damaged, so that nothing in it can be read safely.
    Database,
    /// A row whose checksum is wrong: it rotted, or lies where another belongs.
    RowChecksum,
    /// A row that is what was written and cannot be read.
    RowFormat,
    /// A volume's row, its other information, and its place among its tree's members disagree.
    Volume,
    /// A volume's counts of space, files or numbers given out are wrong.
    VolumeCounts,
    /// A tree that belongs to no volume and is not being removed.
    Tree,
    /// A vnode whose own row is wrong.
    Vnode,
    /// A directory's pages are damaged.
    Directory,
    /// An entry of a directory that names nothing, or something else.
    Entry,
    /// A vnode that no entry names.
    Orphan,
    /// A vnode whose count of links or whose parent is wrong.
    Links,
    /// A record of a file that cannot be where it is.
    Record,
    /// Versions of rows that nobody sees, or the lists of them, are wrong.
    Versions,
    /// A segment, what it holds and what is free in it disagree.
    Segment,
    /// A record of file data that cannot be read.
    Data,
}

impl ProblemKind {
    /// Its name in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::RowChecksum => "row-checksum",
            Self::RowFormat => "row-format",
            Self::Volume => "volume",
            Self::VolumeCounts => "volume-counts",
            Self::Tree => "tree",
            Self::Vnode => "vnode",
            Self::Directory => "directory",
            Self::Entry => "entry",
            Self::Orphan => "orphan",
            Self::Links => "links",
            Self::Record => "record",
            Self::Versions => "versions",
            Self::Segment => "segment",
            Self::Data => "data",
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that is wrong with a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What sort of thing.
    pub kind: ProblemKind,
    /// The volume it was found in, if it is known to be of one.
    pub volume: Option<VolumeId>,
    /// What was found, and where.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind)?;
        if let Some(volume) = self.volume {
            write!(f, "volume {volume}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Collects problems, up to a bound.
#[derive(Debug)]
pub(super) struct Problems {
    pub(super) listed: Vec<Problem>,
    pub(super) count: u64,
    limit: usize,
}

impl Problems {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            listed: Vec::new(),
            count: 0,
            limit,
        }
    }

    /// How many more can be listed.
    pub(super) fn room(&self) -> usize {
        self.limit - self.listed.len()
    }

    /// Adds a problem that is of no volume in particular.
    pub(super) fn add(&mut self, kind: ProblemKind, what: impl FnOnce() -> String) {
        self.note(kind, None, what);
    }

    /// Adds a problem of a volume. It is put into words only if there is room for it.
    pub(super) fn note(
        &mut self,
        kind: ProblemKind,
        volume: Option<VolumeId>,
        what: impl FnOnce() -> String,
    ) {
        self.count += 1;
        if self.listed.len() < self.limit {
            let what = what();
            self.listed.push(Problem { kind, volume, what });
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// What is wrong: the first of it, up to the limit asked for.
    pub problems: Vec<Problem>,
    /// How much is wrong in all.
    pub problem_count: u64,
    /// Rows of the database looked at.
    pub rows: u64,
    /// Volumes and clones.
    pub volumes: u64,
    /// Files, directories and symlinks; those of a clone count as often as they are seen.
    pub vnodes: u64,
    /// Records of file data in segments, each once.
    pub records: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of records.
    pub live_octets: u64,
    /// Bytes that lost their owner and are not yet given back to the file system.
    pub dead_octets: u64,
    /// Bytes given back to the file system.
    pub free_octets: u64,
    /// Bytes nothing is known of: what aligns records, and what was written and never committed
    /// before a crash. They do no harm.
    pub lost_octets: u64,
    /// Of those, bytes handed to the reaper: see
    /// [`CheckOptions::reclaim`](super::CheckOptions::reclaim).
    pub reclaimed_octets: u64,
    /// Bytes of records read and verified: see [`CheckOptions::data`](super::CheckOptions::data).
    pub verified_octets: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }
}
