//! What a writer has done, as it must be found again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use afar_types::{DataVersion, Fid};
use bytes::Bytes;

/// The data of a file, told by its length and the first of its bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Content(pub(crate) Bytes);

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.0.iter().fold(0_u32, |sum, octet| {
            sum.wrapping_mul(16_777_619) ^ u32::from(*octet)
        });
        write!(f, "{} bytes, {sum:08x}", self.0.len())
    }
}

/// What a name can lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    File(Content, DataVersion),
    Directory,
    Symlink(String),
}

/// A change, as one call makes it.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Create(Fid, String),
    MakeDir(Fid, String),
    Symlink(Fid, String, String),
    Link(Fid, String, Fid),
    Remove(Fid, String),
    RemoveDir(Fid, String),
    Rename(Fid, String, Fid, String),
    /// Fid, position, data, length to be cut to.
    Store(Fid, u64, Content, u64),
}

/// The names a writer has made, and what they lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) names: BTreeMap<(Fid, String), Fid>,
    pub(crate) objects: BTreeMap<Fid, Object>,
}

impl Tree {
    /// How many names lead to this.
    pub(crate) fn links(&self, fid: Fid) -> usize {
        self.names.values().filter(|named| **named == fid).count()
    }

    /// The names in a directory.
    pub(crate) fn entries(&self, directory: Fid) -> impl Iterator<Item = (&str, Fid)> {
        let all = self.names.iter();
        all.filter(move |((parent, _), _)| *parent == directory)
            .map(|((_, name), fid)| (&**name, *fid))
    }

    /// Makes a change that worked. What it has made is `made`.
    pub(crate) fn apply(&mut self, change: &Change, made: Option<(Fid, DataVersion)>) {
        let made = || made.expect("a call that makes something says what");
        match change {
            Change::Create(directory, name) => {
                let (fid, version) = made();
                self.add(*directory, name, fid);
                let new = self
                    .objects
                    .insert(fid, Object::File(Content::default(), version));
                assert_eq!(new, None, "{fid:?} is in use");
            }
            Change::MakeDir(directory, name) => {
                self.add(*directory, name, made().0);
                self.objects.insert(made().0, Object::Directory);
            }
            Change::Symlink(directory, name, target) => {
                self.add(*directory, name, made().0);
                let link = Object::Symlink(target.clone());
                self.objects.insert(made().0, link);
            }
            Change::Link(directory, name, fid) => self.add(*directory, name, *fid),
            Change::Remove(directory, name) | Change::RemoveDir(directory, name) => {
                self.remove(*directory, name);
            }
            Change::Rename(old, old_name, new, new_name) => {
                let moved = self.names[&(*old, old_name.clone())];
                if self.names.contains_key(&(*new, new_name.clone())) {
                    self.remove(*new, new_name);
                }
                self.names.remove(&(*old, old_name.clone()));
                self.add(*new, new_name, moved);
            }
            Change::Store(fid, position, data, file_length) => {
                self.store(*fid, *position, data, *file_length);
            }
        }
    }

    fn add(&mut self, directory: Fid, name: &str, fid: Fid) {
        self.names.insert((directory, name.to_owned()), fid);
    }

    fn remove(&mut self, directory: Fid, name: &str) {
        let gone = self.names.remove(&(directory, name.to_owned()));
        let gone = gone.expect("only what is there is removed");
        if self.links(gone) == 0 {
            self.objects.remove(&gone);
        }
    }

    fn store(&mut self, fid: Fid, position: u64, data: &Content, file_length: u64) {
        let Some(Object::File(content, version)) = self.objects.get_mut(&fid) else {
            unreachable!("data is stored to files");
        };
        let mut whole = content.0.to_vec();
        let begin = usize::try_from(position).unwrap();
        let end = begin + data.0.len();
        // Shortened to what is asked for, then as long as the data reaches, even if that is none.
        whole.truncate(usize::try_from(file_length).unwrap());
        whole.resize(whole.len().max(end), 0);
        whole[begin..end].copy_from_slice(&data.0);
        *content = Content(whole.into());
        version.0 += 1;
    }

    /// What is different in the other one, in a few lines.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        let names: BTreeSet<_> = self.names.keys().chain(other.names.keys()).collect();
        for name in names {
            let (ours, theirs) = (self.names.get(name), other.names.get(name));
            if ours != theirs {
                lines.push(format!("{name:?}: {ours:?}, found {theirs:?}"));
            }
        }
        let fids: BTreeSet<_> = self.objects.keys().chain(other.objects.keys()).collect();
        for fid in fids {
            let (ours, theirs) = (self.objects.get(fid), other.objects.get(fid));
            if ours != theirs {
                lines.push(format!("{fid:?}: {ours:?}, found {theirs:?}"));
            }
        }
        lines.join("\n")
    }
}
