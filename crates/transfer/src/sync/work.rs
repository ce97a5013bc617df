//! Comparing directories, and doing what that asks for: each name a job.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use afar_cell::{Client, DirEntry, Volume};
use afar_types::{Fid, VolumeId};

use super::compare::{Action, Rules, action, same_contents};
use super::contents;
use super::directory::{Directory, make_in_afs};
use super::exclude::Exclude;
use crate::directory::{make_directory, set_attributes};
use crate::error::{Context, Result, bail};
use crate::facts::{Facts, Kind};
use crate::jobs::{self, Worker};
use crate::origin::{Origin, children};
use crate::part::{part_name, part_of};
use crate::path::{bytes, shown};
use crate::progress::{Change, Meter};
use crate::target::symlink;

/// Something on one of both sides.
pub(super) type Item = (Origin, Facts);
/// Names of files in the making with what has them.
pub(super) type Parts = Vec<(Vec<u8>, Item)>;
/// What a job leaves behind.
pub(super) type Done = jobs::Done<Job, Arc<Directory>>;

/// Something to do.
pub(super) struct Job {
    /// The path below SOURCE and DEST; empty for these.
    path: Vec<u8>,
    /// The volumes above the source.
    above: Vec<VolumeId>,
    task: Task,
}

enum Task {
    /// Make a directory the same.
    Fill(Origin, Arc<Directory>),
    Change(Box<Difference>),
    Remove(Item, Arc<Directory>),
}

/// A name that is not, or may not be, the same.
pub(super) struct Difference {
    pub(super) source: Item,
    pub(super) there: Option<Item>,
    action: Action,
    /// Where it is in DEST.
    pub(super) within: Arc<Directory>,
    /// What interrupted runs have left of it.
    pub(super) parts: Parts,
}

/// Makes directories the same.
pub(super) struct Syncer {
    pub(super) client: Client,
    pub(super) progress: Arc<Meter>,
    pub(super) rules: Rules,
    pub(super) exclude: Arc<Exclude>,
    pub(super) dry_run: bool,
    pub(super) fsync: bool,
    pub(super) source: Root,
    pub(super) dest: Root,
}

/// SOURCE or DEST.
pub(super) struct Root {
    /// As it was given, without slashes at its end.
    pub(super) path: Vec<u8>,
    /// If it is in AFS.
    pub(super) node: Option<(Arc<Volume>, Fid)>,
    /// Whether it is a file itself.
    is_file: bool,
}

impl Root {
    pub(super) fn new(path: &Path, origin: Option<&Origin>) -> Self {
        let path = bytes(path);
        let end = path.iter().rposition(|&byte| byte != b'/');
        let node = match origin {
            Some(Origin::Afs(node)) => Some((Arc::clone(&node.volume), node.fid)),
            _ => None,
        };
        Self {
            path: path[..end.map_or(0, |end| end + 1)].to_vec(),
            node,
            is_file: false,
        }
    }

    fn is(&self, volume: &Volume, fid: Fid) -> bool {
        self.node.as_ref().is_some_and(|(root_volume, root)| {
            *root == fid && root_volume.cell_name() == volume.cell_name()
        })
    }

    /// A file.
    pub(super) fn file(path: &Path) -> Self {
        Self {
            is_file: true,
            ..Self::new(path, None)
        }
    }

    fn join(&self, path: &[u8]) -> Vec<u8> {
        if self.is_file {
            return self.path.clone();
        }
        [&self.path, b"/".as_slice(), path].concat()
    }
}

impl Job {
    /// The first one.
    pub(super) fn root(source: Origin, dest: Directory) -> Self {
        Self {
            path: Vec::new(),
            above: Vec::new(),
            task: Task::Fill(source, Arc::new(dest)),
        }
    }

    /// The only one, for a file that becomes the one of this name in a directory; `None` if it is the same.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) async fn single(
        client: &Client,
        source: Item,
        dest: Directory,
        name: &[u8],
        rules: Rules,
    ) -> Result<Option<Self>> {
        let (mut there, mut parts) = (None, Parts::new());
        let part = part_name(name);
        if let Some(at) = &dest.at {
            for (other, child) in children(client, at, bytes(&dest.path)).await? {
                if other == name {
                    there = Some(child?);
                } else if part_of(&other) == Some(part.as_bytes()) {
                    parts.push((other, child?));
                }
            }
        }
        let action = action(&source.1, there.as_ref().map(|(_, facts)| facts), rules);
        let difference = Difference {
            source,
            there,
            action,
            within: Arc::new(dest),
            parts,
        };
        Ok((difference.action != Action::Nothing).then(|| Self {
            path: name.to_vec(),
            above: Vec::new(),
            task: Task::Change(Box::new(difference)),
        }))
    }
}

impl Worker for Syncer {
    type Job = Job;
    type Later = Arc<Directory>;

    async fn work(&self, job: Job) -> Done {
        let mut done = Done::default();
        let (path, above) = (&job.path, &job.above);
        let shown_path = match &job.task {
            Task::Fill(..) | Task::Change(_) => self.source.join(path),
            Task::Remove(..) => self.dest_path(path),
        };
        let result = match job.task {
            Task::Fill(source, to) => self.fill(path, above, &source, to, &mut done).await,
            Task::Change(difference) => self.change(path, above, *difference, &mut done).await,
            Task::Remove(there, within) => self.delete(path, &there, &within, &mut done).await,
        };
        if let Err(error) = result {
            let path = String::from_utf8_lossy(&shown_path).into_owned();
            done.errors.push(error.context(path));
        }
        done
    }

    async fn finish(&self, directory: Arc<Directory>) -> Result<()> {
        if self.dry_run || !directory.is_to_be_set() {
            return Ok(());
        }
        if let Some(at) = &directory.at {
            let set = self.set_attributes(at, &directory.wanted).await;
            set.with_context(|| shown(&directory.path))?;
        }
        Ok(())
    }

    fn progress(&self) -> &Meter {
        &self.progress
    }
}

impl Syncer {
    /// A path below DEST, for messages.
    pub(super) fn dest_path(&self, path: &[u8]) -> Vec<u8> {
        self.dest.join(path)
    }

    pub(super) fn is_source(&self, volume: &Volume, fid: Fid) -> bool {
        self.source.is(volume, fid)
    }

    /// Tells of a change.
    fn note(&self, change: Change, path: &[u8]) -> Result<()> {
        Ok(self.progress.changed(change, path)?)
    }

    /// Compares what is in a directory, and finds what to do.
    async fn fill(
        &self,
        path: &[u8],
        above: &[VolumeId],
        source: &Origin,
        to: Arc<Directory>,
        done: &mut Done,
    ) -> Result<()> {
        let source_path = self.source.join(path);
        let theirs = async {
            match &to.at {
                Some(there) => children(&self.client, there, bytes(&to.path)).await,
                None => Ok(Vec::new()),
            }
        };
        let (ours, theirs) = tokio::join!(children(&self.client, source, &source_path), theirs);
        let (ours, theirs) = (ours?, theirs.with_context(|| shown(&to.path))?);
        done.later = Some(Arc::clone(&to));
        let mut parts = BTreeMap::<Vec<u8>, Parts>::new();
        let mut there = BTreeMap::new();
        for (name, child) in theirs {
            match (part_of(&name), child) {
                (Some(part), Ok(item)) => {
                    parts.entry(part.to_vec()).or_default().push((name, item));
                }
                (_, child) => {
                    there.insert(name, child);
                }
            }
        }
        let job = |path, task| Job {
            path,
            above: above.to_vec(),
            task,
        };
        for (name, source) in ours {
            // What another run has not finished there is none of what is to be copied.
            if part_of(&name).is_some() {
                continue;
            }
            let (has, path) = (there.remove(&name), join(path, &name));
            let (source, has) = match (source, has.transpose()) {
                (Ok(source), Ok(has)) => (source, has),
                (Err(error), _) | (_, Err(error)) => {
                    done.errors.push(error);
                    continue;
                }
            };
            if self.exclude.has(&path, source.1.is_directory()) {
                done.totals.skipped += 1;
                continue;
            }
            let action = action(&source.1, has.as_ref().map(|(_, facts)| facts), self.rules);
            if action == Action::Nothing {
                done.totals.unchanged += 1;
                continue;
            }
            let difference = Difference {
                parts: parts
                    .remove(part_name(&name).as_bytes())
                    .unwrap_or_default(),
                source,
                there: has,
                action,
                within: Arc::clone(&to),
            };
            done.more
                .push(job(path, Task::Change(Box::new(difference))));
        }
        if !self.rules.delete {
            return Ok(());
        }
        let parts = parts.into_values().flatten();
        let parts = parts.map(|(name, item)| (name, Ok(item)));
        for (name, item) in there.into_iter().chain(parts) {
            let path = join(path, &name);
            match item {
                Ok(item) if self.exclude.has(&path, item.1.is_directory()) => {
                    done.totals.skipped += 1;
                }
                Ok(item) => done
                    .more
                    .push(job(path, Task::Remove(item, Arc::clone(&to)))),
                Err(error) => done.errors.push(error),
            }
        }
        Ok(())
    }

    /// Does what a difference asks for.
    async fn change(
        &self,
        path: &[u8],
        above: &[VolumeId],
        mut difference: Difference,
        done: &mut Done,
    ) -> Result<()> {
        if let (Action::Compare, Some(there)) = (difference.action, &difference.there) {
            let same = self.same(&difference.source, there).await?;
            difference.action = if same {
                same_contents(&difference.source.1, &there.1)
            } else {
                Action::Copy
            };
        }
        match difference.action {
            Action::Nothing | Action::Compare => {
                done.totals.unchanged += 1;
                Ok(())
            }
            Action::Attributes => self.set(path, &difference, done).await,
            Action::Copy => self.copy(path, &difference, done).await,
            Action::Enter => self.enter(path, above, difference, done).await,
            Action::Replace => {
                if let Some(there) = difference.there.take()
                    && !self.delete_for(path, &there, &difference, done).await?
                {
                    return Ok(());
                }
                if difference.source.1.is_directory() {
                    self.enter(path, above, difference, done).await
                } else {
                    self.copy(path, &difference, done).await
                }
            }
            Action::Refuse => bail!(
                Delete => "{} is a directory, and nothing is deleted",
                String::from_utf8_lossy(&self.dest_path(path))
            ),
            Action::Special => {
                bail!("is a device, pipe or socket, which AFS does not have; not copied")
            }
        }
    }

    /// Whether two files or symlinks have the same contents.
    async fn same(&self, source: &Item, there: &Item) -> Result<bool> {
        if source.1.kind == Kind::Symlink {
            let source = contents::target(&self.client, &source.0).await?;
            return Ok(source == contents::target(&self.client, &there.0).await?);
        }
        contents::same_file(&self.client, &source.0, &there.0).await
    }

    /// Removes what stands in the way of a copy; returns whether it is gone.
    async fn delete_for(
        &self,
        path: &[u8],
        there: &Item,
        difference: &Difference,
        done: &mut Done,
    ) -> Result<bool> {
        let dest_path = || String::from_utf8_lossy(&self.dest_path(path)).into_owned();
        let errors = done.errors.len();
        let gone = self.remove(path, there, &difference.within, done).await;
        let gone = gone.with_context(dest_path)?;
        if gone {
            self.note(Change::Delete, path)?;
        } else if done.errors.len() == errors {
            bail!("{} stays, because an excluded name is in it", dest_path());
        }
        Ok(gone)
    }

    /// Removes what the source does not have.
    async fn delete(
        &self,
        path: &[u8],
        there: &Item,
        within: &Directory,
        done: &mut Done,
    ) -> Result<()> {
        if self.remove(path, there, within, done).await? {
            self.note(Change::Delete, path)?;
        }
        Ok(())
    }

    /// Sets mode and time of a file whose contents are the same.
    async fn set(&self, path: &[u8], difference: &Difference, done: &mut Done) -> Result<()> {
        let Difference { source, there, .. } = difference;
        if let Some((there, _)) = there
            && !self.dry_run
        {
            let set = self.set_attributes(there, &source.1).await;
            set.with_context(|| String::from_utf8_lossy(&self.dest_path(path)).into_owned())?;
        }
        done.totals.attributes += 1;
        self.note(Change::Set, path)
    }

    async fn set_attributes(&self, there: &Origin, wanted: &Facts) -> Result<()> {
        match there {
            Origin::Local(path) => set_attributes(path, wanted.mode, wanted.modified)?,
            Origin::Afs(node) => {
                let attributes = wanted.attributes(true, 0);
                self.client
                    .set_attributes(&node.volume, node.fid, attributes)
                    .await?;
            }
        }
        Ok(())
    }

    /// Copies a file or symlink.
    async fn copy(&self, path: &[u8], difference: &Difference, done: &mut Done) -> Result<()> {
        let (source, facts) = &difference.source;
        let within = &difference.within;
        if let (Kind::File(length), true) = (facts.kind, self.dry_run) {
            done.totals.files += 1;
            done.totals.bytes += length;
            return self.note(Change::Copy, path);
        }
        if !self.dry_run {
            within.change();
        }
        if facts.kind == Kind::Symlink {
            if !self.dry_run {
                let target = contents::target(&self.client, source).await?;
                self.link(last(path), &target, difference).await?;
            }
            done.totals.symlinks += 1;
            return self.note(Change::Link, path);
        }
        let _current = self.progress.file(path);
        match (source, &within.at) {
            (Origin::Afs(node), Some(Origin::Local(directory))) => {
                self.download(node, directory, last(path), done).await?;
            }
            (_, Some(Origin::Afs(directory))) => {
                self.upload(directory, last(path), difference, done).await?;
            }
            (Origin::Local(_), _) | (_, None) => bail!("is not in AFS, nor is its copy"),
        }
        done.totals.files += 1;
        self.note(Change::Copy, path)
    }

    /// Makes a symlink.
    async fn link(&self, name: &[u8], target: &[u8], difference: &Difference) -> Result<()> {
        let path = difference.within.path.join(OsStr::from_bytes(name));
        let cannot_write = || format!("cannot write {}", shown(&path));
        let Some(Origin::Afs(directory)) = &difference.within.at else {
            let target = Path::new(OsStr::from_bytes(target));
            return symlink(target, &path).with_context(cannot_write);
        };
        let (volume, fid) = (&directory.volume, directory.fid);
        if let Some((Origin::Afs(there), _)) = &difference.there {
            let entry = DirEntry {
                name: name.to_vec(),
                fid: there.fid,
            };
            let removed = self.client.remove_file(volume, fid, &entry).await;
            removed.with_context(cannot_write)?;
        }
        let made = self.client.symlink(volume, fid, name, target).await;
        made.with_context(cannot_write)?;
        Ok(())
    }

    /// Goes into a directory, which is made if it is not there.
    async fn enter(
        &self,
        path: &[u8],
        above: &[VolumeId],
        difference: Difference,
        done: &mut Done,
    ) -> Result<()> {
        let Difference {
            source,
            there,
            within,
            ..
        } = difference;
        let mut above = above.to_vec();
        let (source, facts) = self.crossed(source, &mut above).await?;
        if let Origin::Afs(node) = &source
            && self.dest.is(&node.volume, node.fid)
        {
            bail!("is DEST itself; it is not copied into itself");
        }
        let dest_path = within.path.join(OsStr::from_bytes(last(path)));
        let directory = match there {
            Some(there) => {
                let (at, has) = self.crossed(there, &mut Vec::new()).await?;
                Directory::new(Some(at), dest_path, facts, Some(has))
            }
            None => {
                let at = self.make(&within, last(path), &dest_path, &facts);
                let at = at
                    .await
                    .with_context(|| format!("cannot make {}", shown(&dest_path)))?;
                done.totals.directories += 1;
                self.note(Change::Make, path)?;
                Directory::new(at, dest_path, facts, None)
            }
        };
        done.more.push(Job {
            path: path.to_vec(),
            above,
            task: Task::Fill(source, Arc::new(directory)),
        });
        Ok(())
    }

    /// What a mount point leads to; directories are themselves.
    async fn crossed(&self, item: Item, above: &mut Vec<VolumeId>) -> Result<Item> {
        let (Origin::Afs(node), Kind::MountPoint) = (&item.0, item.1.kind) else {
            return Ok(item);
        };
        let crossed = self.client.cross(&node.volume, node.fid).await?;
        above.push(node.volume.id());
        if above.contains(&crossed.volume.id()) {
            bail!(
                "leads back into volume {} above it; not copied",
                crossed.volume
            );
        }
        let facts = Facts::from(&crossed.status);
        Ok((Origin::Afs(crossed), facts))
    }

    /// Makes a directory; none in a dry run.
    async fn make(
        &self,
        within: &Directory,
        name: &[u8],
        path: &Path,
        facts: &Facts,
    ) -> Result<Option<Origin>> {
        if self.dry_run {
            return Ok(None);
        }
        within.change();
        match &within.at {
            None => Ok(None),
            Some(Origin::Local(_)) => {
                make_directory(path, facts.mode)?;
                Ok(Some(Origin::Local(path.to_owned())))
            }
            Some(Origin::Afs(directory)) => {
                let volume = &directory.volume;
                let made = make_in_afs(&self.client, volume, directory.fid, name, facts);
                made.await.map(Some)
            }
        }
    }
}

/// The last name of a path.
pub(super) fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// A path and a name below it.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        name.to_vec()
    } else {
        [path, b"/", name].concat()
    }
}
