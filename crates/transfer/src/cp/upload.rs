//! One copy into AFS: of a file, a directory or a symlink.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use afar_cell::{Client, LastLink, Node, Stored, Volume, Walked};
use afar_types::{Fid, StoreStatus, VolumeId};
use parking_lot::Mutex;

use super::options::CopyOptions;
use super::place::Target;
use crate::error::{Context, Result, bail};
use crate::facts::{Facts, Kind};
use crate::jobs::{self, Worker};
use crate::origin::{Origin, children};
use crate::part::part_name_of;
use crate::path::{FILL_DIRECTORY, FILL_FILE, bytes, shown, umask};
use crate::progress::{Event, Meter};
use crate::segments::{SEGMENT, Segments, stored_before, version_of};
use crate::store::{Storing, room_for};

/// Something to copy.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// The path of the original, for messages.
    path: Vec<u8>,
    origin: Origin,
    to: Target,
    /// The volumes the original is below, if it is in AFS.
    above: Vec<VolumeId>,
}

/// A directory whose attributes are set when all is in it.
#[derive(Debug)]
pub(super) struct Later {
    volume: Arc<Volume>,
    fid: Fid,
    attributes: StoreStatus,
    path: PathBuf,
}

/// What a job leaves behind.
type Done = jobs::Done<Job, Later>;

/// Copies.
#[derive(Debug)]
pub(super) struct Uploader {
    client: Client,
    progress: Arc<Meter>,
    options: CopyOptions,
    umask: u32,
    /// Directories that copies went to, which are not copied themselves: that would have no end.
    filled: Mutex<BTreeSet<Fid>>,
}

impl Job {
    pub(super) fn new(path: &[u8], origin: Origin, to: Target) -> Self {
        Self {
            path: path.to_vec(),
            origin,
            to,
            above: Vec::new(),
        }
    }
}

fn cannot_write(to: &Target) -> String {
    format!("cannot write {}", shown(&to.path))
}

fn count(stored: Stored, begin: Instant, done: &mut Done) {
    done.transfer = Some((begin, Instant::now()));
    done.totals.files += 1;
    done.totals.bytes += stored.bytes;
    done.totals.calls += stored.calls;
}

impl Uploader {
    pub(super) fn new(client: Client, options: CopyOptions, progress: Arc<Meter>) -> Self {
        Self {
            client,
            progress,
            options,
            umask: umask(),
            filled: Mutex::default(),
        }
    }

    async fn try_upload(&self, job: &Job, done: &mut Done) -> Result<()> {
        let facts = match &job.origin {
            Origin::Afs(node) => Facts::from(&node.status),
            // As cp does, symlinks are followed unless whole trees are copied.
            Origin::Local(path) if self.options.dereference || !self.options.recursive => {
                Facts::from(&fs::metadata(path)?)
            }
            Origin::Local(path) => Facts::from(&fs::symlink_metadata(path)?),
        };
        match facts.kind {
            Kind::File(_) => self.file(job, &facts, done).await,
            Kind::Directory if !self.options.recursive => {
                bail!(Recursive => "is a directory")
            }
            Kind::Directory => self.directory(job, &facts, done).await,
            Kind::Symlink => self.symlink(job, done).await,
            Kind::MountPoint => self.mount_point(job, done).await,
            Kind::Special if self.options.recursive => {
                bail!("is a device, pipe or socket, which AFS does not have; not copied")
            }
            Kind::Special => self.file(job, &facts, done).await,
        }
    }

    async fn file(&self, job: &Job, facts: &Facts, done: &mut Done) -> Result<()> {
        if self.options.no_clobber && job.to.existing.is_some() {
            done.totals.skipped += 1;
            return Ok(());
        }
        // Before anything is made in AFS, to leave nothing there if it cannot be read.
        let opened = match &job.origin {
            Origin::Local(path) => Some(File::open(path)?),
            Origin::Afs(_) => None,
        };
        let _current = self.progress.file(&job.path);
        let mut attributes = facts.attributes(self.options.preserve, self.umask);
        if self.options.fsync {
            attributes.mask |= StoreStatus::FSYNC;
        }
        if let (Some(file), Kind::File(SEGMENT..), None) = (&opened, facts.kind, job.to.existing) {
            let begin = Instant::now();
            let stored = self.long(job, file.try_clone()?, attributes, done).await;
            let stored = stored.with_context(|| cannot_write(&job.to))?;
            count(stored, begin, done);
            return Ok(());
        }
        let (volume, fid) = match job.to.existing {
            Some(existing) => {
                // A file that is replaced keeps its mode, unless that of the other is wanted.
                if !self.options.preserve {
                    attributes.mask &= !StoreStatus::SET_MODE;
                }
                self.replaced(job, existing).await?
            }
            None => {
                let Target {
                    volume,
                    directory,
                    name,
                    ..
                } = &job.to;
                let room = room_for(&self.client, volume, facts.kind).await;
                room.with_context(|| cannot_write(&job.to))?;
                let new = StoreStatus {
                    unix_mode_bits: attributes.unix_mode_bits | FILL_FILE,
                    ..attributes
                };
                let made = self.client.create_file(volume, *directory, name, new);
                let made = made.await.with_context(|| cannot_write(&job.to))?;
                (Arc::clone(volume), made.fid)
            }
        };
        let begin = Instant::now();
        let storing = Storing {
            client: &self.client,
            progress: &self.progress,
            volume: &volume,
            fid,
        };
        let stored = match (opened, &job.origin) {
            (Some(file), _) => storing.local(file, facts, attributes).await,
            (None, Origin::Afs(node)) => storing.remote(node, attributes).await,
            (None, Origin::Local(_)) => bail!("is not open"),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                if job.to.existing.is_none() {
                    self.take_back(job, fid).await;
                }
                return Err(error.context(cannot_write(&job.to)));
            }
        };
        count(stored, begin, done);
        Ok(())
    }

    /// Stores a new long file under a name of its own, from where an interrupted copy of the same version left off,
    /// and renames it.
    async fn long(
        &self,
        job: &Job,
        file: File,
        attributes: StoreStatus,
        done: &mut Done,
    ) -> Result<Stored> {
        let (client, to) = (&self.client, &job.to);
        let (volume, directory) = (&to.volume, to.directory);
        let metadata = file.metadata()?;
        let (facts, length) = (Facts::from(&metadata), metadata.len());
        let part = part_name_of(&to.name, &version_of(&metadata)).into_bytes();
        let left = match client.lookup(volume, directory, &part).await? {
            Some(fid) => Some((fid, client.status(volume, fid).await?)),
            None => None,
        };
        // Into one that has its own mode already nothing more can be stored, if that says so.
        let left = left.filter(|(_, status)| status.unix_mode_bits & FILL_FILE != 0);
        let (fid, at) = match left {
            Some((fid, status)) => (fid, stored_before(&status, &facts)),
            None => {
                room_for(client, volume, facts.kind).await?;
                let new = StoreStatus {
                    unix_mode_bits: attributes.unix_mode_bits | FILL_FILE,
                    ..attributes
                };
                (
                    client.create_file(volume, directory, &part, new).await?.fid,
                    0,
                )
            }
        };
        let segments = Segments {
            storing: Storing {
                client,
                progress: &self.progress,
                volume,
                fid,
            },
            file,
            length,
        };
        let stored = segments.store(at, attributes).await?;
        let entry = afar_cell::DirEntry { name: part, fid };
        let named = client.rename(volume, directory, &entry, directory, &to.name);
        named.await?;
        done.totals.kept += at;
        Ok(stored)
    }

    /// The file that a copy replaces, where symlinks lead to it.
    async fn replaced(&self, job: &Job, existing: Fid) -> Result<(Arc<Volume>, Fid)> {
        let to = &job.to;
        let status = self.client.status(&to.volume, existing).await?;
        let (volume, fid, kind) = match Facts::from(&status).kind {
            Kind::Symlink => match self.client.walk(bytes(&to.path), LastLink::Follow).await? {
                Walked::Node(node) => (node.volume, node.fid, Facts::from(&node.status).kind),
                Walked::Afs => bail!("{} leads to /afs", shown(&to.path)),
            },
            kind => (Arc::clone(&to.volume), existing, kind),
        };
        match kind {
            Kind::File(_) => Ok((volume, fid)),
            _ => bail!(
                "{} is a directory; a file cannot replace it",
                shown(&to.path)
            ),
        }
    }

    /// Removes a new file that could not be filled.
    async fn take_back(&self, job: &Job, fid: Fid) {
        let entry = afar_cell::DirEntry {
            name: job.to.name.clone(),
            fid,
        };
        let removed = self
            .client
            .remove_file(&job.to.volume, job.to.directory, &entry)
            .await;
        if let Err(error) = removed {
            self.progress.tell(Event::LeftBehind {
                path: &job.to.path,
                incomplete: true,
                error: &error,
            });
        }
    }

    async fn symlink(&self, job: &Job, done: &mut Done) -> Result<()> {
        let target = match &job.origin {
            Origin::Local(path) => fs::read_link(path)?.into_os_string().into_vec(),
            Origin::Afs(node) if self.options.dereference => {
                return self.follow(job, node, done).await;
            }
            Origin::Afs(node) => {
                let text = self.client.read_link(&node.volume, node.fid).await?;
                text.to_vec()
            }
        };
        let to = &job.to;
        if let Some(existing) = to.existing {
            if self.options.no_clobber {
                done.totals.skipped += 1;
                return Ok(());
            }
            let status = self.client.status(&to.volume, existing).await?;
            if matches!(
                Facts::from(&status).kind,
                Kind::Directory | Kind::MountPoint
            ) {
                bail!(
                    "{} is a directory; a symlink cannot replace it",
                    shown(&to.path)
                );
            }
            let entry = afar_cell::DirEntry {
                name: to.name.clone(),
                fid: existing,
            };
            self.client
                .remove_file(&to.volume, to.directory, &entry)
                .await?;
        }
        self.client
            .symlink(&to.volume, to.directory, &to.name, &target)
            .await
            .with_context(|| cannot_write(to))?;
        done.totals.symlinks += 1;
        Ok(())
    }

    /// Copies what a symlink in AFS leads to.
    async fn follow(&self, job: &Job, from: &Node, done: &mut Done) -> Result<()> {
        let place = self.client.walk(&job.path, LastLink::Follow).await;
        let Walked::Node(node) = place.map_err(|error| error.cause)? else {
            bail!("leads to /afs, which holds all cells; not copied");
        };
        self.go_on(job, from, node, done)
    }

    /// Copies the volume that a mount point leads to.
    async fn mount_point(&self, job: &Job, done: &mut Done) -> Result<()> {
        let Origin::Afs(from) = &job.origin else {
            bail!("is no mount point");
        };
        let node = self.client.cross(&from.volume, from.fid).await?;
        self.go_on(job, from, node, done)
    }

    fn go_on(&self, job: &Job, from: &Node, node: Node, done: &mut Done) -> Result<()> {
        let mut above = job.above.clone();
        above.push(from.volume.id());
        if Facts::from(&node.status).kind == Kind::Directory && above.contains(&node.volume.id()) {
            bail!(
                "leads back into volume {} above it; not copied",
                node.volume
            );
        }
        done.more.push(Job {
            origin: Origin::Afs(node),
            above,
            ..job.clone()
        });
        Ok(())
    }

    /// Makes the directory, or takes the one there is, and finds out what to put into it.
    async fn directory(&self, job: &Job, facts: &Facts, done: &mut Done) -> Result<()> {
        if let Origin::Afs(node) = &job.origin
            && self.lock_filled().contains(&node.fid)
        {
            bail!("is the destination; not copied into itself");
        }
        let attributes = facts.attributes(self.options.preserve, self.umask);
        let (volume, fid, mut there) = match job.to.existing {
            Some(existing) => self.existing_directory(job, existing).await?,
            None => {
                let to = &job.to;
                let new = StoreStatus {
                    unix_mode_bits: attributes.unix_mode_bits | FILL_DIRECTORY,
                    ..attributes
                };
                let made = self
                    .client
                    .make_dir(&to.volume, to.directory, &to.name, new);
                let fid = made
                    .await
                    .with_context(|| format!("cannot make {}", shown(&to.path)))?
                    .fid;
                (Arc::clone(&to.volume), fid, BTreeMap::new())
            }
        };
        self.lock_filled().insert(fid);
        done.totals.directories += 1;
        if self.options.preserve {
            done.later = Some(Later {
                volume: Arc::clone(&volume),
                fid,
                attributes,
                path: job.to.path.clone(),
            });
        }
        for (name, child) in children(&self.client, &job.origin, &job.path).await? {
            let origin = match child {
                Ok((origin, _)) => origin,
                Err(error) => {
                    done.errors.push(error);
                    continue;
                }
            };
            let name_text = OsStr::from_bytes(&name);
            done.more.push(Job {
                path: [&job.path, b"/".as_slice(), &name].concat(),
                origin,
                to: Target {
                    volume: Arc::clone(&volume),
                    directory: fid,
                    existing: there.remove(&name),
                    path: job.to.path.join(name_text),
                    name,
                },
                above: job.above.clone(),
            });
        }
        Ok(())
    }

    /// A directory that is there already, and what is in it.
    async fn existing_directory(
        &self,
        job: &Job,
        existing: Fid,
    ) -> Result<(Arc<Volume>, Fid, BTreeMap<Vec<u8>, Fid>)> {
        let to = &job.to;
        let (volume, fid) = if existing.vnode.is_directory() {
            (Arc::clone(&to.volume), existing)
        } else {
            match self.client.walk(bytes(&to.path), LastLink::Follow).await? {
                Walked::Node(node) if Facts::from(&node.status).kind == Kind::Directory => {
                    (node.volume, node.fid)
                }
                _ => bail!(
                    "{} is not a directory; a directory cannot replace it",
                    shown(&to.path)
                ),
            }
        };
        let list = self.client.list(&volume, fid).await?;
        let there = list.into_iter().map(|entry| (entry.name, entry.fid));
        Ok((volume, fid, there.collect()))
    }

    fn lock_filled(&self) -> parking_lot::MutexGuard<'_, BTreeSet<Fid>> {
        self.filled.lock()
    }
}

impl Worker for Uploader {
    type Job = Job;
    type Later = Later;

    async fn work(&self, job: Job) -> Done {
        let mut done = Done::default();
        if let Err(error) = self.try_upload(&job, &mut done).await {
            let path = String::from_utf8_lossy(&job.path).into_owned();
            done.errors.push(error.context(path));
        }
        done
    }

    async fn finish(&self, later: Later) -> Result<()> {
        let set = self
            .client
            .set_attributes(&later.volume, later.fid, later.attributes)
            .await;
        set.with_context(|| shown(&later.path))?;
        Ok(())
    }

    fn progress(&self) -> &Meter {
        &self.progress
    }
}
