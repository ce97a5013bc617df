//! The mounts of this machine, and whether they work.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use afar_cache::xattr_name;
use rustix::io::Errno;

use super::{attribute, record, table};

/// How long a mount has to tell of its cache.
const LIMIT: Duration = Duration::from_secs(3);

/// A mount of this machine.
#[derive(Debug)]
pub(crate) struct MountState {
    /// Where it is.
    pub(crate) place: PathBuf,
    /// What is mounted: a cell, `CELL:VOLUME`, or `dynroot` for all cells.
    pub(crate) source: String,
    /// The process that serves it, if that is known.
    pub(crate) process: Option<String>,
    /// Whether it works.
    pub(crate) health: Health,
}

/// Whether a mount works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// It does: bytes that its cache uses, that it may use, and that are not stored at a server yet.
    Up([u64; 3]),
    /// It does not tell this user.
    Private,
    /// Nobody serves it any more.
    Dead,
    /// It does not answer in time.
    Stuck,
}

/// All mounts of ours, by their places.
///
/// # Errors
/// The kernel's table cannot be read.
pub(crate) fn all() -> anyhow::Result<Vec<MountState>> {
    let mut mounts: Vec<MountState> = table::ours()?
        .into_iter()
        .map(|(place, source)| MountState {
            process: record::process(&place),
            health: health(&place),
            place,
            source,
        })
        .collect();
    mounts.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(mounts)
}

/// Asks a mount, which may never answer: then the thread stays until this process ends.
fn health(place: &Path) -> Health {
    let (tell, told) = channel();
    let asked = place.to_owned();
    std::thread::spawn(move || {
        // Nobody listens once the time is over.
        tell.send(attribute(&asked, xattr_name::CACHE)).ok()
    });
    match told.recv_timeout(LIMIT) {
        Ok(answer) => read(answer),
        Err(_) => Health::Stuck,
    }
}

fn read(answer: Result<String, Errno>) -> Health {
    match answer {
        Ok(text) => {
            let numbers: Vec<u64> = text
                .split(' ')
                .filter_map(|word| word.parse().ok())
                .collect();
            numbers.try_into().map_or(Health::Private, Health::Up)
        }
        Err(Errno::NOTCONN | Errno::CONNABORTED) => Health::Dead,
        // It may not be ours to look at, and works all the same.
        Err(_) => Health::Private,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(read(Ok("1 20 3".to_owned())), Health::Up([1, 20, 3]));
        assert_eq!(read(Ok("what".to_owned())), Health::Private);
        assert_eq!(read(Err(Errno::NOTCONN)), Health::Dead);
        assert_eq!(read(Err(Errno::ACCESS)), Health::Private);
        assert_eq!(health(Path::new("/")), Health::Private);
    }
}
