//! A file into AFS.
//!
//! It is stored under the name of a file in the making, which also tells which version of which file it is of, and
//! renamed when it is complete. A large file is stored in [segments](Segments); a later run goes on from there.

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use afar_cell::{DirEntry, Node, Stored, Volume};
use afar_types::{FetchStatus, Fid, StoreStatus};

use super::work::{Difference, Done, Parts, Syncer};
use crate::error::{Context, Error, Result, bail};
use crate::facts::{Facts, Kind};
use crate::origin::Origin;
use crate::part::part_name_of;
use crate::path::FILL_FILE;
use crate::segments::{SEGMENT, Segments, stored_before, version_of};
use crate::store::{Storing, room_for, spooled};

/// A local file to be stored.
struct Open {
    file: File,
    length: u64,
    facts: Facts,
    /// Tells this version of this file from all others.
    version: String,
}

impl Syncer {
    /// Copies a file.
    pub(super) async fn upload(
        &self,
        directory: &Node,
        name: &[u8],
        difference: &Difference,
        done: &mut Done,
    ) -> Result<()> {
        let open = self.open(&difference.source.0).await?;
        let path = directory_path(difference, name);
        let stored = self.store_and_rename(directory, name, difference, open, done);
        let (stored, begin) = stored
            .await
            .with_context(|| format!("cannot write {path}"))?;
        done.transfer = Some((begin, Instant::now()));
        done.totals.bytes += stored.bytes;
        done.totals.calls += stored.calls;
        Ok(())
    }

    async fn open(&self, source: &Origin) -> Result<Open> {
        match source {
            Origin::Local(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                let facts = Facts::from(&metadata);
                let Kind::File(length) = facts.kind else {
                    bail!(Again => "was replaced while it was being read");
                };
                let version = version_of(&metadata);
                Ok(Open {
                    file,
                    length,
                    facts,
                    version,
                })
            }
            Origin::Afs(node) => {
                let (file, status) = spooled(&self.client, node).await?;
                let version = format!(
                    "{} {} {}",
                    node.volume.cell_name(),
                    node.fid,
                    status.data_version.0
                );
                Ok(Open {
                    file,
                    length: status.length,
                    facts: Facts::from(&status),
                    version,
                })
            }
        }
    }

    async fn store_and_rename(
        &self,
        directory: &Node,
        name: &[u8],
        difference: &Difference,
        open: Open,
        done: &mut Done,
    ) -> Result<(Stored, Instant)> {
        let (volume, begin) = (&directory.volume, Instant::now());
        let mut attributes = open.facts.attributes(true, 0);
        let part = part_name_of(name, &open.version).into_bytes();
        let left = self.left(directory, &part, &difference.parts).await?;
        if open.length == 0 && difference.there.is_none() && left.is_none() {
            let made = self
                .client
                .create_file(volume, directory.fid, name, attributes);
            made.await?;
            return Ok((Stored::default(), begin));
        }
        let (fid, at) = match left {
            Some((fid, status)) => (fid, stored_before(&status, &open.facts)),
            None => {
                room_for(&self.client, volume, open.facts.kind).await?;
                let new = StoreStatus {
                    unix_mode_bits: attributes.unix_mode_bits | FILL_FILE,
                    ..attributes
                };
                let made = self.client.create_file(volume, directory.fid, &part, new);
                (made.await?.fid, 0)
            }
        };
        if self.fsync {
            attributes.mask |= StoreStatus::FSYNC;
        }
        let storing = Storing {
            client: &self.client,
            progress: &self.progress,
            volume,
            fid,
        };
        let long = open.length >= SEGMENT;
        let result = async {
            let stored = if long {
                let segments = Segments {
                    storing,
                    file: open.file,
                    length: open.length,
                };
                segments.store(at, attributes).await?
            } else {
                storing.whole(open.file, open.length, attributes).await?
            };
            let entry = DirEntry {
                name: part.clone(),
                fid,
            };
            self.client
                .rename(volume, directory.fid, &entry, directory.fid, name)
                .await?;
            Ok::<_, Error>(stored)
        };
        match result.await {
            Ok(stored) => {
                done.totals.kept += at;
                Ok((stored, begin))
            }
            // A later run goes on with it, if there is anything to go on with.
            Err(error) if long && self.has_data(volume, fid).await => Err(error),
            Err(error) => {
                self.take_back(directory, part, fid, done).await;
                Err(error)
            }
        }
    }

    /// Whether a file has any data, or may have.
    async fn has_data(&self, volume: &Arc<Volume>, fid: Fid) -> bool {
        let status = self.client.status(volume, fid).await;
        status.is_ok_and(|status| status.length > 0)
    }

    /// What an interrupted run has left of this version; what is left of others is removed.
    async fn left(
        &self,
        directory: &Node,
        part: &[u8],
        parts: &Parts,
    ) -> Result<Option<(Fid, FetchStatus)>> {
        let mut left = None;
        for (name, (origin, facts)) in parts {
            let Origin::Afs(node) = origin else { continue };
            // Into one that has its own mode already nothing more can be stored, if that says so.
            let is_open = facts.mode & FILL_FILE != 0;
            if name == part && matches!(facts.kind, Kind::File(_)) && is_open {
                left = Some((node.fid, node.status));
            } else if !facts.is_directory() {
                let entry = DirEntry {
                    name: name.clone(),
                    fid: node.fid,
                };
                self.client
                    .remove_file(&directory.volume, directory.fid, &entry)
                    .await?;
            }
        }
        Ok(left)
    }

    /// Removes a short file that could not be stored.
    async fn take_back(&self, directory: &Node, name: Vec<u8>, fid: Fid, done: &mut Done) {
        let shown = String::from_utf8_lossy(&name).into_owned();
        let entry = DirEntry { name, fid };
        let removed = self
            .client
            .remove_file(&directory.volume, directory.fid, &entry)
            .await;
        if let Err(error) = removed {
            let error = Error::from(error);
            done.errors
                .push(error.context(format!("{shown}: left behind incomplete")));
        }
    }
}

fn directory_path(difference: &Difference, name: &[u8]) -> String {
    let directory = difference.within.path.display();
    format!("{directory}/{}", String::from_utf8_lossy(name))
}
