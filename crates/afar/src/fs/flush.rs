//! `fs flush` and `flushvolume`: what a mount has cached is dropped.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use super::or_here;
use crate::output;

/// The attribute of a file by which a mount is told to drop what it has of it.
pub(super) const FILE: &str = "afs.flush";
/// The same of all that is in its volume.
pub(super) const VOLUME: &str = "afs.flushvolume";

/// Options of both.
#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    path: Vec<PathBuf>,
}

/// Has the mounts these paths are in drop what is cached.
pub(super) fn run(args: &FlushArgs, what: &str) -> anyhow::Result<ExitCode> {
    let mut exit = ExitCode::SUCCESS;
    for path in or_here(&args.path) {
        let Err(error) = setxattr(&path, what, b"1", XattrFlags::empty()) else {
            continue;
        };
        exit = ExitCode::FAILURE;
        let shown = path.display();
        let why = match error {
            Errno::OPNOTSUPP | Errno::PERM => "it is in no mount of afar".to_owned(),
            error => std::io::Error::from(error).to_string(),
        };
        output::usage(&format!("fs: {shown}: {why}\n"));
    }
    Ok(exit)
}
