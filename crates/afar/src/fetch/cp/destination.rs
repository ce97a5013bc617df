//! Where copies go, by the rules of cp.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::CpArgs;

/// Where copies go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// There, under their own names.
    Into(PathBuf),
    /// The only copy gets this path.
    Exactly(PathBuf),
}

impl Destination {
    /// Splits the paths into sources and destination.
    ///
    /// # Errors
    /// When there is no destination, or several sources and it is no directory.
    pub(super) fn new(args: &CpArgs) -> anyhow::Result<(&[PathBuf], Self)> {
        if let Some(directory) = &args.target_directory {
            if !directory.is_dir() {
                bail!("{}: not a directory; create it first", directory.display());
            }
            return Ok((&args.paths, Self::Into(directory.clone())));
        }
        let Some((last, sources)) = args.paths.split_last() else {
            bail!("nothing to copy; give SOURCE and DEST");
        };
        if sources.is_empty() {
            bail!(
                "{}: missing destination; give one, or . for the current directory",
                last.display()
            );
        }
        if args.no_target_directory {
            if sources.len() > 1 {
                bail!("-T takes one source; {} were given", sources.len());
            }
            return Ok((sources, Self::Exactly(last.clone())));
        }
        if last.is_dir() {
            return Ok((sources, Self::Into(last.clone())));
        }
        if sources.len() > 1 {
            bail!(
                "{}: not a directory, which several sources need; make it first",
                last.display()
            );
        }
        Ok((sources, Self::Exactly(last.clone())))
    }

    /// Where the copy of this source goes.
    ///
    /// # Errors
    /// When the source has no name to give to it, as `..`.
    pub(super) fn of(&self, source: &[u8]) -> anyhow::Result<PathBuf> {
        match self {
            Self::Exactly(path) => Ok(path.clone()),
            Self::Into(directory) => match Path::new(OsStr::from_bytes(source)).file_name() {
                Some(name) => Ok(directory.join(name)),
                None => bail!(
                    "{}: has no name of its own; name the copy, with -T",
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
        let into = Destination::Into(PathBuf::from("/srv"));
        assert_eq!(into.of(b"/afs/c/x").unwrap(), Path::new("/srv/x"));
        assert_eq!(into.of(b"/afs/c/x/").unwrap(), Path::new("/srv/x"));
        assert!(into.of(b"/afs/c/..").is_err());
        let exactly = Destination::Exactly(PathBuf::from("y"));
        assert_eq!(exactly.of(b"/afs/c/x").unwrap(), Path::new("y"));
    }
}
