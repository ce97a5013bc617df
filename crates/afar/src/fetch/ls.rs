//! `afar ls`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_cell::{Client, LastLink, Node, PathCause, PathError, Volume, Walked};
use afar_types::{FetchStatus, Fid, FileType, VolumeId};
use bytes::Bytes;
use tokio::task::JoinSet;

use super::format::{self, Lines};
use super::object::Object;
use super::{Failures, Reach, bytes};

/// Symlinks read at a time.
const LINKS: usize = 32;

/// Options of `afar ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Paths under /afs; /afs itself lists the known cells
    #[arg(value_name = "PATH", default_value = "/afs")]
    pub(super) paths: Vec<PathBuf>,
    /// Show mode, links, owner, group, length, time (UTC), and targets of symlinks and mount points (m)
    #[arg(short = 'l')]
    long: bool,
    /// Include names that start with a dot
    #[arg(short = 'a', long)]
    all: bool,
    /// List directories themselves, not their contents
    #[arg(short = 'd', long)]
    directory: bool,
    /// List subdirectories recursively, through mount points
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print one JSON object for each entry, one a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// A line of the list.
struct Entry {
    name: Vec<u8>,
    fid: Fid,
    status: Option<FetchStatus>,
    /// What a symlink or mount point says.
    target: Option<Bytes>,
}

/// A directory yet to be listed.
struct Pending {
    path: Vec<u8>,
    volume: Arc<Volume>,
    fid: Fid,
    status: Option<FetchStatus>,
    /// The volumes above it.
    above: Vec<VolumeId>,
}

struct Listing<'a> {
    args: &'a LsArgs,
    client: &'a Client,
    lines: Lines,
    failures: Failures,
    /// Whether a block of lines was printed.
    printed: bool,
    /// Whether each directory is named before its entries.
    headings: bool,
}

pub(super) async fn run(args: &LsArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut listing = Listing {
        args,
        client,
        lines: Lines::new(),
        failures: Failures::new(&args.reach),
        printed: false,
        headings: args.paths.len() > 1 || args.recursive,
    };
    let (mut files, mut directories) = (Vec::new(), VecDeque::new());
    let last = if args.long || args.directory {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    for path in &args.paths {
        let path = bytes(path);
        match client.walk(path, last).await {
            Ok(Walked::Afs) => listing.cells()?,
            Ok(Walked::Node(node)) => {
                if node.status.file_type == FileType::Directory && !args.directory {
                    directories.push_back(pending(path, node));
                } else {
                    files.push((path.to_vec(), node));
                }
            }
            Err(error) => listing.failed(error)?,
        }
    }
    for (path, node) in files {
        let mut entry = [Entry {
            name: path,
            fid: node.fid,
            status: Some(node.status),
            target: None,
        }];
        listing.read_links(&node.volume, &mut entry).await?;
        listing.print(&node.volume, b"", &entry)?;
        listing.printed = true;
    }
    while let Some(directory) = directories.pop_front() {
        match listing.directory(&directory).await {
            // The directories below come next, in their order.
            Ok(below) => below
                .into_iter()
                .rev()
                .for_each(|below| directories.push_front(below)),
            Err(error) => {
                let cause = error.downcast::<PathCause>()?;
                listing.failed(named(&directory.path, cause))?;
            }
        }
    }
    listing.lines.flush()?;
    Ok(listing.failures.exit_code())
}

fn pending(path: &[u8], node: Node) -> Pending {
    Pending {
        path: path.to_vec(),
        volume: node.volume,
        fid: node.fid,
        status: Some(node.status),
        above: Vec::new(),
    }
}

fn named(path: &[u8], cause: impl Into<PathCause>) -> PathError {
    PathError {
        path: String::from_utf8_lossy(path).into_owned(),
        cause: cause.into(),
    }
}

impl Listing<'_> {
    /// The cells known, as entries of `/afs`.
    fn cells(&mut self) -> anyhow::Result<()> {
        let mut cells: Vec<_> = self
            .client
            .cells()
            .into_iter()
            .map(|cell| cell.name)
            .collect();
        cells.sort();
        for cell in cells {
            if self.args.json {
                self.lines
                    .json(&serde_json::json!({ "name": cell.as_str(), "type": "cell" }))?;
            } else {
                self.lines.line(&[cell.as_str().as_bytes()])?;
            }
        }
        if let Some(database) = self.client.database() {
            for line in &database.bad_lines {
                let text = format!("{}: {line}; mend it", database.path.display());
                crate::output::note(&text);
            }
        }
        Ok(())
    }

    /// Prints what a directory holds; returns the directories to be listed after it.
    async fn directory(&mut self, directory: &Pending) -> anyhow::Result<Vec<Pending>> {
        let (client, volume) = (self.client, &directory.volume);
        let list = client.list(volume, directory.fid).await;
        let list = list.map_err(PathCause::Cell)?;
        let mut entries: Vec<_> = list
            .into_iter()
            .filter(|entry| self.args.all || !entry.name.starts_with(b"."))
            .map(|entry| Entry {
                name: entry.name,
                fid: entry.fid,
                status: None,
                target: None,
            })
            .collect();
        if self.args.all && !self.args.json {
            for name in [b".".as_slice(), b".."] {
                entries.push(Entry {
                    name: name.to_vec(),
                    fid: directory.fid,
                    status: directory.status,
                    target: None,
                });
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        if self.args.long || self.args.json || self.args.recursive {
            self.read_status(volume, &directory.path, &mut entries)
                .await?;
        }
        if self.args.long || self.args.json {
            self.read_links(volume, &mut entries).await?;
        }
        if self.headings && !self.args.json {
            if std::mem::replace(&mut self.printed, true) {
                self.lines.line(&[])?;
            }
            self.lines.line(&[&directory.path, b":"])?;
        }
        self.print(volume, &directory.path, &entries)?;
        if self.args.recursive {
            self.below(directory, &entries).await
        } else {
            Ok(Vec::new())
        }
    }

    /// The directories among the entries, and those behind mount points.
    async fn below(
        &mut self,
        directory: &Pending,
        entries: &[Entry],
    ) -> anyhow::Result<Vec<Pending>> {
        let mut below = Vec::new();
        for entry in entries {
            let Some(status) = entry.status else { continue };
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = join(&directory.path, &entry.name);
            if status.file_type == FileType::Directory {
                below.push(Pending {
                    path,
                    volume: Arc::clone(&directory.volume),
                    fid: entry.fid,
                    status: Some(status),
                    above: directory.above.clone(),
                });
            } else if status.is_mount_point() {
                match self.client.cross(&directory.volume, entry.fid).await {
                    Ok(node) => {
                        let mut above = directory.above.clone();
                        above.push(directory.volume.id());
                        if above.contains(&node.volume.id()) {
                            let text = format!(
                                "{}: not listed, because it leads back to volume {} above it",
                                String::from_utf8_lossy(&path),
                                node.volume
                            );
                            crate::output::note(&text);
                            continue;
                        }
                        below.push(Pending {
                            above,
                            ..pending(&path, node)
                        });
                    }
                    Err(cause) => self.failed(named(&path, cause))?,
                }
            }
        }
        Ok(below)
    }

    /// Asks for the status of all entries that have none.
    async fn read_status(
        &mut self,
        volume: &Arc<Volume>,
        path: &[u8],
        entries: &mut [Entry],
    ) -> anyhow::Result<()> {
        let missing: Vec<_> = entries
            .iter_mut()
            .filter(|entry| entry.status.is_none())
            .collect();
        let fids: Vec<_> = missing.iter().map(|entry| entry.fid).collect();
        let statuses = self.client.statuses(volume, &fids).await;
        for (entry, status) in missing.into_iter().zip(statuses) {
            match status {
                Ok(status) => entry.status = Some(status),
                Err(error) => self.failed(named(&join(path, &entry.name), error))?,
            }
        }
        Ok(())
    }

    /// Reads symlinks and mount points, many at a time.
    async fn read_links(
        &mut self,
        volume: &Arc<Volume>,
        entries: &mut [Entry],
    ) -> anyhow::Result<()> {
        let is_link = |entry: &Entry| {
            entry
                .status
                .is_some_and(|status| status.file_type == FileType::Symlink)
        };
        let places: Vec<_> = (0..entries.len())
            .filter(|&place| entries.get(place).is_some_and(is_link))
            .collect();
        let mut waiting = places.into_iter();
        let mut running = JoinSet::new();
        loop {
            while running.len() < LINKS
                && let Some(place) = waiting.next()
            {
                let (client, volume) = (self.client.clone(), Arc::clone(volume));
                let fid = entries[place].fid;
                running.spawn(async move { (place, client.read_link(&volume, fid).await) });
            }
            let Some(joined) = running.join_next().await else {
                return Ok(());
            };
            let (place, data) = joined?;
            match data {
                Ok(data) => entries[place].target = Some(data),
                Err(error) => {
                    let error = named(&entries[place].name, error);
                    self.failed(error)?;
                }
            }
        }
    }

    fn print(
        &mut self,
        volume: &Arc<Volume>,
        path: &[u8],
        entries: &[Entry],
    ) -> anyhow::Result<()> {
        if self.args.json {
            for entry in entries {
                let Some(status) = entry.status else { continue };
                let name = join(path, &entry.name);
                let mut object = Object::new(&name, volume, entry.fid, &status);
                if let Some(data) = &entry.target {
                    object = object.with_target(&status, data);
                }
                self.lines.json(&object)?;
            }
        } else if self.args.long {
            self.print_long(entries)?;
        } else {
            for entry in entries {
                self.lines.line(&[&entry.name])?;
            }
        }
        Ok(())
    }

    fn print_long(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        let width = |number: fn(&FetchStatus) -> String| {
            let statuses = entries.iter().filter_map(|entry| entry.status);
            statuses
                .map(|status| number(&status).len())
                .max()
                .unwrap_or(1)
        };
        let links = width(|status| status.link_count.to_string());
        let owner = width(|status| status.owner.to_string());
        let group = width(|status| status.group.to_string());
        let length = width(|status| status.length.to_string());
        for entry in entries {
            let front = match &entry.status {
                Some(status) => format!(
                    "{} {:>links$} {:>owner$} {:>group$} {:>length$} {} ",
                    format::mode(status),
                    status.link_count,
                    status.owner.0,
                    status.group.0,
                    status.length,
                    format::time(status.client_mod_time),
                ),
                None => format!(
                    "?????????? {:>links$} {:>owner$} {:>group$} {:>length$} {:>19} ",
                    "?", "?", "?", "?", "?"
                ),
            };
            match &entry.target {
                Some(target) => {
                    let parts = [front.as_bytes(), &entry.name, b" -> ", target];
                    self.lines.line(&parts)?;
                }
                None => self.lines.line(&[front.as_bytes(), &entry.name])?,
            }
        }
        Ok(())
    }

    /// Prints an error, after what was listed before it.
    fn failed(&mut self, error: PathError) -> anyhow::Result<()> {
        self.lines.flush()?;
        self.failures.note(error);
        Ok(())
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        [.., b'/'] => [directory, name].concat(),
        _ => [directory, b"/", name].concat(),
    }
}
