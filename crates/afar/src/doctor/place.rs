//! Which server, and which file of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afar_cell::{Client, LastLink, Node, Secured, Walked};
use afar_doctor::File;
use afar_net::{ClientSecurity, RxNull};
use afar_security::Level;
use afar_server::resolve;
use afar_types::{CellName, FileType};
use anyhow::{Context, bail, ensure};
use tokio::time::timeout;

use crate::advice;
use crate::mount::path_in_afs;

/// The port of file servers.
const FILE_PORT: u16 = 7000;
/// How long finding a file may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Files of a directory among which the largest is looked for.
const ENTRIES_MOST: usize = 200;

/// What the command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A server.
    Host(String),
    /// A path in AFS, from the root on.
    Path(PathBuf),
}

/// Where to measure.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) server: SocketAddr,
    pub(super) file: Option<File>,
    pub(super) databases: Vec<SocketAddr>,
    /// What was not found.
    pub(super) note: Option<String>,
}

impl Target {
    /// What has a slash is a path; so are `.` and `..`.
    pub(super) fn parse(text: &str) -> Self {
        if !text.contains('/') && text != "." && text != ".." {
            return Self::Host(text.to_owned());
        }
        let path = std::path::absolute(text).unwrap_or_else(|_| text.into());
        Self::Path(path_in_afs(&path).unwrap_or(path))
    }

    pub(super) fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Host(_) => None,
            Self::Path(path) => Some(path),
        }
    }
}

/// Finds the server, the file, and the database servers of the cell.
///
/// # Errors
/// There is no such host, path or cell. If only the path cannot be followed, the cell's first database server is
/// measured instead, and a note says why.
pub(super) async fn find(
    client: &Client,
    target: &Target,
    cell: Option<&CellName>,
    level: Level,
) -> anyhow::Result<Found> {
    match target {
        Target::Host(host) => {
            let wrong = || {
                format!(
                    "doctor: {host}: give a host's name or address, HOST:PORT, or a path in AFS"
                )
            };
            let addresses = resolve::addresses(host, FILE_PORT)
                .await
                .with_context(wrong)?;
            let Some(server) = addresses.first().copied() else {
                bail!("{}: it has no IPv4 address", wrong());
            };
            let databases = match cell {
                Some(cell) => databases(client, cell).await?,
                None => Vec::new(),
            };
            Ok(Found {
                server,
                file: None,
                databases,
                note: None,
            })
        }
        Target::Path(path) => find_path(client, path, level).await,
    }
}

async fn find_path(client: &Client, path: &Path, level: Level) -> anyhow::Result<Found> {
    let shown = path.display();
    let name = cell_of(path).with_context(|| {
        format!("doctor: {shown}: give a path below /afs/CELL, or in a mount of `afar mount`")
    })?;
    let databases = databases(client, &name).await?;
    let found = timeout(LIMIT, largest(client, path)).await;
    let problem = match found {
        Ok(Ok(node)) => {
            let sites = node.volume.sites();
            let server = sites.first().map(|site| site.address());
            let server =
                server.with_context(|| format!("doctor: {shown}: its volume has no site"))?;
            let secured = secured(client, node.volume.cell_name()).await?;
            let is_file = node.status.file_type == FileType::File;
            let file = is_file.then(|| File {
                fid: node.fid,
                length: node.status.length,
                sealed: secured.is_some() && level == Level::Crypt,
                security: secured.map_or_else(
                    || Arc::new(RxNull) as Arc<dyn ClientSecurity>,
                    |secured| secured.security,
                ),
            });
            let note = file.is_none().then(|| format!("data: {shown} has no file"));
            return Ok(Found {
                server,
                file,
                databases,
                note,
            });
        }
        Ok(Err(error)) => advice::told(&error),
        Err(_late) => "its servers do not answer in time".to_owned(),
    };
    let server = *databases
        .first()
        .with_context(|| format!("doctor: {shown}: {problem}"))?;
    Ok(Found {
        server,
        file: None,
        databases,
        note: Some(format!(
            "data: {problem}; a database server was measured instead"
        )),
    })
}

/// What a path leads to; of a directory, the largest of its files.
async fn largest(client: &Client, path: &Path) -> anyhow::Result<Node> {
    let place = client.walk(path.as_os_str().as_encoded_bytes(), LastLink::Follow);
    let Walked::Node(node) = place.await? else {
        bail!("{}: give a path in one cell", path.display());
    };
    if node.status.file_type != FileType::Directory {
        return Ok(node);
    }
    let entries = client.list(&node.volume, node.fid).await?;
    let fids = entries.iter().map(|entry| entry.fid);
    let fids: Vec<_> = fids
        .filter(|fid| !fid.vnode.is_directory())
        .take(ENTRIES_MOST)
        .collect();
    let statuses = client.statuses(&node.volume, &fids).await;
    let files = fids.into_iter().zip(statuses).filter_map(|(fid, status)| {
        let status = status
            .ok()
            .filter(|status| status.file_type == FileType::File)?;
        Some((fid, status))
    });
    Ok(match files.max_by_key(|(_, status)| status.length) {
        Some((fid, status)) => Node {
            fid,
            status,
            ..node
        },
        None => node,
    })
}

async fn databases(client: &Client, cell: &CellName) -> anyhow::Result<Vec<SocketAddr>> {
    let servers: Vec<_> = client.cell(cell).await?.servers().collect();
    ensure!(
        !servers.is_empty(),
        "doctor: cell {cell} has no database servers"
    );
    Ok(servers)
}

/// How the client is seen by the cell's servers.
async fn secured(client: &Client, cell: &CellName) -> anyhow::Result<Option<Secured>> {
    let Some(credentials) = client.config().credentials.clone() else {
        return Ok(None);
    };
    let cell = cell.clone();
    let asked = tokio::task::spawn_blocking(move || credentials.security(&cell, None));
    let answer = asked
        .await
        .context("doctor: the search for a token failed")?;
    answer.map_err(|problem| anyhow::anyhow!("doctor: {problem}"))
}

/// The cell of `/afs/CELL/…` and `/afs/.CELL/…`.
fn cell_of(path: &Path) -> Option<CellName> {
    let below = path.strip_prefix("/afs").ok()?;
    let name = below.iter().next()?.to_str()?;
    name.strip_prefix('.').unwrap_or(name).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_slash_is_a_path() {
        let host = |text: &str| Target::Host(text.to_owned());
        assert_eq!(Target::parse("fs1.example.org"), host("fs1.example.org"));
        assert_eq!(Target::parse("192.0.2.1:7003"), host("192.0.2.1:7003"));
        let path = Target::parse("/afs/a.org/x");
        assert_eq!(path, Target::Path("/afs/a.org/x".into()));
        assert!(matches!(Target::parse("."), Target::Path(_)));
    }

    #[test]
    fn paths_have_cells() {
        let cell = |path: &str| cell_of(Path::new(path)).map(|cell| cell.to_string());
        assert_eq!(cell("/afs/a.org/x").as_deref(), Some("a.org"));
        assert_eq!(cell("/afs/.a.org").as_deref(), Some("a.org"));
        assert_eq!((cell("/afs"), cell("/srv/a.org")), (None, None));
    }
}
