//! Copies by the rules of cp: from AFS to the local disk, and into AFS from there or from AFS itself.

mod destination;
mod download;
mod options;
mod place;
mod upload;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_cell::{Client, LastLink, Walked};

use crate::error::{Error, Remedy, Result, bail};
use crate::jobs::{self, Failed, Limits};
use crate::origin::Origin;
use crate::path::{bytes, is_afs, shown};
use crate::progress::{Meter, Progress};
use crate::totals::Totals;

pub use options::{CopyOptions, Destination};

/// Files stored at a time, if nothing else is said: a server takes a call at a time for each.
const FILES: usize = 16;

/// Copies files and, if the options say so, directories. At least one of both sides is in AFS. Hands over errors of
/// single files as they come; the rest goes on. A long file that an interrupted copy of the same version left
/// incomplete is gone on with.
///
/// # Errors
/// When there is nowhere to copy to: a path is no directory, or leads nowhere.
pub async fn copy(
    client: &Client,
    sources: &[PathBuf],
    destination: &Destination,
    options: CopyOptions,
    progress: &Arc<dyn Progress>,
    failed: &mut (dyn FnMut(Error) + Send),
) -> Result<Totals> {
    let meter = Arc::new(Meter::new(Arc::clone(progress)));
    let copying = async {
        if is_afs(destination.path()) {
            upload(client, sources, destination, options, &meter, failed).await
        } else {
            download(client, sources, destination, options, &meter, failed).await
        }
    };
    meter.watch(client, copying).await
}

/// Copies from AFS to the local disk.
async fn download(
    client: &Client,
    sources: &[PathBuf],
    destination: &Destination,
    options: CopyOptions,
    meter: &Arc<Meter>,
    failed: Failed<'_>,
) -> Result<Totals> {
    let place = destination::LocalDestination::new(destination, sources.len())?;
    let mut jobs = Vec::new();
    for source in sources {
        let path = bytes(source);
        match client.walk(path, last_link(options)).await {
            Ok(Walked::Node(node)) => match place.of(path) {
                Ok(to) => jobs.push(download::Job::new(path, node, to)),
                Err(error) => failed(error),
            },
            Ok(Walked::Afs) => {
                failed(Error::unless(Remedy::FromCell, "/afs: holds all cells"));
            }
            Err(error) => failed(error.into()),
        }
    }
    let copier = download::Copier::new(client.clone(), options, Arc::clone(meter));
    Ok(jobs::run(copier, jobs, Limits::local(), failed).await)
}

/// Copies into AFS.
async fn upload(
    client: &Client,
    sources: &[PathBuf],
    destination: &Destination,
    options: CopyOptions,
    meter: &Arc<Meter>,
    failed: Failed<'_>,
) -> Result<Totals> {
    let place = place::AfsDestination::new(client, destination, sources.len()).await?;
    let mut jobs = Vec::new();
    for source in sources {
        let job = async {
            let target = place.of(client, source).await?;
            let origin = origin(client, source, options).await?;
            Ok(upload::Job::new(bytes(source), origin, target))
        };
        match job.await {
            Ok(job) => jobs.push(job),
            Err(error) => failed(error),
        }
    }
    let uploader = upload::Uploader::new(client.clone(), options, Arc::clone(meter));
    let most = options.calls.map_or(FILES, NonZeroUsize::get);
    Ok(jobs::run(uploader, jobs, Limits::afs(most), failed).await)
}

async fn origin(client: &Client, source: &Path, options: CopyOptions) -> Result<Origin> {
    if !is_afs(source) {
        return Ok(Origin::Local(source.to_owned()));
    }
    match client.walk(bytes(source), last_link(options)).await? {
        Walked::Node(node) => Ok(Origin::Afs(node)),
        Walked::Afs => bail!(FromCell => "{}: holds all cells", shown(source)),
    }
}

/// As cp does, symlinks are followed unless whole trees are copied.
fn last_link(options: CopyOptions) -> LastLink {
    if options.recursive && !options.dereference {
        LastLink::Keep
    } else {
        LastLink::Follow
    }
}
