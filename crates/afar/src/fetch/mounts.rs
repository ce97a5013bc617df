//! Files that a mount of this machine has in its cache, which need not be fetched again.
//!
//! A mount of the list of cells is asked what it has of a file, by identifier and without any server being
//! asked for data. What it has is read there, with its user's rights; after each read it is asked again, so
//! that what was read is known to be of the version wanted. A mount that does not answer within a second is
//! left alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use afar_cache::{Held, Object, PlaceName, VOLUMES, xattr_name};
use afar_cell::{Nearby, NearbyFile, Volume, Waiting};
use afar_types::{DataVersion, Fid};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use tokio::sync::oneshot;

use super::Seen;
use crate::mount::{attribute, dynamic_roots};

/// How long a mount may take to answer, or to read some of what it has.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions to mounts at a time.
const THREADS: usize = 4;

/// The mounts of this machine, looked for when the first file is fetched.
#[derive(Debug)]
pub(super) struct Mounts {
    places: LazyLock<Vec<PathBuf>>,
    asker: Arc<Asker>,
}

impl Mounts {
    /// Those there are, for one who is seen so: a mount knows its users by their tokens only.
    pub(super) fn for_those_seen(seen: Seen) -> Option<Self> {
        matches!(seen, Seen::Tokens { .. }).then(|| Self {
            places: LazyLock::new(dynamic_roots),
            asker: Arc::new(Asker::new()),
        })
    }
}

impl Nearby for Mounts {
    fn find<'a>(
        &'a self,
        volume: &'a Arc<Volume>,
        fid: Fid,
        version: DataVersion,
    ) -> Waiting<'a, Option<Arc<dyn NearbyFile>>> {
        let cell = volume.cell_name().clone();
        let object = Object::Fid(fid);
        let name = PlaceName { cell, object }.to_string();
        let sites = volume.sites();
        let servers: Vec<_> = sites.iter().map(|site| site.address()).collect();
        let places = self.places.clone();
        Box::pin(async move {
            if places.is_empty() {
                return None;
            }
            let found = self.asker.ask(move || {
                places.into_iter().find_map(|place| {
                    let mounted = Mounted {
                        place,
                        name: name.clone(),
                    };
                    let held = mounted.held().filter(|held| {
                        let same_cell = held.servers.iter().any(|server| servers.contains(server));
                        same_cell && held.version == version && !held.ranges.is_empty()
                    })?;
                    let file = mounted.open().ok()?;
                    Some((mounted, held, file))
                })
            });
            let (mounted, held, file) = found.await??;
            let asker = Arc::clone(&self.asker);
            let (mounted, file) = (Arc::new(mounted), Arc::new(file));
            Some(Arc::new(MountedFile {
                mounted,
                held,
                file,
                asker,
            }) as _)
        })
    }
}

/// A file by its name in a mount.
#[derive(Debug)]
struct Mounted {
    place: PathBuf,
    name: String,
}

impl Mounted {
    /// What the mount has of it.
    fn held(&self) -> Option<Held> {
        self.told(xattr_name::HELD)
    }

    /// The version of which the mount has something.
    fn version(&self) -> Option<DataVersion> {
        self.told(xattr_name::HELD_VERSION).map(DataVersion)
    }

    fn told<T: FromStr>(&self, what: &str) -> Option<T> {
        let name = format!("{what}{}", self.name);
        attribute(&self.place, &name).ok()?.parse().ok()
    }

    /// Opens it, not to be read ahead: the mount would fetch what we fetch.
    fn open(&self) -> io::Result<File> {
        let path = self.place.join(VOLUMES).join(&self.name);
        let direct = OFlags::DIRECT.bits().cast_signed();
        OpenOptions::new()
            .read(true)
            .custom_flags(direct)
            .open(path)
    }
}

/// What a mount has of one version of a file.
#[derive(Debug)]
struct MountedFile {
    mounted: Arc<Mounted>,
    held: Held,
    file: Arc<File>,
    asker: Arc<Asker>,
}

impl NearbyFile for MountedFile {
    fn ranges(&self) -> &[Range<u64>] {
        &self.held.ranges
    }

    fn read(&self, range: Range<u64>) -> Waiting<'_, Option<Bytes>> {
        let (mounted, file) = (Arc::clone(&self.mounted), Arc::clone(&self.file));
        let version = self.held.version;
        let read = self.asker.ask(move || {
            let mut data = vec![0; usize::try_from(range.end - range.start).ok()?];
            file.read_exact_at(&mut data, range.start).ok()?;
            // What was written meanwhile, or by another, may be in it.
            (mounted.version() == Some(version)).then(|| Bytes::from(data))
        });
        Box::pin(async move { read.await? })
    }
}

/// What is to be asked of a mount.
type Question = Box<dyn FnOnce() + Send>;

/// Asks mounts on threads of its own, which may be left behind in the kernel when one does not answer. They
/// are started with the first question.
#[derive(Debug)]
struct Asker {
    questions: LazyLock<mpsc::Sender<Question>>,
    /// One did not answer in time.
    silent: AtomicBool,
}

/// Starts the threads that ask.
fn start() -> mpsc::Sender<Question> {
    let (questions, asked) = mpsc::channel::<Question>();
    let asked = Arc::new(Mutex::new(asked));
    for _ in 0..THREADS {
        let asked = Arc::clone(&asked);
        let next = move || {
            let asked = asked.lock();
            asked.recv().ok()
        };
        thread::spawn(move || iter::from_fn(next).for_each(|question| question()));
    }
    questions
}

impl Asker {
    fn new() -> Self {
        Self {
            questions: LazyLock::new(start),
            silent: AtomicBool::new(false),
        }
    }

    /// The answer, if it comes in time.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.silent.load(Ordering::Relaxed) {
            return None;
        }
        let (tell, answer) = oneshot::channel();
        let question = move || {
            // The caller may have given up.
            let _gone = tell.send(question());
        };
        self.questions.send(Box::new(question)).ok()?;
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                self.silent.store(true, Ordering::Relaxed);
                tracing::debug!("a mount does not answer; fetching what it has");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mount_that_does_not_answer_is_left_alone() {
        let asker = Asker::new();
        assert_eq!(asker.ask(|| 1).await, Some(1));
        let (end, ended) = mpsc::channel::<()>();
        assert_eq!(asker.ask(move || ended.recv()).await, None);
        drop(end);
        assert_eq!(asker.ask(|| 2).await, None);
    }
}
