//! afar's own places for tokens: the kernel's keyring where there is one, else files.

use std::io;
use std::path::{Path, PathBuf};

use afar_types::CellName;

use super::entry::EntryError;
use super::files::Files;
use super::keyring;
use super::{Held, Source};

/// Names the place for tokens: a directory, or `keyring`.
pub const STORE_VARIABLE: &str = "AFAR_TOKENS";

/// A token that could not be kept, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be kept at all.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// What is kept is no token.
    #[error("{place}: {source}")]
    Damaged {
        /// Where.
        place: Source,
        /// What is wrong with it.
        source: EntryError,
    },
    /// A directory or file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory or file is not safe to use.
    #[error("{}: {problem}, so that others could read or change tokens", path.display())]
    Unsafe {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The kernel's keyring does not take tokens.
    #[error("the kernel's keyring: {0}")]
    Keyring(#[source] io::Error),
}

/// The tokens of the user this process runs as.
#[derive(Clone, Debug)]
pub struct Store {
    keyring: bool,
    files: Option<Files>,
    /// Somebody else's, as root sees them.
    other: Option<u32>,
}

impl Store {
    /// The user's store: what [`STORE_VARIABLE`] names; else the keyring of the session, and where
    /// that takes no tokens, files below `$XDG_RUNTIME_DIR`, `/run/user/UID` or `/tmp`.
    #[must_use]
    pub fn new() -> Self {
        match std::env::var_os(STORE_VARIABLE) {
            Some(place) if place == "keyring" => Self {
                keyring: true,
                files: None,
                other: None,
            },
            Some(place) if !place.is_empty() => Self::in_dir(Path::new(&place)),
            _ => Self {
                keyring: true,
                files: Some(Files::usual()),
                other: None,
            },
        }
    }

    /// A store in this directory, which is made with the first token.
    #[must_use]
    pub fn in_dir(path: &Path) -> Self {
        Self {
            keyring: false,
            files: Some(Files::new(path.to_owned())),
            other: None,
        }
    }

    /// The store of any user of this machine, to be looked at by root: the user's keys in the kernel's
    /// keyrings, then the files in the session's directory or in `/tmp`. What variables of the user's
    /// own session name instead is not known here.
    #[must_use]
    pub fn of_user(uid: u32) -> Self {
        Self {
            keyring: false,
            files: Some(Files::of_user(uid)),
            other: Some(uid),
        }
    }

    /// Keeps a token in place of the one there was for its cell. Says where it is.
    ///
    /// # Errors
    /// When no place takes it.
    pub fn put(&self, held: &Held) -> Result<Source, StoreError> {
        let entry = held.to_entry()?;
        if self.keyring {
            match (keyring::put(held, &entry), &self.files) {
                (Ok(()), files) => {
                    // One that was kept while the keyring did not work is out of date now.
                    if let Some(files) = files {
                        files.remove(&held.cell)?;
                    }
                    return Ok(Source::Keyring);
                }
                (Err(error), None) => return Err(StoreError::Keyring(error)),
                (Err(error), Some(_)) => tracing::debug!(
                    "cannot put a token into the keyring: \
                                                          {error}"
                ),
            }
        }
        match &self.files {
            Some(files) => files.put(held, &entry),
            None => Err(StoreError::Keyring(io::ErrorKind::Unsupported.into())),
        }
    }

    /// The token for a cell, and where it is; expired ones too.
    ///
    /// # Errors
    /// When what is kept cannot be read or is no token.
    pub fn find(&self, cell: &CellName) -> Result<Option<(Held, Source)>, StoreError> {
        if self.keyring
            && let Some(entry) = self.keyring_says(keyring::find(cell))?.flatten()
        {
            return read(&entry, Source::Keyring).map(Some);
        }
        if let Some(kept) = self.of_other(|held| held.cell == *cell).pop() {
            return Ok(Some(kept));
        }
        match &self.files {
            Some(files) => files.find(cell),
            None => Ok(None),
        }
    }

    /// The tokens in another user's keyrings, those that end last behind.
    fn of_other(&self, wanted: impl Fn(&Held) -> bool) -> Vec<(Held, Source)> {
        let Some(uid) = self.other else {
            return Vec::new();
        };
        let entries = keyring::of_user(uid).unwrap_or_else(|error| {
            tracing::debug!("cannot look at the keys of user {uid}: {error}");
            Vec::new()
        });
        let found = entries
            .iter()
            .filter_map(|entry| read(entry, Source::Keyring).ok());
        let mut found: Vec<_> = found.filter(|(held, _)| wanted(held)).collect();
        found.sort_by_key(|(held, _)| held.token.end);
        found
    }

    /// All tokens in the order of their cells; expired ones too. One that cannot be read is an
    /// error among the others.
    #[must_use]
    pub fn all(&self) -> Vec<Result<(Held, Source), StoreError>> {
        let mut found = Vec::new();
        if self.keyring {
            match self.keyring_says(keyring::all()) {
                Ok(entries) => {
                    let entries = entries.into_iter().flatten();
                    found.extend(entries.map(|entry| read(&entry, Source::Keyring)));
                }
                Err(error) => found.push(Err(error)),
            }
        }
        found.extend(self.of_other(|_| true).into_iter().rev().map(Ok));
        if let Some(files) = &self.files {
            found.extend(files.all());
        }
        let cell = |found: &Result<(Held, Source), StoreError>| {
            found.as_ref().ok().map(|(held, _)| held.cell.clone())
        };
        found.sort_by_key(cell);
        // Of a cell the first one counts, as it does when it is looked for.
        found.dedup_by(|later, first| cell(later).is_some() && cell(later) == cell(first));
        found
    }

    /// Removes the token for a cell. Says whether there was one.
    ///
    /// # Errors
    /// When it is there and cannot be removed.
    pub fn remove(&self, cell: &CellName) -> Result<bool, StoreError> {
        let kept = self.keyring && self.keyring_says(keyring::remove(cell))?.unwrap_or(false);
        let file = match &self.files {
            Some(files) => files.remove(cell)?,
            None => false,
        };
        Ok(kept || file)
    }

    /// What the keyring says; nothing if it does not work and there is another place.
    fn keyring_says<T>(&self, said: io::Result<T>) -> Result<Option<T>, StoreError> {
        match said {
            Ok(said) => Ok(Some(said)),
            Err(error) if self.files.is_none() => Err(StoreError::Keyring(error)),
            Err(error) => {
                tracing::debug!("cannot look at the kernel's keyring: {error}");
                Ok(None)
            }
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn read(entry: &[u8], place: Source) -> Result<(Held, Source), StoreError> {
    match Held::from_octets(entry) {
        Ok(held) => Ok((held, place)),
        Err(source) => Err(StoreError::Damaged { place, source }),
    }
}

#[cfg(test)]
mod tests;
