//! Snapshots of the mounts of this machine, from the file `.afar/top` of each.
//!
//! A mount counts by process while this file is open, and so as long as we look, whatever ends us.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afar_server::view::Snapshot;
use anyhow::{Context, bail, ensure};

use crate::mount::mount_places;

/// How long a mount has for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of an answer, at most.
const ANSWER_MAX: usize = 16 << 20;
/// Bytes to read at a time.
const PIECE: usize = 128 << 10;
/// The file, in a mount.
const FILE: &str = ".afar/top";

/// The mounts that are looked at.
#[derive(Debug)]
pub(super) struct Mounts {
    opened: Vec<(PathBuf, Arc<File>)>,
    began: Instant,
}

impl Mounts {
    /// The mount at this place; otherwise all of this machine.
    ///
    /// # Errors
    /// There is none, or none that this user may look at.
    pub(super) fn find(place: Option<&Path>) -> anyhow::Result<Self> {
        let places = match place {
            Some(place) => vec![place.to_owned()],
            None => mount_places()?,
        };
        ensure!(
            !places.is_empty(),
            "afar has mounted nothing on this machine; `afar mount` does"
        );
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for place in places {
            match open(&place) {
                Ok(file) => opened.push((place, Arc::new(file))),
                Err(error) => failed.push(format!("{}: {}", place.display(), why(&error))),
            }
        }
        if opened.is_empty() {
            bail!("{}", failed.join("; "));
        }
        for failed in failed {
            crate::output::note(&failed);
        }
        Ok(Self {
            opened,
            began: Instant::now(),
        })
    }

    /// What runs in the mounts now.
    ///
    /// # Errors
    /// No mount answers.
    pub(super) fn fetch(&self) -> anyhow::Result<Snapshot> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut whole = Snapshot {
            time: now.unwrap_or_default().as_secs_f64(),
            uptime: self.began.elapsed().as_secs_f64(),
            ..Snapshot::default()
        };
        let (mut shown, mut failed) = (Vec::new(), None);
        for (place, file) in &self.opened {
            let name = place.display().to_string();
            match ask(file)
                .context(name.clone())
                .and_then(|text| parse(&text))
            {
                Ok(snapshot) => {
                    let rows = snapshot.rows.into_iter().map(|mut row| {
                        row.labels.insert("mount".to_owned(), name.clone());
                        row
                    });
                    whole.rows.extend(rows);
                    whole.beyond += snapshot.beyond;
                    whole.version = snapshot.version;
                    shown.push(name);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if shown.is_empty() => Err(error),
            _ => {
                whole.cell = shown.join(" ");
                Ok(whole)
            }
        }
    }
}

fn open(place: &Path) -> io::Result<File> {
    let file = place.join(FILE);
    within(move || File::open(file))
}

/// Does something that a mount may never answer: then the thread stays until this process ends.
fn within<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        // Nobody listens once the time is over.
        tell.send(work()).ok()
    });
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    told.recv_timeout(LIMIT).unwrap_or_else(late)
}

/// What the file of a mount has now. A mount that has not answered yet is not asked once more: each question that it
/// never answers costs a thread.
fn ask(file: &Arc<File>) -> io::Result<Vec<u8>> {
    if Arc::strong_count(file) > 1 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let file = Arc::clone(file);
    within(move || read(&file))
}

/// All of a file as it is now.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let (mut text, mut piece) = (Vec::new(), vec![0; PIECE]);
    while text.len() < ANSWER_MAX {
        let length = file.read_at(&mut piece, text.len() as u64)?;
        if length == 0 {
            return Ok(text);
        }
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

fn parse(text: &[u8]) -> anyhow::Result<Snapshot> {
    serde_json::from_slice(text)
        .context("the answer is not one of afar's; is the mount of another version?")
}

/// Why a mount cannot be looked at, in the user's words.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            "no mount of afar, or of an older version, or not yours: only the user who mounted it and root see what \
             runs there"
                .to_owned()
        }
        io::ErrorKind::TimedOut => format!("it has not answered within {} s", LIMIT.as_secs()),
        io::ErrorKind::NotConnected => {
            "nobody serves this mount any more; `afar umount` removes it".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_mount_is_said_not_to_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = Mounts::find(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("no mount of afar"), "{error}");
    }

    #[test]
    fn rows_say_in_which_mount_they_are() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".afar")).unwrap();
        let file = dir.path().join(FILE);
        let mut row = afar_server::view::Row::default();
        row.labels.insert("pid".to_owned(), "7".to_owned());
        let snapshot = Snapshot {
            rows: vec![row],
            beyond: 2,
            ..Snapshot::default()
        };
        std::fs::write(&file, serde_json::to_vec(&snapshot).unwrap()).unwrap();
        let mounts = Mounts::find(Some(dir.path())).unwrap();
        let found = mounts.fetch().unwrap();
        assert_eq!(found.rows[0].label("pid"), "7");
        assert_eq!(found.rows[0].label("mount"), dir.path().to_str().unwrap());
        assert_eq!(found.beyond, 2);
        let unanswered = Arc::clone(&mounts.opened[0].1);
        let error = mounts.fetch().unwrap_err();
        assert!(format!("{error:#}").contains("timed out"), "{error:#}");
        drop(unanswered);
        std::fs::write(&file, "[1,2").unwrap();
        let error = mounts.fetch().unwrap_err();
        assert!(
            format!("{error:#}").contains("another version"),
            "{error:#}"
        );
    }
}
