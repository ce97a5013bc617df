//! `fs mkmount`, `rmmount` and `lsmount`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use afar_cell::{Client, Error, MountPoint, PathCause, Slot, Wanted};
use afar_types::{CellName, FileType};
use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::report::Report;
use super::{Common, absolute};

/// Bytes a volume's name may have here.
const VOLUME_NAME_MAX: usize = 63;

/// Options of `fs mkmount`.
#[derive(Debug, Args)]
pub(crate) struct MakeArgs {
    /// directory
    #[arg(long, required = true, value_name = "directory")]
    pub(super) dir: PathBuf,
    /// volume name
    #[arg(long, required = true, value_name = "volume name")]
    vol: String,
    /// cell name
    #[arg(long, value_name = "cell name")]
    cell: Option<String>,
    /// force r/w volume
    #[arg(long)]
    rw: bool,
    /// don't check name with VLDB
    #[arg(long)]
    fast: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs rmmount` and `fs lsmount`.
#[derive(Debug, Args)]
pub(crate) struct DirArgs {
    /// directory
    #[arg(long, required = true, value_name = "directory")]
    pub(super) dir: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// A mount point in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    path: &'a str,
    mount_point: &'a str,
    through_symlink: bool,
}

/// What a name in a directory is.
enum Named {
    Mount(String),
    /// Where it leads.
    Symlink(PathBuf),
    Other,
}

pub(super) async fn make(
    client: &Client,
    report: &mut Report,
    args: &MakeArgs,
) -> anyhow::Result<()> {
    let (named, volume) = match args.vol.split_once(':') {
        Some((cell, volume)) => (Some(cell), volume),
        None => (None, args.vol.as_str()),
    };
    if volume.len() > VOLUME_NAME_MAX {
        bail!("volume name too long (length must be < 64 characters)");
    }
    if let (Some(named), Some(cell)) = (named, &args.cell)
        && !named.eq_ignore_ascii_case(cell)
    {
        bail!("cellnames do not match.");
    }
    let cell: Option<CellName> = match named.or(args.cell.as_deref()) {
        Some(cell) => Some(cell.parse()?),
        None => None,
    };
    let path = args.dir.display().to_string();
    let slot = match slot(client, &args.dir).await {
        Ok(slot) => slot,
        Err(PathCause::NotAfs | PathCause::CellRoot) => {
            bail!("mount points must be created within the AFS file system")
        }
        Err(cause) => return report.fail(&path, &cause),
    };
    if !args.fast {
        warn_if_missing(client, report, &slot, cell.as_ref(), volume).await?;
    }
    let mount = MountPoint {
        read_write: args.rw,
        cell,
        volume: volume.to_owned(),
    };
    let made = client.make_mount(&slot.volume, slot.directory, &slot.name, &mount);
    if let Err(error) = made.await {
        report.fail(&path, &error.into())?;
    }
    Ok(())
}

/// Warns of a volume that does not exist. That this cannot be found out is no reason not to go on.
async fn warn_if_missing(
    client: &Client,
    report: &mut Report,
    slot: &Slot,
    cell: Option<&CellName>,
    volume: &str,
) -> anyhow::Result<()> {
    let name = cell.unwrap_or_else(|| slot.volume.cell_name());
    let Ok(cell) = client.cell(name).await else {
        return Ok(());
    };
    match client.volume(&cell, volume, Wanted::PreferReadWrite).await {
        Err(Error::NoSuchVolume { .. }) => {
            let text = format!("fs: warning, volume {volume} does not exist in cell {name}.\n");
            report.warn(&text)
        }
        _ => Ok(()),
    }
}

pub(super) async fn remove(
    client: &Client,
    report: &mut Report,
    args: &DirArgs,
) -> anyhow::Result<()> {
    for path in &args.dir {
        let shown = path.display().to_string();
        let removed = async {
            let slot = slot(client, path).await?;
            let entry = slot.entry().ok_or(PathCause::NotFound)?;
            let Named::Mount(_) = named(client, path, &slot).await? else {
                return Ok(false);
            };
            client
                .remove_file(&slot.volume, slot.directory, &entry)
                .await?;
            Ok(true)
        };
        match removed.await {
            Ok(true) => {}
            Ok(false) => report.say(&format!("fs: '{shown}' is not a mount point.\n"))?,
            Err(cause) => report.fail(&shown, &cause)?,
        }
    }
    Ok(())
}

pub(super) async fn list(
    client: &Client,
    report: &mut Report,
    args: &DirArgs,
) -> anyhow::Result<()> {
    for path in &args.dir {
        let path_text = path.display().to_string();
        let found = async {
            let first = slot(client, path).await?;
            match named(client, path, &first).await? {
                Named::Mount(text) => Ok(Some((text, false))),
                Named::Other => Ok(None),
                // One link is followed, as OpenAFS's fs does.
                Named::Symlink(target) => {
                    let second = slot(client, &target).await?;
                    match named(client, &target, &second).await? {
                        Named::Mount(text) => Ok(Some((text, true))),
                        _ => Ok(None),
                    }
                }
            }
        };
        match found.await {
            Ok(Some((text, through_symlink))) => {
                let shown = Shown {
                    path: &path_text,
                    mount_point: &text,
                    through_symlink,
                };
                let link = match through_symlink {
                    true => "symbolic link, leading to a ",
                    false => "",
                };
                report.either(&shown, || {
                    format!("'{path_text}' is a {link}mount point for volume '{text}'\n")
                })?;
            }
            Ok(None) => report.say(&format!("'{path_text}' is not a mount point.\n"))?,
            Err(cause) => report.fail(&path_text, &cause)?,
        }
    }
    Ok(())
}

async fn slot(client: &Client, path: &Path) -> Result<Slot, PathCause> {
    let path = absolute(path).ok_or(PathCause::NotAfs)?;
    let slot = client.slot(path.as_os_str().as_bytes()).await;
    slot.map_err(|error| error.cause)
}

/// What has the name that a path ends in.
async fn named(client: &Client, path: &Path, slot: &Slot) -> Result<Named, PathCause> {
    let fid = slot.fid.ok_or(PathCause::NotFound)?;
    if fid.vnode.is_directory() {
        return Ok(Named::Other);
    }
    let status = client.status(&slot.volume, fid).await?;
    if status.file_type != FileType::Symlink {
        return Ok(Named::Other);
    }
    let data = client.read_link(&slot.volume, fid).await?;
    if status.is_mount_point() {
        // Clients do not show the dot at its end.
        let text = String::from_utf8_lossy(&data).into_owned();
        let text = text.strip_suffix('.').unwrap_or(&text);
        return Ok(Named::Mount(text.to_owned()));
    }
    let above = path.parent().unwrap_or_else(|| Path::new("/"));
    Ok(Named::Symlink(above.join(OsStr::from_bytes(&data))))
}
