//! The CellServDB of one user: the cells that this user has logged in to.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use afar_types::CellName;

use super::CellServDb;

/// Bytes of the file that are read: more than anybody knows cells.
const FILE_MAX: u64 = 1 << 20;

/// The directory of what the user knows of cells: `afar` in `$XDG_CONFIG_HOME` or `~/.config`; `None` without a
/// home directory.
#[must_use]
pub fn own_directory() -> Option<PathBuf> {
    let of = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let base = of("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| of("HOME").map(|home| PathBuf::from(home).join(".config")));
    base.map(|base| base.join("afar"))
}

/// `CellServDB` in the user's [directory](own_directory).
#[must_use]
pub fn own_path() -> Option<PathBuf> {
    own_directory().map(|directory| directory.join("CellServDB"))
}

/// Whether a file of this user is there. Those of others, whose home directory a command may have been
/// left with, are passed over.
pub(super) fn is_own(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

impl CellServDb {
    /// The user's own, if there is one.
    ///
    /// # Errors
    /// The system's, when it is there and cannot be read.
    pub fn read_own() -> io::Result<Option<Self>> {
        match own_path().filter(|path| is_own(path)) {
            Some(path) => Self::read(&path).map(Some),
            None => Ok(None),
        }
    }
}

/// Notes in a CellServDB that a cell has these servers, in place of those it had there; `host` is how the
/// user called them. Whether anything was changed.
///
/// # Errors
/// The system's; the file is as it was then.
pub fn teach(path: &Path, cell: &CellName, servers: &[IpAddr], host: &str) -> io::Result<bool> {
    let text = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let known = CellServDb::parse(path, &text);
    let same = |entry: &super::CellEntry| {
        let there = entry.servers.iter().map(|server| server.ip());
        there.eq(servers.iter().copied())
    };
    if known.find(cell).is_some_and(same) {
        return Ok(false);
    }
    let mut new = without(&text, cell);
    new.push_str(&format!(">{cell} #logged in to\n"));
    for server in servers {
        new.push_str(&format!("{server} #{host}\n"));
    }
    replace(path, &new)?;
    Ok(true)
}

/// The text without this cell and its servers.
fn without(text: &str, cell: &CellName) -> String {
    let mut kept = String::new();
    let mut skipped = false;
    for line in text.lines() {
        if let Some(rest) = line.trim_start().strip_prefix('>') {
            let name = rest.split(['#', ' ', '\t']).next().unwrap_or_default();
            skipped = name.eq_ignore_ascii_case(cell.as_str());
        }
        if !skipped {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = fs::File::open(path)?
        .take(FILE_MAX)
        .read_to_string(&mut text)?;
    // Rewritten from its first part, the file would lose the rest.
    if length as u64 == FILE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Puts a text in the place of a file's, whole or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    let written = file
        .write_all(text.as_bytes())
        // Before the rename: after a crash, the name has the old text or the new one, and not an empty file.
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _gone = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_cell_is_added_and_gets_other_servers_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/afar/CellServDB");
        let (home, work) = ("home.arpa".parse().unwrap(), "work.org".parse().unwrap());
        assert!(teach(&path, &home, &[address("192.0.2.1")], "nas").unwrap());
        assert!(teach(&path, &work, &[address("192.0.2.7")], "db").unwrap());
        assert!(!teach(&path, &home, &[address("192.0.2.1")], "nas").unwrap());
        let two = [address("192.0.2.2"), address("192.0.2.3")];
        assert!(teach(&path, &home, &two, "nas").unwrap());
        let found = CellServDb::read(&path).unwrap();
        assert!(found.bad_lines.is_empty(), "{:?}", found.bad_lines);
        let servers = |cell| {
            let servers = found.find(cell).unwrap().servers.iter();
            servers.map(|server| server.ip()).collect::<Vec<_>>()
        };
        assert_eq!(servers(&home), two);
        assert_eq!(servers(&work), [address("192.0.2.7")]);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_the_user_wrote_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("CellServDB");
        let text = "# mine\n>Home.Arpa #x\n192.0.2.1 #a\n>work.org\n192.0.2.7";
        fs::write(&path, text).unwrap();
        let home = "home.arpa".parse().unwrap();
        teach(&path, &home, &[address("192.0.2.2")], "nas").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let begin = "# mine\n>work.org\n192.0.2.7\n>home.arpa ";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("CellServDB");
        fs::create_dir(&path).unwrap();
        let home = "home.arpa".parse().unwrap();
        teach(&path, &home, &[address("192.0.2.2")], "nas").unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
