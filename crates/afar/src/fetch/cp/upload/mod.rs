//! `afar cp` to AFS: from the local disk, or from AFS itself.

mod job;
mod place;

use std::path::Path;
use std::sync::Arc;

use afar_cell::{Client, LastLink, Place};
use anyhow::bail;

use super::CpArgs;
use crate::fetch::copy::{self, Limits, Origin, Progress, Totals, is_afs};
use crate::fetch::{Failures, bytes, shown};
use job::{Job, Uploader};
use place::Destination;

/// Files stored at a time, if nothing else is said: a server takes a call at a time for each.
const FILES: usize = 16;

/// Copies into AFS; errors of single files are noted as they come, and the rest goes on.
///
/// # Errors
/// When there is nothing to copy or nowhere to copy it to.
pub(super) async fn run(
    args: &CpArgs,
    client: &Client,
    progress: &Arc<Progress>,
    failures: &mut Failures,
) -> anyhow::Result<Totals> {
    let (sources, destination) = Destination::new(args, client).await?;
    let mut jobs = Vec::new();
    for source in sources {
        let job = async {
            let target = destination.of(client, source).await?;
            let origin = origin(args, client, source).await?;
            anyhow::Ok(Job::new(bytes(source), origin, target))
        };
        match job.await {
            Ok(job) => jobs.push(job),
            Err(error) => failures.note(error),
        }
    }
    let uploader = Uploader::new(client.clone(), args, Arc::clone(progress));
    let most = args.calls.map_or(FILES, std::num::NonZeroUsize::get);
    Ok(copy::run(uploader, jobs, Limits::afs(most), failures).await)
}

async fn origin(args: &CpArgs, client: &Client, source: &Path) -> anyhow::Result<Origin> {
    if !is_afs(source) {
        return Ok(Origin::Local(source.to_owned()));
    }
    let last = if args.recursive() && !args.dereference {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    match client.walk(bytes(source), last).await? {
        Place::Node(node) => Ok(Origin::Afs(node)),
        Place::Afs => bail!("{}: holds all cells; copy from /afs/CELL", shown(source)),
    }
}
