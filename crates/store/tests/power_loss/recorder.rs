//! Recording what a program does to a directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;

use crate::content::Content;
use crate::event::{Event, Kind, NodeId, ROOT, Tree};
use crate::fault::Fault;
use crate::session::{self, Session};

/// LMDB's table of readers: mapped memory, made again by whoever first opens a database.
const LOCK_TABLE: &str = "lock.mdb";

/// One recording at a time in the process.
static TURN: Mutex<()> = Mutex::new(());

/// A new directory for a test, in memory where there is some.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    match tempfile::tempdir_in(memory) {
        Ok(dir) => dir,
        Err(_) => tempfile::tempdir().expect("a temporary directory"),
    }
}

/// Records what this process does to a directory, from [`start`](Self::start) to
/// [`stop`](Self::stop).
pub(crate) struct Recorder {
    dir: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Recorder {
    /// Watches a directory; what is in it already counts as on disk. Waits until no other recording
    /// runs.
    pub(crate) fn start(dir: &Path) -> Self {
        let turn = TURN.lock();
        let mut session = Session::new(&[LOCK_TABLE]);
        scan(&mut session, dir).expect("the directory is readable");
        session::replace(Some(session));
        Self {
            dir: dir.to_owned(),
            _turn: turn,
        }
    }

    /// Puts a remark into the log.
    pub(crate) fn mark(&self, remark: u64) {
        session::enter()
            .expect("recording")
            .events
            .push(Event::Mark(remark));
    }

    /// Makes calls fail from now on.
    pub(crate) fn inject(&self, fault: Fault) {
        session::enter().expect("recording").faults.push(fault);
    }

    /// Lets all calls succeed again.
    pub(crate) fn heal(&self) {
        session::enter().expect("recording").faults.clear();
    }

    /// Ends the recording. Nothing may be using the directory any more.
    ///
    /// # Errors
    ///
    /// The directory is not what the log says, and how: something wrote to it other than through
    /// the calls that are recorded.
    pub(crate) fn stop(self) -> Result<Log, String> {
        let session = session::replace(None).expect("recording");
        let log = Log {
            base: session.base,
            kinds: session.kinds,
            events: session.events,
            names: session.names,
        };
        let difference = log.last().difference(&log.kinds, &self.dir);
        match difference.map_err(|error| error.to_string())? {
            None => Ok(log),
            Some(difference) => Err(difference),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        session::replace(None);
    }
}

/// Takes what a directory holds as the state to start from.
fn scan(session: &mut Session, root: &Path) -> io::Result<()> {
    let metadata = fs::metadata(root)?;
    session.add((metadata.dev(), metadata.ino()), "", Kind::Directory);
    let mut left = vec![(ROOT, root.to_path_buf())];
    while let Some((dir, path)) = left.pop() {
        session.base.directories.entry(dir).or_default();
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let inode = (metadata.dev(), metadata.ino());
            let node = match session.node(inode) {
                Some(node) => node,
                None if metadata.is_dir() => {
                    let node = session.add(inode, &name, Kind::Directory);
                    left.push((node, entry.path()));
                    node
                }
                None => {
                    let node = session.add(inode, &name, Kind::File);
                    session
                        .base
                        .files
                        .insert(node, Content::read(&entry.path())?);
                    node
                }
            };
            session
                .base
                .directories
                .entry(dir)
                .or_default()
                .insert(name, node);
        }
    }
    Ok(())
}

/// What was done to a directory.
#[derive(Debug)]
pub(crate) struct Log {
    /// The state before the first event, all of it on disk.
    pub(crate) base: Tree,
    /// By node.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) events: Vec<Event>,
    /// By node, the name it was last given.
    names: Vec<String>,
}

impl Log {
    /// So many events; power can be lost before each and after the last.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The remarks made before a point.
    pub(crate) fn marks(&self, point: usize) -> impl Iterator<Item = u64> {
        self.events[..point].iter().filter_map(|event| match event {
            Event::Mark(remark) => Some(*remark),
            _ => None,
        })
    }

    /// The state at the end, had nothing been lost.
    fn last(&self) -> Tree {
        let mut tree = self.base.clone();
        for event in &self.events {
            tree.apply_names(event);
            if let Some(file) = event.changes() {
                apply(event, tree.files.entry(file).or_default());
            }
        }
        tree
    }

    /// How many events of a kind there are, for messages.
    pub(crate) fn count(&self, kind: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| kind(event)).count()
    }

    /// The writes to files whose names begin so.
    pub(crate) fn writes_to(&self, name: &str) -> Vec<usize> {
        let writes = |event: &Event| match event {
            Event::Write { file, .. } => self.names[file.0].starts_with(name),
            _ => false,
        };
        (0..self.len())
            .filter(|number| writes(&self.events[*number]))
            .collect()
    }

    pub(crate) fn kind(&self, node: NodeId) -> Kind {
        self.kinds[node.0]
    }
}

/// Does to a file's bytes and length what an event did.
fn apply(event: &Event, content: &mut Content) {
    match event {
        Event::Write { offset, data, .. } => {
            content.write(*offset, data);
            let end = offset + data.len() as u64;
            content.set_len(content.len().max(end));
        }
        Event::Truncate { len, .. } => content.set_len(*len),
        Event::Extend { len, .. } => content.set_len(content.len().max(*len)),
        Event::Zero { offset, len, .. } => content.zero(*offset..offset + len),
        _ => {}
    }
}
