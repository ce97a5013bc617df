//! The servers that a user has once said yes to.
//!
//! A line of the file is a cell, a host with its port, and a fingerprint, with blanks in between;
//! `#` begins a comment.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{LoginError, Server};
use crate::Fingerprint;

/// Octets of the file that are read: more than anybody knows cells.
const FILE_MAX: u64 = 1 << 20;

/// `afar/known_cells` in `$XDG_CONFIG_HOME` or `~/.config`; `None` without a home directory.
#[must_use]
pub fn known_cells() -> Option<PathBuf> {
    let of = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let base = of("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| of("HOME").map(|home| PathBuf::from(home).join(".config")));
    base.map(|base| base.join("afar").join("known_cells"))
}

/// The line of this server, counted from 1, and the fingerprint in it.
pub(super) fn find(
    path: &Path,
    server: &Server,
) -> Result<Option<(usize, Fingerprint)>, LoginError> {
    let failed = |source| LoginError::KnownCells {
        doing: "read",
        path: path.to_owned(),
        source,
    };
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let name = server.place();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_whitespace();
        let (Some(cell), Some(place), fingerprint) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if !cell.eq_ignore_ascii_case(server.cell.as_str()) || !place.eq_ignore_ascii_case(&name) {
            continue;
        }
        // A damaged line must not be as good as none.
        let fingerprint = fingerprint.unwrap_or("").parse::<Fingerprint>();
        return match fingerprint {
            Ok(fingerprint) => Ok(Some((number, fingerprint))),
            Err(error) => Err(failed(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("line {number}: {error}"),
            ))),
        };
    }
    Ok(None)
}

fn read(path: &Path) -> io::Result<String> {
    let file = fs::File::open(path)?;
    let mut text = String::new();
    let length = io::Read::read_to_string(&mut io::Read::take(file, FILE_MAX), &mut text)?;
    if length as u64 == FILE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Notes that the server with this key is the right one.
pub(super) fn add(
    path: &Path,
    server: &Server,
    fingerprint: Fingerprint,
) -> Result<(), LoginError> {
    let write = || -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(path)?;
        // In one piece, as another login may write too.
        let line = format!("{} {} {fingerprint}\n", server.cell, server.place());
        file.write_all(line.as_bytes())
    };
    write().map_err(|source| LoginError::KnownCells {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(cell: &str, host: &str, port: u16) -> Server {
        Server {
            cell: cell.parse().unwrap(),
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn what_was_added_is_found_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/afar/known_cells");
        let home = server("home.arpa", "fs1", 7002);
        assert_eq!(find(&path, &home).unwrap(), None);
        let fingerprint = |digit: char| {
            let digits: String = std::iter::repeat_n(digit, 42).collect();
            format!("SHA256:{digits}A").parse().unwrap()
        };
        add(&path, &home, fingerprint('A')).unwrap();
        let other = server("home.arpa", "2001:db8::1", 7102);
        add(&path, &other, fingerprint('B')).unwrap();
        assert_eq!(find(&path, &home).unwrap(), Some((1, fingerprint('A'))));
        assert_eq!(find(&path, &other).unwrap(), Some((2, fingerprint('B'))));
        assert_eq!(find(&path, &server("home.arpa", "fs1", 1)).unwrap(), None);
        assert_eq!(
            find(&path, &server("other.org", "fs1", 7002)).unwrap(),
            None
        );
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("# mine\n\n{text}").replace("AAA", "!!!")).unwrap();
        let error = find(&path, &home).unwrap_err();
        let LoginError::KnownCells { source, .. } = error else {
            panic!("{error}");
        };
        assert!(source.to_string().contains("line 3"), "{source}");
    }
}
