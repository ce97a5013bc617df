//! Changing a KeyFileExt.
//!
//! Each function makes one change and puts the whole file in place by a rename, so that servers and
//! a crash see either the old keys or the new. Two that change a file at once wait for each other.
//! What other programs keep in the file, such as keys of rxgk, stays.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::keyfile::{parse_ext, write_ext};
use super::{Key, KeyError, KeyInfo, KeyKind, Record, keytab};
use crate::kerberos::{EncryptionKey, EncryptionType};
use crate::reload;

/// What is in a file of keys of any kind: KeyFileExt, keytab or KeyFile.
///
/// # Errors
/// [`KeyError`], if it cannot be read.
pub fn list(path: &Path) -> Result<Vec<KeyInfo>, KeyError> {
    let records = super::read(path)?;
    Ok(records
        .iter()
        .map(|record| KeyInfo::of(record, path))
        .collect())
}

/// Adds a key to a KeyFileExt, which is made if it is not there. Tells whether it had not been in
/// it already.
///
/// # Errors
/// [`KeyError::Exists`] if there is another key of this number and type; [`KeyError::Des`] and
/// [`KeyError::Unusable`] for a key that would open no tickets; or the file cannot be changed.
pub fn add(path: &Path, key: &Key) -> Result<bool, KeyError> {
    check(key)?;
    change(path, |records| insert(path, records, Record::of(key)))
}

/// Takes keys for tickets out of a KeyFileExt: those with this number, and this encryption type if
/// one is given. Gives what was taken out.
///
/// # Errors
/// [`KeyError::Missing`] if there is none; or the file cannot be changed.
pub fn remove(path: &Path, kvno: u32, etype: Option<i32>) -> Result<Vec<KeyInfo>, KeyError> {
    change(path, |records| {
        let goes = |record: &Record| {
            record.kind == KeyKind::RxkadKrb5
                && record.kvno == kvno
                && etype.is_none_or(|etype| etype == record.etype)
        };
        let gone = records.iter().filter(|record| goes(record));
        let gone: Vec<KeyInfo> = gone.map(|record| KeyInfo::of(record, path)).collect();
        if gone.is_empty() {
            let path = path.to_owned();
            return Err(KeyError::Missing { path, kvno });
        }
        records.retain(|record| !goes(record));
        Ok(gone)
    })
}

/// Adds a new random key to a KeyFileExt, which is made if it is not there; without a number, with
/// the next one. Gives the key.
///
/// # Errors
/// As [`add`].
pub fn generate(path: &Path, kvno: Option<u32>, etype: EncryptionType) -> Result<Key, KeyError> {
    if etype.is_des() {
        return Err(KeyError::Des(etype));
    }
    change(path, |records| {
        let tickets = records
            .iter()
            .filter(|record| record.kind == KeyKind::RxkadKrb5);
        let highest = tickets.map(|record| record.kvno).max().unwrap_or(0);
        let key = Key {
            kvno: kvno.unwrap_or_else(|| highest.saturating_add(1)),
            key: EncryptionKey::random(etype),
        };
        insert(path, records, Record::of(&key))?;
        Ok(key)
    })
}

/// What became of the keys of an imported file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Keys that are new.
    pub added: Vec<KeyInfo>,
    /// Keys that were there already.
    pub present: Vec<KeyInfo>,
    /// Keys that open no tickets here: of DES, which has a file of its own, and of unknown types.
    pub skipped: Vec<KeyInfo>,
}

/// Adds the keys of a keytab, or of another KeyFileExt, to a KeyFileExt. All of them or, if one
/// fails, none.
///
/// # Errors
/// [`KeyError::Exists`] if another key of the same number and type is there already or in the
/// file twice; or a file cannot be read or changed.
pub fn import(path: &Path, from: &Path) -> Result<Imported, KeyError> {
    let new = super::read(from)?;
    change(path, |records| {
        let mut imported = Imported::default();
        for record in new {
            let info = KeyInfo::of(&record, from);
            let to = if record.kind == KeyKind::Rxkad || !info.is_usable() {
                &mut imported.skipped
            } else if insert(path, records, record)? {
                &mut imported.added
            } else {
                &mut imported.present
            };
            to.push(info);
        }
        Ok(imported)
    })
}

fn check(key: &Key) -> Result<(), KeyError> {
    match key.key.known_type() {
        Some(etype) if etype.is_des() => Err(KeyError::Des(etype)),
        Some(_) => Ok(()),
        None => Err(KeyError::Unusable {
            etype: key.key.etype(),
            length: key.key.octets().len(),
        }),
    }
}

/// Puts a record in, unless it is there; tells whether it was not.
fn insert(path: &Path, records: &mut Vec<Record>, new: Record) -> Result<bool, KeyError> {
    match records.iter().find(|record| record.id() == new.id()) {
        None => {
            records.push(new);
            Ok(true)
        }
        Some(record) if *record == new => Ok(false),
        Some(_) => Err(KeyError::Exists {
            path: path.to_owned(),
            kvno: new.kvno,
            etype: new.etype,
        }),
    }
}

/// Reads a KeyFileExt, changes its records and writes it if they changed.
fn change<T>(
    path: &Path,
    edit: impl FnOnce(&mut Vec<Record>) -> Result<T, KeyError>,
) -> Result<T, KeyError> {
    let failed = |source| KeyError::Write {
        path: path.to_owned(),
        source,
    };
    // The file itself, so that a link to it stays one.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = folder_of(&real);
    let folder = File::open(folder).map_err(failed)?;
    folder.lock().map_err(failed)?;
    let mut records = read_ext(path)?;
    let before = records.clone();
    let answer = edit(&mut records)?;
    if records != before {
        write(&real, &folder, &write_ext(&records)).map_err(failed)?;
    }
    Ok(answer)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The records of a KeyFileExt; none if it is not there.
fn read_ext(path: &Path) -> Result<Vec<Record>, KeyError> {
    let content = match reload::read(path) {
        Ok((content, _)) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            let path = path.to_owned();
            return Err(KeyError::Read { path, source });
        }
    };
    if keytab::is(&content) || path.file_name().is_some_and(|name| name == "KeyFile") {
        return Err(KeyError::NoKeyFile {
            path: path.to_owned(),
            what: "is not a KeyFileExt; only those can be changed",
        });
    }
    parse_ext(&content).map_err(|damage| damage.of(path))
}

/// Puts a file with this content in place of another, or makes it. It belongs to the owner of the
/// other, and only that owner may read it.
fn write(path: &Path, folder: &File, content: &[u8]) -> io::Result<()> {
    let new = new_name(path);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            if let Ok(old) = fs::metadata(path) {
                let ours = file.metadata()?;
                if (old.uid(), old.gid()) != (ours.uid(), ours.gid()) {
                    fchown(&file, Some(old.uid()), Some(old.gid()))?;
                }
            }
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            folder.sync_all()
        });
    if written.is_err() {
        // It has keys in it. That it may not be there is fine.
        drop(fs::remove_file(&new));
    }
    written
}

/// A name beside a file that nothing else has.
fn new_name(path: &Path) -> PathBuf {
    let random = u64::from_ne_bytes(*crate::random::octets::<8>());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{random:016x}"));
    path.with_file_name(name)
}
