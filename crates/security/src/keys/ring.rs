//! The keys a server has at hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Key, KeyError, KeyInfo, KeyKind, Record};
use crate::kerberos::EncryptionType;
use crate::reload::Watched;

/// The keys of the cell, from one or more files. A file that changes is read again by itself: it is
/// looked at when a key is asked for, at most once a second, so a new key needs no restart. A file
/// that is broken or gone changes nothing until it is whole again; the log tells.
#[derive(Debug)]
pub struct KeyRing {
    files: Vec<Watched<Vec<Record>, KeyError>>,
    fixed: Arc<Vec<Record>>,
}

/// With which of several keys tickets are made, the best first: as OpenAFS prefers, and so that it
/// can open them; RFC 8009's it cannot.
// spec: security#keys-that-tickets-are-made-with
const PREFERENCE: [EncryptionType; 5] = [
    EncryptionType::Aes256Sha1,
    EncryptionType::Aes128Sha1,
    EncryptionType::Aes256Sha2,
    EncryptionType::Aes128Sha2,
    EncryptionType::Rc4,
];

impl KeyRing {
    /// Reads files of keys: KeyFileExt, keytabs (of which only the keys of `afs` and `afs/<cell>`
    /// are taken), and KeyFiles, which are known by that name. Where two have a key of the same
    /// number and type, that of the earlier file comes first.
    ///
    /// # Errors
    /// [`KeyError`], if one cannot be read.
    pub fn open<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Result<Self, KeyError> {
        let files = paths
            .into_iter()
            .map(|path| Watched::open(path.into(), super::read))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            files,
            fixed: Arc::default(),
        })
    }

    /// A ring of these keys, in no file.
    #[must_use]
    pub fn of(keys: impl IntoIterator<Item = Key>) -> Self {
        let fixed = keys.into_iter().map(|key| Record::of(&key)).collect();
        Self {
            files: Vec::new(),
            fixed: Arc::new(fixed),
        }
    }

    /// The key of this number and encryption type. A key of DES fits all of DES's types.
    #[must_use]
    pub fn find(&self, kvno: u32, etype: i32) -> Option<Key> {
        self.matching(kvno, etype).into_iter().next()
    }

    /// All keys of this number and encryption type: keytabs may have one for `afs` and another for
    /// `afs/<cell>`.
    pub(crate) fn matching(&self, kvno: u32, etype: i32) -> Vec<Key> {
        let des = EncryptionType::from_number(etype).is_some_and(EncryptionType::is_des);
        let fits = |record: &&Record| {
            record.kvno == kvno
                && match record.kind {
                    KeyKind::Rxkad => des,
                    KeyKind::RxkadKrb5 => !des && record.etype == etype,
                    KeyKind::Rxgk | KeyKind::Other(_) => false,
                }
        };
        let mut keys: Vec<Key> = Vec::new();
        for (records, _) in self.sets() {
            for key in records.iter().filter(fits).map(|record| record.key(etype)) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// The key to make tickets with: of the best encryption type the one with the highest number.
    /// Keys of DES are not taken.
    #[must_use]
    pub fn newest(&self) -> Option<Key> {
        let kvnos: Vec<(u32, i32)> = self
            .list()
            .into_iter()
            .filter(|info| info.kind == KeyKind::RxkadKrb5)
            .map(|info| (info.kvno, info.etype))
            .collect();
        PREFERENCE.iter().find_map(|etype| {
            let etype = etype.number();
            let of_type = kvnos.iter().filter(|&&(_, its)| its == etype);
            self.find(of_type.map(|&(kvno, _)| kvno).max()?, etype)
        })
    }

    /// What there is, file by file.
    #[must_use]
    pub fn list(&self) -> Vec<KeyInfo> {
        self.sets()
            .flat_map(|(records, source)| {
                let infos = records.iter().map(|record| KeyInfo::of(record, source));
                infos.collect::<Vec<_>>()
            })
            .collect()
    }

    /// Whether there is no key to open tickets with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.list().iter().any(KeyInfo::is_usable)
    }

    /// The files, in words.
    pub(crate) fn sources(&self) -> String {
        let paths = self
            .files
            .iter()
            .map(|file| file.path().display().to_string());
        let paths: Vec<String> = paths.collect();
        if paths.is_empty() {
            "no file".to_owned()
        } else {
            paths.join(", ")
        }
    }

    fn sets(&self) -> impl Iterator<Item = (Arc<Vec<Record>>, &Path)> {
        let files = self.files.iter().map(|file| (file.get(), file.path()));
        files.chain([(Arc::clone(&self.fixed), Path::new(""))])
    }

    /// Looks at the files whenever a key is asked for.
    #[cfg(test)]
    pub(super) fn always_look(mut self) -> Self {
        self.files = self.files.into_iter().map(Watched::always_look).collect();
        self
    }
}
