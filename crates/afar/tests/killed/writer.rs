//! Writers: one change after the other, each known to have happened, or in doubt.

use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::{RpcError, rxafs};
use afar_types::{DataVersion, Fid};
use afar_xdr::XdrString;
use bytes::Bytes;
use fastrand::Rng;
use tokio::sync::watch;

use crate::Over;
use crate::cache::{CacheManager, mode, name};
use crate::history::History;
use crate::model::{Change, Content, Object, Tree};

const FILES_MAX: usize = 12;
const DIRECTORIES_MAX: usize = 3;
const LARGEST: usize = 4 << 20;

/// A client that changes things, and what it knows to have changed.
pub(crate) struct Writer {
    pub(crate) cache: CacheManager,
    pub(crate) number: usize,
    /// A directory of its own.
    pub(crate) home: Fid,
    /// A directory in which all have names.
    pub(crate) shared: Fid,
    pub(crate) tree: Tree,
    /// The change that had no answer when the server died.
    pub(crate) doubt: Option<Change>,
    pub(crate) acknowledged: u64,
    pub(crate) rng: Rng,
    pub(crate) history: Arc<History>,
}

impl Writer {
    /// How its names in the shared directory begin.
    pub(crate) fn prefix(&self) -> String {
        format!("w{}-", self.number)
    }

    /// Works until told that the server is dead, or until it notices.
    pub(crate) async fn work(&mut self, mut over: watch::Receiver<Over>) {
        assert!(self.doubt.is_none(), "checked before");
        while *over.borrow() == Over::Not {
            let change = self.choose();
            let outcome = tokio::select! {
                biased;
                outcome = perform(&self.cache, &change) => outcome,
                _ = over.wait_for(|over| *over == Over::Now) => {
                    self.doubt = Some(change);
                    return;
                }
            };
            match outcome {
                Ok(made) => self.acknowledge(&change, made),
                Err(error) => {
                    let refused = error.aborted();
                    assert!(refused.is_none(), "{}: {change:?}: {error:?}", self.number);
                    self.doubt = Some(change);
                    return;
                }
            }
        }
    }

    fn acknowledge(&mut self, change: &Change, made: Option<(Fid, DataVersion)>) {
        self.acknowledged += 1;
        self.tree.apply(change, made);
        let Some((fid, told)) = made else { return };
        let Some(Object::File(content, version)) = self.tree.objects.get(&fid) else {
            return;
        };
        assert_eq!(
            *version, told,
            "{}: {change:?}: each store is one",
            self.number
        );
        self.history.saw(fid, *version, &content.0);
    }

    fn directories(&self) -> Vec<Fid> {
        let directory = |(fid, object): (&Fid, &Object)| match object {
            Object::Directory => Some(*fid),
            _ => None,
        };
        let inner = self.tree.objects.iter().filter_map(directory);
        [self.home, self.shared].into_iter().chain(inner).collect()
    }

    fn new_name(&mut self, directory: Fid) -> String {
        loop {
            let number = self.rng.u32(..1000);
            // Some are long, so that directories have many pages.
            let tail = "x".repeat(if number.is_multiple_of(7) { 150 } else { 0 });
            let name = format!("{}{number}{tail}", self.prefix());
            if !self.tree.names.contains_key(&(directory, name.clone())) {
                return name;
            }
        }
    }

    /// What to do next: always something that must work.
    fn choose(&mut self) -> Change {
        loop {
            let kind = self.rng.u32(..100);
            if let Some(change) = self.propose(kind) {
                return change;
            }
        }
    }

    fn propose(&mut self, kind: u32) -> Option<Change> {
        let directories = self.directories();
        let directory = directories[self.rng.usize(..directories.len())];
        let files: Vec<((Fid, String), Fid)> = (self.tree.names.iter())
            .filter(|(_, fid)| self.tree.objects[fid] != Object::Directory)
            .map(|(name, fid)| (name.clone(), *fid))
            .collect();
        let chosen = (!files.is_empty()).then(|| files[self.rng.usize(..files.len())].clone());
        match kind {
            0..12 => {
                let name = self.new_name(directory);
                (files.len() < FILES_MAX).then_some(Change::Create(directory, name))
            }
            12..16 => {
                let (name, full) = (self.new_name(directory), files.len() >= FILES_MAX);
                let target = format!("to/{}", self.rng.u32(..));
                (!full).then_some(Change::Symlink(directory, name, target))
            }
            16..20 => {
                let name = self.new_name(self.home);
                let few = directories.len() - 2 < DIRECTORIES_MAX;
                few.then_some(Change::MakeDir(self.home, name))
            }
            20..24 => {
                let inner = directories.get(2..)?;
                let empty = inner
                    .iter()
                    .find(|fid| self.tree.entries(**fid).next().is_none())?;
                let names = self.tree.names.iter();
                let ((parent, name), _) = names.clone().find(|(_, fid)| *fid == empty)?;
                Some(Change::RemoveDir(*parent, name.clone()))
            }
            24..30 => {
                let ((directory, _), fid) = chosen?;
                let is_file = matches!(self.tree.objects[&fid], Object::File(..));
                let name = self.new_name(directory);
                (is_file && files.len() < FILES_MAX).then_some(Change::Link(directory, name, fid))
            }
            30..40 => {
                let ((directory, name), _) = chosen?;
                Some(Change::Remove(directory, name))
            }
            40..52 => {
                let ((old, old_name), fid) = chosen?;
                self.rename(old, old_name, fid, directory, &files)
            }
            _ => self.store(chosen?.1),
        }
    }

    fn rename(
        &mut self,
        old: Fid,
        old_name: String,
        fid: Fid,
        new: Fid,
        files: &[((Fid, String), Fid)],
    ) -> Option<Change> {
        // What has several names stays in its directory.
        if old != new && self.tree.links(fid) > 1 {
            return None;
        }
        let replaced = files
            .iter()
            .find(|((directory, _), other)| *directory == new && *other != fid);
        let new_name = match replaced {
            Some(((_, name), _)) if self.rng.bool() => name.clone(),
            _ => self.new_name(new),
        };
        Some(Change::Rename(old, old_name, new, new_name))
    }

    fn store(&mut self, fid: Fid) -> Option<Change> {
        let Object::File(content, _) = &self.tree.objects[&fid] else {
            return None;
        };
        let length = content.0.len();
        let size = match self.rng.u32(..20) {
            0 => LARGEST - self.rng.usize(..5000),
            1 => 1 << self.rng.u32(17..22),
            2..8 => self.rng.usize(1..200_000),
            _ => self.rng.usize(1..6000),
        };
        let (position, size, cut) = match self.rng.u32(..10) {
            // Rewritten.
            0..3 => (0, size, size),
            // Appended to.
            3..6 if length + size <= LARGEST => (length, size, length + size),
            // Cut, or made longer by a hole.
            6 => (0, 0, self.rng.usize(..=length)),
            7 => {
                let end = length + self.rng.usize(..10_000);
                (end, 0, end)
            }
            // Written over in the middle.
            _ => {
                let position = self.rng.usize(..=length);
                (position, size.min(70_000), length)
            }
        };
        let data = noise(&mut self.rng, size);
        Some(Change::Store(
            fid,
            position as u64,
            Content(data),
            cut as u64,
        ))
    }
}

/// Bytes that can hardly be made smaller, or very well.
fn noise(rng: &mut Rng, size: usize) -> Bytes {
    let mut data = vec![rng.u8(..); size];
    if rng.bool() {
        rng.fill(&mut data);
    }
    data.into()
}

/// Makes a change by one call; returns what it has made or stored, if it says so.
async fn perform(
    cache: &CacheManager,
    change: &Change,
) -> Result<Option<(Fid, DataVersion)>, RpcError> {
    let files: &rxafs::Client = &cache.files;
    Ok(match change.clone() {
        Change::Create(directory, file) => {
            let made = files
                .create_file(directory, name(&file), mode(0o644))
                .await?;
            Some((made.fid, made.status.data_version))
        }
        Change::MakeDir(directory, file) => {
            let made = files.make_dir(directory, name(&file), mode(0o755)).await?;
            Some((made.fid, made.status.data_version))
        }
        Change::Symlink(directory, file, target) => {
            let target = XdrString::new(target).unwrap();
            let made = files.symlink(directory, name(&file), target, mode(0o777));
            let made = made.await?;
            Some((made.fid, made.status.data_version))
        }
        Change::Link(directory, file, existing) => {
            files.link(directory, name(&file), existing).await?;
            None
        }
        Change::Remove(directory, file) => {
            files.remove_file(directory, name(&file)).await?;
            None
        }
        Change::RemoveDir(directory, file) => {
            files.remove_dir(directory, name(&file)).await?;
            None
        }
        Change::Rename(old, old_name, new, new_name) => {
            let renamed = files.rename(old, name(&old_name), new, name(&new_name));
            renamed.await?;
            None
        }
        Change::Store(fid, position, data, length) => {
            let status = cache.store(fid, position, data.0, length).await?;
            Some((fid, status.data_version))
        }
    })
}

/// Whether a call was refused because what it is about is gone.
pub(crate) fn is_gone(error: &RpcError) -> bool {
    /// A fid nobody has (VNOVNODE).
    const VNOVNODE: AbortCode = AbortCode(102);
    error.aborted() == Some(VNOVNODE)
}
