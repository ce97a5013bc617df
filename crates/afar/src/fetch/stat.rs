//! `afar stat`.

use std::path::PathBuf;
use std::process::ExitCode;

use afar_cell::{Client, LastLink, PathCause, PathError, Walked};
use afar_types::FileType;
use serde::Serialize;

use super::format::Lines;
use super::object::Object;
use super::{Failures, Reach, bytes};

/// Options of `afar stat`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatArgs {
    /// Paths under /afs
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Follow symlinks
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// What is said of `/afs` itself.
#[derive(Serialize)]
struct Root<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    cells: usize,
}

pub(super) async fn run(args: &StatArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let last = if args.dereference {
        LastLink::Follow
    } else {
        LastLink::Keep
    };
    let (mut failures, mut lines) = (Failures::new(&args.reach), Lines::new());
    for path in &args.paths {
        let path = bytes(path);
        match describe(client, path, last).await {
            Ok(Some(object)) if args.json => lines.json(&object)?,
            Ok(Some(object)) => {
                for line in object.to_string().lines() {
                    lines.line(&[line.as_bytes()])?;
                }
            }
            Ok(None) => {
                let cells = client.cells().len();
                if args.json {
                    lines.json(&Root {
                        name: "/afs",
                        kind: "directory",
                        cells,
                    })?;
                } else {
                    let text = format!("  File: /afs\n  Type: directory of {cells} cells known");
                    for line in text.lines() {
                        lines.line(&[line.as_bytes()])?;
                    }
                }
            }
            Err(error) => {
                lines.flush()?;
                failures.note(error);
            }
        }
    }
    lines.flush()?;
    Ok(failures.exit_code())
}

/// The object at a path; `None` for `/afs` itself.
async fn describe(
    client: &Client,
    path: &[u8],
    last: LastLink,
) -> Result<Option<Object>, PathError> {
    let Walked::Node(node) = client.walk(path, last).await? else {
        return Ok(None);
    };
    let object = Object::new(path, &node.volume, node.fid, &node.status);
    if node.status.file_type != FileType::Symlink {
        return Ok(Some(object.with_mount(node.mount.as_ref())));
    }
    let data = client.read_link(&node.volume, node.fid).await;
    let data = data.map_err(|error| PathError {
        path: String::from_utf8_lossy(path).into_owned(),
        cause: PathCause::Cell(error),
    })?;
    Ok(Some(object.with_target(&node.status, &data)))
}
