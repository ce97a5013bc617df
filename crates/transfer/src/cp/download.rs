//! Copies from AFS: files, directories and symlinks as jobs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use afar_cell::{Client, Fetched, LastLink, Node, Ordered, PathCause, Walked};
use afar_types::{FetchStatus, FileType, VolumeId};

use super::options::CopyOptions;
use crate::directory::{make_directory, set_attributes};
use crate::error::{Context, Error, Result, bail, ensure};
use crate::jobs::{self, Worker};
use crate::part::KEEP_LEAST;
use crate::progress::Meter;
use crate::resume::{Publish, fetch_into};
use crate::target::{Target, is_special, replaced, symlink};

/// Bytes that may wait for those before them, on the way to a pipe or device.
const AHEAD: u64 = 64 << 20;

/// Something to copy.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// Its path in AFS, for messages.
    path: Vec<u8>,
    node: Node,
    to: PathBuf,
    /// The volumes above it.
    above: Vec<VolumeId>,
}

impl Job {
    pub(super) fn new(path: &[u8], node: Node, to: PathBuf) -> Self {
        Self {
            path: path.to_vec(),
            node,
            to,
            above: Vec::new(),
        }
    }
}

/// What a job leaves behind: a directory's later part is its attributes.
type Done = jobs::Done<Job, (PathBuf, FetchStatus)>;

/// Copies.
#[derive(Debug, Clone)]
pub(super) struct Copier {
    client: Client,
    progress: Arc<Meter>,
    options: CopyOptions,
}

impl Copier {
    pub(super) fn new(client: Client, options: CopyOptions, progress: Arc<Meter>) -> Self {
        Self {
            client,
            progress,
            options,
        }
    }

    async fn file(&self, job: &Job, done: &mut Done) -> Result<()> {
        if self.options.no_clobber && job.to.symlink_metadata().is_ok() {
            done.totals.skipped += 1;
            return Ok(());
        }
        let status = job.node.status;
        let _current = self.progress.file(&job.path);
        let begin = Instant::now();
        if status.length >= KEEP_LEAST && !is_special(&job.to) {
            self.go_on(job, done).await?;
        } else {
            self.progress.expect(status.length);
            let fetched = if is_special(&job.to) {
                self.stream(job).await?
            } else {
                self.replace(job).await?
            };
            done.totals.fetched(&fetched);
        }
        done.transfer = Some((begin, Instant::now()));
        done.totals.files += 1;
        Ok(())
    }

    /// Fetches a long file, from where an interrupted copy of the same version left off.
    async fn go_on(&self, job: &Job, done: &mut Done) -> Result<()> {
        refuse_directory(&job.to)?;
        let to = replaced(&job.to);
        let name = to.file_name().with_context(|| cannot_write(&to))?;
        let directory = match to.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let publish = Publish {
            preserve: self.options.preserve,
            fsync: self.options.fsync,
        };
        let by = (&self.client, &self.progress);
        let place = (directory, name.as_bytes());
        fetch_into(by, &job.node, place, publish, &mut done.totals).await
    }

    /// Fetches a file under a temporary name, and renames it.
    async fn replace(&self, job: &Job) -> Result<Fetched> {
        let Node {
            volume,
            fid,
            status,
            ..
        } = &job.node;
        refuse_directory(&job.to)?;
        let mode = status.unix_mode_bits;
        let made = Target::create(&job.to, mode, Arc::clone(&self.progress));
        let target = Arc::new(made.with_context(|| cannot_write(&job.to))?);
        let fetched = self.client.fetch(volume, *fid, *status, &target).await?;
        // The tasks that had it are done.
        let mut target = Arc::into_inner(target).context("a write goes on after the end")?;
        target
            .publish(&fetched.status, self.options.preserve, self.options.fsync)
            .with_context(|| cannot_write(&job.to))?;
        Ok(fetched)
    }

    /// Writes a file to a device or pipe, in order.
    async fn stream(&self, job: &Job) -> Result<Fetched> {
        let node = &job.node;
        let file = tokio::fs::OpenOptions::new()
            .write(true)
            .open(&job.to)
            .await
            .with_context(|| cannot_write(&job.to))?;
        let sink = Arc::new(Ordered::new(file, AHEAD));
        let fetched = self
            .client
            .fetch(&node.volume, node.fid, node.status, &sink)
            .await?;
        self.progress.advance(fetched.bytes);
        Ok(fetched)
    }

    async fn symlink(&self, job: &Job, done: &mut Done) -> Result<()> {
        if self.options.dereference {
            let place = self.client.walk(&job.path, LastLink::Follow).await;
            let place = place.map_err(|error| error.cause)?;
            let Walked::Node(node) = place else {
                bail!("leads to /afs, which holds all cells; not copied");
            };
            let mut above = job.above.clone();
            above.push(job.node.volume.id());
            if node.status.file_type == FileType::Directory && above.contains(&node.volume.id()) {
                bail!(
                    "leads back into volume {} above it; not copied",
                    node.volume
                );
            }
            done.more.push(Job {
                node,
                above,
                ..job.clone()
            });
            return Ok(());
        }
        if self.options.no_clobber && job.to.symlink_metadata().is_ok() {
            done.totals.skipped += 1;
            return Ok(());
        }
        let text = self
            .client
            .read_link(&job.node.volume, job.node.fid)
            .await?;
        let text = Path::new(OsStr::from_bytes(&text));
        symlink(text, &job.to).with_context(|| cannot_write(&job.to))?;
        done.totals.symlinks += 1;
        Ok(())
    }

    async fn mount_point(&self, job: &Job, done: &mut Done) -> Result<()> {
        let node = self.client.cross(&job.node.volume, job.node.fid).await?;
        let mut above = job.above.clone();
        above.push(job.node.volume.id());
        if above.contains(&node.volume.id()) {
            bail!("leads back to volume {} above it; not copied", node.volume);
        }
        done.more.push(Job {
            node,
            above,
            ..job.clone()
        });
        Ok(())
    }

    /// Makes the directory and finds out what is in it.
    async fn directory(&self, job: &Job, done: &mut Done) -> Result<()> {
        if !self.options.recursive {
            bail!(Recursive => "is a directory");
        }
        let Node {
            volume,
            fid,
            status,
            ..
        } = &job.node;
        let list = self.client.list(volume, *fid).await?;
        make_directory(&job.to, status.unix_mode_bits).with_context(|| cannot_write(&job.to))?;
        done.totals.directories += 1;
        if self.options.preserve {
            done.later = Some((job.to.clone(), *status));
        }
        let fids: Vec<_> = list.iter().map(|entry| entry.fid).collect();
        let statuses = self.client.statuses(volume, &fids).await;
        for (entry, status) in list.into_iter().zip(statuses) {
            let path = [&job.path, b"/".as_slice(), &entry.name].concat();
            match status {
                Ok(status) => done.more.push(Job {
                    path,
                    node: Node {
                        volume: Arc::clone(volume),
                        fid: entry.fid,
                        status,
                        mount: None,
                    },
                    to: job.to.join(OsStr::from_bytes(&entry.name)),
                    above: job.above.clone(),
                }),
                Err(error) => {
                    let path = String::from_utf8_lossy(&path).into_owned();
                    let cause = PathCause::Cell(error);
                    done.errors
                        .push(afar_cell::PathError { path, cause }.into());
                }
            }
        }
        Ok(())
    }
}

impl Worker for Copier {
    type Job = Job;
    type Later = (PathBuf, FetchStatus);

    async fn work(&self, job: Job) -> Done {
        let mut done = Done::default();
        let result = match job.node.status.file_type {
            FileType::File => self.file(&job, &mut done).await,
            FileType::Directory => self.directory(&job, &mut done).await,
            FileType::Symlink if job.node.status.is_mount_point() => {
                self.mount_point(&job, &mut done).await
            }
            FileType::Symlink => self.symlink(&job, &mut done).await,
            FileType::Invalid | FileType::Other(_) => Err(Error::refused(
                "neither a file, a directory nor a symlink; not copied",
            )),
        };
        if let Err(error) = result {
            let path = String::from_utf8_lossy(&job.path).into_owned();
            done.errors.push(error.context(path));
        }
        done
    }

    async fn finish(&self, (path, status): Self::Later) -> Result<()> {
        set_attributes(&path, status.unix_mode_bits, status.client_mod_time)
            .with_context(|| path.display().to_string())
    }

    fn progress(&self) -> &Meter {
        &self.progress
    }
}

fn refuse_directory(path: &Path) -> Result<()> {
    ensure!(
        !path.is_dir(),
        "{} is a directory; a file cannot replace it",
        path.display()
    );
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
