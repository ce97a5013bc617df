//! `afar cp` to AFS: from the local disk, or from AFS itself.

mod facts;
mod job;
mod local;
mod place;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::{Client, LastLink, Place};
use anyhow::bail;
use tokio::task::JoinSet;

use super::CpArgs;
use super::progress::Progress;
use super::report::Totals;
use crate::fetch::{Failures, bytes, shown};
use job::{Done, Job, Later, Origin, Uploader};
use place::Destination;

/// Files stored at a time, if nothing else is said: a server takes a call at a time for each.
const FILES: usize = 16;

/// Whether a path is in AFS.
pub(super) fn is_afs(path: &Path) -> bool {
    path.starts_with("/afs")
}

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
    Ok(all(uploader, jobs, most, failures).await)
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
        Place::Afs => bail!(
            "{}: has all cells there are; copy from /afs/CELL",
            shown(source)
        ),
    }
}

/// Does the jobs and those that come of them.
async fn all(uploader: Uploader, jobs: Vec<Job>, most: usize, failures: &mut Failures) -> Totals {
    let begin = Instant::now();
    let (mut totals, mut later) = (Totals::default(), Vec::<Later>::new());
    let mut transfer: Option<(Instant, Instant)> = None;
    let uploader = Arc::new(uploader);
    let mut waiting = jobs;
    waiting.reverse();
    let mut running = JoinSet::new();
    loop {
        while running.len() < most
            && let Some(job) = waiting.pop()
        {
            let uploader = Arc::clone(&uploader);
            running.spawn(async move { uploader.upload(job).await });
        }
        let Some(joined) = running.join_next().await else {
            break;
        };
        let done: Done = match joined {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        totals.add(&done.totals);
        later.extend(done.later);
        waiting.extend(done.more.into_iter().rev());
        if let Some((from, to)) = done.transfer {
            transfer = Some(match transfer {
                Some((first, last)) => (first.min(from), last.max(to)),
                None => (from, to),
            });
        }
        for error in done.errors {
            uploader.progress().suspend(|| failures.note(error));
        }
    }
    // The deepest first: setting a directory's time must come after the last change in it.
    for later in later.into_iter().rev() {
        if let Err(error) = uploader.finish_directory(&later).await {
            failures.note(error);
        }
    }
    totals.transfer = transfer.map_or(Duration::ZERO, |(from, to)| to.duration_since(from));
    totals.whole = begin.elapsed();
    totals
}
