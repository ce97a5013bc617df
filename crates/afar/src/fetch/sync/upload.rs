//! A file into AFS.
//!
//! It is stored under the name of a [file in the making](super::part), which also tells which version
//! of which file it is of, and renamed when it is complete: a server gives a file its length with the
//! first octets of it, so by length and time nobody could tell that the rest is missing.
//!
//! A large file is stored in segments, one after the other. Until it is complete, its time is no time:
//! it says how many MiB were there for certain when the segment under way was begun. A later run goes
//! on from there.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use afar_cell::{DirEntry, Node, Stored};
use afar_types::{FetchStatus, Fid, StoreStatus, UnixTime};
use anyhow::{Context, bail};

use super::part::part_name_of;
use super::work::{Difference, Done, Parts, Syncer};
use crate::fetch::copy::{FILL_FILE, Facts, Kind, Origin, Storing, spooled};

/// The unit in which is said how much is there.
const MIB: u64 = 1 << 20;
/// Octets of the first segment, and of the shortest.
const SEGMENT: u64 = 32 * MIB;
const SEGMENT_MOST: u64 = 4096 * MIB;
/// What a segment is to take: between two, nothing is under way for a round trip or two.
const SEGMENT_TIME: Duration = Duration::from_secs(20);

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
    ) -> anyhow::Result<()> {
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

    async fn open(&self, source: &Origin) -> anyhow::Result<Open> {
        match source {
            Origin::Local(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                let facts = Facts::from(&metadata);
                let Kind::File(length) = facts.kind else {
                    bail!("was replaced while it was looked at; run this again");
                };
                let version = format!(
                    "{length} {}.{:09} {}",
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    metadata.ino()
                );
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
    ) -> anyhow::Result<(Stored, Instant)> {
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
                self.store_long(&storing, open, at, attributes).await?
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
            anyhow::Ok(stored)
        };
        match result.await {
            Ok(stored) => {
                done.totals.kept += at;
                Ok((stored, begin))
            }
            // A later run goes on with it.
            Err(error) if long => Err(error),
            Err(error) => {
                self.take_back(directory, part, fid, done).await;
                Err(error)
            }
        }
    }

    /// What an interrupted run has left of this version; what is left of others is removed.
    async fn left(
        &self,
        directory: &Node,
        part: &[u8],
        parts: &Parts,
    ) -> anyhow::Result<Option<(Fid, FetchStatus)>> {
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

    /// Stores a file in segments, from `at` on.
    async fn store_long(
        &self,
        storing: &Storing<'_>,
        open: Open,
        mut at: u64,
        attributes: StoreStatus,
    ) -> anyhow::Result<Stored> {
        self.progress.expect(open.length);
        self.progress.advance(at);
        let source = storing.source(open.file, open.length);
        let mut all = Stored::default();
        let mut length = SEGMENT;
        while at < open.length {
            let end = open.length.min(at.saturating_add(length));
            let attributes = StoreStatus {
                mask: StoreStatus::SET_MOD_TIME | attributes.mask & StoreStatus::FSYNC,
                ..mark(at)
            };
            let begin = Instant::now();
            let stored = storing.part(&source, at..end, attributes).await?;
            all.bytes += stored.bytes;
            all.calls += stored.calls;
            length = segment_after(end - at, begin.elapsed());
            at = end;
            // The next call says the same, but not before it is done.
            if at < open.length {
                self.client
                    .set_attributes(storing.volume, storing.fid, mark(at))
                    .await?;
            }
        }
        let attributes = StoreStatus {
            mask: attributes.mask & !StoreStatus::FSYNC,
            ..attributes
        };
        all.status = self
            .client
            .set_attributes(storing.volume, storing.fid, attributes)
            .await?;
        Ok(all)
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
            let error = anyhow::Error::from(error);
            done.errors
                .push(error.context(format!("{shown}: left behind incomplete")));
        }
    }
}

fn directory_path(difference: &Difference, name: &[u8]) -> String {
    let directory = difference.within.path.display();
    format!("{directory}/{}", String::from_utf8_lossy(name))
}

/// The time that says that so many octets are there.
fn mark(there: u64) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MOD_TIME,
        client_mod_time: UnixTime(u32::try_from(there / MIB).unwrap_or(u32::MAX)),
        ..StoreStatus::default()
    }
}

/// How much of a file in the making, as long as this one when it is complete, was there when an
/// interrupted run began its last segment; all of it, if it has the time of this one already.
fn stored_before(status: &FetchStatus, facts: &Facts) -> u64 {
    let Kind::File(length @ SEGMENT..) = facts.kind else {
        return 0;
    };
    let there = u64::from(status.client_mod_time.0) * MIB;
    if there <= length {
        return if there <= status.length { there } else { 0 };
    }
    // It is a true time, which long files get last.
    let complete = status.client_mod_time == facts.modified && status.length == length;
    if complete { length } else { 0 }
}

/// How long the next segment is to be, if one of this length took so long.
fn segment_after(length: u64, took: Duration) -> u64 {
    let took = took.as_millis().max(1);
    let next = u128::from(length) * SEGMENT_TIME.as_millis() / took;
    let next = u64::try_from(next).unwrap_or(SEGMENT_MOST);
    (next / MIB * MIB).clamp(SEGMENT, SEGMENT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_before_is_believed_only_if_it_can_be() {
        let status = |seconds, length| FetchStatus {
            client_mod_time: UnixTime(seconds),
            length,
            ..FetchStatus::default()
        };
        let facts = |length| Facts {
            kind: Kind::File(length),
            mode: 0o644,
            modified: UnixTime(1_795_267_507),
        };
        let (short, long) = (SEGMENT - 1, 100 * MIB);
        for (left, of, there) in [
            (status(32, 64 * MIB), long, 32 * MIB),
            (status(0, 64 * MIB), long, 0),
            // Not as long as it says.
            (status(64, 32 * MIB), long, 0),
            (status(1_795_267_507, long), long, long),
            (status(1_795_267_506, long), long, 0),
            (status(1_795_267_507, 64 * MIB), long, 0),
            (status(1_795_267_507, short), short, 0),
        ] {
            assert_eq!(stored_before(&left, &facts(of)), there, "{left:?}");
        }
    }

    #[test]
    fn segments_take_some_seconds() {
        let seconds = Duration::from_secs;
        assert_eq!(segment_after(SEGMENT, seconds(40)), SEGMENT);
        assert_eq!(segment_after(SEGMENT, seconds(5)), 4 * SEGMENT);
        assert_eq!(segment_after(SEGMENT, Duration::ZERO), SEGMENT_MOST);
        assert_eq!(segment_after(100 * MIB, seconds(7)) % MIB, 0);
    }
}
