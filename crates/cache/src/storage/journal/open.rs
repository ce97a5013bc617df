//! Reading what an earlier process has left.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::index::Reading;
use super::record::{Found, HEADER, Header, Reader};
use super::tail::Tail;
use super::{Journal, LeftChanges, NAME, NEW, REWRITE_OVER, State};
use crate::storage::{lost, private};

impl Journal {
    /// Opens the journal in the cache's directory; makes none before there is a change. What is damaged is put into
    /// lost+found, with all behind it.
    ///
    /// # Errors
    /// When it is of a newer version, or cannot be read or mended.
    pub(crate) fn open(dir: &Path) -> io::Result<(Self, LeftChanges)> {
        Self::open_with(dir, REWRITE_OVER)
    }

    /// The same, with the length over which it is rewritten.
    pub(super) fn open_with(dir: &Path, rewrite_over: u64) -> io::Result<(Self, LeftChanges)> {
        match fs::remove_file(dir.join(NEW)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let path = dir.join(NAME);
        let mut reading = Reading::default();
        let tail = match private::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
            Ok(file) => read(dir, &path, file, &mut reading)?,
        };
        let (index, left) = reading.finish();
        let journal = Self {
            dir: dir.to_owned(),
            rewrite_over,
            state: Mutex::new(State {
                tail,
                index,
                rewrite_over,
            }),
        };
        if left.changes.is_empty() {
            journal.cut_to_nothing(&mut journal.state.lock());
        }
        Ok((journal, left))
    }
}

/// Reads a file up to where it is damaged, and leaves no more of it. None if it was none of ours.
fn read(
    dir: &Path,
    path: &Path,
    mut file: File,
    reading: &mut Reading,
) -> io::Result<Option<Tail>> {
    let end = file.metadata()?.len();
    let mut start = Vec::new();
    (&file).take(HEADER).read_to_end(&mut start)?;
    match Header::of(&start) {
        Header::Known => {}
        Header::Torn => return Ok(Some(Tail::new(file, 0))),
        Header::Newer { found, known } => {
            let path = path.display();
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "{path} is of version {found}, but this program knows versions up to {known}"
                ),
            ));
        }
        Header::Damaged => {
            let place = lost::place(&dir.join(lost::NAME), NAME)?;
            fs::rename(path, &place)?;
            sync_parent(&place)?;
            tell(&place);
            return Ok(None);
        }
    }
    let mut reader = Reader::new(BufReader::new(&file), end);
    let (at, damaged) = loop {
        let at = reader.at();
        match reader.read()? {
            Found::Record(record, place) => {
                if !reading.add(record, place) {
                    break (at, true);
                }
            }
            Found::End | Found::Torn => break (at, false),
            Found::Damaged => break (at, true),
        }
    };
    if damaged {
        let place = put_aside(dir, &mut file, at)?;
        tell(&place);
    } else if at < end {
        tracing::warn!(
            path = %path.display(),
            bytes = end - at,
            "the last record of the journal was not written to its end; dropping it"
        );
    }
    let mut tail = Tail::new(file, end);
    if at < end {
        tail.cut(at)?;
    }
    Ok(Some(tail))
}

/// Copies what is from this place on to where a user finds it.
fn put_aside(dir: &Path, file: &mut File, at: u64) -> io::Result<PathBuf> {
    let place = lost::place(&dir.join(lost::NAME), NAME)?;
    file.seek(SeekFrom::Start(at))?;
    let mut copy = private::options()
        .write(true)
        .create_new(true)
        .open(&place)?;
    let copied = io::copy(file, &mut copy).and_then(|_| copy.sync_all());
    if let Err(error) = copied.and_then(|()| sync_parent(&place)) {
        if let Err(error) = fs::remove_file(&place) {
            tracing::warn!(path = %place.display(), %error, "cannot be removed from the cache");
        }
        return Err(error);
    }
    Ok(place)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn tell(place: &Path) {
    tracing::error!(
        path = %place.display(),
        "the journal of the cache is damaged, and changes in it may be on no server; keeping \
         what cannot be read of it here"
    );
}
