//! `afar cat`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::{Client, LastLink, Ordered, PathCause, PathError, Walked};
use afar_types::FileType;

use super::{Failures, Reach, bytes};

/// Bytes that may wait in memory for those before them.
const AHEAD: u64 = 64 << 20;

/// Options of `afar cat`.
#[derive(Debug, clap::Args)]
pub(crate) struct CatArgs {
    /// Files under /afs
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Number of parallel calls [default: as many as fill the link]
    #[arg(short = 'j', long = "calls", value_name = "N")]
    pub(super) calls: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &CatArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut failures = Failures::new(&args.reach);
    for path in &args.files {
        if let Err(error) = write(client, bytes(path)).await {
            failures.note(error);
        }
    }
    Ok(failures.exit_code())
}

async fn write(client: &Client, path: &[u8]) -> Result<(), PathError> {
    let failed = |cause| PathError {
        path: String::from_utf8_lossy(path).into_owned(),
        cause,
    };
    let node = match client.walk(path, LastLink::Follow).await? {
        Walked::Node(node) if node.status.file_type == FileType::File => node,
        _ => return Err(failed(PathCause::IsDirectory)),
    };
    let sink = Arc::new(Ordered::new(tokio::io::stdout(), AHEAD));
    client
        .fetch(&node.volume, node.fid, node.status, &sink)
        .await
        .map(drop)
        .map_err(|error| failed(PathCause::Cell(error)))
}
