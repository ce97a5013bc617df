//! The file of administrators that `bos adduser` and `bos removeuser` change: a UserList as OpenAFS has it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::config::Config;

/// Its name in the data directory, unless the configuration names another file.
pub(crate) const USERLIST: &str = "UserList";
/// What OpenAFS's overseer keeps of a name.
const NAME_MAX: usize = 255;

/// The file of a server with this configuration.
pub(crate) fn path(config: &Config) -> PathBuf {
    let named = config.security.userlist.clone();
    named.unwrap_or_else(|| config.data.0.join(USERLIST))
}

/// Adds a user.
///
/// # Errors
/// `InvalidInput` if that is no name, `AlreadyExists` if it is there, or what the file system says.
pub(crate) fn add(path: &Path, name: &str) -> io::Result<()> {
    let is_name = !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.starts_with('@')
        && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    if !is_name {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut text = read(path)?;
    if text.lines().any(|line| line == name) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(name);
    text.push('\n');
    replace(path, &text)
}

/// Removes a user.
///
/// # Errors
/// `NotFound` if it is not there, or what the file system says.
pub(crate) fn remove(path: &Path, name: &str) -> io::Result<()> {
    let text = read(path)?;
    let left = text.lines().filter(|line| *line != name);
    let left: String = left.flat_map(|line| [line, "\n"]).collect();
    if left.lines().count() == text.lines().count() {
        return Err(ErrorKind::NotFound.into());
    }
    replace(path, &left)
}

fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}

/// Puts a new file in the place of the old one: never half of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)?;
    fs::File::open(&fresh)?.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_and_go_and_other_lines_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(USERLIST);
        fs::write(&path, "ann\n rxgk line").unwrap();
        add(&path, "bob.admin").unwrap();
        let kind = |done: io::Result<()>| done.unwrap_err().kind();
        assert_eq!(kind(add(&path, "ann")), ErrorKind::AlreadyExists);
        for wrong in ["", "a b", "@x", "a\nb"] {
            assert_eq!(
                kind(add(&path, wrong)),
                ErrorKind::InvalidInput,
                "{wrong:?}"
            );
        }
        assert_eq!(kind(remove(&path, "eve")), ErrorKind::NotFound);
        remove(&path, "ann").unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            " rxgk line\nbob.admin\n"
        );
    }
}
