//! The cells that a user has once said yes to, by their servers' keys.
//!
//! A line of the file is a cell, a host with its port, and a fingerprint, with blanks in between;
//! `#` begins a comment. A server is known by its cell and key, wherever it is: machines get other
//! addresses. The host tells which key is another one than before.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::{LoginError, Server};
use crate::Fingerprint;

/// Bytes of the file that are read: more than anybody knows cells.
const FILE_MAX: u64 = 1 << 20;

/// What the file is called in the directory of what a user knows of cells.
pub const KNOWN_CELLS: &str = "known_cells";

/// What the file says of a server with a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The key is one of the cell's.
    Known,
    /// The line with this number says that the server at this host has another key.
    Other(usize, Fingerprint),
    /// Neither; so many other keys of the cell are known.
    Unknown(usize),
}

/// What this file says of a server with this key.
pub(super) fn find(path: &Path, server: &Server, found: Fingerprint) -> Result<Found, LoginError> {
    let failed = |source| LoginError::KnownCells {
        doing: "read",
        path: path.to_owned(),
        source,
    };
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Unknown(0)),
        Err(error) => return Err(failed(error)),
    };
    let (mut other, mut damaged, mut keys) = (None, None, 0);
    for (number, line) in (1..).zip(text.lines()) {
        let Some((cell, place, fingerprint)) = words(line) else {
            continue;
        };
        if !cell.eq_ignore_ascii_case(server.cell.as_str()) {
            continue;
        }
        let here = place.eq_ignore_ascii_case(&server.place());
        match fingerprint.parse::<Fingerprint>() {
            Ok(fingerprint) if fingerprint == found => return Ok(Found::Known),
            Ok(fingerprint) if here => other = other.or(Some((number, fingerprint))),
            Ok(_) => keys += 1,
            // A damaged line must not be as good as none.
            Err(error) if here && damaged.is_none() => {
                damaged = Some(format!("line {number}: {error}"));
            }
            Err(_) => {}
        }
    }
    match (other, damaged) {
        (Some((number, fingerprint)), _) => Ok(Found::Other(number, fingerprint)),
        (None, Some(what)) => Err(failed(io::Error::new(io::ErrorKind::InvalidData, what))),
        (None, None) => Ok(Found::Unknown(keys)),
    }
}

/// Cell, host with port, and fingerprint of a line.
fn words(line: &str) -> Option<(&str, &str, &str)> {
    let line = line.split('#').next().unwrap_or("");
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?, words.next().unwrap_or("")))
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

/// Notes that the server with this key is the right one. What the file said of its host before is taken
/// out.
pub(super) fn add(
    path: &Path,
    server: &Server,
    fingerprint: Fingerprint,
) -> Result<(), LoginError> {
    if matches!(find(path, server, fingerprint), Ok(Found::Known)) {
        return Ok(());
    }
    write(path, server, fingerprint).map_err(|source| LoginError::KnownCells {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, server: &Server, fingerprint: Fingerprint) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    let place = server.place();
    let same = |line: &&str| {
        let words = words(line);
        words.is_some_and(|(cell, at, _)| {
            cell.eq_ignore_ascii_case(server.cell.as_str()) && at.eq_ignore_ascii_case(&place)
        })
    };
    let before = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let line = format!("{} {place} {fingerprint}\n", server.cell);
    if !before.lines().any(|line| same(&line)) {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(path)?;
        // In one piece, as another login may write too; a file that was edited may lack its last end of line.
        let end = match before.is_empty() || before.ends_with('\n') {
            true => "",
            false => "\n",
        };
        return file.write_all(format!("{end}{line}").as_bytes());
    }
    let kept = before.lines().filter(|line| !same(line));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(format!("{kept}{line}").as_bytes())?;
    fs::rename(&new, path)
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

    fn key(digit: char) -> Fingerprint {
        let digits: String = std::iter::repeat_n(digit, 42).collect();
        format!("SHA256:{digits}A").parse().unwrap()
    }

    #[test]
    fn a_cell_is_known_by_its_keys_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/afar/known_cells");
        let home = server("home.arpa", "fs1", 7002);
        let find = |server: &Server, digit| find(&path, server, key(digit)).unwrap();
        assert_eq!(find(&home, 'A'), Found::Unknown(0));
        add(&path, &home, key('A')).unwrap();
        let other = server("home.arpa", "192.0.2.1", 7102);
        add(&path, &other, key('B')).unwrap();
        let moved = server("home.arpa", "192.0.2.99", 7002);
        for server in [&home, &other, &moved] {
            assert_eq!(find(server, 'A'), Found::Known);
            assert_eq!(find(server, 'B'), Found::Known);
        }
        assert_eq!(find(&home, 'C'), Found::Other(1, key('A')));
        assert_eq!(find(&other, 'C'), Found::Other(2, key('B')));
        assert_eq!(find(&moved, 'C'), Found::Unknown(2));
        assert_eq!(
            find(&server("other.org", "fs1", 7002), 'A'),
            Found::Unknown(0)
        );
    }

    #[test]
    fn a_new_key_of_a_host_takes_the_place_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_cells");
        let home = server("home.arpa", "fs1", 7002);
        fs::write(&path, "# mine\nother.org fs1:7002 x").unwrap();
        for digit in ['A', 'B'] {
            add(&path, &home, key(digit)).unwrap();
        }
        assert_eq!(find(&path, &home, key('B')).unwrap(), Found::Known);
        assert_eq!(
            find(&path, &home, key('A')).unwrap(),
            Found::Other(3, key('B'))
        );
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# mine\nother.org fs1:7002 x\n"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_line_is_not_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_cells");
        let home = server("home.arpa", "fs1", 7002);
        fs::write(&path, "# mine\n\nhome.arpa fs1:7002 SHA256:!!!\n").unwrap();
        let error = find(&path, &home, key('A')).unwrap_err();
        let LoginError::KnownCells { source, .. } = error else {
            panic!("{error}");
        };
        assert!(source.to_string().contains("line 3"), "{source}");
    }
}
