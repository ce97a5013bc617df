//! A file from AFS to the local disk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use afar_cell::{Error, Fetched, Node};
use afar_types::FetchStatus;
use anyhow::Context;

use super::part::Part;
use super::work::{Done, Syncer};

impl Syncer {
    /// Copies a file; goes on with what an interrupted run left of the same version.
    pub(super) async fn download(
        &self,
        node: &Node,
        directory: &Path,
        name: &[u8],
        done: &mut Done,
    ) -> anyhow::Result<()> {
        let path = directory.join(OsStr::from_bytes(name));
        let begin = Instant::now();
        let progress = Arc::clone(&self.progress);
        let part = Arc::new(Part::open(directory, name, &path, node.into(), progress)?);
        let kept = part.there();
        self.progress.expect(node.status.length);
        self.progress.advance(kept);
        let (status, kept) = if kept == 0 {
            let whole = self
                .client
                .fetch(&node.volume, node.fid, node.status, &part)
                .await?;
            (self.count(&whole, done), 0)
        } else {
            self.go_on(node, &part, kept, done).await?
        };
        // The tasks that had it are done.
        let mut part = Arc::into_inner(part).context("a write goes on after the end")?;
        part.publish(&status, self.fsync)
            .with_context(|| format!("cannot write {}", path.display()))?;
        done.totals.kept += kept;
        done.transfer = Some((begin, Instant::now()));
        Ok(())
    }

    /// Fetches what is missing; if the file has changed since, all of it. Returns its status and how
    /// much was not fetched again.
    async fn go_on(
        &self,
        node: &Node,
        part: &Arc<Part>,
        kept: u64,
        done: &mut Done,
    ) -> anyhow::Result<(FetchStatus, u64)> {
        let Node {
            volume,
            fid,
            status,
            ..
        } = node;
        for gap in part.gaps() {
            let fetched = self.client.fetch_range(volume, *fid, *status, gap, part);
            match fetched.await {
                Ok(fetched) => _ = self.count(&fetched, done),
                Err(Error::Changing(_)) => {
                    self.progress.take_back(kept);
                    let status = self.client.status(volume, *fid).await?;
                    let whole = self.client.fetch(volume, *fid, status, part).await?;
                    done.totals.restarts += 1;
                    return Ok((self.count(&whole, done), 0));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((*status, kept))
    }

    /// Counts what was fetched; returns its status.
    fn count(&self, fetched: &Fetched, done: &mut Done) -> FetchStatus {
        done.totals.fetched(fetched);
        fetched.status
    }
}
