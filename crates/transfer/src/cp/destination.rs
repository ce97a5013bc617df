//! Where copies go on the local disk, by the rules of cp.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::options::Destination;
use crate::error::{Result, bail};

/// Where copies go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LocalDestination {
    /// There, under their own names.
    Into(PathBuf),
    /// The only copy gets this path.
    Exactly(PathBuf),
}

impl LocalDestination {
    /// Looks at the destination of so many sources.
    ///
    /// # Errors
    /// When it is no directory and must be one.
    pub(super) fn new(destination: &Destination, sources: usize) -> Result<Self> {
        match destination {
            Destination::Into(directory) if !directory.is_dir() => {
                bail!(CreateDirectory => "{}: not a directory", directory.display())
            }
            Destination::Into(directory) => Ok(Self::Into(directory.clone())),
            Destination::Usual(path) if path.is_dir() => Ok(Self::Into(path.clone())),
            Destination::Usual(path) if sources > 1 => bail!(
                CreateDirectory => "{}: not a directory, which several sources need",
                path.display()
            ),
            Destination::Exactly(path) | Destination::Usual(path) => {
                Ok(Self::Exactly(path.clone()))
            }
        }
    }

    /// Where the copy of this source goes.
    ///
    /// # Errors
    /// When the source has no name to give to it, as `..`.
    pub(super) fn of(&self, source: &[u8]) -> Result<PathBuf> {
        match self {
            Self::Exactly(path) => Ok(path.clone()),
            Self::Into(directory) => match Path::new(OsStr::from_bytes(source)).file_name() {
                Some(name) => Ok(directory.join(name)),
                None => bail!(
                    NameCopy => "{}: has no name of its own",
                    String::from_utf8_lossy(source)
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_into_a_directory_keep_their_names() {
        let into = LocalDestination::Into(PathBuf::from("/srv"));
        assert_eq!(into.of(b"/afs/c/x").unwrap(), Path::new("/srv/x"));
        assert_eq!(into.of(b"/afs/c/x/").unwrap(), Path::new("/srv/x"));
        assert!(into.of(b"/afs/c/..").is_err());
        let exactly = LocalDestination::Exactly(PathBuf::from("y"));
        assert_eq!(exactly.of(b"/afs/c/x").unwrap(), Path::new("y"));
    }
}
