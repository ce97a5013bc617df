//! What a program did to the watched directory, in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::content::Content;

/// A file or a directory, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) usize);

/// The watched directory itself.
pub(crate) const ROOT: NodeId = NodeId(0);

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// A file that plays no part: it is in no image, and what is written to it is not kept.
    Ignored,
}

/// One thing done; its place in the log is its sequence number.
#[derive(Debug)]
pub(crate) enum Event {
    /// `synced`: through a descriptor opened with `O_DSYNC` or `O_SYNC`.
    Write {
        file: NodeId,
        offset: u64,
        data: Box<[u8]>,
        synced: bool,
    },
    Truncate {
        file: NodeId,
        len: u64,
    },
    /// Space was allocated and the file made at least `len` long.
    Extend {
        file: NodeId,
        len: u64,
    },
    /// A range was made zero: a hole punched, or zeros allocated.
    Zero {
        file: NodeId,
        offset: u64,
        len: u64,
    },
    /// fsync or fdatasync of a file or a directory succeeded. It was called when there were
    /// `covers` events, and promises nothing of what was done after that.
    Sync {
        node: NodeId,
        covers: usize,
    },
    /// fsync or fdatasync failed: what was to be written has been dropped, and no later sync
    /// brings it back.
    SyncFailed {
        node: NodeId,
    },
    /// A name was given to a file or a directory: made, or linked.
    Link {
        dir: NodeId,
        name: String,
        node: NodeId,
    },
    Unlink {
        dir: NodeId,
        name: String,
    },
    Rename {
        from: (NodeId, String),
        to: (NodeId, String),
    },
    /// The test's own remark.
    Mark(u64),
}

impl Event {
    /// The node whose bytes the event changes.
    pub(crate) fn changes(&self) -> Option<NodeId> {
        match self {
            Self::Write { file, .. }
            | Self::Truncate { file, .. }
            | Self::Extend { file, .. }
            | Self::Zero { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// The names the event changes.
    pub(crate) fn names(&self) -> Vec<(NodeId, &str)> {
        match self {
            Self::Link { dir, name, .. } | Self::Unlink { dir, name } => vec![(*dir, name)],
            Self::Rename { from, to } => vec![(from.0, &from.1), (to.0, &to.1)],
            _ => Vec::new(),
        }
    }
}

/// A directory's entries.
pub(crate) type Entries = BTreeMap<String, NodeId>;

/// All directories and files of the watched directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) directories: BTreeMap<NodeId, Entries>,
    pub(crate) files: BTreeMap<NodeId, Content>,
}

impl Tree {
    /// Does what an event did to names.
    pub(crate) fn apply_names(&mut self, event: &Event) {
        match event {
            Event::Link { dir, name, node } => {
                self.entries(*dir).insert(name.clone(), *node);
            }
            Event::Unlink { dir, name } => {
                self.entries(*dir).remove(name);
            }
            Event::Rename { from, to } => {
                if let Some(node) = self.entries(from.0).remove(&from.1) {
                    self.entries(to.0).insert(to.1.clone(), node);
                }
            }
            _ => {}
        }
    }

    fn entries(&mut self, dir: NodeId) -> &mut Entries {
        self.directories.entry(dir).or_default()
    }

    /// Writes everything that has a name to a directory that is empty.
    pub(crate) fn save(&self, kinds: &[Kind], to: &Path) -> io::Result<()> {
        let mut written: BTreeMap<NodeId, PathBuf> = BTreeMap::new();
        let mut left = vec![(ROOT, to.to_path_buf())];
        while let Some((dir, path)) = left.pop() {
            for (name, node) in self.directories.get(&dir).into_iter().flatten() {
                let path = path.join(name);
                match kinds[node.0] {
                    Kind::Ignored => {}
                    Kind::Directory => {
                        fs::create_dir(&path)?;
                        left.push((*node, path));
                    }
                    Kind::File => match written.get(node) {
                        Some(first) => fs::hard_link(first, &path)?,
                        None => {
                            self.files
                                .get(node)
                                .cloned()
                                .unwrap_or_default()
                                .save(&path)?;
                            written.insert(*node, path);
                        }
                    },
                }
            }
        }
        Ok(())
    }

    /// How the tree differs from a directory on disk, as text, or nothing.
    pub(crate) fn difference(&self, kinds: &[Kind], from: &Path) -> io::Result<Option<String>> {
        let mut left = vec![(ROOT, from.to_path_buf())];
        while let Some((dir, path)) = left.pop() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort_unstable();
            let entries = self.directories.get(&dir).cloned().unwrap_or_default();
            if !names.iter().eq(entries.keys()) {
                let known: Vec<&String> = entries.keys().collect();
                return Ok(Some(format!(
                    "{} holds {names:?}, known {known:?}",
                    path.display()
                )));
            }
            for (name, node) in entries {
                let path = path.join(name);
                match kinds[node.0] {
                    Kind::Ignored => {}
                    Kind::Directory => left.push((node, path)),
                    Kind::File => {
                        let known = self.files.get(&node).cloned().unwrap_or_default();
                        if let Some(at) = known.first_difference(&Content::read(&path)?) {
                            return Ok(Some(format!("{} differs at {at}", path.display())));
                        }
                    }
                }
            }
        }
        Ok(None)
    }
}
