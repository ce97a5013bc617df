//! What a command makes, so that it leaves nothing behind when it fails.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and directories that were not there, or were empty. Dropped without being kept, they are that
/// again.
#[derive(Debug, Default)]
pub struct Made {
    files: Vec<PathBuf>,
    missing: Vec<PathBuf>,
    empty: Vec<PathBuf>,
}

impl Made {
    /// This file is about to be made. One that is there is left alone.
    pub fn file(&mut self, path: &Path) {
        if fs::symlink_metadata(path).is_err() {
            self.files.push(path.to_owned());
            self.parents(path);
        }
    }

    /// This directory is about to be filled. One with something in it is left alone.
    pub fn dir(&mut self, path: &Path) {
        let is_empty = fs::read_dir(path).map(|mut entries| entries.next().is_none());
        match is_empty {
            Ok(true) => self.empty.push(path.to_owned()),
            Err(_) if fs::symlink_metadata(path).is_err() => {
                self.missing.push(path.to_owned());
                self.parents(path);
            }
            Ok(false) | Err(_) => {}
        }
    }

    /// The directories above that have to be made are there to be removed if they are empty again.
    fn parents(&mut self, path: &Path) {
        let above = path.ancestors().skip(1);
        let above = above.take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
        self.files.extend(above.map(Path::to_owned));
    }

    /// All of it stays.
    pub fn keep(mut self) {
        self.files.clear();
        self.missing.clear();
        self.empty.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for dir in &self.empty {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let _gone = match is_dir {
                    true => fs::remove_dir_all(path),
                    false => fs::remove_file(path),
                };
            }
        }
        for dir in &self.missing {
            let _gone = fs::remove_dir_all(dir);
        }
        for path in &self.files {
            // A directory goes only if there is nothing in it.
            let _gone = match path.is_dir() {
                true => fs::remove_dir(path),
                false => fs::remove_file(path),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_taken_away_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["empty", "full", "full/old"] {
            fs::create_dir(path(name)).unwrap();
        }
        let make = || {
            let mut made = Made::default();
            made.file(&path("etc/afar/afar.toml"));
            for name in ["new/data", "empty", "full"] {
                made.dir(&path(name));
            }
            for name in ["etc/afar", "new/data/vl", "empty/vl", "full/vl"] {
                fs::create_dir_all(path(name)).unwrap();
            }
            fs::write(path("etc/afar/afar.toml"), "x").unwrap();
            fs::write(path("empty/key"), "x").unwrap();
            made
        };
        drop(make());
        let left = |name: &str| fs::read_dir(path(name)).unwrap().count();
        assert_eq!((left("."), left("empty"), left("full")), (2, 0, 2));
        make().keep();
        assert_eq!((left("."), left("empty"), left("new/data")), (4, 2, 1));
    }
}
