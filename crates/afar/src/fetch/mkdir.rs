//! `afar mkdir`.

use std::path::PathBuf;
use std::process::ExitCode;

use afar_cell::{Client, LastLink, PathCause, PathError, Walked};
use afar_transfer::umask;
use afar_types::{FileType, StoreStatus};
use anyhow::Context;

use super::{Failures, Reach, bytes, shown};

/// Mode of a new directory, less the umask.
const MODE: u32 = 0o777;

/// Options of `afar mkdir`.
#[derive(Debug, clap::Args)]
pub(crate) struct MkdirArgs {
    /// Directories to create, under /afs
    #[arg(required = true, value_name = "DIRECTORY")]
    pub(super) directories: Vec<PathBuf>,
    /// Create parent directories as needed; no error if a directory exists
    #[arg(short = 'p', long)]
    parents: bool,
    /// Mode bits in octal; they mean little for a directory in AFS
    #[arg(short = 'm', long, value_name = "MODE", value_parser = octal)]
    mode: Option<u32>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

pub(super) async fn run(args: &MkdirArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let mut failures = Failures::new(&args.reach);
    let mode = args.mode.unwrap_or_else(|| MODE & !umask());
    for directory in &args.directories {
        let path = bytes(directory);
        let made = if args.parents {
            make_all(client, path, mode).await
        } else {
            make(client, path, mode).await
        };
        if let Err(error) = made {
            failures.note(error.context(shown(directory)));
        }
    }
    Ok(failures.exit_code())
}

async fn make(client: &Client, path: &[u8], mode: u32) -> anyhow::Result<()> {
    let slot = client.slot(path).await.map_err(|error| error.cause)?;
    if slot.fid.is_some() {
        anyhow::bail!("this name exists already; choose another");
    }
    let attributes = mode_only(mode);
    client
        .make_dir(&slot.volume, slot.directory, &slot.name, attributes)
        .await?;
    Ok(())
}

/// Makes a directory and those above it.
async fn make_all(client: &Client, path: &[u8], mode: u32) -> anyhow::Result<()> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends: Vec<_> = ends.map(|(at, _)| at).chain([path.len()]).collect();
    // From below, to where one is; then down again.
    let mut missing = Vec::new();
    for &end in ends.iter().rev() {
        match client.walk(&path[..end], LastLink::Follow).await {
            Ok(Walked::Afs) => break,
            Ok(Walked::Node(node)) if node.status.file_type == FileType::Directory => break,
            Ok(Walked::Node(_)) => anyhow::bail!("not a directory"),
            Err(PathError {
                cause: PathCause::NotFound,
                ..
            }) => missing.push(end),
            Err(error) => return Err(error.cause.into()),
        }
    }
    for &end in missing.iter().rev() {
        let part = String::from_utf8_lossy(&path[..end]).into_owned();
        match make(client, &path[..end], mode).await {
            // Empty parts of a path name what is before them.
            Err(_) if path[..end].ends_with(b"/") => {}
            other => other.with_context(|| part)?,
        }
    }
    Ok(())
}

pub(super) fn mode_only(mode: u32) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MODE,
        unix_mode_bits: mode,
        ..StoreStatus::default()
    }
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("give mode bits in octal, such as 755".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::octal;

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal("755"), Ok(0o755));
        assert_eq!(octal("0700"), Ok(0o700));
        for bad in ["8", "u+x", "", "17777"] {
            assert!(octal(bad).is_err(), "{bad}");
        }
    }
}
