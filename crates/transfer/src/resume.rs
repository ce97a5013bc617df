//! A file from AFS into one in the making, from where an interrupted copy left off.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use afar_cell::{Client, Error, Node};
use afar_types::FetchStatus;

use crate::error::{Context, Result};
use crate::part::Part;
use crate::progress::Meter;
use crate::totals::Totals;

/// How a file that is complete gets its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publish {
    /// With the mode and time it has in AFS.
    pub(crate) preserve: bool,
    /// From stable storage.
    pub(crate) fsync: bool,
}

/// Copies a file under this name into a local directory; goes on with what an interrupted run left of the same
/// version.
pub(crate) async fn fetch_into(
    (client, progress): (&Client, &Arc<Meter>),
    node: &Node,
    (directory, name): (&Path, &[u8]),
    publish: Publish,
    totals: &mut Totals,
) -> Result<()> {
    let path = directory.join(OsStr::from_bytes(name));
    let opened = Part::open(directory, name, &path, node.into(), Arc::clone(progress));
    let part = Arc::new(opened?);
    let kept = part.there();
    progress.expect(node.status.length);
    progress.advance(kept);
    let (status, kept) = if kept == 0 {
        let whole = client
            .fetch(&node.volume, node.fid, node.status, &part)
            .await?;
        totals.fetched(&whole);
        (whole.status, 0)
    } else {
        go_on((client, progress), node, &part, kept, totals).await?
    };
    // The tasks that had it are done.
    let mut part = Arc::into_inner(part).context("a write goes on after the end")?;
    part.publish(&status, publish.preserve, publish.fsync)
        .with_context(|| format!("cannot write {}", path.display()))?;
    totals.kept += kept;
    Ok(())
}

/// Fetches what is missing; if the file has changed since, all of it. Returns its status and how much was not
/// fetched again.
async fn go_on(
    (client, progress): (&Client, &Arc<Meter>),
    node: &Node,
    part: &Arc<Part>,
    kept: u64,
    totals: &mut Totals,
) -> Result<(FetchStatus, u64)> {
    let Node {
        volume,
        fid,
        status,
        ..
    } = node;
    for gap in part.gaps() {
        match client.fetch_range(volume, *fid, *status, gap, part).await {
            Ok(fetched) => totals.fetched(&fetched),
            Err(Error::Changing(_)) => {
                progress.take_back(kept);
                let status = client.status(volume, *fid).await?;
                let whole = client.fetch(volume, *fid, status, part).await?;
                totals.restarts += 1;
                totals.fetched(&whole);
                return Ok((whole.status, 0));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((*status, kept))
}
